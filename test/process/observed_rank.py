#!/usr/bin/env python3
"""Ranks for observe_test.py: a launcher for those of one node, and ranks whose every operation is known.

    observed_rank.py NODE FOLDER [--steps N] [--sick RANK:STEP] [--burst N] [--wait]

Two nodes of two GPUs. Once a step, each rank: an all-reduce of 1000 bytes and an all-gather of 40 among all, a reduce-scatter of 4 x 12
and a broadcast of 20, an all-reduce of 64 among those of its node, and a group of an all-reduce of 8 among all, a send of 100
bytes to the rank across and a receive of as many. --sick: that rank kills itself when all have done the step before. --burst: so many all-reduces without a pause, when FOLDER/go is there. --wait:
the communicators of nodes are made when FOLDER/go is there.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys

import ctypes_rank
from ctypes_rank import FLOAT, SUM

NODES, GPUS = 2, 2


def launch(a: argparse.Namespace) -> int:
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(a.node * GPUS + g), "WORLD_SIZE": str(NODES * GPUS),
                                                                "LOCAL_RANK": str(g), "LOCAL_WORLD_SIZE": str(GPUS)}) for g in range(GPUS)]
    signal.signal(signal.SIGTERM, lambda *_: [r.terminate() for r in ranks])
    code = 0
    for _ in ranks:
        pid, status = os.wait()
        if status != 0 and code == 0:
            code = 1
            for r in ranks:
                if r.pid != pid:
                    r.kill()
    return code


class Rank(ctypes_rank.Rank):
    def unique_id(self):
        return self.id_of("id", self.rank == 0)

    def id_of(self, name: str, first: bool):
        unique, at = ctypes_rank.Id(), self.a.folder / name
        if first:
            self.nccl.ncclGetUniqueId(ctypes_rank.ctypes.byref(unique))
            at.with_suffix(".new").write_bytes(bytes(unique))
            at.with_suffix(".new").rename(at)
        else:
            ctypes_rank.await_file(at)
            unique = ctypes_rank.Id.from_buffer_copy(at.read_bytes())
        return unique

    def play(self) -> None:
        on, nccl, n = (self.comm, self.stream), self.nccl, self.size
        local = ctypes_rank.ctypes.c_void_p()
        mine = self.rank % GPUS
        if self.a.wait:
            (self.a.folder / f"waiting{self.rank}").touch()
            ctypes_rank.await_file(self.a.folder / "go")
        nccl.ncclCommInitRank(ctypes_rank.ctypes.byref(local), GPUS, self.id_of(f"node{self.a.node}", mine == 0), mine)
        across = (self.rank + GPUS) % n
        a, b = self.buffer(*[1.0] * 1000), self.buffer(*[0.0] * 1000)
        who, at = (int(x) for x in self.a.sick.split(":")) if self.a.sick else (-1, -1)
        for step in range(self.a.steps):
            if (self.rank, step) == (who, at):
                for other in range(n):  # it takes the ranks of its node along, and one may still be in its last call
                    ctypes_rank.await_file(self.a.folder / f"step{step - 1}.{other}")
                os.kill(os.getpid(), signal.SIGKILL)
            nccl.ncclAllReduce(a, b, 250, FLOAT, SUM, *on)
            nccl.ncclAllGather(a, b, 10, FLOAT, *on)
            nccl.ncclReduceScatter(a, b, 3, FLOAT, SUM, *on)
            nccl.ncclBroadcast(a, b, 5, FLOAT, 1, *on)
            nccl.ncclAllReduce(a, b, 16, FLOAT, SUM, local, self.stream)
            nccl.ncclGroupStart()
            nccl.ncclAllReduce(a, b, 2, FLOAT, SUM, *on)
            nccl.ncclSend(a, 25, FLOAT, across, *on)
            nccl.ncclRecv(b, 25, FLOAT, across, *on)
            nccl.ncclGroupEnd()
            self.cuda.cudaStreamSynchronize(self.stream)
            (self.a.folder / f"step{step}.{self.rank}").touch()
        if self.a.burst:
            (self.a.folder / f"waiting{self.rank}").touch()
            ctypes_rank.await_file(self.a.folder / "go")
            for _ in range(self.a.burst):
                nccl.ncclAllReduce(a, b, 1, FLOAT, SUM, *on)
            self.cuda.cudaStreamSynchronize(self.stream)
            (self.a.folder / f"burst{self.rank}").touch()
        nccl.ncclCommDestroy(local)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("node", type=int)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--sick")
    p.add_argument("--burst", type=int, default=0)
    p.add_argument("--wait", action="store_true")
    p.set_defaults(mpi=None, end="destroy")
    arguments = p.parse_args()
    if "RANK" in os.environ:
        rank = Rank(arguments)
        rank.play()
        rank.end()
    else:
        sys.exit(launch(arguments))
