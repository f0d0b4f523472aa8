#!/usr/bin/env python3
"""A rank of a communicator that grows from two members to three.

    grow_rank.py FOLDER grown

Ranks 0 and 1 are old; 0 makes the unique id. Rank 2 joins by it. What all three have summed in the grown communicator, and in
one that is split from it, is right.
"""
import ctypes
import pathlib
import sys

from ctypes_rank import Checked, Id, await_file
from graph_rank import Rank

ROUNDS = 8


def unique_id(r: Rank, comm: ctypes.c_void_p) -> Id | None:
    """Rank 1 does without."""
    unique, at = Id(), r.folder / "id-grow"
    if r.rank == 0:
        r.grow.ncclCommGetUniqueId(comm, ctypes.byref(unique))
        at.with_suffix(".new").write_bytes(bytes(unique))
        at.with_suffix(".new").rename(at)
        return unique
    if r.rank == 1:
        return None
    await_file(at)
    return Id.from_buffer_copy(at.read_bytes())


def grown(r: Rank) -> None:
    r.grow = Checked("libnccl.so.2", {"ncclCommGetUniqueId": "pp", "ncclCommGrow": "pipipp", "ncclCommSplit": "piipp"})
    stream, at = r.stream(), r.buffer()
    old = r.comm("old", 0, 1) if r.rank < 2 else None
    if old is not None:
        r.sum(old, at, stream)
        r.sync(stream)
        r.expect("the sum of two", at, 2.0)
    more, child, unique = ctypes.c_void_p(), ctypes.c_void_p(), unique_id(r, old)
    given = ctypes.byref(unique) if unique is not None else None
    r.grow.ncclCommGrow(old, 3, given, -1 if r.rank < 2 else 2, ctypes.byref(more), None)
    r.grow.ncclCommSplit(more, 0, 2 - r.rank, ctypes.byref(child), None)
    for comm in (more, child):
        r.put(at, 1.0)
        for _ in range(ROUNDS):
            r.sum(comm, at, stream)
        r.sync(stream)
        r.expect("the sums of three", at, 3.0 ** ROUNDS)


if __name__ == "__main__":
    me = Rank(pathlib.Path(sys.argv[1]))
    grown(me)
    me.say(f"rank{me.rank}")
    me.hear("end")
