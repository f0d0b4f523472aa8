"""`make sweep` on a job of milliseconds: its files, and that it goes on where it was stopped."""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cases import ROOT, SLOW, case, expect, run
from cluster import Leftovers

SWEEP = ROOT / "tools" / "opus-sweep"
KIND = ["generate", "3d", "--nodes", "4", "--gpus", "4", "--layers", "2", "--micro-batches", "2", "--layer-bytes", "20000",
        "--activation-bytes", "20000", "--forward-us", "200", "--backward-us", "400"]
RUNS = 4  # lit, one dark time under each of the others, lit


def start(context, folder: pathlib.Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, str(SWEEP), "--build", str(context.build.folder), "--workload", str(folder / "job.jsonl"), "--out",
                             str(folder / "out"), "--dark-ms", "1", "--ports", "2", "--iterations", "2", "--scale-bytes", "1"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@case("a sweep that is stopped goes on where it was, and ends with a row of all columns")
def goes_on(context) -> None:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sweep-test-"))
    try:
        twice(context, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def twice(context, folder: pathlib.Path) -> None:
    subprocess.run([context.build.replay, *KIND, "--out", folder / "job.jsonl"], check=True, timeout=20 * SLOW)
    file, left = folder / "out" / "sweep.json", Leftovers(context.mark)
    first = start(context, folder)
    until = time.monotonic() + 60 * SLOW
    while not file.exists():
        expect(first.poll() is None and time.monotonic() < until, f"no run ended: {first.poll()}")
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=30 * SLOW)
    expect(first.returncode == 130, f"it ended with {first.returncode}:\n{said}")
    had = json.loads(file.read_text())["runs"]
    expect(0 < len(had) < RUNS, f"{len(had)} runs were there when it was stopped")
    second = start(context, folder)
    said, _ = second.communicate(timeout=120 * SLOW)
    expect(second.returncode == 0, f"it ended with {second.returncode}:\n{said}")
    expect(f"{len(had)} of {RUNS} runs are there" in said, f"it did not go on:\n{said}")
    runs = json.loads(file.read_text())["runs"]
    expect(runs[:len(had)] == had and len(runs) == RUNS, f"runs of before were lost: {had}, {runs}")
    row = next(line for line in (folder / "out" / "sweep.md").read_text().splitlines() if line.startswith("| 1 |"))
    expect(row.count(" s (") == 3 and row.count(" %") >= 2, f"not all columns have a figure: {row}")
    expect(not (found := left.found(5 * SLOW, ignore=str(folder))), f"left behind: {found}")


if __name__ == "__main__":
    sys.exit(run())
