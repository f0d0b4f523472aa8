"""Rows of the failure table (docs/failures.md) that death_test.py and switch_test.py do not have: a controller that
is away while launches go on within their runs, and peers that talk nonsense."""
import os
import random
import socket
import sys
import time

from cases import SLOW, case, expect, run, wait_for
from cluster import Play, Shape
from cluster.process import Child
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


def await_long_runs(cluster, job) -> None:
    """To the end of an iteration of few demands. A run ends before a launch whose peers were late the last time, and on a busy
    machine they often are; each iteration leaves fewer."""
    last = None
    while True:
        progress = job.progress()
        wait_for(lambda: job.progress() > progress, "another iteration", job)
        demands = cluster.counters()["demands"]
        if last is not None and demands - last <= 12:
            return
        last = demands


def survives_controller(cluster, job, launch_bytes: int) -> bool:
    """Kills the controller in a long phase and starts another. Whether launches went on without, and while the new one looked
    around; they need not where the moment was near the end of a run."""
    time.sleep(0.2)  # into the long phase
    cluster.controller.kill()
    time.sleep(0.05)
    dead, until = cluster.light(), time.monotonic() + 2 * SLOW  # much less than the hold time
    while not (alone := (cluster.light() - dead).delivered_bytes > 20 * launch_bytes) and time.monotonic() < until:
        time.sleep(0.02)
    cluster.start_controller(cluster.address, [])
    again = cluster.light()
    time.sleep(0.1 * SLOW)
    return alone and (cluster.light() - again).delivered_bytes > 0


@case("while no controller is there launches go on within their runs, and a new one takes over without a break")
def within_runs(context) -> None:
    with context.cluster(RING, controller_options=["--guard", "off", "--runs", "on"]) as cluster:
        job = start(cluster, phases(100, 400), 1)
        before = cluster.light()
        launch_bytes = before.delivered_bytes // max(1, job.progress() * 402)
        for _ in range(4):
            await_long_runs(cluster, job)
            if survived := survives_controller(cluster, job, launch_bytes):
                break
        expect(survived, "launches stopped without a controller, or while a new one looked around")
        for _ in range(2):
            progress = job.progress()
            wait_for(lambda: job.progress() > progress, "the job to go on", job)
        light, counters = cluster.light() - before, cluster.counters()
        expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"{light}")
        expect(counters["passes"] == 0 and counters["aborts"] == 0, f"{counters}")
        expect(not any("wrong result" in rank.output() for rank in job.ranks), "a result was wrong")
        job.stop()


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


def second_manager(cluster) -> Child:
    """On the same machine, with a runtime directory of its own, by the name of another."""
    folder = cluster.folder / "second"
    folder.mkdir(mode=0o700, exist_ok=True)
    return Child("a second manager of n0", [cluster.build.manager, "--node", "n0", "--controller", cluster.address,
                                            "--runtime-dir", folder], cluster.logs / "second.log", cluster.env)


@case("a second manager that says it is n0 is told of the first and ends; the job of the first does not notice")
def second(context) -> None:
    with context.cluster(PAIR) as cluster:
        job = start(cluster, steady(1500), begun=3)
        other = second_manager(cluster)
        try:
            wait_for(lambda: not other.running(), "the second manager to end", job)
            said = other.output()
            expect(other.process.returncode == 2, f"it ended with {other.process.returncode}: {said}")
            for who in (f"pid {cluster.managers[0].pid}, {cluster.runtime(0)}", f"pid {other.pid}, {cluster.folder}/second", "127.0.0.1", "--node"):
                expect(who in said, f"it does not say {who}: {said}")
        finally:
            other.kill()
        log = cluster.controller.output()
        expect(log.count("has a manager already") == 1, f"the controller tells of it {log.count('has a manager already')} times")
        expect("no manager" not in log and "session ended" not in log, f"the first was disturbed: {log[-2000:]}")
        expect("controller lost" not in cluster.managers[0].output(), "the first was disturbed")
        must_end_well(cluster, job)


@case("a manager of another place is let in when the first has been silent, one of the same place at once")
def replaced(context) -> None:
    with context.cluster(PAIR, env={"OPUS_LOG": "info"}) as cluster:
        cluster.restart_manager(0)
        wait_for(lambda: "this is node 0" in cluster.managers[0].output(), "the next manager to be welcomed")
        expect("refused" not in cluster.controller.output(), "it was refused")
        cluster.managers[0].kill()
        other = second_manager(cluster)
        try:
            wait_for(lambda: "this is node 0" in other.output() or not other.running(), "the other manager to be welcomed")
            expect(other.running(), f"it ended: {other.tail()}")
        finally:
            other.kill()


if __name__ == "__main__":
    sys.exit(run())
