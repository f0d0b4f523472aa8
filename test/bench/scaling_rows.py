"""What a gang, a plan and a decision cost the controller's core as the number of nodes grows."""
import json
import math
import pathlib
import subprocess

from figure import Figure
from stage import program

WHAT = {"gang_us": "cost of a gang", "plan_us": "cost of a plan", "decision_us": "cost of a decision"}


def exponent(sizes: list[int], costs: list[float]) -> float:
    """Slope of the least-squares line through (log size, log cost)."""
    x, y = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    out = subprocess.check_output(["taskset", "-c", str(core), program(build, "bench_core_scaling"), "--runs", str(runs)],
                                  text=True, timeout=300)
    points = [json.loads(line) for line in out.splitlines()]
    sizes = [p["nodes"] for p in points]
    goal = exponent(sizes, [n * math.log2(2 * n) for n in sizes])
    figures = []
    for key, name in WHAT.items():
        costs = [p[key] for p in points]
        grown = exponent(sizes, costs)
        figures.append(Figure(f"{name}, {sizes[0]} to {sizes[-1]} nodes", f"{costs[0]:.1f} to {costs[-1]:.0f} us, n^{grown:.2f}",
                              f"n log n is n^{goal:.2f} here", grown / goal, "no faster than n log n", grown <= goal,
                              note=", ".join(f"{n}: {c:.1f} us" for n, c in zip(sizes, costs)), data={"points": points}))
    return figures
