"""Ranks that come late, and ranks that run without Opus: who is held, who is not, and what their users are told
(docs/protocol.md, "Enforced"). The time within which members register once NCCL has made a communicator is short here;
whoever is late is later than that."""
import signal
import sys
import time

from cases import SLOW, case, expect, nothing_in_the_dark, run, wait_for
from cluster import Play, Shape
from workload_text import Workload, grid

SHAPE = Shape(nodes=3, gpus=1, ports=2, dark_ms=2)
REGISTER_MS = 300 * SLOW
LATE_S = 4 * REGISTER_MS / 1000


def ring(split: bool = False) -> Workload:
    """An AllReduce of three nodes, over and over; `split`: in a child of their communicator."""
    w = Workload("ring", grid(3, 1), 100_000)
    w.comm("world", [[0, 1, 2]])
    if split:
        w.comm("half", [[0, 1, 2]], parent="world")
    w.collective("all_reduce", "half" if split else "world", [0, 1, 2], size=20_000)
    return w


def cluster_of(context):
    return context.cluster(SHAPE, controller_options=["--register-timeout-ms", str(REGISTER_MS)])


def start(cluster, workload: Workload, without_shim: tuple[int, ...] = (), late: tuple[int, ...] = (), **env: str):
    path = workload.write(cluster.folder / "w.jsonl")
    return cluster.start_job(Play(path, timeout_s=60 * SLOW, without_shim=without_shim, late=late,
                                  env={"OPUS_GATE": "stream", **env}))


def groups(cluster) -> list[dict]:
    return [g for g in cluster.ctl("groups")["groups"] if g["size"] == 3]


def is_held(cluster, job, communicators: int) -> None:
    wait_for(lambda: len(found := groups(cluster)) == communicators and all(g["verdict"] == "enforced" for g in found),
             "all communicators to be held", job)
    wait_for(lambda: job.progress() >= 3, "the job to go on", job)
    expect(cluster.counters()["demands"] > 0, "nobody asked for circuits")
    nothing_in_the_dark(cluster, job)
    for rank in job.ranks:
        expect("not held" not in rank.output(), rank.output())


@case("a rank that comes long after the others is held with them, and so are children of their communicator")
def late(context) -> None:
    for split in (False, True):
        with cluster_of(context) as cluster:
            job = start(cluster, ring(split), late=(2,))
            wait_for(lambda: [g for g in groups(cluster) if g["registered"] == 2], "the others to register", job)
            time.sleep(LATE_S)
            job.ranks[2].signal(signal.SIGCONT)
            is_held(cluster, job, 2 if split else 1)
            job.stop()


@case("where one rank runs without Opus the others pass, and each is told so once, with the rank and the remedy")
def without(context) -> None:
    with cluster_of(context) as cluster:
        job = start(cluster, ring(), without_shim=(1,))
        for rank in (0, 2):
            wait_for(lambda rank=rank: "not held for circuits" in job.ranks[rank].output(), f"rank {rank} to be told")
            said = [line for line in job.ranks[rank].output().splitlines() if line.startswith("opus: ")]
            expect(len(said) == 1 and f"rank {rank} of a communicator of 3" in said[0]
                   and "rank 1 did not register; load libopus_shim.so there" in said[0], f"{said}")
        found = groups(cluster)
        expect([g["verdict"] for g in found] == ["passes"] and "rank 1 of 3 did not register" in found[0]["why"], f"{found}")
        expect("a communicator of 3 ranks is no longer held" in cluster.controller.output(), "the controller's log")
        job.stop()


@case("OPUS_REQUIRE=enforce fails the creation of a communicator that cannot be held, with the reason")
def required(context) -> None:
    with cluster_of(context) as cluster:
        job = start(cluster, ring(), without_shim=(1,), OPUS_REQUIRE="enforce")
        codes = [job.ranks[rank].wait(60 * SLOW) for rank in (0, 2)]
        expect(codes == [3, 3], f"{codes}: {job.ranks[0].tail()}")
        for rank in (0, 2):
            expect("OPUS_REQUIRE=enforce): rank 1 did not register" in job.ranks[rank].output(), job.ranks[rank].output())
        job.stop()


@case("OPUS_REQUIRE=enforce lets be what is held, and what stays on one node")
def satisfied(context) -> None:
    with context.cluster(Shape(nodes=2, gpus=2, ports=1, dark_ms=2)) as cluster:
        w = Workload("pairs", grid(2, 2), 20)
        w.comm("across", [[0, 2], [1, 3]])
        w.comm("inside", [[0, 1], [2, 3]])
        for name, pairs in (("across", [[0, 2], [1, 3]]), ("inside", [[0, 1], [2, 3]])):
            for pair in pairs:
                w.collective("all_reduce", name, pair, size=20_000)
        path = w.write(cluster.folder / "w.jsonl")
        job = cluster.start_job(Play(path, timeout_s=60 * SLOW, env={"OPUS_GATE": "stream", "OPUS_REQUIRE": "enforce"}))
        job.wait(60 * SLOW)
        nothing_in_the_dark(cluster, job)
        expect(cluster.counters()["demands"] > 0, "nobody asked for circuits")


if __name__ == "__main__":
    sys.exit(run())
