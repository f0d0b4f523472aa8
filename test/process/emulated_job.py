#!/usr/bin/env python3
"""A job for opus-emulate that is no PyTorch: a launcher, and ranks by ctypes that sum a number in each step.

    emulated_job.py RANKS FOLDER [--steps N] [--sick RANK:STEP:HOW]

HOW: exit (with 7), kill (signal 9), hang (it sleeps, and never comes to the others). The launcher, as torchrun, starts ranks in
sessions of their own. It ends with what the first rank that ends badly ended with, and leaves the others behind: who started it
has to end them. FOLDER/step<N> are made by rank 0.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

import ctypes_rank


def launch(a: argparse.Namespace) -> int:
    for old in a.folder.iterdir():  # of an earlier run
        old.unlink()
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(a.ranks), "LOCAL_RANK": str(r),
                                                                "LOCAL_WORLD_SIZE": str(a.ranks)},
                              start_new_session=True) for r in range(a.ranks)]
    for _ in ranks:
        code = os.waitstatus_to_exitcode(os.wait()[1])
        if code != 0:
            return code if code > 0 else 128 - code
    return 0


def fall_sick(how: str) -> None:
    if how == "exit":
        sys.stderr.write("this rank gives up\n")
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(60)


def play(a: argparse.Namespace) -> None:
    rank = ctypes_rank.Rank(a)
    who, at, how = (a.sick or "-1:0:exit").split(":")
    for step in range(a.steps):
        if rank.rank == int(who) and step == int(at):
            fall_sick(how)
        sent, got = rank.buffer(float(rank.rank)), rank.buffer(-1.0)
        rank.nccl.ncclAllReduce(sent, got, 1, ctypes_rank.FLOAT, ctypes_rank.SUM, rank.comm, rank.stream)
        rank.expect("the sum", got, float(sum(range(rank.size))))
        rank.cuda.cudaFree(sent)
        if rank.rank == 0:
            print(f"step {step}", flush=True)
            (a.folder / f"step{step}").touch()
    rank.end()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("ranks", type=int)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--sick")
    p.set_defaults(mpi=None, end="destroy")
    arguments = p.parse_args()
    if "RANK" in os.environ:
        play(arguments)
    else:
        sys.exit(launch(arguments))
