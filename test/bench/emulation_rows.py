"""What opus-emulate takes to start a program, and what observe mode costs steps: of PyTorch where it is, and of opus-replay."""
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from figure import Figure, missing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from cluster import Build, ChildFailed, Cluster, Play, Shape  # noqa: E402
from cluster.program import PRELOADED, Program, program_env  # noqa: E402
from cluster.variants import AHEAD, PROVISIONED  # noqa: E402

FIRST_STEP = re.compile(rb"^step 0\b", re.M)
GOAL_START_S = 3.0
GOAL_OBSERVE = 0.005
GOAL_ENFORCE = 0.02
LIMIT_S = 300
MOST_STARTS, MOST_OBSERVED = 5, 3  # rounds of PyTorch: half a minute each side
STEPS, LEARNING = 30, 10  # of a job; those that are not counted
ENFORCED_STEPS = 250  # of which the second half counts: by then its launches start in a run without end
SMALL = ROOT / "test" / "process" / "emulated_job.py"
FSDP = ROOT / "docs" / "examples" / "pytorch" / "fsdp2.py"


def torchrun() -> pathlib.Path | None:
    found = subprocess.run([ROOT / "tools" / "pytorch.sh", "--where"], capture_output=True, text=True, timeout=20)
    return pathlib.Path(found.stdout.strip()) / "bin" / "torchrun" if found.returncode == 0 else None


def children_cpu_s() -> float:
    """Of all that have ended and were waited for, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_step_s(command: list, env: dict[str, str]) -> tuple[float, float]:
    """From its start to the line 'step 0'; and CPU time of the whole of it, up to its end."""
    begin, cpu = time.monotonic(), children_cpu_s()
    with subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) as program:
        took, said = None, b""
        for line in program.stdout:
            said += line
            if took is None and FIRST_STEP.match(line):
                took = time.monotonic() - begin
    if program.returncode != 0 or took is None:
        raise RuntimeError(f"{command[0]} ended with {program.returncode}: {said[-500:].decode(errors='replace')}")
    return took, children_cpu_s() - cpu


def start_row(build: Build, name: str, command: list, runs: int) -> Figure:
    """Bare: on the stand-ins for GPUs and NCCL alone, over plain TCP, since without them it would not start at all."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("OPUS_", "STANDIN_", "NCCL_", "LD_"))} | {
        "LD_PRELOAD": ":".join(str(build.standins / p) for p in PRELOADED), "LD_LIBRARY_PATH": f"{build.standins}:{build.standins / 'cuda13'}",
        "STANDIN_PLACES": "4x1", "STANDIN_TIME_SCALE": "1", "STANDIN_ANNOUNCED": "1", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    opus = {k: v for k, v in bare.items() if not k.startswith(("STANDIN_", "LD_"))}
    floor, own = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as out:
            floor.append(first_step_s(command, bare))
            own.append(first_step_s([build.folder / "tools" / "run" / "opus-run", "--emulate", "4x1", "--dark-ms", "10", "--out", out,
                                     "--build", build.folder, "--", *command], opus))
    more, cpu = (statistics.median(o[i] - f[i] for o, f in zip(own, floor)) for i in (0, 1))
    return Figure(name, f"{statistics.median(o for o, _ in own):.2f} s", f"{statistics.median(f for f, _ in floor):.2f} s on the stand-ins alone", None,
                  f"at most {GOAL_START_S:g} s more", more <= GOAL_START_S, f"{more:.2f} s more; CPU time, up to the end, {cpu:.2f} s more",
                  {"own_s": own, "bare_s": floor})


def cpu_s(pid: int) -> float:
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


OFF, CONTROLLER, OBSERVER = "off", "controller", "observer"  # who observes: nobody; managers and a controller; what opus-run --observe starts


class Side:
    """An always lit fabric, observed or without Opus: times of steps, and CPU time of ranks and of Opus's own processes."""

    def __init__(self, build: Build, shape: Shape, by: str, play):
        with tempfile.TemporaryDirectory() as folder:
            self.recordings = pathlib.Path(folder) / "recordings"
            options = {OFF: {"opus": False}, OBSERVER: {"opus": False, "observe": self.recordings},
                       CONTROLLER: {"opus": True, "emulator_options": ["--always-lit"], "controller_options": ["--observe"]}}[by]
            self._play(build, shape, by, play, options)

    def _play(self, build: Build, shape: Shape, by: str, play, options: dict) -> None:
        before = children_cpu_s()
        with Cluster(build, shape, **options) as cluster:
            self.steps = play(cluster, by != OFF)
            self.ranks_cpu_s = children_cpu_s() - before
            daemons = [*cluster.managers, *cluster.observers, *([cluster.controller] if cluster.controller else [])]
            self.opus_cpu_s = sum(cpu_s(d.pid) for d in daemons)
            if by == CONTROLLER and not any(job["launches"] for job in cluster.ctl("summary")["jobs"]):
                raise RuntimeError("no launch was seen: the ranks were not under Opus")
        files = list(self.recordings.glob("*.jsonl")) if by == OBSERVER else []
        self.launches = sum(file.read_text().count('{"launch":') for file in files)
        self.lost = sum(file.read_text().count('{"lost":') for file in files)
        if by == OBSERVER and self.launches == 0:
            raise RuntimeError("no launch was recorded: the ranks were not under Opus")


def observe_row(build: Build, name: str, shape: Shape, play, runs: int, by: str = CONTROLLER) -> Figure:
    pairs = [(Side(build, shape, OFF, play), Side(build, shape, by, play)) for _ in range(runs)]
    longer = statistics.median(statistics.median(o.steps) / statistics.median(b.steps) - 1 for b, o in pairs)
    share = statistics.median(o.opus_cpu_s / (o.ranks_cpu_s + o.opus_cpu_s) for _, o in pairs)
    own, floor = ([t for pair in pairs for t in pair[side].steps] for side in (1, 0))
    return Figure(name, f"{statistics.median(own) * 1e3:.1f} ms a step, {longer:+.2%}", f"{statistics.median(floor) * 1e3:.1f} ms without Opus", 1 + longer,
                  f"at most {GOAL_OBSERVE:.1%} longer", longer <= GOAL_OBSERVE, ("managers and controller" if by == CONTROLLER else "observers") + f" took {share:.2%} of all CPU time" +
                  (f"; {statistics.median(o.launches for _, o in pairs):,.0f} launches a run were recorded, rings lost some in {sum(o.lost for _, o in pairs)} ranks" if by == OBSERVER else ""),
                  {"own_s": own, "bare_s": floor})


def fsdp_steps(cluster: Cluster, torch: pathlib.Path, steps: int, shim: bool, more: dict[str, str] | None = None) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        times = pathlib.Path(folder) / "times"
        times.write_text("gemm 1000\n")
        env = program_env(cluster, shim=shim, gpu="h100", scale_time=1, times=times, job="job", more=more)
        program = Program(cluster, [str(torch), "--nproc-per-node", "4", str(FSDP), "--steps", str(steps)], env, pathlib.Path(folder) / "log", quiet=True)
        try:
            program.wait(LIMIT_S, LIMIT_S)
        finally:
            program.stop()
        return [b - a for a, b in zip(program.steps, program.steps[1:])]


def play_fsdp(torch: pathlib.Path):
    def play(cluster: Cluster, observe: bool) -> list[float]:
        return fsdp_steps(cluster, torch, STEPS, observe, {"OPUS_MODE": "observe", "STANDIN_STEERING": ""} if observe else None)[LEARNING:]
    return play


def connect_by_hand(cluster: Cluster) -> None:
    """A ring of the nodes, when the switch has been read back."""
    n = cluster.shape.nodes
    for node in range(n):
        for attempt in range(50):
            try:
                cluster.ctl("connect", f"n{node}.g0.p0", f"n{(node + 1) % n}.g0.p1")
                break
            except ChildFailed:
                if attempt == 49:
                    raise
                time.sleep(0.1)


def fixed_circuits_s(build: Build, torch: pathlib.Path, opus: bool) -> float:
    """A step of FSDP2, on circuits that never move. Without Opus they are made by hand, and its daemons are idle."""
    with Cluster(build, Shape(nodes=4, gpus=1, ports=2, dark_ms=10), controller_options=[*AHEAD[PROVISIONED], "--runs", "on"]) as cluster:
        if not opus:
            connect_by_hand(cluster)
        steps = fsdp_steps(cluster, torch, ENFORCED_STEPS, opus)
        if opus and cluster.counters()["run_launches"] == 0:
            raise RuntimeError("no launch started in a run: the ranks were not under Opus")
        return statistics.median(steps[len(steps) // 2:])


def enforce_row(build: Build, torch: pathlib.Path, runs: int) -> Figure:
    pairs = [(fixed_circuits_s(build, torch, False), fixed_circuits_s(build, torch, True)) for _ in range(runs)]
    own, bare = [o for _, o in pairs], [b for b, _ in pairs]
    longer = statistics.median(o / b - 1 for b, o in pairs)
    return Figure(TORCH_ENFORCED, f"{statistics.median(own) * 1e3:.1f} ms a step, {longer:+.2%}", f"{statistics.median(bare) * 1e3:.1f} ms, circuits made by hand, without Opus",
                  1 + longer, f"at most {GOAL_ENFORCE:.0%} longer", longer <= GOAL_ENFORCE,
                  "each round: " + ", ".join(f"{o / b - 1:+.1%}" for b, o in pairs), {"own_s": own, "bare_s": bare})


def enforce_rows(folder: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    """What a launch costs whose circuits never move."""
    build, torch = Build(folder), torchrun()
    if lacking := build.missing():
        return [missing(TORCH_ENFORCED, "", f"not built: {', '.join(lacking)}")]
    return [enforce_row(build, torch, runs) if torch else missing(TORCH_ENFORCED, "", "there is no PyTorch; `make test-pytorch` installs it")]


def play_replay(cluster: Cluster, observe: bool) -> list[float]:
    workload = ROOT / "tools" / "replay" / "workloads" / "llama3-8b-16gpu.jsonl"
    play = Play(workload=workload, iterations=4, scale_bytes="1/1024", shim=observe, steered=False, env={"OPUS_MODE": "observe"} if observe else {})
    return cluster.run_job(play, LIMIT_S).iteration_seconds()[1:]


def rows(folder: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    build, torch = Build(folder), torchrun()
    if lacking := build.missing():
        return [missing("opus-emulate, observe mode", "", f"not built: {', '.join(lacking)}")]
    with tempfile.TemporaryDirectory() as marks:
        figures = [start_row(build, "start of opus-run --emulate: ctypes, to the first step", [sys.executable, SMALL, "4", marks], runs)]
    figures += [observe_row(build, "observe mode, opus-replay", Shape(nodes=4, gpus=4, ports=1, dark_ms=0.1), play_replay, min(runs, MOST_OBSERVED)),
                record_row(build, runs)]
    names = ("start of opus-run --emulate: PyTorch DDP, to the first step", "observe mode, PyTorch FSDP2", TORCH_RECORDED, TORCH_ENFORCED)
    if not torch:
        return figures + [missing(name, "", "there is no PyTorch; `make test-pytorch` installs it") for name in names]
    ddp = [torch, "--nproc-per-node", "4", ROOT / "docs" / "examples" / "pytorch" / "ddp.py", "--steps", "1"]
    return figures + [start_row(build, names[0], ddp, min(runs, MOST_STARTS)),
                      observe_row(build, names[1], Shape(nodes=4, gpus=1, ports=2, dark_ms=0.1), play_fsdp(torch), min(runs, MOST_OBSERVED)),
                      record_torch_row(build, torch, runs), enforce_row(build, torch, min(runs, MOST_OBSERVED))]


TORCH_RECORDED = "opus-run --observe, PyTorch FSDP2"
TORCH_ENFORCED = "PyTorch FSDP2, circuits that never move"


def record_row(build: Build, runs: int) -> Figure:
    return observe_row(build, "opus-run --observe, opus-replay", Shape(nodes=4, gpus=4, ports=1, dark_ms=0.1), play_replay, min(runs, MOST_OBSERVED), OBSERVER)


def record_torch_row(build: Build, torch: pathlib.Path, runs: int) -> Figure:
    return observe_row(build, TORCH_RECORDED, Shape(nodes=4, gpus=1, ports=2, dark_ms=0.1), play_fsdp(torch), min(runs, MOST_OBSERVED), OBSERVER)


def observe_rows(folder: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    """Those of opus-run --observe alone."""
    build, torch = Build(folder), torchrun()
    if lacking := build.missing():
        return [missing("opus-run --observe", "", f"not built: {', '.join(lacking)}")]
    return [record_row(build, runs), record_torch_row(build, torch, runs) if torch else missing(TORCH_RECORDED, "", "there is no PyTorch; `make test-pytorch` installs it")]
