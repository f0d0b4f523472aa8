"""The controller under many managers, against the bare loop: throughput, and what its application thread costs."""
import json
import pathlib
import statistics
import subprocess

from figure import Figure, median_ratio, us
from stage import Stage, program

GROUP = 8
REQUESTS = 60_000
GOAL_THROUGHPUT, GOAL_CPU = 0.8, 2.0


def load(build: pathlib.Path, address: str, managers: int, pid: int, core: int) -> dict:
    out = subprocess.check_output(
        [program(build, "bench_controller_load"), "--address", address, "--managers", str(managers), "--group",
         str(GROUP), "--requests", str(REQUESTS), "--server-pid", str(pid), "--core", str(core)], text=True, timeout=120)
    return json.loads(out.splitlines()[-1])


def one_run(build: pathlib.Path, managers: int, core: int, other: int, bare: bool) -> dict:
    """A fresh server on `core`, the load on `other`."""
    with Stage(build) as stage:
        if bare:
            server, at = stage.start("bench_bare_controller", ["--bind", "tcp://127.0.0.1:0"], core)
            address = at["wire"]
        else:
            fabric = stage.fabric(nodes=managers, gpus=1, ports=2, core=other)
            server, address = stage.controller(fabric, core)
        return load(build, address, managers, server.pid, other)


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    figures = []
    for managers in (64, 256):
        real, bare = [], []
        for _ in range(runs):
            bare.append(one_run(build, managers, core, other, bare=True))
            real.append(one_run(build, managers, core, other, bare=False))
        rate = [[r["requests_per_s"] for r in side] for side in (real, bare)]
        cpu = [[r["application_us"] for r in side] for side in (real, bare)]
        throughput, cost = median_ratio(*rate), median_ratio(*cpu)
        figures += [
            Figure(f"controller, {managers} managers, throughput", f"{statistics.median(rate[0]) / 1e3:.1f} k req/s",
                   f"{statistics.median(rate[1]) / 1e3:.1f} k req/s bare loop", throughput, f">= {GOAL_THROUGHPUT} x",
                   throughput >= GOAL_THROUGHPUT, data={"controller": real, "bare": bare}),
            Figure(f"controller, {managers} managers, application thread", us(cpu[0]) + " a request",
                   us(cpu[1]) + " bare loop", cost, f"<= {GOAL_CPU:g} x", cost <= GOAL_CPU),
        ]
    return figures
