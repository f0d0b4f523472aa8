#!/usr/bin/env python3
"""A rank that uses NCCL by nccl4py, NCCL's own Python binding.

    nccl4py_rank.py FOLDER

The unique id goes round by a file of FOLDER.
"""
import ctypes
import os
import pathlib
import pickle
import struct
import sys
import time

import nccl.core as nccl
from cuda.core import Device

cuda = ctypes.CDLL("libcudart.so.13")


class Array:
    """Floats on the device, as nccl4py takes them."""

    def __init__(self, *values: float):
        self.bytes = 4 * len(values)
        at = ctypes.c_void_p()
        cuda.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(self.bytes))
        cuda.cudaMemcpy(at, struct.pack(f"{len(values)}f", *values), ctypes.c_size_t(self.bytes), 1)
        self.at = at
        self.__cuda_array_interface__ = {"shape": (len(values),), "typestr": "<f4", "data": (at.value, False), "version": 3}

    def expect(self, what: str, *wanted: float) -> None:
        raw = ctypes.create_string_buffer(self.bytes)
        cuda.cudaDeviceSynchronize()
        cuda.cudaMemcpy(raw, self.at, ctypes.c_size_t(self.bytes), 2)
        got = struct.unpack(f"{len(wanted)}f", raw.raw)
        assert got == wanted, f"{what}: {got}, not {wanted}"


def unique_id(folder: pathlib.Path, rank: int) -> nccl.UniqueId:
    at = folder / "id"
    if rank == 0:
        at.with_suffix(".new").write_bytes(pickle.dumps(nccl.get_unique_id()))
        at.with_suffix(".new").rename(at)
    while not at.exists():
        time.sleep(0.01)
    return pickle.loads(at.read_bytes())


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    Device(int(os.environ["LOCAL_RANK"])).set_current()
    comm = nccl.Communicator.init(size, rank, unique_id(pathlib.Path(sys.argv[1]), rank))
    assert (comm.rank, comm.nranks) == (rank, size)
    mine, got = Array(float(rank)), Array(-1.0)
    comm.allreduce(mine, got, nccl.SUM, stream=0)
    got.expect("the sum", float(sum(range(size))))
    with nccl.group():
        comm.send(mine, (rank + 1) % size, stream=0)
        comm.recv(got, (rank - 1) % size, stream=0)
    got.expect("the one's before", float((rank - 1) % size))
    half = comm.split(color=rank % 2, key=rank)  # across the nodes
    half.allreduce(mine, got, nccl.SUM, stream=0)
    got.expect("the sum of a half", float(sum(range(rank % 2, size, 2))))
    half.destroy()
    comm.destroy()


if __name__ == "__main__":
    main()
