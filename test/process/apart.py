"""A job of which a captured group of two communicators may not end as one, nor wait for all before it."""
from workload_text import Workload, grid


def apart(iterations: int) -> Workload:
    """A group of two communicators, of which one is over long before the other; what comes next on that one is what the other waits for."""
    w = Workload("apart", grid(2, 1), iterations=iterations)
    for comm in ("a", "b"):
        w.comm(comm, [[0, 1]])
    w.step(0, "group_begin")
    for comm in ("a", "b"):
        w.step(0, "recv", comm=comm, peer=1, stream="s", bytes=4096)
    w.step(0, "group_end")
    w.step(0, "send", comm="a", peer=1, stream="t", bytes=4096)
    w.step(1, "group_begin")
    w.step(1, "send", comm="a", peer=0, stream="t", bytes=4096)
    w.step(1, "recv", comm="a", peer=0, stream="s", bytes=4096)
    w.step(1, "send", comm="b", peer=0, stream="s", bytes=4096)
    w.step(1, "group_end")
    return w
