"""What Opus itself costs an iteration of the demo's job: where there is no dark to wait for, what is left is Opus."""
import pathlib
import statistics
import sys

from figure import Figure, missing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from cluster import Build, Cluster, Play, Shape  # noqa: E402

WORKLOAD = ROOT / "tools" / "replay" / "workloads" / "llama3-8b-16gpu.jsonl"
ITERATIONS = 6
WARM_UP = 4             # in the first NCCL meets its peers, in two the controller sees what is done again, the next is the first planned: not counted
LIMIT_S = 120
MOST_RUNS = 5           # of each side: a run is the real job at its real pace, a minute
SCALE_BYTES = "1/1024"
ALWAYS_LIT = ["--always-lit"]
OFF = "off"
# name, goal, dark time in ms, options of the emulators, of the controller
SIDES = {
    "demo, always-lit fabric, enforce against off": (0.005, 0.1, ALWAYS_LIT, []),
    "control plane at dark time 0, on demand": (None, 0, [], ["--provision", "off"]),
    "control plane at dark time 0, provisioned": (0.002, 0, [], ["--provision", "on"]),
}


def iterations_s(programs: Build, side: str) -> list[float]:
    _, dark_ms, emulator, controller = SIDES.get(side, (None, 0, ALWAYS_LIT, []))
    enforce = side != OFF
    play = Play(workload=WORKLOAD, iterations=ITERATIONS, scale_bytes=SCALE_BYTES, env={"OPUS_MODE": "enforce" if enforce else "off"})
    with Cluster(programs, Shape(nodes=4, gpus=4, ports=1, dark_ms=dark_ms), opus=enforce, emulator_options=emulator,
                 controller_options=controller) as cluster:
        times = cluster.run_job(play, LIMIT_S).iteration_seconds()
        if enforce and cluster.counters().get("grants", 0) == 0:
            raise RuntimeError("nothing was granted: the ranks were not under Opus")
    return times[WARM_UP:]


def figure_of(name: str, times: dict[str, list[list[float]]]) -> Figure:
    """By the medians of a round's runs, which lie beside each other; then the median of the rounds."""
    goal = SIDES[name][0]
    longer = statistics.median(statistics.median(t) / statistics.median(off) - 1 for t, off in zip(times[name], times[OFF]))
    every = {side: [t for run in times[side] for t in run] for side in (name, OFF)}
    return Figure(name, f"{statistics.median(every[name]):.4f} s an iteration, {longer:+.2%}", f"{statistics.median(every[OFF]):.4f} s off",
                  1 + longer, f"at most {goal:.1%} longer" if goal else "none (the artifact: +2.6 %)", longer <= goal if goal else True,
                  data={"under_s": times[name], "off_s": times[OFF]})


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    programs = Build(build)
    if lacking := programs.missing():
        return [missing(name, "", f"not built: {', '.join(lacking)}") for name in SIDES]
    times: dict[str, list[list[float]]] = {side: [] for side in (OFF, *SIDES)}
    for _ in range(min(runs, MOST_RUNS)):
        for side, found in times.items():
            found.append(iterations_s(programs, side))
    return [figure_of(name, times) for name in SIDES]
