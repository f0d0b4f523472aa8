"""A launch that does not end while the launch ring goes round (include/opus/launch_ring.h, "Which slots are free"): a
receive posted thousands of launches before its sender. Nothing passes unrecorded, nothing is degraded."""
import sys

from cases import SLOW, case, expect, nothing_in_the_dark, run, wait_for
from cluster import Play, Shape
from rings import rings
from workload_text import Workload, grid

SHAPE = Shape(nodes=2, gpus=1, ports=2, dark_ms=1)
SLOTS = 4096  # as they are where nobody says otherwise
FEW = 64
SIZE = 64


def early(launches: int, iterations: int, receives: int = 1, grouped: int = 1) -> Workload:
    """Rank 0 posts receives, each on a stream of its own, then does all that rank 1 must see through before it sends."""
    w = Workload("early", grid(2, 1), iterations)
    names = [f"early{i}" for i in range(receives)]
    for name in (*names, "dp"):
        w.comm(name, [[0, 1]])
    w.collective("all_reduce", "dp", [0, 1], size=SIZE, first_only=True)
    for name in names:  # what is used for the first time is held on the host
        for rank, do in ((1, "send"), (0, "recv")):
            w.step(rank, do, comm=name, peer=1 - rank, stream="s", bytes=SIZE, first_only=True)
    for i, name in enumerate(names):
        w.step(0, "recv", comm=name, peer=1, stream=f"r{i}", bytes=SIZE)
    for _ in range(launches):
        for rank in (0, 1):
            if grouped > 1:
                w.step(rank, "group_begin")
            for _ in range(grouped):
                w.step(rank, "all_reduce", comm="dp", stream="s", bytes=SIZE)
            if grouped > 1:
                w.step(rank, "group_end")
    for name in names:
        w.step(1, "send", comm=name, peer=0, stream="s", bytes=SIZE)
    return w


def start(cluster, workload: Workload, **settings: str):
    return cluster.start_job(Play(workload.write(cluster.folder / "early.jsonl"), timeout_s=60 * SLOW, env={
        "OPUS_GATE": "stream", "OPUS_REQUIRE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "OPUS_RING_WAIT_MS": str(20_000 * SLOW),  # a busy machine, or one without a manager for a moment, is no full ring
        **settings}))


def nothing_passed(cluster, job) -> None:
    result = job.wait(120 * SLOW)
    expect(result.total("mismatches") == 0, "a result was wrong")
    nothing_in_the_dark(cluster, job)
    for what in (cluster.managers[0].output(), cluster.controller.output(), *(rank.output() for rank in job.ranks)):
        for word in ("unrecorded", "degraded", "ring is full", "ring is broken", "no longer held"):
            expect(word not in what, f"{word}: {what[-2000:]}")


@case("a receive posted more launches before its sender than the ring has slots")
def usual(context) -> None:
    with context.cluster(SHAPE) as cluster:
        job = start(cluster, early(SLOTS + 500, iterations=1))
        nothing_passed(cluster, job)


@case("receives posted early, several rounds of a small ring before their senders")
def several(context) -> None:
    with context.cluster(SHAPE) as cluster:
        job = start(cluster, early(6 * FEW, iterations=3, receives=5), OPUS_RING_SLOTS=str(FEW))
        nothing_passed(cluster, job)


@case("launches of several slots find room beside a receive posted early")
def groups(context) -> None:
    with context.cluster(SHAPE) as cluster:
        job = start(cluster, early(FEW, iterations=3, receives=2, grouped=9), OPUS_RING_SLOTS=str(FEW))
        nothing_passed(cluster, job)


@case("a manager is killed after the ring has gone round beside a receive: the next one finds it, and the job goes on")
def killed(context) -> None:
    with context.cluster(SHAPE) as cluster:
        job = start(cluster, early(3000, iterations=1), OPUS_RING_SLOTS=str(FEW), OPUS_HOLD_MS=str(40_000 * SLOW))
        for _ in range(3):
            ring, = wait_for(lambda: rings(cluster, 0), "a ring", job)
            before = ring.head()
            wait_for(lambda: ring.head() > before + 4 * FEW, "the ring to go round", job)
            cluster.restart_manager(0)
        nothing_passed(cluster, job)


if __name__ == "__main__":
    sys.exit(run())
