"""CUDA graphs: each replay is held for its circuits, as the calls were that it was captured from.

Three nodes, one GPU with one port each; a communicator for each pair of them. So no two have their circuits at once, and
what runs unseen sends into the dark. The first iteration is eager, the second is captured, all later ones are replays.
"""
import sys

from cases import SLOW, case, expect, nothing_in_the_dark, run, wait_for
from cluster import Play, Shape
from workload_text import Workload, grid

SHAPE = Shape(nodes=3, gpus=1, ports=1, dark_ms=2)
PAIRS = [(0, 1), (1, 2), (0, 2)]
PATIENCE_S = 20  # without progress
ENV = {"OPUS_GATE": "stream", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}


def workload(iterations: int, gap_us: int = 0, nodes: int = 3) -> Workload:
    """Collectives, transfers and a group of transfers on every pair, one pair after the other, on two streams that meet."""
    w = Workload("replays", grid(nodes, 1), iterations=iterations)
    pairs = [(a, b) for a, b in PAIRS if b < nodes]
    for a, b in pairs:
        w.comm(f"c{a}{b}", [[a, b]])
    for a, b in pairs:
        comm = f"c{a}{b}"
        for rank, peer in ((a, 1), (b, 0)):
            if gap_us:
                w.step(rank, "compute", stream="s", us=gap_us)
            w.step(rank, "all_reduce", comm=comm, stream="s", bytes=4096)
            w.step(rank, "record", event=comm, stream="s")
            w.step(rank, "wait", event=comm, stream="t")
            w.step(rank, "send" if rank == a else "recv", comm=comm, peer=peer, stream="t", bytes=4096)
            w.step(rank, "group_begin")
            for _ in range(2):
                w.step(rank, "send", comm=comm, peer=peer, stream="t", bytes=1024)
                w.step(rank, "recv", comm=comm, peer=peer, stream="t", bytes=1024)
            w.step(rank, "group_end")
            w.step(rank, "record", event=f"{comm} back", stream="t")
            w.step(rank, "wait", event=f"{comm} back", stream="s")
    return w


@case("each replay of a graph is held for its circuits, and none is lost in the dark")
def replays(context) -> None:
    with context.cluster(SHAPE) as cluster:
        path = workload(12).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV | {"OPUS_REQUIRE": "enforce"}))
        result = job.wait(6 * PATIENCE_S * SLOW)
        expect(result.codes == [0, 0, 0], f"{result.codes}: {job.ranks[0].tail()}")
        nothing_in_the_dark(cluster, job)
        moved = cluster.light().reconfigurations
        expect(moved >= 12 * (len(PAIRS) - 1), f"only {moved} moves: the replays were not seen")


@case("a manager that is killed and started again finds the graphs that live, and holds their replays")
def restarted(context) -> None:
    with context.cluster(SHAPE) as cluster:
        path = workload(60, gap_us=5000).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV))
        for node, iteration in enumerate((6, 16, 26)):
            wait_for(lambda at=iteration: f"iteration {at} of" in job.ranks[0].output(), f"iteration {iteration}", job)
            cluster.restart_manager(node)
        result = job.wait(6 * PATIENCE_S * SLOW)
        expect(result.codes == [0, 0, 0], f"{result.codes}: {job.ranks[0].tail()}")
        nothing_in_the_dark(cluster, job)


@case("behind host gates a communicator with captured launches is not held any more, and its user is told")
def host_gates(context) -> None:
    with context.cluster(Shape(nodes=2, gpus=1, ports=1, dark_ms=2)) as cluster:  # the circuit stays where it is
        path = workload(4, nodes=2).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV | {"OPUS_GATE": "host"}))
        job.wait(6 * PATIENCE_S * SLOW)
        # Where one has told the controller first, the other only hears the verdict.
        wait_for(lambda: any("no longer held" in m.output() for m in cluster.managers), "a manager to say that it is not held")
        # Who comes later may find it degraded already.
        said = [line for rank in job.ranks for line in rank.output().splitlines() if "CUDA graph" in line]
        expect(1 <= len(said) <= len(job.ranks) and all("OPUS_GATE=stream" in line for line in said), f"{said}")


if __name__ == "__main__":
    sys.exit(run())
