"""The way of a launch: ready -> grant -> go, one rank and a whole node, on one pinned core."""
import json
import pathlib
import statistics
import subprocess
import time

from figure import Figure, median_ratio, us
from stage import Stage, pinned, program

GPUS = 8
GOAL_ONE, GOAL_TAIL, GOAL_ALL = 1.4, 2.0, 1.7


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    sizes = subprocess.check_output([program(build, "bench_frame_sizes")], text=True).split()
    with Stage(build) as stage:
        fabric = stage.fabric(nodes=2, gpus=GPUS, ports=2, core=core)
        _, address = stage.controller(fabric, core)
        _, near = stage.manager("n0", address, core)
        _, far = stage.manager("n1", address, other)
        time.sleep(1)
        out = subprocess.check_output(
            [program(build, "bench_latency"), "--near", str(near), "--far", str(far), "--gpus", str(GPUS),
             "--runs", str(runs), "--core", str(core), "--demand-bytes", sizes[0], "--grant-bytes", sizes[1]],
            text=True, timeout=300)
    data = json.loads(out.splitlines()[-1])
    bare, one, every = data["bare"], data["one_rank"], data["all_ranks"]
    ratio_one = median_ratio(one["median_us"], bare["median_us"])
    tail = statistics.median(p / m for p, m in zip(one["p99_us"], one["median_us"]))
    ratio_all = median_ratio(every["median_us"], one["median_us"])
    return [
        Figure("ready -> grant -> go, 1 node x 1 rank", us(one["median_us"]), us(bare["median_us"]) + " bare ZeroMQ path",
               ratio_one, f"<= {GOAL_ONE} x", ratio_one <= GOAL_ONE, data=data),
        Figure("the same, 99th percentile", us(one["p99_us"]), us(one["median_us"]) + " its median", tail,
               f"<= {GOAL_TAIL:g} x its median", tail <= GOAL_TAIL),
        Figure(f"{GPUS} ranks of a node ready at the same look", us(every["median_us"]), us(one["median_us"]) + " one rank",
               ratio_all, f"<= {GOAL_ALL} x one rank", ratio_all <= GOAL_ALL),
    ]
