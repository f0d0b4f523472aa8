"""The way of a launch: ready -> grant -> go, one rank and a whole node, on one pinned core."""
import json
import pathlib
import statistics
import subprocess
import time

from figure import Figure, median_ratio, us
from stage import Stage, program

GPUS = 8
COUNTED_TRIPS = 100
GOAL_ONE, GOAL_TAIL, GOAL_ALL = 1.4, 2.0, 1.7


def latency(stage: Stage, near_controller: str, address: str, core: int, other: int, *more: str, gpus: int = GPUS) -> dict:
    """Round trips over three managers, of which the near one speaks to `near_controller`."""
    sizes = subprocess.check_output([program(stage.build, "bench_frame_sizes")], text=True).split()
    _, near = stage.manager("n0", near_controller, core)
    sockets = [near] + [stage.manager(n, address, other)[1] for n in ("n1", "n2")]
    time.sleep(1)
    out = subprocess.check_output(
        [program(stage.build, "bench_latency"), "--gpus", str(gpus), "--core",
         str(core), "--demand-bytes", sizes[0], "--grant-bytes", sizes[1], *more, *map(str, sockets)], text=True, timeout=300)
    return json.loads(out.splitlines()[-1])


def messages(build: pathlib.Path, core: int, other: int) -> Figure:
    """Demand messages a gang, counted on the wire."""
    with Stage(build) as stage:
        _, address = stage.controller(stage.fabric(nodes=3, gpus=GPUS, ports=2, core=core), core)
        tap, at = stage.start("bench_frame_tap", ["--controller", address], other)
        gangs = latency(stage, at["wire"], address, core, other, "--runs", "1", "--trips", str(COUNTED_TRIPS))["gangs"]
        tap.stdin.close()
        counted = json.loads(tap.stdout.read().decode().splitlines()[-1])
    sent, launches = counted["up"]["messages"].get("Demand", 0), counted["up"]["demanded"]
    whole = launches == gangs["alone"] + gangs["one"] + gangs["all"] * GPUS
    total = sum(gangs.values())
    return Figure(f"{GPUS} ranks of a node ready at the same look, messages", f"{sent} demands, {launches} launches",
                  f"{total} gangs, {gangs['all']} of them of {GPUS} ranks", sent / total, "exactly one", whole and sent == total,
                  data=counted)


def one_rank(build: pathlib.Path, runs: int, core: int, other: int) -> dict:
    """A node with one rank, and nothing between its launches but the bare path."""
    with Stage(build) as stage:
        _, address = stage.controller(stage.fabric(nodes=3, gpus=1, ports=2, core=core), core)
        return latency(stage, address, address, core, other, "--runs", str(runs), "--only-alone", gpus=1)


def whole_node(build: pathlib.Path, runs: int, core: int, other: int) -> dict:
    with Stage(build) as stage:
        _, address = stage.controller(stage.fabric(nodes=3, gpus=GPUS, ports=2, core=core), core)
        return latency(stage, address, address, core, other, "--runs", str(runs))


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    single, whole = one_rank(build, runs, core, other), whole_node(build, runs, core, other)
    bare, alone, one, every = single["bare"], single["alone"], whole["one"], whole["all"]
    ratio_one = median_ratio(alone["median_us"], bare["median_us"])
    tail = statistics.median(p / m for p, m in zip(alone["p99_us"], alone["median_us"]))
    ratio_all = median_ratio(every["median_us"], one["median_us"])
    return [
        Figure("ready -> grant -> go, 1 node x 1 rank", us(alone["median_us"]), us(bare["median_us"]) + " bare ZeroMQ path",
               ratio_one, f"<= {GOAL_ONE} x", ratio_one <= GOAL_ONE, data=single),
        Figure("the same, 99th percentile", us(alone["p99_us"]), us(alone["median_us"]) + " its median", tail,
               f"<= {GOAL_TAIL:g} x its median", tail <= GOAL_TAIL),
        messages(build, core, other),
        Figure(f"{GPUS} ranks of a node ready at the same look", us(every["median_us"]), us(one["median_us"]) + " one rank a node",
               ratio_all, f"<= {GOAL_ALL} x one rank", ratio_all <= GOAL_ALL, data=whole),
    ]
