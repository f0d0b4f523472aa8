"""NCCL connects on the host what a call is the first to use: the connection has its light first, by whatever call.

The ring of a communicator and each pair of its ranks have first uses of their own (first_uses.py).
"""
import sys

from cases import SLOW, case, expect, nothing_in_the_dark, run
from cluster import Play, Shape
from first_uses import ENV, ORDERS, PATIENCE_S, SHAPE, workload
from workload_text import Workload, grid


def play(context, gate: str, early: bool, **env: str) -> None:
    with context.cluster(SHAPE) as cluster:
        for order in ORDERS:
            path = workload(order, early).write(cluster.folder / "first.jsonl")
            job = cluster.start_job(Play(path, timeout_s=PATIENCE_S * SLOW, env=ENV | env | {"OPUS_GATE": gate}),
                                    f"order {order}")
            job.wait(2 * PATIENCE_S * SLOW)
            nothing_in_the_dark(cluster, job)
        expect(cluster.light().reconfigurations > 0, "no circuit moved: the case could not fail")


@case("first uses have their light under the stream gate, in any order, and wait for no kernel")
def stream(context) -> None:
    play(context, "stream", early=True)


@case("first uses have their light under the host gate, in any order")
def host(context) -> None:
    play(context, "host", early=False)


@case("a call that makes connections may wait for the whole device: its own gate opens all the same")
def drained(context) -> None:
    play(context, "stream", early=False, STANDIN_DRAINS="1")


def play_one(context, shape: Shape, w: Workload, graph: bool = False, **env: str) -> None:
    with context.cluster(shape) as cluster:
        path = w.write(cluster.folder / "one.jsonl")
        job = cluster.start_job(Play(path, timeout_s=PATIENCE_S * SLOW, env=ENV | env | {"OPUS_GATE": "stream"}, graph=graph))
        job.wait(2 * PATIENCE_S * SLOW)
        nothing_in_the_dark(cluster, job)


@case("a group that makes connections may wait for the whole device: who waits for one of its kernels need not meet the others")
def drained_group(context) -> None:
    w = Workload("drained-group", grid(3, 1))
    w.comm("old", [[1, 2]])
    w.comm("new", [[1, 2]])
    w.comm("other", [[0, 2]])
    w.send("old", 2, 1, 64)  # connected from here on
    w.step(1, "group_begin")
    w.step(1, "send", comm="new", peer=1, stream="a", bytes=64)
    w.step(1, "recv", comm="old", peer=1, stream="b", bytes=64)
    w.step(1, "group_end")
    w.step(2, "recv", comm="new", peer=0, stream="a", bytes=64)
    w.step(2, "send", comm="other", peer=0, stream="b", bytes=64)  # makes a connection: returns when the kernel before it is done
    w.step(0, "recv", comm="other", peer=1, stream="a", bytes=64)
    w.step(2, "send", comm="old", peer=0, stream="b", bytes=64)
    play_one(context, Shape(nodes=3, gpus=1, ports=2, dark_ms=2), w, STANDIN_DRAINS="1")


@case("a call that makes connections may wait for the whole device: it returns though its peer's kernel may have to wait for what comes after it")
def drained_in_a_ring(context) -> None:
    w = Workload("drained-ring", grid(3, 1))
    w.comm("world", [[0, 1, 2]])
    w.step(2, "send", comm="world", peer=1, stream="a", bytes=64)
    w.step(2, "recv", comm="world", peer=0, stream="b", bytes=64)
    w.step(1, "send", comm="world", peer=0, stream="a", bytes=64)  # its kernel goes before the next: they are of one communicator
    w.step(1, "recv", comm="world", peer=2, stream="b", bytes=64)
    w.step(0, "group_begin")
    w.step(0, "recv", comm="world", peer=1, stream="a", bytes=64)
    w.step(0, "send", comm="world", peer=2, stream="b", bytes=64)  # is connected when rank 2 has come to its second call
    w.step(0, "group_end")
    play_one(context, Shape(nodes=3, gpus=1, ports=2, dark_ms=2), w, STANDIN_DRAINS="1")


def apart(iterations: int) -> Workload:
    """Rank 0's group comes in every other iteration. One of its kernels must run before what is on the other's stream can end."""
    w = Workload("apart", grid(2, 1), iterations)
    w.comm("one", [[0, 1]])
    w.comm("two", [[0, 1]])
    w.step(0, "recv", comm="one", peer=1, stream="b", bytes=64)
    w.step(0, "group_begin", every=2)
    w.step(0, "recv", comm="two", peer=1, stream="a", bytes=64, every=2)
    w.step(0, "send", comm="one", peer=1, stream="b", bytes=64, every=2)
    w.step(0, "group_end", every=2)
    w.step(1, "send", comm="two", peer=0, stream="a", bytes=64, every=2)
    w.step(1, "send", comm="one", peer=0, stream="a", bytes=64)
    w.step(1, "recv", comm="one", peer=0, stream="a", bytes=64, every=2)
    return w


@case("of a group that makes connections each kernel starts when its own stream is there")
def separate(context) -> None:
    play_one(context, Shape(nodes=2, gpus=1, ports=2, dark_ms=2), apart(iterations=2))


@case("of a group that makes connections while it is captured, too")
def separate_captured(context) -> None:
    play_one(context, Shape(nodes=2, gpus=1, ports=2, dark_ms=2), apart(iterations=4), graph=True)


@case("who gives to the root of a gather, or takes from that of a scatter, waits for the root alone")
def rooted(context) -> None:
    w = Workload("rooted", grid(3, 1), iterations=2)
    w.comm("world", [[0, 1, 2]])
    for do in ("gather", "scatter"):
        w.collective(do, "world", [0, 1], root=0)
        w.send("world", 1, 2, 4096)
        w.collective(do, "world", [2], root=0)  # only then
    play_one(context, Shape(nodes=3, gpus=1, ports=2, dark_ms=2), w)


@case("a group's first uses do not hold up what the group connects within the node")
def within(context) -> None:
    w = Workload("within", grid(2, 2))
    w.comm("world", [[0, 1, 2, 3]])
    w.comm("node", [[0, 1]])
    w.step(1, "group_begin")
    w.step(1, "recv", comm="world", peer=3, stream="a", bytes=64)
    w.step(1, "send", comm="node", peer=0, stream="b", bytes=64)
    w.step(1, "group_end")
    w.step(0, "recv", comm="node", peer=1, stream="a", bytes=64)  # rank 0 goes on when rank 1 has called
    w.send("world", 0, 3, 64)
    w.step(3, "send", comm="world", peer=1, stream="a", bytes=64)
    play_one(context, Shape(nodes=2, gpus=2, ports=2, dark_ms=2), w)


if __name__ == "__main__":
    sys.exit(run())
