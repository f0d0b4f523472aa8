"""What a manager finds in its runtime directory when it comes: a living rank's segment is never removed, whatever the
manager makes of it; what a dead rank left is."""
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import tempfile

from cases import SANITIZED, SLOW, Skip, case, expect, run, wait_for
from cluster import Play, Shape
from cluster.process import Child, undisturbed
from workload_text import Workload, grid

SHAPE = Shape(nodes=2, gpus=1, ports=1, dark_ms=2)
HOLD_MS = 60_000 * SLOW  # nobody is to wait so long
VERSION = struct.Struct("=8xI")  # major << 16 | minor


def steady(gpus: int, iterations: int) -> Workload:
    w = Workload("steady", grid(2, gpus), iterations)
    w.comm("pairs", [[gpu, gpus + gpu] for gpu in range(gpus)])
    for rank in range(2 * gpus):
        w.step(rank, "compute", stream="s", us=2000)
    w.collective("all_reduce", "pairs", list(range(2 * gpus)), size=40_000)
    return w


def start(cluster, iterations: int, **settings: str):
    job = cluster.start_job(Play(steady(cluster.shape.gpus, iterations).write(cluster.folder / "job.jsonl"), timeout_s=60 * SLOW, env={
        "OPUS_GATE": "stream", "OPUS_REQUIRE": "1", "OPUS_HOLD_MS": str(HOLD_MS), **settings}))
    wait_for(lambda: job.progress() >= 3, "the job to begin", job)
    return job


def segments(cluster, node: int = 0) -> list:
    return sorted(cluster.runtime(node).glob("rank-*.seg"))


def set_version(path, version: int) -> int:
    with open(path, "r+b") as file:
        before, = VERSION.unpack(file.read(VERSION.size))
        file.seek(8)
        file.write(struct.pack("=I", version))
    return before


def must_end_well(cluster, job) -> None:
    result = job.wait(90 * SLOW)
    expect(result.total("mismatches") == 0, "a result was wrong")
    counters = cluster.counters()
    expect(counters["passes"] == 0 and counters["aborts"] == 0, f"{counters}")


@case("a living rank's segment of another version is left alone, both versions are told, and its own manager finds it")
def version(context) -> None:
    with context.cluster(SHAPE) as cluster:
        job = start(cluster, 300)
        cluster.managers[0].kill()
        path, = segments(cluster)
        before = set_version(path, 9 << 16 | 4)
        with undisturbed():
            cluster.managers[0] = cluster._manager(0)
        cluster.managers[0].wait_ready()
        expect(path.exists(), "the segment of a living rank was removed")
        said = cluster.managers[0].output()
        for word in (str(path), "9.4", f"{before >> 16}.{before & 0xffff}", "left alone"):
            expect(word in said, f"nothing is said of {word}: {said}")
        cluster.managers[0].signal(signal.SIGTERM)
        expect(cluster.managers[0].wait(20 * SLOW) == 0, "the manager did not end well")
        expect(path.exists(), "the segment of a living rank was removed at the end")
        set_version(path, before)
        cluster.restart_manager(0)
        expect(job.wait(90 * SLOW).total("mismatches") == 0, "a result was wrong")  # what the first did not serve has passed


@case("a dead rank's segment of another version is removed")
def dead(context) -> None:
    with context.cluster(SHAPE) as cluster:
        job = start(cluster, 100_000)
        cluster.managers[0].kill()
        path, = segments(cluster)
        set_version(path, 9 << 16)
        job.stop()
        with undisturbed():
            cluster.managers[0] = cluster._manager(0)
        cluster.managers[0].wait_ready()
        expect(not path.exists(), "it is still there")


def limited(cluster, *limits: str) -> Child:
    """A manager of n0 with less than it needs, perhaps; when it serves, or has ended."""
    # libzmq frees nothing of a context that it had too few descriptors to make: a leak of a process that ends, and not ours.
    env = {**cluster.env, "ASAN_OPTIONS": cluster.env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    with undisturbed():
        manager = Child(f"manager of n0 with {limits}", [
            "prlimit", *limits, cluster.build.manager, "--node", "n0", "--controller", cluster.address, "--runtime-dir",
            cluster.runtime(0)], cluster.logs / "manager0.log", env)
    wait_for(lambda: "ready socket" in manager.output() or not manager.running(), "a manager to serve, or to end")
    return manager


@case("a manager without descriptors leaves living ranks' segments, and the next one finds them")
def descriptors(context) -> None:
    with context.cluster(Shape(nodes=2, gpus=2, ports=1, dark_ms=2)) as cluster:
        job = start(cluster, 300)
        cluster.managers[0].kill()
        living = segments(cluster)
        for most in range(5, 13):  # from too few for the lock to too few for the socket
            few = limited(cluster, f"--nofile={most}")
            said, ended = few.output(), not few.running()
            few.kill()
            expect(ended, f"{most} descriptors were enough: {said}")
            expect(segments(cluster) == living, f"with {most} descriptors a living rank's segment was removed: {said}")
        cluster.restart_manager(0)
        must_end_well(cluster, job)


@case("a manager says if no GPU can map what lies in its runtime directory")
def on_disk(context) -> None:
    with context.cluster(SHAPE) as cluster, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        for folder in (cluster.folder / "of-its-own", pathlib.Path(memory) / "of-its-own"):
            folder.mkdir()
            kind = subprocess.check_output(["stat", "-f", "-c", "%T", folder], text=True).strip()
            manager = Child("manager-elsewhere", [cluster.build.manager, "--node", "n1", "--controller", "tcp://127.0.0.1:1", "--runtime-dir",
                                                  folder], cluster.logs / "manager-elsewhere.log", {**os.environ, "OPUS_LOG": "warn"})
            wait_for(lambda: "ready socket" in manager.output() or not manager.running(), "a manager to serve")
            said = manager.output()
            manager.kill()
            expect(("is not on a tmpfs" in said) == (kind != "tmpfs"), f"{folder} is {kind}:\n{said}")
            expect(kind == "tmpfs" or str(folder) in said, said)


@case("a segment that cannot be mapped now is mapped later")
def memory(context) -> None:
    if SANITIZED:
        raise Skip("a sanitizer wants all addresses for itself")
    with context.cluster(SHAPE, env={"OPUS_LOG": "info"}) as cluster:
        job = start(cluster, 1500, OPUS_RING_SLOTS="65536")
        cluster.managers[0].kill()
        path, = segments(cluster)
        for megabytes in range(16, 256, 4):  # with small stacks nothing else that it needs is as large
            manager = limited(cluster, f"--as={megabytes << 20}:", "--stack=262144:")
            expect(path.exists(), f"with {megabytes} MB the segment of a living rank was removed: {manager.output()}")
            if manager.running():
                break
        cluster.managers[0] = manager
        expect("cannot be mapped" in manager.output(), f"it had room: {manager.output()}")
        resource.prlimit(manager.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_for(lambda: "found again" in manager.output(), "the segment to be mapped", job)
        must_end_well(cluster, job)


if __name__ == "__main__":
    sys.exit(run())
