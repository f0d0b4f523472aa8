"""How soon the manager picks up what only a GPU writes, and what polling takes of a core."""
import json
import pathlib
import subprocess

from figure import Figure
from stage import Stage, program

GOAL_US, GOAL_SHARE = 20, 0.05


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    with Stage(build) as stage:
        manager, socket = stage.manager("n0", "tcp://127.0.0.1:1", core)  # nobody there: it is asked nothing
        out = subprocess.check_output([program(build, "bench_pickup"), "--pid", str(manager.pid), "--core", str(other), str(socket)],
                                      text=True, timeout=120)
    figures = []
    for seen in json.loads(out.splitlines()[-1]):
        # Gaps of a millisecond and less leave no time to rest in; what nothing foretells takes a core or time.
        judged = seen["judged"]
        met = not judged or (seen["median_us"] <= GOAL_US and seen["share"] <= GOAL_SHARE)
        figures.append(Figure(f"ready picked up, {seen['pattern']}", f"{seen['median_us']:.1f} us, {seen['share']:.1%} of a core",
                              f"{seen['p90_us']:.1f} us 90th percentile", None,
                              f"<= {GOAL_US} us, <= {GOAL_SHARE:.0%}" if judged else "", met, data=seen))
    return figures
