#!/usr/bin/env python3
"""A process with two GPUs, a thread each, one of two processes on two nodes.

    threads_rank.py FOLDER threads

Each thread is a rank of a communicator of all four, and of one for its local index, of which it makes and ends a new one again and
again; both are used at one time by all. What they have summed is right.
"""
import os
import pathlib
import sys
import threading

from ctypes_rank import await_file
from graph_rank import Rank

GPUS, ROUNDS, LIVES = 2, 6, 3


class Thread(Rank):
    """A rank. Of its process's folder, library and node."""

    def __init__(self, folder: pathlib.Path, rank: int):
        super().__init__(folder)
        self.rank = rank
        self.cuda.cudaSetDevice(rank % GPUS)

    def play(self) -> None:
        stream, other, at, to = self.stream(), self.stream(), self.buffer(), self.buffer()
        everybody = self.comm("all", 0, 1, 2, 3)
        local = self.rank % GPUS
        for life in range(LIVES):
            self.put(at, 1.0)
            self.put(to, 1.0)
            rail = self.comm(f"rail{local}-{life}", local, local + GPUS)
            for _ in range(ROUNDS):
                self.sum(everybody, at, stream)
                self.sum(rail, to, other)
            self.sync(stream, other)
            self.expect("the sums of all", at, 4.0 ** ROUNDS)
            self.expect("the sums of a rail", to, 2.0 ** ROUNDS)
            self.nccl.ncclCommDestroy(rail)


if __name__ == "__main__":
    folder, first = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
    failures: list[BaseException] = []

    def play(rank: int) -> None:
        try:
            Thread(folder, rank).play()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)
    threads = [threading.Thread(target=play, args=(first + gpu,)) for gpu in range(GPUS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    (folder / f"rank{first}").touch()
    await_file(folder / "end")
