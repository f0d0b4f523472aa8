"""What a gang, a plan, a decision and wide launches cost the controller's core as the number of nodes grows."""
import json
import math
import pathlib
import subprocess

from figure import Figure
from stage import program

WHAT = {"gang_us": "cost of a gang", "plan_us": "cost of a plan", "decision_us": "cost of a decision"}
WIDE = {"look": "looks at who might be suspended", "suspend": "a wide launch is suspended",
        "restart": "restart with a wide launch in flight", "take_back": "a wide run is taken back",
        "ports": "opus-ctl ports", "why": "opus-ctl why"}
MOST_STEP_US, MOST_RESTART_US = 20e3, 2e6


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


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    out = subprocess.check_output(["taskset", "-c", str(core), program(build, "bench_core_scaling"), "--runs", str(runs)],
                                  text=True, timeout=300)
    points = [json.loads(line) for line in out.splitlines()]
    gangs, of_wide = [p for p in points if "gang_us" in p], [p for p in points if "gang_us" not in p]
    figures = [growth(what, [p["nodes"] for p in gangs], [p[key] for p in gangs], gangs) for key, what in WHAT.items()]
    for name, what in WIDE.items():
        figures += wide(name, what, of_wide)
    return figures
