"""NCCL's own API examples (docs/examples, 01 to 05), as they are: a thread or a process for each GPU of one node, and by MPI on two
nodes, where their launches wait for circuits.

Nothing of them is in this tree. OPUS_NCCL_SOURCE names a copy of NVIDIA/nccl; without it, one is fetched into the user's cache. The
largest takes 5 GB of memory, so the first case needs some to spare.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from cases import ROOT, SANITIZED, SLOW, Skip, case, expect, nothing_in_the_dark, run
from cluster import Shape
from cluster.program import Program, ProgramFailed, program_env
from launchers import installed, mpich

URL = "https://github.com/NVIDIA/nccl"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "opus" / "nccl"
PARTS = ("01_communicators", "02_point_to_point", "03_collectives", "04_user_buffer_registration", "05_symmetric_memory")
HEADERS = [ROOT / ".deps" / "nvidia" / part / "include" for part in ("nccl", "cuda_runtime", "cuda_nvcc", "cuda_cccl")]
SHAPE = Shape(nodes=2, gpus=2, ports=2, dark_ms=2)


def fetched() -> pathlib.Path:
    given = os.environ.get("OPUS_NCCL_SOURCE")
    at = pathlib.Path(given) if given else CACHE
    if not given and not at.is_dir():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
            try:
                done = subprocess.run(["git", "clone", "--quiet", "--depth", "1", URL, f"{folder}/nccl"], capture_output=True, text=True,
                                      timeout=90, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Skip(f"{URL} cannot be fetched: {error}") from None
            if done.returncode != 0:
                raise Skip(f"{URL} cannot be fetched: {(done.stderr.strip().splitlines() or ['git failed'])[-1]}")
            shutil.move(f"{folder}/nccl", CACHE)
    if not (at / "docs" / "examples").is_dir():
        raise Skip(f"{at} has no docs/examples")
    return at / "docs" / "examples"


def sources(examples: pathlib.Path) -> list[pathlib.Path]:
    return [main for part in PARTS for main in sorted((examples / part).glob("**/main.cc"))]


def needs_mpi(main: pathlib.Path) -> bool:
    return "mpi.h" in main.read_text()


def built(context, main: pathlib.Path, compiler: str, folder: pathlib.Path, *flags: str) -> pathlib.Path:
    common = next(p for p in main.parents if p.name == "examples") / "common"
    files = [main, *([common / "src" / "utils.cc"] if "utils.h" in main.read_text() else [])]
    program = folder / "-".join(main.relative_to(common.parent).parts[:2])
    includes = [f"-I{p}" for p in (*HEADERS, common / "include")]
    standins = context.build.standins
    done = subprocess.run([compiler, "-O1", "-w", *flags, *includes, *map(str, files), str(standins / "libnccl.so.2"),
                           str(standins / "libcudart.so.12"), f"-Wl,-rpath-link,{standins}", "-lpthread", "-o", str(program)],
                          capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, f"{main} does not compile: {done.stderr[:2000]}")
    return program


def played(cluster, command: list[str], folder: pathlib.Path, **more: str) -> str:
    env = program_env(cluster, shim=True, gpu="h100", scale_time=0, times=None, job="examples", more={"TMPDIR": str(folder), **more})
    program = Program(cluster, command, env, folder / "log", quiet=True)
    try:
        program.wait(60 * SLOW, 120 * SLOW)
    except ProgramFailed as error:
        raise AssertionError(f"{' '.join(command[-1:])}: {error}\n{(folder / 'log').read_text(errors='replace')[-3000:]}") from None
    finally:
        program.stop()
    return (folder / "log").read_text(errors="replace")


def check(said: str, program: pathlib.Path) -> None:
    """It has ended with 0. What it, the shim or the stand-ins complain of, it need not have looked at."""
    wrong = [line for line in said.splitlines() if any(word in line.lower() for word in ("opus:", "opus stand-in (pid", "failed", "incorrect"))]
    expect(not wrong, f"{program.name}: {wrong}")


def available_gib() -> float:
    known = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return int(known["MemAvailable"].split()[0]) / 2**20


def guarded() -> list[pathlib.Path]:
    if SANITIZED:
        raise Skip("the examples are not sanitized")
    return sources(fetched())


@case("a process, or a thread, for all GPUs of one node")
def one_node(context) -> None:
    mains = guarded()
    if available_gib() < 8:
        raise Skip("less than 8 GiB of memory are free")
    with context.cluster(SHAPE) as cluster, tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for main in mains:
            if needs_mpi(main):
                continue
            program = built(context, main, "c++", folder)
            said = played(cluster, [str(program)], folder, STANDIN_GPUS=str(SHAPE.gpus), OPUS_RUNTIME_DIR=str(cluster.runtime(0)))
            check(said, program)
        nothing_in_the_dark(cluster)


@case("a process for each GPU of two nodes, by MPICH")
def two_nodes(context) -> None:
    mains = guarded()
    compiler = installed("mpicxx.mpich")
    with context.cluster(SHAPE) as cluster, tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for main in mains:
            if not needs_mpi(main) and "utils.h" not in main.read_text():
                continue  # one process with all GPUs, whoever compiles it
            program, before = built(context, main, compiler, folder, "-DMPI_SUPPORT"), cluster.counters()
            check(played(cluster, [*mpich(SHAPE.nodes, SHAPE.gpus, folder), str(program)], folder), program)
            now = cluster.counters()
            silent = "one_device_per_process" in program.name  # it makes communicators and sends nothing
            expect(silent or now["grants"] > before["grants"], f"{program}: no circuit was granted")
        nothing_in_the_dark(cluster)


if __name__ == "__main__":
    sys.exit(run())
