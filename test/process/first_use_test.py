"""NCCL connects on the host what a call is the first to use: the connection has its light first, by whatever call.

The ring of a communicator and each pair of its ranks have first uses of their own. Three pairs of nodes take turns, with
one port a GPU, so that each call needs circuits that the one before it has taken away. One rank of a pair stays on one
stream, where its calls go by the shim's straight way, the other changes between two, where they do not.
"""
import sys

from cases import SLOW, case, expect, nothing_in_the_dark, run
from cluster import Play, Shape
from workload_text import Workload, grid

SHAPE = Shape(nodes=3, gpus=1, ports=1, dark_ms=2)
PAIRS = [[0, 1], [1, 2], [0, 2]]
PATIENCE_S = 20  # without progress
ENV = {"OPUS_REQUIRE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}  # streams wait for each other only where the program says

# What the two ranks of a communicator call, in this order: a(ll-reduce), t(o all), s(end) and r(eceive)
# of the first rank, e(mpty send), E(mpty all-reduce). In parentheses: a group.
ORDERS = ["ssaa", "aass", "ea", "eesa", "Ea", "stta", "ttas", "atsr", "tsra", "s(a)a", "(sr)a", "a(sr)t", "(at)s", "(e)r(a)"]


def steps(order: str, rank: int, comm: str) -> list[list[dict]]:
    """Of rank 0 or 1, an item a call or a group."""
    out: list[list[dict]] = []
    group = None
    for i, what in enumerate(order):
        if what == "(":
            group = [{"do": "group_begin"}]
        elif what == ")":
            out.append([*group, {"do": "group_end"}])
            group = None
        else:
            sends = (what == "r") != (rank == 0)
            step = {"do": {"a": "all_reduce", "E": "all_reduce", "t": "all_to_all"}.get(what, "send" if sends else "recv"),
                    "comm": comm, "stream": comm if rank == 0 else f"{comm} {i % 2}", "bytes": 0 if what in "eE" else 4096}
            if what in "sre":
                step["peer"] = 1 - rank
            if group is None:
                out.append([step])
            else:
                group.append(step)
    return out


def workload(order: str, early: bool) -> Workload:
    """`early`: the first rank of each pair waits on its stream, all the while, for what the other sends it at the end."""
    w = Workload("first-uses", grid(3, 1), iterations=3)
    comms = [(w.comm(f"c{a}{b}", [[a, b]]), a, b) for a, b in PAIRS]
    for a, b in PAIRS:
        w.comm(f"early{a}{b}", [[a, b]])

    def send_back(a: int, b: int, first_only: bool) -> None:
        size = {"bytes": 64, "first_only": first_only}
        w.step(b, "send", comm=f"early{a}{b}", peer=0, stream="early", **size)
        if first_only:
            w.step(a, "recv", comm=f"early{a}{b}", peer=1, stream="early", **size)

    for a, b in PAIRS if early else []:
        send_back(a, b, True)  # connected from here on
    for comm, a, b in comms if early else []:
        w.step(a, "recv", comm=f"early{a}{b}", peer=1, stream=comm, bytes=64)
    for i in range(len(steps(order, 0, ""))):
        for comm, a, b in comms:
            w.programs[a] += steps(order, 0, comm)[i]
            w.programs[b] += steps(order, 1, comm)[i]
    for a, b in PAIRS if early else []:
        send_back(a, b, False)
    return w


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


def play_one(context, shape: Shape, w: Workload) -> None:
    with context.cluster(shape) as cluster:
        path = w.write(cluster.folder / "one.jsonl")
        job = cluster.start_job(Play(path, timeout_s=PATIENCE_S * SLOW, env=ENV | {"OPUS_GATE": "stream"}))
        job.wait(2 * PATIENCE_S * SLOW)
        nothing_in_the_dark(cluster, job)


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
