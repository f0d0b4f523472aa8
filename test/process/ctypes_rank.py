#!/usr/bin/env python3
"""A rank that reaches NCCL and CUDA by ctypes, as vLLM and SGLang do, whoever started it.

    ctypes_rank.py FOLDER [--mpi openmpi|mpich] [--end destroy|abort]

Rank, size and device are what its launcher says, as programs read them. The unique id goes round by MPI_Bcast, or by a file of
FOLDER. When all that it got is right, it makes FOLDER/rank<R> and ends once there is FOLDER/go.
"""
import argparse
import ctypes
import os
import pathlib
import struct
import threading
import time

FLOAT, SUM, TO_DEVICE, TO_HOST, GLOBAL, SYMMETRIC = 7, 0, 1, 2, 0, 1  # of nccl.h and cuda_runtime_api.h
NAMES = {"rank": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
         "size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
         "ranks of its node": ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
         "device": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")}


def told(what: str, otherwise: str = "") -> int:
    return int(next((os.environ[name] for name in NAMES[what] if name in os.environ), otherwise))


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Checked:
    """A library whose calls return 0, with the types of their arguments: l a number of 64 bits, i one of 32, p a pointer."""
    KINDS = {"l": ctypes.c_size_t, "i": ctypes.c_int, "p": ctypes.c_void_p, "u": Id}

    def __init__(self, name: str, functions: dict[str, str], mode: int = ctypes.DEFAULT_MODE):
        self.library = ctypes.CDLL(name, mode)
        for function, kinds in functions.items():
            call = getattr(self.library, function)
            call.restype, call.argtypes = ctypes.c_int, [self.KINDS[k] for k in kinds]
            setattr(self, function, self._checked(function, call))

    @staticmethod
    def _checked(name: str, call):
        def of(*arguments) -> None:
            code = call(*arguments)
            assert code == 0, f"{name}: {code}"
        return of


class Mpi:
    """World and byte are addresses in the one, numbers in the other."""

    def __init__(self, kind: str):
        own = kind == "openmpi"
        handle = "p" if own else "i"
        calls = {"MPI_Init": "pp", "MPI_Comm_rank": handle + "p", "MPI_Comm_size": handle + "p", "MPI_Bcast": "pi" + handle + "i" + handle,
                 "MPI_Barrier": handle, "MPI_Finalize": ""}
        self.mpi = Checked("libmpi.so.40" if own else "libmpich.so.12", calls, ctypes.RTLD_GLOBAL)
        symbol = lambda name: ctypes.addressof(ctypes.c_char.in_dll(self.mpi.library, name))  # noqa: E731
        self.world, self.byte = (symbol("ompi_mpi_comm_world"), symbol("ompi_mpi_byte")) if own else (0x44000000, 0x4C00010D)
        self.mpi.MPI_Init(None, None)

    def number(self, call) -> int:
        found = ctypes.c_int(-1)
        call(self.world, ctypes.byref(found))
        return found.value


class Rank:
    def __init__(self, a: argparse.Namespace):
        self.a, self.rank, self.size = a, told("rank"), told("size")
        self.mpi = Mpi(a.mpi) if a.mpi else None
        if self.mpi:
            self.rank, self.size = self.mpi.number(self.mpi.mpi.MPI_Comm_rank), self.mpi.number(self.mpi.mpi.MPI_Comm_size)
        self.cuda = Checked("libcudart.so.13", {
            "cudaGetDeviceCount": "p", "cudaSetDevice": "i", "cudaMalloc": "pl", "cudaMemcpy": "ppli", "cudaStreamCreate": "p", "cudaStreamSynchronize": "p",
            "cudaStreamDestroy": "p", "cudaFree": "p", "cudaStreamBeginCapture": "pi", "cudaStreamEndCapture": "pp",
            "cudaGraphInstantiate": "ppl", "cudaGraphLaunch": "pp", "cudaGraphExecDestroy": "p", "cudaGraphDestroy": "p"})
        self.nccl = Checked(os.environ.get("VLLM_NCCL_SO_PATH", "libnccl.so.2"), {
            "ncclGetUniqueId": "p", "ncclCommInitRank": "piui", "ncclAllReduce": "pplii" "pp", "ncclAllGather": "ppli" "pp",
            "ncclReduceScatter": "pplii" "pp", "ncclBroadcast": "pplii" "pp", "ncclReduce": "ppliii" "pp", "ncclSend": "plii" "pp",
            "ncclRecv": "plii" "pp", "ncclGroupStart": "", "ncclGroupEnd": "", "ncclCommDestroy": "p", "ncclCommAbort": "p",
            "ncclMemAlloc": "pl", "ncclMemFree": "p", "ncclCommWindowRegister": "pplpi", "ncclCommWindowDeregister": "pp"})
        devices = ctypes.c_int()
        self.cuda.cudaGetDeviceCount(ctypes.byref(devices))
        assert told("ranks of its node", "1") <= devices.value, "no GPU for each rank of the node"
        self.cuda.cudaSetDevice(told("device") % devices.value)
        self.stream, self.comm = ctypes.c_void_p(), ctypes.c_void_p()
        self.cuda.cudaStreamCreate(ctypes.byref(self.stream))
        self.nccl.ncclCommInitRank(ctypes.byref(self.comm), self.size, self.unique_id(), self.rank)

    def unique_id(self) -> Id:
        unique, at = Id(), self.a.folder / "id"
        if self.rank == 0:
            self.nccl.ncclGetUniqueId(ctypes.byref(unique))
        if self.mpi:
            self.mpi.mpi.MPI_Bcast(ctypes.byref(unique), 128, self.mpi.byte, 0, self.mpi.world)
        elif self.rank == 0:
            at.with_suffix(".new").write_bytes(bytes(unique))
            at.with_suffix(".new").rename(at)
        else:
            await_file(at)
            unique = Id.from_buffer_copy(at.read_bytes())
        return unique

    def buffer(self, *values: float) -> int:
        at, raw = ctypes.c_void_p(), struct.pack(f"{len(values)}f", *values)
        self.cuda.cudaMalloc(ctypes.byref(at), len(raw))
        self.cuda.cudaMemcpy(at, raw, len(raw), TO_DEVICE)
        return at.value

    def expect(self, what: str, at: int, *wanted: float, free: bool = True) -> None:
        self.cuda.cudaStreamSynchronize(self.stream)
        raw = ctypes.create_string_buffer(4 * len(wanted))
        self.cuda.cudaMemcpy(raw, at, len(raw), TO_HOST)
        got = struct.unpack(f"{len(wanted)}f", raw.raw)
        assert got == wanted, f"{what}: {got}, not {wanted}"
        if free:
            self.cuda.cudaFree(at)

    def play(self) -> None:
        n, me, nccl, on = self.size, self.rank, self.nccl, (self.comm, self.stream)
        everybody, total = [float(r) for r in range(n)], float(sum(range(n)))
        one = self.buffer(float(me))
        got = self.buffer(-1.0)
        nccl.ncclAllReduce(one, got, 1, FLOAT, SUM, *on)
        self.expect("the sum of a number", got, total)
        got = self.buffer(*[-1.0] * n)
        nccl.ncclAllGather(one, got, 1, FLOAT, *on)
        self.expect("everybody's", got, *everybody)
        rows, got = self.buffer(*everybody), self.buffer(-1.0)
        nccl.ncclReduceScatter(rows, got, 1, FLOAT, SUM, *on)
        self.expect("a part of the sum", got, float(n * me))
        got = self.buffer(float(me))
        nccl.ncclBroadcast(got if me == n - 1 else None, got, 1, FLOAT, n - 1, *on)
        self.expect("the last one's", got, float(n - 1))
        # Parts of each size: a group of broadcasts, and of reductions.
        parts, got = self.buffer(*everybody), self.buffer(*[-1.0] * n)
        nccl.ncclGroupStart()
        for root in range(n):
            nccl.ncclBroadcast(one, got + 4 * root, 1, FLOAT, root, *on)
        nccl.ncclGroupEnd()
        self.expect("everybody's by broadcasts", got, *everybody)
        got = self.buffer(-1.0)
        nccl.ncclGroupStart()
        for root in range(n):
            nccl.ncclReduce(parts + 4 * root, got, 1, FLOAT, SUM, root, *on)
        nccl.ncclGroupEnd()
        self.expect("a part of the sum by reductions", got, float(n * me))
        got = self.buffer(-1.0)
        nccl.ncclGroupStart()
        nccl.ncclSend(one, 1, FLOAT, (me + 1) % n, *on)
        nccl.ncclRecv(got, 1, FLOAT, (me - 1) % n, *on)
        nccl.ncclGroupEnd()
        self.expect("the one's before", got, float((me - 1) % n))
        self.replay(one, total)
        self.symmetric(total)
        for at in (one, rows, parts):
            self.cuda.cudaFree(at)

    def replay(self, one: int, total: float) -> None:
        """What pynccl was written for: captured once, launched often."""
        graph, ready, got = ctypes.c_void_p(), ctypes.c_void_p(), self.buffer(-1.0)
        self.cuda.cudaStreamBeginCapture(self.stream, GLOBAL)
        self.nccl.ncclAllReduce(one, got, 1, FLOAT, SUM, self.comm, self.stream)
        self.cuda.cudaStreamEndCapture(self.stream, ctypes.byref(graph))
        self.cuda.cudaGraphInstantiate(ctypes.byref(ready), graph, 0)
        for _ in range(3):
            self.cuda.cudaGraphLaunch(ready, self.stream)
        self.expect("the sum by a graph", got, total)
        self.cuda.cudaGraphExecDestroy(ready)
        self.cuda.cudaGraphDestroy(graph)

    def symmetric(self, total: float) -> None:
        """In memory of NCCL's that all have registered as a window."""
        at, window, size = ctypes.c_void_p(), ctypes.c_void_p(), 4096
        self.nccl.ncclMemAlloc(ctypes.byref(at), size)
        self.nccl.ncclCommWindowRegister(self.comm, at, size, ctypes.byref(window), SYMMETRIC)
        self.cuda.cudaMemcpy(at, struct.pack("f", self.rank), 4, TO_DEVICE)
        self.nccl.ncclAllReduce(at, at, 1, FLOAT, SUM, self.comm, self.stream)
        self.expect("the sum in a window", at.value, total, free=False)
        self.nccl.ncclCommWindowDeregister(self.comm, window)
        self.nccl.ncclMemFree(at)

    def end(self) -> None:
        if self.a.end == "abort":  # as vLLM does: in a thread that nobody waits for long
            thread = threading.Thread(target=self.nccl.ncclCommAbort, args=(self.comm,), daemon=True)
            thread.start()
            thread.join(5)
        else:
            self.nccl.ncclCommDestroy(self.comm)
        self.cuda.cudaStreamDestroy(self.stream)
        if self.mpi:
            self.mpi.mpi.MPI_Finalize()


def await_file(path: pathlib.Path) -> None:
    while not path.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--mpi", choices=("openmpi", "mpich"))
    p.add_argument("--end", choices=("destroy", "abort"), default="destroy")
    rank = Rank(p.parse_args())
    rank.play()
    (rank.a.folder / f"rank{rank.rank}").touch()
    await_file(rank.a.folder / "go")
    rank.end()
