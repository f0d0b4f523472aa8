"""What the shim costs a program that has no NCCL: its start, and its calls of dlsym."""
import os
import pathlib
import statistics
import subprocess
import time

from figure import Figure, median_ratio
from stage import NotBuilt

STARTS = 40  # of each side in a run
GOAL_MS = 2.0
GOAL_LOOKUP = 1.2


def start_ms(environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], environment), 0)
    return (time.perf_counter() - begin) * 1e3


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    shim, lookups = (build / "shim" / "libopus_shim.so").resolve(), build / "test" / "bench" / "bench_lookups"
    for needed in (shim, lookups):
        if not needed.exists():
            raise NotBuilt(needed)
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("OPUS_", "LD_"))}
    under = bare | {"LD_PRELOAD": str(shim)}
    plain, shimmed, calls = [], [], {"bare": [], "under": []}
    for _ in range(runs):
        pairs = [(start_ms(bare), start_ms(under)) for _ in range(STARTS)]
        plain.append(statistics.median(p for p, _ in pairs))
        shimmed.append(statistics.median(s for _, s in pairs))
        for name, environment in (("bare", bare), ("under", under)):
            said = subprocess.run(["taskset", "-c", str(core), lookups], env=environment, capture_output=True, text=True, check=True, timeout=60)
            calls[name].append([float(ns) for ns in said.stdout.split()])
    more = statistics.median(s - p for s, p in zip(shimmed, plain))
    figures = [Figure("start of a program without NCCL", f"{statistics.median(shimmed):.2f} ms", f"{statistics.median(plain):.2f} ms without the shim",
                      None, f"at most {GOAL_MS:g} ms more", more <= GOAL_MS, f"/bin/true, {more:.2f} ms more")]
    for at, where in enumerate(("on a handle", "on RTLD_DEFAULT")):
        own, floor = [c[at] for c in calls["under"]], [c[at] for c in calls["bare"]]
        ratio = median_ratio(own, floor)
        figures.append(Figure(f"dlsym {where}", f"{statistics.median(own):.0f} ns", f"{statistics.median(floor):.0f} ns without the shim", ratio,
                              f"at most {GOAL_LOOKUP:g}", ratio <= GOAL_LOOKUP))
    return figures
