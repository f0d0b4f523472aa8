"""Launches released early inside a run (docs/protocol.md, "Early release"), when something takes the run away or dies: whoever
starts has its circuits, and nothing hangs. What is released is read from the rings, as a manager would."""
import contextlib
import signal
import sys
import time

from cases import SLOW, case, expect, nothing_in_the_dark, run, wait_for
from cluster import Play, Shape
from rings import GO, READY, rings
from workload_text import Workload

SHAPE = Shape(nodes=4, gpus=2, ports=1, dark_ms=2)
SIZE = 40_000
ENDLESS = 1_000_000  # iterations
HOLD_MS = 20_000 * SLOW  # nobody is to wait so long


def phases(launches: int, us: int) -> Workload:
    """Long phases of n0 and n1, and short ones of each with n2, all of rail 0: what a run is for."""
    w = Workload("phases", [(0, 0), (1, 0), (2, 0)], ENDLESS)
    w.comm("long", [[0, 1]])
    w.comm("p12", [[1, 2]])
    w.comm("p02", [[0, 2]])
    for _ in range(launches):
        for rank in (0, 1):
            w.step(rank, "compute", stream="s", us=us)
        w.collective("all_reduce", "long", [0, 1], size=SIZE)
    for a, b in ((1, 2), (0, 2)):
        w.collective("all_reduce", f"p{a}{b}", [a, b], size=SIZE)
    return w


def passing(iterations: int = ENDLESS) -> Workload:
    """Another job, of n1 and n3: over the port that n1's long phases use."""
    w = Workload("passing", [(1, 0), (3, 0)], iterations)
    w.comm("across", [[0, 1]])
    w.step(0, "compute", stream="s", us=20_000)
    w.send("across", 0, 1, SIZE)
    return w


def launch(cluster, workload: Workload, name: str):
    path = workload.write(cluster.folder / f"{name}.jsonl")
    return cluster.start_job(Play(path, timeout_s=60 * SLOW, env={
        "OPUS_GATE": "stream", "OPUS_REQUIRE": "1", "OPUS_HOLD_MS": str(HOLD_MS)}), name)


def start(cluster, workload: Workload, name: str):
    job = launch(cluster, workload, name)
    wait_for(lambda: job.progress() >= 1, "the job to begin", job)
    return job


def gates(cluster, node: int) -> tuple[int, int]:
    """Launches of this node's ranks that were let go and are not ready, and those retracted and not released again."""
    released = back = 0
    for ring in rings(cluster, node):
        go = ring.words(GO)  # first: one that is reached in between does not count
        for slot, (word, ready) in enumerate(zip(go, ring.words(READY))):
            retracted = word % ring.slots == slot  # else its number and one
            released += word > ready and not retracted
            back += word > 0 and retracted
    return released, back


def await_ahead(cluster, job, node: int = 0) -> None:
    wait_for(lambda: gates(cluster, node)[0] > 1, f"launches of n{node} to be released early", job)


def goes_on(job, iterations: int = 1) -> None:
    for rank in range(len(job.ranks)):
        progress = job.progress(rank)
        wait_for(lambda: job.progress(rank) >= progress + iterations, f"rank {rank} to go on", job)


@contextlib.contextmanager
def contended(context, workload: Workload):
    """The job `workload`, with launches released early, and another that takes their circuits away over and over."""
    with context.cluster(SHAPE, controller_options=["--guard", "off", "--runs", "on"]) as cluster:
        job = start(cluster, workload, "phases")
        await_ahead(cluster, job)
        other = start(cluster, passing(), "passing")
        yield cluster, job, other
        goes_on(job)
        nothing_in_the_dark(cluster, job, other)


@case("another job takes the circuits of launches that were released early: they start when they have them again")
def taken(context) -> None:
    with contended(context, phases(100, 2000)) as (cluster, job, other):
        for _ in range(5):
            await_ahead(cluster, job)
            goes_on(other, 3)
        wait_for(lambda: gates(cluster, 0)[1] > 0, "launches to be retracted", job)


@case("a manager is stopped with launches released early, and their run is taken back meanwhile")
def stopped(context) -> None:
    # A manager that is stopped is asked for its run as long as it is not taken for lost: until the other job has begun.
    silence_ms = 20_000 * SLOW
    with context.cluster(SHAPE, controller_options=[
            "--guard", "off", "--runs", "on", "--node-silence-ms", str(silence_ms), "--node-grace-ms", str(4 * silence_ms)]) as cluster:
        job = start(cluster, phases(100, 2000), "phases")
        for number in range(3):
            stop_ahead(cluster, job)
            before = cluster.counters()["revocations"]
            other = launch(cluster, passing(3), f"passing{number}")
            wait_for(lambda: cluster.counters()["revocations"] > before, "the run to be asked for", other)
            time.sleep(0.1)  # those that were released early go
            cluster.managers[0].signal(signal.SIGCONT)
            expect(other.wait(60 * SLOW).total("mismatches") == 0, "a result was wrong")
            goes_on(job)
        nothing_in_the_dark(cluster, job)


def stop_ahead(cluster, job) -> None:
    """Stops n0's manager when it has released launches early."""
    while True:
        await_ahead(cluster, job)
        cluster.managers[0].signal(signal.SIGSTOP)
        if gates(cluster, 0)[0] > 0:
            return
        cluster.managers[0].signal(signal.SIGCONT)


@case("a manager is killed with launches released early: the next one retracts them and the job goes on")
def manager(context) -> None:
    with contended(context, phases(40, 20_000)) as (cluster, job, other):
        for _ in range(3):
            await_ahead(cluster, job)
            cluster.restart_manager(0)
            goes_on(other, 2)


@case("a rank is killed with launches released early: it is forgotten, and another job is served")
def rank(context) -> None:
    with context.cluster(SHAPE, controller_options=["--guard", "off", "--runs", "on"]) as cluster:
        job = start(cluster, phases(100, 2000), "phases")
        await_ahead(cluster, job)
        job.ranks[0].kill()
        wait_for(lambda: not cluster.waiting(), "nobody to wait for the dead rank")
        job.stop()
        other = start(cluster, passing(), "passing")
        goes_on(other, 5)
        expect(not any("wrong result" in r.output() for r in other.ranks), "a result was wrong")


@case("the controller dies with launches released early: they go on, and its successor moves nothing under them")
def controller(context) -> None:
    with contended(context, phases(40, 20_000)) as (cluster, job, other):
        for _ in range(3):
            await_ahead(cluster, job)
            cluster.restart_controller()
            goes_on(other)


@case("the controller is away for the grace time: what was released early is retracted, and waits for its successor")
def away(context) -> None:
    short = ["--node-silence-ms", str(1500 * SLOW), "--node-grace-ms", str(6000 * SLOW)]
    with context.cluster(SHAPE, controller_options=["--guard", "off", "--runs", "on", *short]) as cluster:
        job = start(cluster, phases(100, 2000), "phases")
        await_stuck(cluster, job)
        cluster.controller.kill()
        expect(gates(cluster, 0)[0] > 0, "what was released early has not been left to it without a controller")
        wait_for(lambda: gates(cluster, 0)[0] == 0, "what was released early to be retracted", job)
        cluster.start_controller(cluster.address)
        job.ranks[1].signal(signal.SIGCONT)
        goes_on(job, 2)
        nothing_in_the_dark(cluster, job)


def await_stuck(cluster, job) -> None:
    """Until n1's rank is stopped, and n0's waits for it with launches released early behind that."""
    while True:
        await_ahead(cluster, job)
        job.ranks[1].signal(signal.SIGSTOP)
        time.sleep(0.1 * SLOW)
        if gates(cluster, 0)[0] > 1:
            return
        job.ranks[1].signal(signal.SIGCONT)
        goes_on(job)


if __name__ == "__main__":
    sys.exit(run())
