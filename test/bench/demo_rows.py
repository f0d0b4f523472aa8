"""What Opus itself costs the demo's job: emulators that pass every byte at once, shim enforcing against shim off."""
import pathlib
import statistics
import sys

from figure import Figure, missing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from cluster import Build, Cluster, Play, Shape  # noqa: E402

NAME = "demo, always-lit fabric, enforce against off"
WORKLOAD = ROOT / "tools" / "replay" / "workloads" / "llama3-8b-16gpu.jsonl"
ITERATIONS = 2          # the first, in which NCCL meets its peers, is not counted
LIMIT_S = 90
MOST_RUNS = 5           # of each side: a run is the real job at its real pace, 20 s
SCALE_BYTES, DARK_MS = "1/256", 0.1
GOAL = 0.005


def iteration_s(programs: Build, enforce: bool) -> float:
    shape = Shape(nodes=4, gpus=4, ports=2, dark_ms=DARK_MS)
    mode = "enforce" if enforce else "off"
    play = Play(workload=WORKLOAD, iterations=ITERATIONS, scale_bytes=SCALE_BYTES, env={"OPUS_MODE": mode})
    with Cluster(programs, shape, opus=enforce, emulator_options=["--always-lit"]) as cluster:
        times = cluster.run_job(play, LIMIT_S).iteration_seconds()
        if enforce and cluster.counters().get("grants", 0) == 0:
            raise RuntimeError("nothing was granted: the ranks were not under Opus")
    return statistics.mean(times[1:])


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    goal = f"at most {GOAL:.1%} longer"
    programs = Build(build)
    if lacking := programs.missing():
        return [missing(NAME, goal, f"not built: {', '.join(lacking)}")]
    off, enforced = [], []
    for _ in range(min(runs, MOST_RUNS)):
        off.append(iteration_s(programs, enforce=False))
        enforced.append(iteration_s(programs, enforce=True))
    ratio = statistics.median(e / o for e, o in zip(enforced, off))
    return [Figure(NAME, f"{statistics.median(enforced):.4f} s an iteration", f"{statistics.median(off):.4f} s off", ratio, goal,
                   ratio - 1 <= GOAL, data={"enforce_s": enforced, "off_s": off})]
