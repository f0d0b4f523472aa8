"""Programs under host gates, where the thread that waits comes to its launch before the launch's stream does."""
import sys

from cases import SLOW, case, expect, run
from cluster import Play, Shape
from workload_text import Workload, grid

PATIENCE_S = 30
ENV = {"OPUS_GATE": "host", "OPUS_REQUIRE": "1"}


def connected(name: str, iterations: int, pairs: tuple) -> Workload:
    """NCCL makes connections on the host, which would stop there."""
    w = Workload(name, grid(4, 1), iterations=iterations)
    w.comm("world", [[0, 1, 2, 3]])
    w.comm("pair", [[0, 1]])
    w.comm("other", [[0, 1, 2, 3]])
    for comm, source, target in pairs:
        w.step(source, "send", comm=comm, peer=target, stream="s", bytes=64, first_only=True)
        w.step(target, "recv", comm=comm, peer=source, stream="s", bytes=64, first_only=True)
    return w


def behind_another(iterations: int) -> Workload:
    """Rank 0 sends to rank 1, on the stream of a receive from rank 2. That comes when rank 1 has served ranks 2 and 3 at
    one time, with both its ports: also with the one that leads to rank 0.
    """
    w = connected("behind-another", iterations, (("world", 1, 0), ("world", 2, 0), ("pair", 0, 1), ("world", 1, 2), ("world", 1, 3)))
    w.step(0, "group_begin")
    w.step(0, "recv", comm="world", peer=1, stream="s", bytes=64)
    w.step(0, "recv", comm="world", peer=2, stream="s", bytes=64)
    w.step(0, "group_end")
    w.step(0, "send", comm="pair", peer=1, stream="s", bytes=64)
    w.step(1, "send", comm="world", peer=0, stream="a", bytes=64)
    w.step(1, "recv", comm="pair", peer=0, stream="b", bytes=64)
    w.step(1, "group_begin")
    w.step(1, "send", comm="world", peer=2, stream="c", bytes=64)
    w.step(1, "send", comm="world", peer=3, stream="c", bytes=64)
    w.step(1, "group_end")
    w.step(2, "recv", comm="world", peer=1, stream="s", bytes=64)
    w.step(2, "send", comm="world", peer=0, stream="s", bytes=64)
    w.step(3, "recv", comm="world", peer=1, stream="s", bytes=64)
    return w


def next_in_turn(iterations: int) -> Workload:
    """Rank 0 receives from rank 1, and what makes rank 1 send is what rank 0 posts after its next launch of the same
    communicator. All ports are there at one time.
    """
    w = connected("next-in-turn", iterations, (("world", 1, 0), ("world", 0, 3), ("other", 2, 1), ("other", 2, 3), ("other", 0, 2)))
    w.step(0, "recv", comm="world", peer=1, stream="a", bytes=64)
    w.step(0, "send", comm="world", peer=3, stream="b", bytes=64)
    w.step(0, "send", comm="other", peer=2, stream="c", bytes=64)
    w.step(1, "recv", comm="other", peer=2, stream="a", bytes=64)
    w.step(1, "send", comm="world", peer=0, stream="a", bytes=64)
    w.step(2, "group_begin")
    w.step(2, "send", comm="other", peer=3, stream="s", bytes=64)
    w.step(2, "recv", comm="other", peer=0, stream="s", bytes=64)
    w.step(2, "group_end")
    w.step(2, "send", comm="other", peer=1, stream="s", bytes=64)
    w.step(3, "recv", comm="other", peer=2, stream="s", bytes=64)
    w.step(3, "recv", comm="world", peer=0, stream="s", bytes=64)
    return w


def play(context, workload: Workload, ports: int) -> dict:
    with context.cluster(Shape(nodes=4, gpus=1, ports=ports, dark_ms=1)) as cluster:
        path = workload.write(cluster.folder / "w.jsonl")
        cluster.run_job(Play(path, timeout_s=PATIENCE_S * SLOW, env=ENV), 2 * PATIENCE_S * SLOW)
        counters = cluster.counters()
        expect(counters["passes"] == 0, f"{counters['passes']} launches passed without circuits")
        return counters


@case("what waits on its stream for others gives up its circuits to them, though all its members have been let go")
def behind(context) -> None:
    expect(play(context, behind_another(3), ports=2)["suspensions"] > 0, "nothing was suspended: the case could not fail")


@case("a host goes on to what comes after its communicator's next launch, whatever kernels of it run")
def in_turn(context) -> None:
    play(context, next_in_turn(3), ports=4)


@case("the same programs end without Opus")
def bare(context) -> None:
    for workload in (behind_another(3), next_in_turn(3)):
        with context.cluster(Shape(nodes=4, gpus=1, ports=4, dark_ms=1), opus=False) as cluster:
            path = workload.write(cluster.folder / "w.jsonl")
            cluster.run_job(Play(path, shim=False, timeout_s=PATIENCE_S * SLOW), 2 * PATIENCE_S * SLOW)


if __name__ == "__main__":
    sys.exit(run())
