"""Whether opus-sim foretells what the live system takes: the demo's job, and jobs of PyTorch where that is."""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from emulation_rows import torchrun
from figure import Figure, missing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from cluster import Build, Play, Shape  # noqa: E402
from cluster.variants import DEMAND, LIT, PROVISIONED, TITLE, measure  # noqa: E402

WORKLOAD = ROOT / "tools" / "replay" / "workloads" / "llama3-8b-16gpu.jsonl"
DARK_MS, ITERATION_S = 25, 10.3
GOAL = 0.02  # of an iteration
MOST_RUNS = 3
JSON_NAME = {DEMAND: "on_demand", PROVISIONED: "provisioned"}
# Of docs/examples/pytorch: ports of a GPU. Steps that are not counted: NCCL meets its peers, circuits are made for the first time.
JOBS = {"mix_3d.py --tensor 1": 1, "mix_3d.py --tensor 1 --replicate": 1, "pipeline.py": 2}
TORCH_DARK_MS, NO_DARK_MS, STEPS, FIRST, LIMIT_S = 10, 0.01, 20, 4, 600


def simulated(build: Build, *arguments) -> dict:
    done = subprocess.run([build.folder / "tools" / "opus-sim" / "opus-sim", "run", "--json", "--no-best", "--no-split", *map(str, arguments)],
                          capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"opus-sim: {done.stderr}")
    return json.loads(done.stdout)


def figure_of(name: str, live: list[float], foretold: float, note: str = "") -> Figure:
    """Of overheads, parts of an iteration on electrical rails."""
    real = statistics.median(live)
    return Figure(name, f"{real:+.2%} live", f"{foretold:+.2%} by opus-sim", None, f"at most {GOAL * 100:g} points apart", abs(real - foretold) <= GOAL, note,
                  {"live": live, "simulated": foretold})


def demo_rows(build: Build, runs: int) -> list[Figure]:
    shape, play = Shape(nodes=4, gpus=4, ports=1, dark_ms=DARK_MS), Play(workload=WORKLOAD, iterations=4, scale_bytes="1/1024")
    live: dict[str, list[float]] = {DEMAND: [], PROVISIONED: []}
    for _ in range(min(runs, MOST_RUNS)):
        with tempfile.TemporaryDirectory() as folder:
            of = {}
            for variant in (LIT, *live):
                logs = pathlib.Path(folder) / variant
                logs.mkdir()
                of[variant] = measure(build, shape, play, variant, logs, expected_s=ITERATION_S).median
            for variant in live:
                live[variant].append(of[variant] / of[LIT] - 1)
    point = simulated(build, WORKLOAD, "--ports", 1, "--dark-ms", DARK_MS, "--gbits", 1e6, "--node-gbytes", 1e6)["points"][0]
    return [figure_of(f"demo, {TITLE[variant]}", live[variant], point[JSON_NAME[variant]]["over_electrical"]) for variant in live]


def torch_steps(build: Build, torch: pathlib.Path, script: str, ports: int, out: pathlib.Path, *how: str, dark_ms: float = TORCH_DARK_MS) -> float:
    """Median of those that count, in milliseconds."""
    times = out.parent / "times"
    times.write_text("gemm 1000\n")
    name, *options = script.split()
    command = [sys.executable, ROOT / "tools" / "emulation" / "opus-emulate", "4x1", "--build", build.folder, "--out", out, "--ports", ports, "--dark-ms", dark_ms,
               "--time", times, "--quiet", "--limit", LIMIT_S, *how, "--", torch, "--nproc-per-node", 4, ROOT / "docs" / "examples" / "pytorch" / name, *options, "--steps", STEPS]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=2 * LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{script}: {(done.stdout + done.stderr)[-500:]}")
    return 1e3 * statistics.median(json.loads((out / "result.json").read_text())[0]["steps"][FIRST:])


def torch_row(build: Build, torch: pathlib.Path, script: str, ports: int, runs: int) -> Figure:
    """What opus-sim says of a recording that was made without Opus: what moving circuits adds to a step, of a step as it was live. Live it is
    what is added to a run whose circuits move in no time: gates and messages take the cores of ranks that compute on them here, and
    opus-sim knows nothing of that."""
    live, foretold, control = [], [], []
    for _ in range(min(runs, MOST_RUNS)):
        with tempfile.TemporaryDirectory() as folder:
            def run(name: str, *how: str, dark_ms: float = TORCH_DARK_MS) -> float:
                return torch_steps(build, torch, script, ports, pathlib.Path(folder) / name, *how, dark_ms=dark_ms)
            lit, demand, instant = run("lit", "--only", LIT), run("demand", "--only", DEMAND), run("instant", "--only", DEMAND, dark_ms=NO_DARK_MS)
            run("observed", "--observe")
            said = simulated(build, pathlib.Path(folder) / "observed" / "observed" / "recording", "--ports", ports, "--dark-ms", TORCH_DARK_MS)
        live.append((demand - instant) / lit)
        control.append(instant / lit - 1)
        foretold.append((said["points"][0]["on_demand"]["iteration_ms"] - said["electrical_ms"]) / STEPS / lit)
    return figure_of(f"PyTorch, {script}, on demand", live, statistics.median(foretold),
                     f"of each round: {', '.join(f'{x:+.1%}' for x in live)}; with circuits that move in no time {', '.join(f'{x:+.1%}' for x in control)} over always lit, which is not counted")


def rows(folder: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    build, torch = Build(folder), torchrun()
    if lacking := build.missing():
        return [missing("live and simulated", "", f"not built: {', '.join(lacking)}")]
    figures = demo_rows(build, runs)
    for script, ports in JOBS.items():
        name = f"PyTorch, {script}, on demand"
        if not torch:
            figures.append(missing(name, "", "there is no PyTorch; `make test-pytorch` installs it"))
            continue
        try:
            figures.append(torch_row(build, torch, script, ports, runs))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            figures.append(missing(name, "", str(error)))
    return figures
