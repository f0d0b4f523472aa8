"""Receives that are posted early, and that their manager asks for late (docs/protocol.md, "A receive may be asked for
late"): who asks is told of them, the job goes on right, and neither a new manager nor a new controller forgets one.

Nothing here is asserted of time: a busy machine may keep a job from being learned in one iteration, and another follows."""
import contextlib
import signal
import sys
import time

from cases import SLOW, case, expect, nothing_in_the_dark, run, wait_for
from cluster import Play, Shape
from rings import DONE, GO, READY, rings
from workload_text import Workload

DARK_MS = 1500  # for so long a receive may be withheld, and its manager tells of it once a second
SHAPE = Shape(nodes=4, gpus=1, ports=1, dark_ms=DARK_MS)
SIZE = 4096
BEFORE, AFTER = 3, 6   # launches of a phase before and after the receive is ready
STEP_MS = 270          # from one to the next; so many make up for a manager's telling once a second
SOON_MS = 20           # the next launch after the receive: while the circuits are away for that
LONGEST_MS = DARK_MS + 1_000 * SLOW  # news may be late
HOLD_MS = 40_000 * SLOW  # nobody is to wait so long
GROUPS = {"long": [0, 1], "brought": [2, 0], "other": [0, 3]}


def compute(w: Workload, ranks: list[int], ms: int) -> None:
    for rank in ranks:
        w.step(rank, "compute", stream="s", us=ms * 1000)


def early() -> Workload:
    """Rank 0 goes on with rank 1 after a receive from rank 2 is ready, and uses what it brings only after that, with rank
    3. Rank 2 has long been ready to send: the receive is served at once, and circuits go there and back for it."""
    w = Workload("early", [(n, 0) for n in range(4)], 100_000)
    for name, ranks in GROUPS.items():
        w.comm(name, [ranks])
    begin, end = len(w.programs[0]), len(w.programs[2])
    w.send("brought", 2, 0, SIZE, to_stream="r")  # what is used for the first time is held elsewhere
    for step in (*w.programs[0][begin:], *w.programs[2][end:]):
        step["first_only"] = True
    for i in range(BEFORE + AFTER):
        compute(w, [0, 1], STEP_MS if i > BEFORE else SOON_MS)
        if i == BEFORE:
            w.step(0, "record", stream="s", event="posted")
            w.step(0, "wait", stream="r", event="posted")
            w.send("brought", 2, 0, SIZE, to_stream="r")
            w.step(0, "record", stream="r", event="brought")
            compute(w, [0, 1], SOON_MS)
        w.collective("all_reduce", "long", [0, 1], size=8 << 3 * (i % 6))  # neighbours are not alike
    w.step(0, "wait", stream="s", event="brought")
    w.collective("all_reduce", "other", [0, 3], size=SIZE)
    return w


@contextlib.contextmanager
def going_on(context):
    with context.cluster(SHAPE, controller_options=["--guard", "off"]) as cluster:
        job = cluster.start_job(Play(early().write(cluster.folder / "early.jsonl"), timeout_s=60 * SLOW, env={
            "OPUS_GATE": "stream", "OPUS_REQUIRE": "1", "OPUS_HOLD_MS": str(HOLD_MS)}))
        wait_for(lambda: all(job.progress(r) >= 1 for r in range(len(job.ranks))), "the job to begin", job)
        yield cluster, job
        nothing_in_the_dark(cluster, job)


def withheld(cluster) -> dict:
    """What `opus-ctl why` says of a receive that a manager does not ask for yet."""
    return next((w for w in cluster.waiting() if w["state"] == "withheld"), {})


def await_withheld(cluster, job) -> dict:
    return wait_for(lambda: withheld(cluster), "a receive to be withheld", job, seconds=60)


def number(told: dict) -> int:
    return int(told["launch"].rpartition("#")[2])


def is_shut(cluster, launch: int) -> bool:
    """The gate at which this launch of rank 0 waits."""
    ring, = rings(cluster, 0)
    slot = launch % ring.slots
    return ring.words(READY)[slot] == launch + 1 and ring.words(GO)[slot] != launch + 1


def done(cluster) -> int:
    """The last launch of rank 0 that is."""
    ring, = rings(cluster, 0)
    return max(ring.words(DONE)) - 1


def goes_on(cluster, job, launch: int) -> None:
    """Nobody waits for the hold time: the receive is asked for, and served."""
    wait_for(lambda: done(cluster) > launch and not is_shut(cluster, launch), f"launch {launch} to start", job)
    for rank in range(len(job.ranks)):
        progress = job.progress(rank)
        wait_for(lambda: job.progress(rank) > progress, f"rank {rank} to go on", job)


@case("a receive for which its rank lost its circuits waits for its turn: what goes first is done, and why tells of it")
def told(context) -> None:
    with going_on(context) as (cluster, job):
        group = next(g["group"] for g in cluster.ctl("groups")["groups"]
                     if [m["gpu"] for m in g["members"]] == ["n2.g0", "n0.g0"])
        for _ in range(3):
            found = await_withheld(cluster, job)
            launch = number(found)
            expect((found["job"], found["gpu"], found["group"], found["op"], found["bytes"])
                   == ("job", "n0.g0", group, "Recv", SIZE), f"{found}")
            expect(0 < found["since_ms"] < LONGEST_MS, f"{found}")
            expect(found["reasons"][0].startswith("not asked for yet: what else its rank does next goes first"), f"{found}")
            goes_on(cluster, job, launch)
        wait_for(lambda: any("ready, and withheld by its manager" in reason for w in cluster.waiting()
                             if w["gpu"] == "n2.g0" for reason in w["reasons"]), "its sender to hear of it", job)
        wait_for(lambda: overtaken(cluster), "others to go before a receive that is withheld", job)
        goes_on(cluster, job, done(cluster))


def overtaken(cluster) -> bool:
    """A receive is withheld, though it is ready, and what was launched after it is done."""
    found = withheld(cluster)
    if not found:
        return False
    after = done(cluster)  # first: what is asked for in between does not count
    return after > number(found) and is_shut(cluster, number(found))


def stop_withholding(cluster, job) -> int:
    """Stops n0's manager while it withholds a receive: which."""
    while True:
        launch = number(await_withheld(cluster, job))
        cluster.managers[0].signal(signal.SIGSTOP)
        time.sleep(0.1)  # what it has said is heard
        found = withheld(cluster)
        if found and number(found) == launch and is_shut(cluster, launch):
            return launch
        cluster.managers[0].signal(signal.SIGCONT)


@case("a manager is killed while it withholds a receive: the next one asks for it, and the job goes on")
def manager(context) -> None:
    with going_on(context) as (cluster, job):
        for _ in range(2):
            launch = stop_withholding(cluster, job)
            cluster.restart_manager(0)
            goes_on(cluster, job, launch)


@case("the controller is killed while a receive is withheld: it is asked for of the next one, and the job goes on")
def controller(context) -> None:
    with going_on(context) as (cluster, job):
        for _ in range(2):
            launch = stop_withholding(cluster, job)
            cluster.controller.kill()
            cluster.managers[0].signal(signal.SIGCONT)
            expect(is_shut(cluster, launch), "it has started with nobody to ask")
            cluster.start_controller(cluster.address)
            goes_on(cluster, job, launch)


if __name__ == "__main__":
    sys.exit(run())
