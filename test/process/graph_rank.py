#!/usr/bin/env python3
"""A rank that does with CUDA graphs what CUDA permits, and few programs do: one of the acts below.

    graph_rank.py FOLDER ACT

Three ranks, one a node, and a communicator for each pair of them. What ranks tell each other, and what the test tells them,
are files of FOLDER. A rank whose results are right makes FOLDER/rank<R> in the end.
"""
import contextlib
import ctypes
import os
import pathlib
import struct
import sys
import threading

from ctypes_rank import FLOAT, GLOBAL, SUM, TO_DEVICE, TO_HOST, Checked, Id, await_file

NON_BLOCKING = 1
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Rank:
    def __init__(self, folder: pathlib.Path):
        self.folder, self.rank = folder, int(os.environ["RANK"])
        self.cuda = Checked("libcudart.so.13", {
            "cudaSetDevice": "i", "cudaMalloc": "pl", "cudaMemcpy": "ppli", "cudaStreamCreateWithFlags": "pi", "cudaStreamSynchronize": "p",
            "cudaStreamBeginCapture": "pi", "cudaStreamEndCapture": "pp", "cudaLaunchHostFunc": "ppp", "cudaGraphInstantiate": "ppl",
            "cudaGraphLaunch": "pp", "cudaGraphExecUpdate": "ppp", "cudaGraphExecDestroy": "p", "cudaGraphDestroy": "p"})
        self.nccl = Checked("libnccl.so.2", {
            "ncclGetUniqueId": "p", "ncclCommInitRank": "piui", "ncclAllReduce": "pplii" "pp", "ncclGroupStart": "", "ncclGroupEnd": "",
            "ncclCommGetAsyncError": "pp", "ncclCommDestroy": "p", "ncclCommAbort": "p"})
        self.cuda.cudaSetDevice(0)
        self.kept: list = []

    # --- between processes -----------------------------------------------------------------------

    def say(self, what: str) -> None:
        (self.folder / what).touch()

    def hear(self, what: str) -> None:
        await_file(self.folder / what)

    def meet(self, what: str, *ranks: int) -> None:
        self.say(f"{what}-{self.rank}")
        for rank in ranks:
            self.hear(f"{what}-{rank}")

    # --- what a program has ----------------------------------------------------------------------

    def comm(self, name: str, *ranks: int) -> ctypes.c_void_p:
        unique, at, comm = Id(), self.folder / f"id-{name}", ctypes.c_void_p()
        if self.rank == ranks[0]:
            self.nccl.ncclGetUniqueId(ctypes.byref(unique))
            at.with_suffix(".new").write_bytes(bytes(unique))
            at.with_suffix(".new").rename(at)
        else:
            await_file(at)
            unique = Id.from_buffer_copy(at.read_bytes())
        self.nccl.ncclCommInitRank(ctypes.byref(comm), len(ranks), unique, ranks.index(self.rank))
        return comm

    def pairs(self) -> dict[int, ctypes.c_void_p]:
        """By the other rank; each has been used."""
        found = {}
        for a, b in ((0, 1), (1, 2), (0, 2)):
            if self.rank in (a, b):
                found[a + b - self.rank] = self.comm(f"c{a}{b}", a, b)
        for a, b in ((0, 1), (1, 2), (0, 2)):
            if self.rank in (a, b):
                self.check(found[a + b - self.rank])
        return found

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), NON_BLOCKING)
        return stream

    def buffer(self, value: float = 1.0) -> int:
        at = ctypes.c_void_p()
        self.cuda.cudaMalloc(ctypes.byref(at), 4)
        self.put(at.value, value)
        return at.value

    def put(self, at: int, value: float) -> None:
        self.cuda.cudaMemcpy(at, struct.pack("f", value), 4, TO_DEVICE)

    def expect(self, what: str, at: int, wanted: float) -> None:
        raw = ctypes.create_string_buffer(4)
        self.cuda.cudaMemcpy(raw, at, 4, TO_HOST)
        got = struct.unpack("f", raw.raw)[0]
        assert got == wanted, f"rank {self.rank}: {what}: {got}, not {wanted}"

    def sync(self, *streams: ctypes.c_void_p) -> None:
        for stream in streams:
            self.cuda.cudaStreamSynchronize(stream)

    # --- NCCL and graphs -------------------------------------------------------------------------

    def sum(self, comm: ctypes.c_void_p, at: int, stream: ctypes.c_void_p) -> None:
        """In place: n of them, one after another, make 2^n of the 1 that each of a pair has."""
        self.nccl.ncclAllReduce(at, at, 1, FLOAT, SUM, comm, stream)

    def check(self, comm: ctypes.c_void_p) -> None:
        """It is of use: by a call, and by a graph."""
        stream, at = self.stream(), self.buffer()
        self.sum(comm, at, stream)
        with self.graph(stream, lambda: self.sum(comm, at, stream)) as graph, self.executable(graph) as ready:
            self.cuda.cudaGraphLaunch(ready, stream)
            self.sync(stream)
        self.expect("a call and a replay", at, 4.0)

    def capture(self, stream: ctypes.c_void_p, body) -> ctypes.c_void_p:
        graph = ctypes.c_void_p()
        self.cuda.cudaStreamBeginCapture(stream, GLOBAL)
        body()
        self.cuda.cudaStreamEndCapture(stream, ctypes.byref(graph))
        return graph

    @contextlib.contextmanager
    def graph(self, stream: ctypes.c_void_p, body):
        graph = self.capture(stream, body)
        yield graph
        self.cuda.cudaGraphDestroy(graph)

    @contextlib.contextmanager
    def executable(self, graph: ctypes.c_void_p):
        ready = ctypes.c_void_p()
        self.cuda.cudaGraphInstantiate(ctypes.byref(ready), graph, 0)
        yield ready
        self.cuda.cudaGraphExecDestroy(ready)

    def hold_up(self, stream: ctypes.c_void_p) -> threading.Event:
        """What is enqueued from here on starts once the event is set."""
        go = threading.Event()
        self.kept.append(HOST_FUNCTION(lambda _: go.wait()))
        self.cuda.cudaLaunchHostFunc(stream, self.kept[-1], None)
        return go


# --- acts ----------------------------------------------------------------------------------------------------------

def aborted(r: Rank) -> None:
    """Rank 0 aborts a communicator while replays of it wait, of a communicator alone and of two in a group; then rank 1 does.
    Before and after that rank 1 has business with rank 2."""
    pairs, stream = r.pairs(), r.stream()
    second = r.comm("second", 0, 1) if r.rank != 2 else None
    at, other = r.buffer(), r.buffer()

    def both() -> None:
        r.nccl.ncclGroupStart()
        r.sum(pairs[1 - r.rank], at, stream)
        r.sum(second, other, stream)
        r.nccl.ncclGroupEnd()
    if r.rank == 0:
        with r.graph(stream, lambda: (r.sum(pairs[1], at, stream), both())) as graph, r.executable(graph) as ready:
            for _ in range(3):
                r.cuda.cudaGraphLaunch(ready, stream)
            r.say("launched")
            r.hear("abort")
            # NCCL's abort comes back when no graph has kernels of the communicator any more.
            ending = [threading.Thread(target=r.nccl.ncclCommAbort, args=(c,)) for c in (pairs[1], second)]
            for thread in ending:
                thread.start()
            r.sync(stream)
        for thread in ending:
            thread.join()
        r.say("aborted")
    if r.rank == 1:
        with r.graph(stream, lambda: (r.sum(pairs[0], at, stream), both())):  # which is never launched
            r.hear("launched")
            r.check(pairs[2])
            r.hear("aborted")
        for comm in (pairs[0], second):
            r.nccl.ncclCommAbort(comm)
    if r.rank == 2:
        r.check(pairs[1])
    go_on(r, pairs, {0, 1, 2})


def aborted_in_the_dark(r: Rank) -> None:
    """Both have launched their graphs, and circuits move for the replays, when both abort."""
    pairs, stream, at = r.pairs(), r.stream(), r.buffer()
    peer = {0: 1, 1: 0}.get(r.rank)
    if peer is not None:
        with r.graph(stream, lambda: r.sum(pairs[peer], at, stream)) as graph, r.executable(graph) as ready:
            r.meet("launch", 0, 1)
            for _ in range(3):
                r.cuda.cudaGraphLaunch(ready, stream)
            r.say(f"launched-{r.rank}")
            r.hear("abort")
            ending = threading.Thread(target=r.nccl.ncclCommAbort, args=(pairs[peer],))
            ending.start()
            r.sync(stream)
        ending.join()
        r.meet("aborted", 0, 1)
    go_on(r, pairs, {0, 1, 2})


def killed(r: Rank) -> None:
    """Rank 0 is killed while replays of it wait for rank 1, which does not launch its graph; and replays of rank 2 for rank 0."""
    pairs, stream, at = r.pairs(), r.stream(), r.buffer()
    peer = {0: 1, 1: 0, 2: 0}[r.rank]
    with r.graph(stream, lambda: r.sum(pairs[peer], at, stream)) as graph, r.executable(graph) as ready:
        if r.rank != 1:
            for _ in range(3):
                r.cuda.cudaGraphLaunch(ready, stream)
            r.say(f"launched-{r.rank}")
        if r.rank == 0:
            r.hear("never")
        r.hear("killed")
        error = ctypes.c_int(0)
        while error.value == 0:
            r.nccl.ncclCommGetAsyncError(pairs[0], ctypes.byref(error))
        ending = threading.Thread(target=r.nccl.ncclCommAbort, args=(pairs[0],))
        ending.start()
        r.sync(stream)
    ending.join()
    go_on(r, pairs, {1, 2})


def go_on(r: Rank, pairs: dict, left: set[int]) -> None:
    """The other communicators are of use, and so is one that is made now."""
    for a, b in ((1, 2), (0, 2)):
        if {a, b} <= left and r.rank in (a, b):
            r.check(pairs[a + b - r.rank])
    a, b = sorted(left)[:2]
    if r.rank in (a, b):
        r.check(r.comm("later", a, b))


def at_once(r: Rank) -> None:
    """Two graphs of each rank in flight, of two communicators, on two streams: one at a time has its circuits."""
    pairs = r.pairs()
    streams, sums = {p: r.stream() for p in pairs}, {p: r.buffer() for p in pairs}
    rounds = 12
    with contextlib.ExitStack() as stack:
        ready = {p: stack.enter_context(r.executable(stack.enter_context(r.graph(streams[p], lambda p=p: r.sum(pairs[p], sums[p], streams[p])))))
                 for p in pairs}
        for n in range(rounds):
            for p in sorted(pairs, reverse=n % 2 == r.rank % 2):
                r.cuda.cudaGraphLaunch(ready[p], streams[p])
        r.sync(*streams.values())
    for p in pairs:
        r.expect(f"replays with rank {p}", sums[p], 2.0 ** rounds)


def two_executables(r: Rank) -> None:
    """Of one graph: they take turns on one stream. Then on two, where the first launched is held up: NCCL starts no kernel of the
    second before it, though its gate could be reached first. Meanwhile rank 1 has business with rank 2, by the port that both
    want. In the last round the second is a call."""
    pairs = r.pairs()
    streams, at = [r.stream(), r.stream()], r.buffer()
    if r.rank == 2:
        for n in range(3):
            r.hear(f"held-up-{n}")
            r.check(pairs[1])
        return
    comm = pairs[1 - r.rank]

    def other_business(n: int) -> None:
        r.check(pairs[2])
        r.say(f"other-business-{n}")
    with r.graph(streams[0], lambda: r.sum(comm, at, streams[0])) as graph, r.executable(graph) as one, r.executable(graph) as two:
        for ready in (one, two, one, two):
            r.cuda.cudaGraphLaunch(ready, streams[0])
        r.sync(streams[0])
        r.expect("turns on one stream", at, 2.0 ** 4)
        for n in range(3):
            r.meet(f"again-{n}", 0, 1)
            held = r.hold_up(streams[0])
            r.cuda.cudaGraphLaunch(one, streams[0])
            if n < 2:
                r.cuda.cudaGraphLaunch(two, streams[1])
            else:
                r.sum(comm, at, streams[1])
            if r.rank == 1:
                r.say(f"held-up-{n}")
                other = threading.Thread(target=other_business, args=(n,))
                other.start()
            r.meet(f"launched-{n}", 0, 1)
            r.hear(f"let-go-{n}")
            held.set()
            r.sync(*streams)
            if r.rank == 1:
                other.join()
            r.expect("turns on two streams", at, 2.0 ** (4 + 2 * n + 2))


def destroyed(r: Rank) -> None:
    """Graph and executable are destroyed while the last replay is in flight, again and again."""
    pairs, stream = r.pairs(), r.stream()
    for n in range(30):
        for peer in sorted(pairs, key=lambda p: (p + r.rank) % 3):
            at = r.buffer()
            with r.graph(stream, lambda: r.sum(pairs[peer], at, stream)) as graph, r.executable(graph) as ready:
                for _ in range(1 + n % 3):
                    r.cuda.cudaGraphLaunch(ready, stream)
            if n % 2:
                r.sync(stream)
                r.expect("replays of what is destroyed", at, 2.0 ** (1 + n % 3))
    r.sync(stream)


def updated(r: Rank) -> None:
    """An executable is updated to graph after graph, each of which goes at once, while a replay of the one before is in flight."""
    pairs, stream = r.pairs(), r.stream()
    sums = {p: r.buffer() for p in pairs}
    order = sorted(pairs, key=lambda p: (p + r.rank) % 3)
    streams, rounds = {p: r.stream() for p in pairs}, 12
    with contextlib.ExitStack() as stack:
        ready = {}
        for p in order:
            with r.graph(streams[p], lambda p=p: r.sum(pairs[p], sums[p], streams[p])) as graph:
                ready[p] = stack.enter_context(r.executable(graph))
        for n in range(rounds):
            for p in order:
                for _ in range(1 + n % 2):
                    r.cuda.cudaGraphLaunch(ready[p], streams[p])
                with r.graph(stream, lambda p=p: r.sum(pairs[p], sums[p], stream)) as graph:
                    r.cuda.cudaGraphExecUpdate(ready[p], graph, ctypes.create_string_buffer(64))
        r.sync(*streams.values())
    for p in pairs:
        r.expect(f"replays with rank {p}", sums[p], 2.0 ** (rounds * 3 // 2))


ACTS = {act.__name__: act for act in (aborted, aborted_in_the_dark, killed, at_once, two_executables, destroyed, updated)}

if __name__ == "__main__":
    me = Rank(pathlib.Path(sys.argv[1]))
    ACTS[sys.argv[2]](me)
    me.say(f"rank{me.rank}")
    me.hear("end")
