"""Jobs whose calls connect, in any order: three pairs of nodes take turns, with one port a GPU, so that each call needs circuits that
the one before it has taken away. One rank of a pair stays on one stream, where its calls take the shim's fast path, the
other changes between two, where they do not."""
from cluster import Shape
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
