"""Groups over communicators that share a stream: one gate stands before the kernels of all of them (docs/protocol.md, N, N2)."""
import sys

from bare_nccl import stuck
from cases import SLOW, case, expect, run
from cluster import Play, Shape
from workload_text import Workload, grid

PATIENCE_S = 20  # without progress
ITERATIONS = 3
ENV = {"OPUS_GATE": "stream", "OPUS_REQUIRE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}


def one_gate() -> Workload:
    """Rank 0 sends on both communicators in one group, while an earlier receive of the first waits for rank 2. That sends
    when rank 1 has received on both, in one group as well. So where NCCL launches the second communicator's kernels first,
    rank 0's must start before the first's can; where it launches the first's, rank 1 has to go on to its next receive
    there before the group is over.

    Nobody knows in which order it does: each communicator is the first once.
    """
    w = Workload("one-gate", grid(3, 1), iterations=ITERATIONS)
    for comm in ("p", "q"):
        w.comm(comm, [[0, 1, 2]])
        for source, target in ((0, 1), (2, 1), (2, 0)):  # connected from here on: on the host, which would stop there
            for rank, do, peer in ((source, "send", target), (target, "recv", source)):
                w.step(rank, do, comm=comm, peer=peer, stream="a", bytes=64, first_only=True)
    for first, second in (("p", "q"), ("q", "p")):
        w.step(0, "recv", comm=first, peer=2, stream="a", bytes=64)
        group(w, 0, [("send", first, 1), ("send", second, 1)])
        group(w, 1, [("recv", second, 0), ("recv", first, 2)])
        w.step(1, "recv", comm=first, peer=0, stream="a", bytes=64)
        w.step(2, "send", comm=first, peer=1, stream="b", bytes=64)
        w.step(2, "send", comm=first, peer=0, stream="b", bytes=64)
        for rank in range(3):
            w.step(rank, "sync")
    return w


def group(w: Workload, rank: int, calls: list[tuple[str, str, int]]) -> None:
    w.step(rank, "group_begin")
    for do, comm, peer in calls:
        w.step(rank, do, comm=comm, peer=peer, stream="b", bytes=64)
    w.step(rank, "group_end")


@case("one gate before several communicators keeps none of them waiting for another's turn")
def turns(context) -> None:
    w = one_gate()
    expect(not stuck(w), f"the program does not end without Opus: {stuck(w)[:3]}")
    with context.cluster(Shape(nodes=3, gpus=1, ports=2, dark_ms=1)) as cluster:
        cluster.run_job(Play(w.write(cluster.folder / "w.jsonl"), timeout_s=PATIENCE_S * SLOW, env=ENV), 2 * PATIENCE_S * SLOW)
        passes = cluster.counters()["passes"]
        expect(passes == 0, f"{passes} launches passed without circuits")


if __name__ == "__main__":
    sys.exit(run())
