"""opus-ctl record and summary: what a job did is in the file, whatever becomes of the recorder."""
import json
import signal
import subprocess
import sys
import time

from cases import SLOW, case, expect, run
from cluster import Child, Play, Shape
from workload_text import Workload, grid

RING = Shape(nodes=3, gpus=1, ports=2, dark_ms=5)
GAP_MS = 20


def moving(iterations: int) -> Workload:
    """Pairs of three nodes in turn, a computation before each collective: circuits move, and there are windows."""
    w = Workload("moving", grid(3, 1), iterations)
    pairs = ((0, 1), (1, 2), (0, 2))
    for a, b in pairs:
        w.comm(f"p{a}{b}", [[a, b]])
    for a, b in pairs:
        for rank in (a, b):
            w.step(rank, "compute", stream="s", us=GAP_MS * 1000)
        w.collective("all_reduce", f"p{a}{b}", [a, b], size=40_000)
    return w


def play(cluster, workload: Workload, name: str = "job", **options) -> Play:
    path = workload.write(cluster.folder / f"{name}.jsonl")
    env = {"OPUS_REQUIRE": "1", "OPUS_GATE": "stream", **options.pop("env", {})}
    return Play(path, timeout_s=60 * SLOW, env=env, **options)


class Recorder:
    """opus-ctl record, running."""

    def __init__(self, cluster, *arguments: str):
        self.file = cluster.folder / "recording.jsonl"
        self.file.unlink(missing_ok=True)
        self.child = Child("opus-ctl record", [cluster.build.ctl, "--controller", cluster.address, "--json", "record",
                                               self.file, *arguments], cluster.logs / "record.log", cluster.env)
        until = time.monotonic() + 10 * SLOW
        while not (self.file.exists() and self.file.stat().st_size > 0):
            expect(time.monotonic() < until, f"nothing is recorded: {self.child.tail()}")
            time.sleep(0.02)

    def all(self) -> list[dict]:
        return [json.loads(line) for line in self.file.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def lines(self, kind: str) -> list:
        return [line[kind] for line in self.all() if kind in line]

    def end(self) -> dict:
        expect(self.child.wait(20 * SLOW) == 0, f"opus-ctl record did not end well: {self.child.tail()}")
        return json.loads(self.child.output())


def summary(cluster, *arguments: str) -> tuple[dict, str]:
    done = subprocess.run([cluster.build.ctl, "--controller", cluster.address, "--json", "summary", *map(str, arguments)],
                          capture_output=True, text=True, timeout=20 * SLOW, env=cluster.env)
    expect(done.returncode == 0, f"opus-ctl summary: {done.stderr}")
    return json.loads(done.stdout), done.stderr


@case("a recording ends with its job and has its launches, gangs, circuits and windows, and no other job's")
def whole(context) -> None:
    with context.cluster(RING, controller_options=["--log", "info"]) as cluster:
        cluster.run_job(play(cluster, moving(1), "before"), 60 * SLOW, "before")
        before = cluster.counters()
        recorder = Recorder(cluster, "--job", "job")
        cluster.run_job(play(cluster, moving(6)), 60 * SLOW)
        told = recorder.end()
        after = cluster.counters()
        launches, changes = recorder.lines("launch"), recorder.lines("change")
        expect(len(launches) == after["launches_done"] - before["launches_done"], f"{len(launches)} launches: {after}")
        expect(len(recorder.lines("gang")) == after["grants"] - before["grants"], "not every gang is there")
        expect(len(changes) == after["reconfigurations"] - before["reconfigurations"], f"{len(changes)} change sets")
        expect({line["job"] for line in recorder.all() if "rank" in line} == {"job"}, "other jobs are in it")
        job = told["jobs"][0]
        expect(job["job"] == "job" and job["ended"] and job["ranks"] == 3 and job["launches"] == len(launches), f"{job}")
        phase = next(p for p in job["phases"] if p["op"] == "AllReduce")
        # The last two collectives of a rank have a computation between them, whatever else there is.
        expect(phase["group_size"] == 2 and phase["window_max_ms"] >= GAP_MS, f"{phase}")
        fabric = told["fabric"]
        expect(fabric["dark_ms"] >= 5 * len(changes), f"less dark than the switch takes: {fabric}")
        expect(abs(fabric["hidden_ms"] + fabric["exposed_ms"] - fabric["dark_ms"]) < 1e-3, f"{fabric}")
        expect(summary(cluster, recorder.file)[0] == told, "the file says something else than opus-ctl record said")
        live = summary(cluster, "--job", "job")[0]["jobs"][0]
        expect(live["launches"] == job["launches"] and live["phases"] == job["phases"], f"the controller differs: {live}")
        expect("job job has ended: 3 ranks" in cluster.controller.output(), "no summary in the log")


@case("a recorder that is killed leaves a file that can be read, also with half a line at its end; so does Ctrl-C")
def killed(context) -> None:
    with context.cluster(RING) as cluster:
        job = cluster.start_job(play(cluster, moving(100_000)))
        for number in (signal.SIGKILL, signal.SIGINT):
            recorder = Recorder(cluster)
            until = time.monotonic() + 20 * SLOW
            while not recorder.lines("launch"):
                expect(time.monotonic() < until, "no launch is recorded")
                time.sleep(0.05)
            recorder.child.signal(number)
            code = recorder.child.wait(10 * SLOW)
            expect(code == (0 if number == signal.SIGINT else -9), f"it ended with {code}: {recorder.child.tail()}")
            text = recorder.file.read_bytes()
            recorder.file.write_bytes(text[:-3])
            told, said = summary(cluster, recorder.file)
            expect(told["jobs"][0]["launches"] > 0, f"{told}")
            expect("middle of a line" in said, f"the torn line is not spoken of: {said}")
        expect(cluster.ctl("status")["counters"]["launches_done"] > 0 and not any(job.poll()), "the job was disturbed")
        job.stop()


@case("observe mode records a job on a network without switches, and holds nothing")
def observed(context) -> None:
    with context.cluster(RING, emulator_options=["--always-lit"], controller_options=["--observe"]) as cluster:
        recorder = Recorder(cluster, "--job", "job")
        iterations = 6
        cluster.run_job(play(cluster, moving(iterations), env={"OPUS_MODE": "observe"}, steered=False), 60 * SLOW)
        told = recorder.end()
        job = told["jobs"][0]
        expect(job["launches"] == 6 * iterations and job["held_launches"] == 0, f"{job}")
        phase = next(p for p in job["phases"] if p["op"] == "AllReduce")
        expect(phase["windows"] == 6 * iterations - 3, f"a window before each phase but the first of each rank: {phase}")
        expect(phase["window_median_ms"] >= GAP_MS * 0.9, f"computing is no window: {phase}")
        expect(phase["bytes"] == 6 * iterations * 40_000, f"{phase}")
        counters = cluster.counters()
        expect(counters["demands"] == 0 and counters["reconfigurations"] == 0, f"{counters}")
        expect(all(not s["session"] for s in cluster.ctl("status")["switches"]), "a switch is connected to")


@case("a controller's own recording can be read after the controller was killed")
def own_file(context) -> None:
    with context.cluster(RING) as cluster:
        file = cluster.folder / "own.jsonl"
        cluster.controller.kill()
        cluster.start_controller(cluster.address, ["--record", str(file)])
        job = cluster.start_job(play(cluster, moving(100_000)))
        until = time.monotonic() + 20 * SLOW
        while not (file.exists() and b'"launch"' in file.read_bytes()):
            expect(time.monotonic() < until, "no launch is recorded")
            time.sleep(0.05)
        cluster.controller.kill()
        told, _ = summary(cluster, file)
        expect(told["jobs"][0]["job"] == "job" and told["jobs"][0]["launches"] > 0, f"{told}")
        job.stop()


if __name__ == "__main__":
    sys.exit(run())
