"""What a gang, a plan, a decision and wide launches cost the controller's core as the number of nodes grows."""
import json
import math
import pathlib
import subprocess

from figure import Figure
from stage import program

WHAT = {"gang_us": "cost of a gang", "plan_us": "cost of a plan", "decision_us": "cost of a decision"}
WIDE = {"look": "search for launches to suspend", "suspend": "a wide launch is suspended",
        "restart": "restart with a wide launch in flight", "take_back": "a wide run is revoked",
        "ports": "opus-ctl ports", "why": "opus-ctl why"}
MOST_STEP_US, MOST_RESTART_US = 20e3, 2e6
# Before these loops were made linear, as they were reported: of other runs on another machine, so only how they grew compares.
REPORTED = {"look": {512: "31 to 39 ms a step", 4608: "18.9 s a step"},
            "restart": {512: "3.6 to 4.4 s in all", 1024: "51 s in all", 4608: "hours"},
            "ports": {512: "46 to 57 ms, 6.3 MB", 590: "refused", 4608: "32 s"},
            "why": {512: "46 to 57 ms, 6.3 MB", 590: "refused", 4608: "32 s"}}


def exponent(sizes: list[int], costs: list[float]) -> float:
    """Slope of the least-squares line through (log size, log cost)."""
    x, y = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


def growth(name: str, sizes: list[int], costs: list[float], points: list[dict]) -> Figure:
    goal = exponent(sizes, [n * math.log2(2 * n) for n in sizes])
    grown = exponent(sizes, costs)
    return Figure(f"{name}, {sizes[0]} to {sizes[-1]} nodes", f"{costs[0]:.1f} to {costs[-1]:.0f} us, n^{grown:.2f}",
                  f"n log n is n^{goal:.2f} here", grown / goal, "no faster than n log n", grown <= goal,
                  note=", ".join(f"{n}: {c:.1f} us" for n, c in zip(sizes, costs)), data={"points": points})


def step(name: str, nodes: int, row: dict, restart: bool) -> Figure:
    """The longest step of a row, and of a restart all steps, at the largest size."""
    over = max(row["step_us"] / MOST_STEP_US, row["all_us"] / MOST_RESTART_US if restart else 0)
    parts = f"{row['step_us'] / 1e3:.1f} ms the longest step, {row['all_us'] / 1e3:.1f} ms in all"
    return Figure(f"{name}, {nodes} nodes", parts + (f", {row['bytes']} bytes the longest reply" if "bytes" in row else ""),
                  "20 ms a step" + (", 2 s in all" if restart else ""), over, "no longer", over <= 1)


def wide(name: str, what: str, points: list[dict]) -> list[Figure]:
    stopped = [p for p in points if "stopped" in p[name]]
    if stopped:
        return [Figure(what, f"stopped at {stopped[0]['nodes']} nodes", goal="no faster than n log n", met=False,
                       note=stopped[0][name]["stopped"])]
    return [growth(what, [p["nodes"] for p in points], [p[name]["all_us"] for p in points], points),
            step(what, points[-1]["nodes"], points[-1][name], name == "restart")]


def wide_points(figures: list[Figure]) -> list[dict]:
    return next((f.data["points"] for f in figures if f.data.get("points") and "look" in f.data["points"][0]), [])


def cell(row: dict) -> str:
    if "stopped" in row:
        return f"stopped: {row['stopped']}"
    return f"{row['step_us'] / 1e3:.2f}; {row['all_us'] / 1e3:.2f}" + (f"; {row['bytes'] / 1e3:.0f} kB" if "bytes" in row else "")


def wide_table(figures: list[Figure]) -> str:
    """Of wide launches each size; below, the same before their loops were linear."""
    points = wide_points(figures)
    lines = ["## Wide launches", "", "CPU time of the controller's core in ms, of each cell the run of the median time: the longest step; all steps (look: 25 of them); the longest reply.", "",
             "| nodes | " + " | ".join(WIDE.values()) + " |", "|---" * (len(WIDE) + 1) + "|"]
    lines += [f"| {p['nodes']:,} | " + " | ".join(cell(p[name]) for name in WIDE) + " |" for p in points]
    lines += ["", "Before, as reported:", "", "| nodes | " + " | ".join(WIDE[name] for name in REPORTED) + " |", "|---" * (len(REPORTED) + 1) + "|"]
    lines += [f"| {nodes:,} | " + " | ".join(of.get(nodes, "") for of in REPORTED.values()) + " |"
              for nodes in sorted({n for of in REPORTED.values() for n in of})]
    return "\n".join(lines) + "\n"


def measure(build: pathlib.Path, runs: int, core: int) -> list[dict]:
    out = subprocess.check_output(["taskset", "-c", str(core), program(build, "bench_core_scaling"), "--runs", str(runs)],
                                  text=True, timeout=300)
    return [json.loads(line) for line in out.splitlines()]


def is_wide(point: dict) -> bool:
    return "gang_us" not in point


def middle(runs: list[list[dict]]) -> list[dict]:
    """Each row of each size as in the run of the median time in all; one that was stopped took longest."""
    points = []
    for at in zip(*runs):
        point = {"nodes": at[0]["nodes"]}
        for name in WIDE:
            point[name] = sorted((p[name] for p in at), key=lambda row: row.get("all_us", math.inf))[len(at) // 2]
        points.append(point)
    return points


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    first = measure(build, runs, core)
    gangs = [p for p in first if not is_wide(p)]
    of_wide = middle([[p for p in points if is_wide(p)] for points in (first, *(measure(build, 1, core) for _ in range(runs - 1)))])
    figures = [growth(what, [p["nodes"] for p in gangs], [p[key] for p in gangs], gangs) for key, what in WHAT.items()]
    for name, what in WIDE.items():
        figures += wide(name, what, of_wide)
    return figures
