"""opus-sim at size: how long it takes and how much memory, from 64 GPUs to the paper's largest fabric, and on others' traces; how fast it
reads.

OPUS_SHARED_DATA names the folder of others' traces; without it those rows say that they cannot be measured."""
import math
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import kineto_trace
from figure import Figure, missing
from stage import program

MODEL = ["llama3-405b", "--tensor", "8", "--micro-batches", "32"]
SIZES = {64: (2, 4), 256: (4, 8), 1024: (16, 8), 2048: (16, 16), 9216: (16, 72), 36864: (16, 288)}  # GPUs: stages, replicas
TEN_DARK_MS = "0.1,1,5,10,25,50,100,250,500,1000"
ONE = ["--iterations", "2", "--dark-ms", "10", "--no-best", "--no-split", "--no-answers", "--at-once", "1"]


def measured(command: list[str]) -> tuple[float, float]:
    """Seconds by the clock, and MB of memory at most."""
    begun = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:3])}: exit code {child.returncode}")
    return time.monotonic() - begun, used.ru_maxrss / 1024


def made(sim: str, gpus: int, folder: str) -> str:
    stages, replicas = SIZES[gpus]
    path = f"{folder}/{gpus}.jsonl"
    subprocess.run([sim, "generate", *MODEL, "--pipeline", str(stages), "--data", str(replicas), "--out", path], check=True)
    return path


def growth(what: str, unit: str, costs: dict[int, float]) -> Figure:
    """From the first size at which the program's start no longer counts to the largest."""
    first, last = 1024, max(costs)
    grown, may = costs[last] / costs[first], last * math.log2(last) / (first * math.log2(first))
    return Figure(f"opus-sim, {what} from {first} to {last} GPUs", f"{costs[first]:.1f} to {costs[last]:.0f} {unit}",
                  f"n log n: {may:.1f} times", grown / may, "no faster than n log n", grown <= may,
                  note=", ".join(f"{n}: {c:.1f} {unit}" for n, c in costs.items()))


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    sim = program(build, "opus-sim")
    figures, seconds, memory = [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for gpus in SIZES:
            seconds[gpus], memory[gpus] = measured([sim, "run", made(sim, gpus, folder), *ONE])
        figures += [growth("seconds", "s", seconds), growth("memory", "MB", memory)]
        last = max(SIZES)
        figures.append(Figure(f"opus-sim, {last} GPUs, on demand and provisioned", f"{seconds[last]:.0f} s, {memory[last] / 1024:.1f} GiB",
                              "16 GiB", memory[last] / 1024 / 16, "within", memory[last] <= 16 * 1024))
        ten, ten_mb = measured([sim, "run", f"{folder}/2048.jsonl", "--iterations", "2", "--dark-ms", TEN_DARK_MS, "--no-answers"])
        figures.append(Figure("opus-sim, 2,048 GPUs, five modes at ten dark times", f"{ten:.0f} s, {ten_mb:.0f} MB", "180 s", ten / 180,
                              "under 3 minutes on 2 cores", ten < 180))
        figures += kineto_rows(sim, folder, runs)
        figures += shared_rows(sim, folder)
    return figures


def kineto_rows(sim: str, folder: str, runs: int) -> list[Figure]:
    trace, goal = pathlib.Path(folder, "rank0.json"), 100
    size, _ = kineto_trace.write(trace, 120)
    rates = [size / 1e6 / seconds for seconds, _ in (measured([sim, "read", "--fill", str(trace)]) for _ in range(runs))]
    trace.unlink()
    rate = statistics.median(rates)
    return [Figure(f"opus-sim read, a Kineto trace of {size / 1e6:.0f} MB", f"{rate:.0f} MB/s", f"{goal} MB/s", goal / rate,
                   "at least 100 MB/s", rate >= goal, note=f"{runs} runs, {min(rates):.0f} to {max(rates):.0f} MB/s, the whole program")]


def reading_rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return kineto_rows(program(build, "opus-sim"), folder, runs)


def shared_rows(sim: str, folder: str) -> list[Figure]:
    name, goal = "opus-sim, 128 ranks of a Chakra job (stg_dp4_pp4_tp8_128), all modes", "at most 5 s and 300 MB"
    shared = pathlib.Path(os.environ.get("OPUS_SHARED_DATA", pathlib.Path(__file__).resolve().parents[3] / "shared/data"))
    archive = shared / "stg_dp4_pp4_tp8_128/traces.tar.zst"
    if not archive.is_file():
        return [missing(name, goal, f"{archive} is not there")]
    subprocess.run(["tar", "-I", "zstd -d --long=30", "-xf", archive, "-C", folder], check=True)
    seconds, mb = measured([sim, "run", f"{folder}/d4p4t8", "--dark-ms", "10", "--try-ports", "0"])
    return [Figure(name, f"{seconds:.1f} s, {mb:.0f} MB", "ASTRA-sim's analytical backend, of its authors: 86.8 s, 1.79 GB, one mode",
                   max(seconds / 5, mb / 300), goal, seconds <= 5 and mb <= 300)]
