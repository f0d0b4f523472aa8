"""I6: kill -9 of anything at any moment. No survivor waits longer than the hold time because of Opus,
nothing is left behind (every case checks), and what is started again serves again.

OPUS_KILLS: how often each is tried (default 2; `make soak` more). OPUS_RANDOM_SEED: the first seed.
"""
import os
import random
import sys
import time

from cases import SLOW, case, expect, run, wait_for
from cluster import Play, Shape
from workload_text import Workload, grid

KILLS = int(os.environ.get("OPUS_KILLS", "2"))
FIRST = int(os.environ.get("OPUS_RANDOM_SEED", "1"))
SHAPE = Shape(nodes=2, gpus=2, ports=2, dark_ms=2)
RING = Shape(nodes=3, gpus=1, ports=2, dark_ms=2)
HOLD_S = 2 * SLOW
PATIENCE_S = HOLD_S + 6 * SLOW  # a rank's own, beyond which it calls itself hung


def rails(iterations: int) -> Workload:
    """Always the same circuits: what survives needs no more moves."""
    w = Workload("rails", grid(2, 2), iterations)
    w.comm("rails", [[0, 2], [1, 3]])
    for rank in range(4):
        for _ in range(4):
            w.step(rank, "compute", stream="s", us=1000)
            w.step(rank, "all_reduce", comm="rails", stream="s", bytes=40_000, dtype="float32")
    return w


def moving(iterations: int) -> Workload:
    """Pairs of three nodes in turn, then all: circuits move all the time."""
    w = Workload("moving", grid(3, 1), iterations)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        w.comm(f"p{a}{b}", [[a, b]])
    w.comm("all", [[0, 1, 2]])
    for a, b in ((0, 1), (1, 2), (0, 2)):
        w.collective("all_reduce", f"p{a}{b}", [a, b], size=40_000)
    w.collective("all_gather", "all", [0, 1, 2], size=10_000)
    return w


def start(cluster, workload: Workload, gate: str, patience_s: float = PATIENCE_S, name: str = "job"):
    path = workload.write(cluster.folder / f"{name}.jsonl")
    job = cluster.start_job(Play(path, timeout_s=patience_s, env={
        "OPUS_GATE": gate, "OPUS_REQUIRE": "1", "OPUS_HOLD_MS": str(int(HOLD_S * 1000))}), name)
    # All of it: over circuits that were never lit nobody can go on, and the doubles have no other network.
    wait_for(lambda: job.progress() >= 1, "the job to begin", job)
    return job


def moments(what: str):
    """(gate, random source) of each try."""
    for seed in range(FIRST, FIRST + KILLS):
        source = random.Random(f"{what}-{seed}")
        yield ("stream", "host")[seed % 2], source


def some_moment(source: random.Random) -> None:
    time.sleep(source.uniform(0, 0.3))


def serves_again(cluster, workload: Workload, gate: str) -> None:
    path = workload.write(cluster.folder / "again.jsonl")
    before = cluster.light()
    cluster.run_job(Play(path, timeout_s=20 * SLOW, env={"OPUS_GATE": gate, "OPUS_REQUIRE": "1"}), 40 * SLOW, "again")
    light = cluster.light() - before
    expect(light.delivered_bytes > 0, "no byte crossed")
    expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"the job after it lost bytes: {light}")


@case("a rank is killed: the others end by themselves and the next job is served")
def rank(context) -> None:
    for gate, source in moments("rank"):
        with context.cluster(RING) as cluster:
            job = start(cluster, moving(100_000), gate)
            some_moment(source)
            job.ranks[source.randrange(3)].kill()
            job.wait(60 * SLOW + PATIENCE_S, expect_failure=True)  # by NCCL's error or their own patience, not by us
            until = time.monotonic() + 5 * SLOW
            while (waiting := cluster.waiting()) and time.monotonic() < until:
                time.sleep(0.1)
            expect(not waiting, f"launches of a dead job still wait: {waiting}")
            serves_again(cluster, moving(3), gate)


@case("a rank is killed: what its peer has not received is an error of NCCL, no wrong result")
def undone(context) -> None:
    shape = Shape(nodes=2, gpus=1, ports=1)
    w = Workload("undone", grid(2, 1), iterations=3)
    w.comm("pair", [[0, 1]])
    w.step(0, "recv", comm="pair", peer=1, bytes=40_000, stream="s")
    w.step(1, "send", comm="pair", peer=0, bytes=40_000, stream="s")
    w.step(1, "host", us=60_000_000, every=2)  # the second time it is sent, but the third it is not
    with context.cluster(shape, opus=False) as cluster:
        job = cluster.start_job(Play(w.write(cluster.folder / "job.jsonl"), shim=False, steered=False, timeout_s=PATIENCE_S), "job")
        wait_for(lambda: job.progress(0) >= 2, "the job to begin its last iteration", job)
        job.ranks[1].kill()
        codes = job.wait(60 * SLOW + PATIENCE_S, expect_failure=True).codes
        said = job.ranks[0].output()
        expect("wrong result" not in said and codes[0] == 3, f"{codes}: {said}")


@case("a manager is killed: its ranks go on after the hold time")
def manager(context) -> None:
    for gate, source in moments("manager"):
        with context.cluster(SHAPE) as cluster:
            job = start(cluster, rails(150), gate)
            some_moment(source)
            cluster.managers[source.randrange(2)].kill()
            result = job.wait(60 * SLOW + PATIENCE_S)
            expect(result.total("mismatches") == 0, "a result was wrong")


@case("a manager is killed and started again: it finds the living ranks and the job goes on")
def manager_again(context) -> None:
    for gate, source in moments("manager again"):
        with context.cluster(RING) as cluster:
            job = start(cluster, moving(60), gate)
            some_moment(source)
            cluster.restart_manager(source.randrange(3))
            job.wait(60 * SLOW + PATIENCE_S)
            serves_again(cluster, moving(2), gate)


@case("the controller is killed: the ranks go on after the hold time")
def controller(context) -> None:
    for gate, source in moments("controller"):
        with context.cluster(SHAPE) as cluster:
            job = start(cluster, rails(150), gate)
            some_moment(source)
            cluster.controller.kill()
            result = job.wait(60 * SLOW + PATIENCE_S)
            expect(result.total("mismatches") == 0, "a result was wrong")


@case("the controller is killed and started again: the job goes on")
def controller_again(context) -> None:
    for gate, source in moments("controller again"):
        with context.cluster(RING) as cluster:
            job = start(cluster, moving(60), gate)
            some_moment(source)
            cluster.restart_controller()
            job.wait(60 * SLOW + PATIENCE_S)
            serves_again(cluster, moving(2), gate)


@case("a switch is killed and started again: nobody hangs and the next job is served")
def emulator(context) -> None:
    for gate, source in moments("emulator"):
        with context.cluster(RING) as cluster:
            job = start(cluster, moving(100_000), gate)
            some_moment(source)
            cluster.restart_emulator(0)
            time.sleep(HOLD_S)
            job.stop()
            serves_again(cluster, moving(2), gate)


if __name__ == "__main__":
    sys.exit(run())
