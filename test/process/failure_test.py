"""Rows of the failure table (docs/failures.md) that death_test.py and switch_test.py do not have: a controller that
is away while launches go on within their runs, and peers that talk nonsense."""
import os
import random
import socket
import sys
import time

from cases import SLOW, case, expect, run, wait_for
from cluster import Play, Shape
from workload_text import Workload, grid

PAIR = Shape(nodes=2, gpus=1, ports=1, dark_ms=2)
RING = Shape(nodes=3, gpus=1, ports=1, dark_ms=2)
SIZE = 40_000


def phases(iterations: int, launches: int) -> Workload:
    """Long phases of n0 and n1, and short ones of each with n2, over one port each: what a run is for."""
    w = Workload("phases", grid(3, 1), iterations)
    w.comm("long", [[0, 1]])
    w.comm("p12", [[1, 2]])
    w.comm("p02", [[0, 2]])
    for _ in range(launches):
        for rank in (0, 1):
            w.step(rank, "compute", stream="s", us=2000)
        w.collective("all_reduce", "long", [0, 1], size=SIZE)
    for a, b in ((1, 2), (0, 2)):
        w.collective("all_reduce", f"p{a}{b}", [a, b], size=SIZE)
    return w


def steady(iterations: int) -> Workload:
    w = Workload("steady", grid(2, 1), iterations)
    w.comm("pair", [[0, 1]])
    for rank in range(2):
        w.step(rank, "compute", stream="s", us=2000)
    w.collective("all_reduce", "pair", [0, 1], size=SIZE)
    return w


def start(cluster, workload: Workload, begun: int):
    path = workload.write(cluster.folder / "job.jsonl")
    job = cluster.start_job(Play(path, timeout_s=60 * SLOW, env={"OPUS_GATE": "stream", "OPUS_REQUIRE": "1"}))
    wait_for(lambda: job.progress() >= begun, "the job to begin", job)
    return job


def must_end_well(cluster, job) -> None:
    result = job.wait(90 * SLOW)
    expect(result.total("mismatches") == 0, "a result was wrong")
    expect(not cluster.waiting(), f"somebody still waits: {cluster.waiting()}")
    counters = cluster.counters()
    expect(counters["passes"] == 0 and counters["aborts"] == 0, f"{counters}")


@case("while no controller is there launches go on within their runs, and a new one takes over without a break")
def within_runs(context) -> None:
    options = ["--runs", "on"]
    with context.cluster(RING, controller_options=options) as cluster:
        job = start(cluster, phases(5, 400), 3)  # the first iteration teaches, the second tells that it was learned
        before = cluster.light()
        expect(cluster.counters()["runs"] > 0, f"no run was granted: {cluster.counters()}")
        launch_bytes = before.delivered_bytes // max(1, job.progress() * 402)
        time.sleep(0.2)  # into the long phase
        cluster.controller.kill()
        time.sleep(0.05)
        dead = cluster.light()
        wait_for(lambda: (cluster.light() - dead).delivered_bytes > 20 * launch_bytes, "launches to go on without a controller", job,
                 seconds=5)  # much less than the hold time
        cluster.start_controller(cluster.address, [])
        again = cluster.light()
        time.sleep(0.1 * SLOW)
        expect((cluster.light() - again).delivered_bytes > 0, "launches stopped while the new controller looked around")
        must_end_well(cluster, job)
        light = cluster.light() - before
        expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"{light}")


def zmtp(address: str) -> socket.socket:
    """A connection that has greeted as ZeroMQ's DEALERs do (ZMTP 3.0, NULL)."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    s = socket.create_connection((host, int(port)), timeout=10)
    s.sendall(b"\xff" + bytes(8) + b"\x7f" + bytes([3, 0]) + b"NULL".ljust(20, b"\0") + bytes(32))
    metadata = b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER" + b"\x08Identity" + (0).to_bytes(4, "big")
    ready = b"\x05READY" + metadata
    s.sendall(bytes([4, len(ready)]) + ready)
    return s


@case("peers that talk nonsense to the controller, a manager or a switch disturb nobody, and are counted")
def nonsense(context) -> None:
    source = random.Random(int(os.environ.get("OPUS_RANDOM_SEED", "1")))
    with context.cluster(PAIR) as cluster:
        job = start(cluster, steady(150), 1)
        rejected = cluster.ctl("status")["wire"]["rejected"]
        for _ in range(20):
            noise = source.randbytes(source.randrange(1, 200))
            with zmtp(cluster.address) as s:
                s.sendall(bytes([0, len(noise)]) + noise)
            host, port = cluster.address.removeprefix("tcp://").rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=10) as s:
                s.sendall(noise)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                try:
                    s.connect(str(cluster.runtime(0) / "manager.sock"))
                    s.sendall(noise)
                except OSError:
                    pass  # it hangs up on us: fine
            host, port = cluster.scpi[0].rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=10) as s:
                s.sendall(noise + b"\n")
        must_end_well(cluster, job)
        expect(cluster.ctl("status")["wire"]["rejected"] > rejected, "nothing was counted")
        expect(all(n["session"] for n in cluster.ctl("status")["nodes"]), "a manager lost its session")
        light = cluster.light()
        expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"{light}")


if __name__ == "__main__":
    sys.exit(run())
