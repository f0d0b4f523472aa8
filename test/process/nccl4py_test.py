"""nccl4py, NCCL's own Python binding, whose wheel finds NCCL by dlsym in the global scope: its launches wait for circuits.

OPUS_NCCL4PY names a Python that has it. Without it, one is made in the user's cache, from the package index.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

from cases import ROOT, SANITIZED, SLOW, Skip, case, expect, nothing_in_the_dark, run
from cluster import Shape
from cluster.program import Program, ProgramFailed, program_env

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "opus" / "nccl4py"
RANK = ROOT / "test" / "process" / "nccl4py_rank.py"
SHAPE = Shape(nodes=2, gpus=2, ports=2, dark_ms=2)


def python() -> str:
    if given := os.environ.get("OPUS_NCCL4PY"):
        return given
    if not (CACHE / "whole").exists():
        venv.create(CACHE, with_pip=True, clear=True)
        try:
            done = subprocess.run([CACHE / "bin" / "pip", "install", "--quiet", "--retries", "1", "nccl4py", "cuda-bindings"],
                                  capture_output=True, text=True, timeout=240)
        except subprocess.TimeoutExpired:
            raise Skip("nccl4py cannot be installed: the package index is too slow") from None
        if done.returncode != 0:
            raise Skip(f"nccl4py cannot be installed: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}")
        (CACHE / "whole").touch()
    return str(CACHE / "bin" / "python")


@case("a process for each GPU of two nodes")
def two_nodes(context) -> None:
    if SANITIZED:
        raise Skip("ranks are Python's here, which sanitizers judge, too")
    interpreter = python()
    with context.cluster(SHAPE) as cluster, tempfile.TemporaryDirectory() as place:
        folder, size = pathlib.Path(place), SHAPE.nodes * SHAPE.gpus
        env = program_env(cluster, shim=True, gpu="h100", scale_time=0, times=None, job="nccl4py")
        ranks = [Program(cluster, [interpreter, str(RANK), place], {**env, "RANK": str(r), "WORLD_SIZE": str(size), "LOCAL_RANK": "0"},
                         folder / f"log{r}", quiet=True) for r in range(size)]
        try:
            for rank in ranks:
                rank.wait(60 * SLOW, 120 * SLOW)
        except ProgramFailed as error:
            raise AssertionError(f"{error}\n{rank.log.read_text(errors='replace')}") from None
        finally:
            for rank in ranks:
                rank.stop(0)
        expect(cluster.counters()["grants"] > 0, "no circuit was granted")
        nothing_in_the_dark(cluster)


if __name__ == "__main__":
    sys.exit(run())
