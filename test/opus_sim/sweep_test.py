#!/usr/bin/env python3
"""`opus-sim sweep`: what it plays, and that nothing of it is lost, played twice or mixed, whoever ends it and whenever.

    sweep_test.py BUILD [SUBSTRING...]
"""
import contextlib
import csv
import fcntl
import gzip
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "process"))
import cases  # noqa: E402
from cases import ROOT, Skip, case, expect, wait_for  # noqa: E402
from launchers import Slurm, installed  # noqa: E402

PROGRAM = (pathlib.Path(sys.argv[1]) / "tools/opus-sim/opus-sim").resolve()
SCRIPT = ROOT / "docs/examples/slurm/opus-sim-sweep.sbatch"
RECORDING = ROOT / "test/data/pytorch/pipeline-fsdp.jsonl"

MODEL = """[job]
model = "llama3-8b"
layers = 4
tensor = 2
gpus-per-node = 2
pipeline = [2, 4]
data = 2
micro-batches = 4
[run]
ports = [1, 2]
dark-ms = [1, 50]
iterations = 4
trials = 3
"""
CIRCLE = """{"workload":1,"name":"circle","iterations":2,"places":[[0,0],[1,0]]}
{"comm":"a","groups":[[0,1]]}
{"comm":"b","groups":[[0,1]]}
{"role":"one","ranks":[0]}
{"role":"two","ranks":[1]}
{"role":"one","do":"all_reduce","comm":"a","stream":"s","bytes":1000,"dtype":"bfloat16"}
{"role":"one","do":"all_reduce","comm":"b","stream":"s","bytes":1000,"dtype":"bfloat16"}
{"role":"two","do":"all_reduce","comm":"b","stream":"s","bytes":1000,"dtype":"bfloat16"}
{"role":"two","do":"all_reduce","comm":"a","stream":"s","bytes":1000,"dtype":"bfloat16"}
"""


class Sweep:
    def __init__(self, folder: str, text: str = MODEL, name: str = "out"):
        self.file, self.out = pathlib.Path(folder, "sweep.toml"), pathlib.Path(folder, name)
        self.file.write_text(text)

    def command(self, *more) -> list:
        return [str(PROGRAM), "sweep", str(self.file), "--out", str(self.out), *map(str, more)]

    def run(self, *more, code=0) -> tuple:
        """What it prints: standard output, standard error."""
        done = subprocess.run(self.command(*more), capture_output=True, text=True, timeout=500)
        expect(done.returncode == code, f"{more} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout, done.stderr

    def files(self) -> dict:
        """By name: their bytes."""
        return {path.name: path.read_bytes() for path in sorted((self.out / "points").iterdir())}

    def rows(self) -> list:
        with open(self.out / "table.csv", newline="") as text:
            return list(csv.DictReader(text))

    def begin(self, *more) -> subprocess.Popen:
        return subprocess.Popen(self.command(*more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def children(process: int) -> list:
    return [int(pid) for pid in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def state(process: int) -> str:
    """Its letter; Z where it is no longer there."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def alive(process: int) -> bool:
    return state(process) not in "ZX"


@contextlib.contextmanager
def in_mid_point(sweep: Sweep, *more, after: int = 2):
    """A sweep that has stored so many points and is at others: the process, and its children, which are stopped there."""
    def held() -> list:
        if len(list(sweep.out.glob("points/*.json"))) < after:
            return []
        def each(told: int) -> None:
            for child in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, told)
        found = children(process.pid)
        each(signal.SIGSTOP)
        wait_for(lambda: all(state(child) in "TZX" for child in found), "children to stop")
        stopped = [child for child in found if state(child) == "T"]
        if stopped and len(list(sweep.out.glob("points/*.part"))) == len(found):
            return stopped
        each(signal.SIGCONT)  # one has stored its point, and was about to end
        return []
    process = sweep.begin(*more)
    try:
        yield process, wait_for(held, "the first points of a sweep")
    finally:
        process.kill()
        process.wait()


@case("each combination is a point, with the figures of generate and run; the table says the same thrice")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(folder)
        text, said = sweep.run()
        names = [f"pipeline={p}_ports={n}_dark-ms={d}" for p in (2, 4) for n in (1, 2) for d in (1, 50)]
        expect(sorted(sweep.files()) == sorted(name + ".json" for name in names), f"{list(sweep.files())}")
        expect(sweep.run("--list")[0].split() == names, "the names")
        rows = sweep.rows()
        expect([row["point"] for row in rows] == names, f"{rows}")
        job = f"{folder}/job.jsonl"
        subprocess.run([PROGRAM, "generate", "llama3-8b", "--layers", "4", "--tensor", "2", "--gpus-per-node", "2", "--pipeline", "4",
                        "--data", "2", "--micro-batches", "4", "--out", job], check=True)
        alone = json.loads(subprocess.check_output([PROGRAM, "run", job, "--ports", "2", "--dark-ms", "50", "--iterations", "4",
                                                    "--trials", "3", "--no-answers", "--json"]))
        held = json.loads(sweep.files()[names[-1] + ".json"])
        expect(held["run"] == alone, "a point differs from the same run")
        row, point = rows[-1], alone["points"][0]
        for column, value in (("pipeline", 4), ("ports", 2), ("dark_ms", 50), ("ranks", 16), ("electrical_ms", alone["electrical_ms"]),
                              ("provisioned_ms", point["provisioned"]["iteration_ms"]), ("best_found_ms", point["best_found_ms"]),
                              ("on_demand_over_electrical", point["on_demand"]["over_electrical"])):
            expect(float(row[column]) == value, f"{column}: {row[column]} for {value}")
        told = json.loads(sweep.run("--json")[0])
        expect([{c: "" if r[c] is None else str(r[c]) for c in told["columns"]} for r in told["rows"]] == rows, "JSON and CSV differ")
        expect(text.splitlines()[-3:] == sweep.run()[0].splitlines()[-3:] and f"{100 * point['provisioned']['over_electrical']:+.2f} %" in text, text)


@case("the same points byte for byte: on one core, on two, in parts, of another order")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        wanted = Sweep(folder, name="one")
        wanted.run("--at-once", 1)
        two, parts = Sweep(folder, name="two"), Sweep(folder, name="parts")
        two.run("--at-once", 2)
        for part in (3, 1, 2):
            parts.run("--part", f"{part}/3")
            expect(not (parts.out / "table.csv").exists(), "a part made the table")
        _, said = parts.run("--table")
        expect(wanted.files() == two.files() == parts.files(), "files differ")
        expect((wanted.out / "table.csv").read_bytes() == (two.out / "table.csv").read_bytes() == (parts.out / "table.csv").read_bytes(), "tables differ")
        lines = MODEL.splitlines(keepends=True)
        Sweep(folder, "".join(lines[:2] + lines[3:8] + lines[2:3] + lines[8:]), name="one").run()  # the same options
        for part in ("0/3", "4/3", "1", "1/3x"):
            expect(f"--part {part}: it must be K/N" in parts.run("--part", part, code=2)[1], part)


@case("a sweep that was killed in mid-point goes on where it was: nothing is lost, by halves, or played twice")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        whole, sweep = Sweep(folder, name="whole"), Sweep(folder, name="killed")
        whole.run()
        for at_once in (1, 2):
            with in_mid_point(sweep, "--at-once", at_once) as (process, playing):
                process.send_signal(signal.SIGKILL)
                process.wait()
                for child in playing:  # one that was stopped before it could ask for its end finds that its parent is gone
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGCONT)
                wait_for(lambda: not any(map(alive, playing)), "the end of a killed sweep's children")
                there = {path: path.stat().st_mtime_ns for path in sweep.out.glob("points/*.json")}
                expect(list(sweep.out.glob("points/*.part")), "it was not killed in mid-point")
                for path in there:
                    expect(path.read_bytes() == whole.files()[path.name], f"{path} is not whole")
            said = sweep.run("--table", code=2)[1]
            expect(f"{8 - len(there)} of 8 points have not been played: " in said, said)
            said = sweep.run("--at-once", at_once)[1]
            expect(f"{len(there)} of 8 points are there already" in said, said)
            expect(all(path.stat().st_mtime_ns == time for path, time in there.items()), "a point was played twice")
            expect(sweep.files() == whole.files(), "files differ from those of a sweep that was not killed")
            expect(sweep.rows() == whole.rows(), "the table differs")
            shutil.rmtree(sweep.out)


@case("Ctrl-C ends a sweep and its processes, and leaves whole points only")
def _(context):
    for stop in (signal.SIGINT, signal.SIGTERM):
        with tempfile.TemporaryDirectory() as folder:
            sweep = Sweep(folder)
            with in_mid_point(sweep) as (process, playing):
                process.send_signal(stop)
                said = process.communicate(timeout=30)[1]
                expect(process.returncode == 128 + stop, f"{process.returncode}")
                expect(re.search(r"stopped; \d of 8 points are there, and the same command goes on", said), said)
                expect(not any(map(alive, playing)), "children are left")
            expect(all(name.endswith(".json") for name in sweep.files()), f"{list(sweep.files())}")
            for data in sweep.files().values():
                json.loads(data)
            sweep.run()
            expect(len(sweep.files()) == 8, f"{list(sweep.files())}")


@case("two processes share a sweep: each point is played once")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(folder)
        both = [sweep.begin("--at-once", 1) for _ in range(2)]
        said = [process.communicate(timeout=300)[1] for process in both]
        expect([process.returncode for process in both] == [0, 0], f"{said}")
        played = [re.findall(r"(pipeline=\S+) \(", text) for text in said]
        expect(all(played) and sorted(sum(played, [])) == sorted(name[:-5] for name in sweep.files()), f"{said}")


@case("points of another program, job or options are never mixed in: they are named, and played again if that is asked for")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(RECORDING, f"{folder}/job.jsonl")
        text = '[job]\nfiles = "job.jsonl"\n[run]\ndark-ms = [1, 50]\nbest = false\nsplit = false\nports = 1\n'
        sweep = Sweep(folder, text)
        sweep.run()
        before = sweep.files()
        path = sweep.out / "points/dark-ms=50.json"

        def refused(why: str) -> None:
            said = sweep.run(code=2)[1]
            expect("was played from something else" in said and why in said and "--replace" in said, said)
            sweep.run("--replace")
            sweep.run()

        Sweep(folder, text.replace("ports = 1", "ports = 2"))
        refused("--ports=2")
        expect(sweep.files()["dark-ms=50.json"] != before["dark-ms=50.json"], "not played again")
        Sweep(folder, text)
        refused("--ports=1")
        expect(sweep.files() == before, "not played again")
        for old, new in (('"version": "', '"version": "1'), ('"digest": "', '"digest": "0')):
            path.write_text(path.read_text().replace(old, new, 1))
            refused("version" if "version" in old else "digest")
            expect(sweep.files() == before, "not played again")
        pathlib.Path(folder, "job.jsonl").write_bytes(gzip.compress(RECORDING.read_bytes()))
        refused("job.jsonl")
        path.write_bytes(before["dark-ms=50.json"][:1000])
        expect(f"{path}: it is no point of a sweep" in sweep.run(code=2)[1], "a file that was cut short")
        sweep.run("--replace")
        Sweep(folder, text.replace("[1, 50]", "[1, 20]"))
        expect("1 file is" in sweep.run()[0], "a point that is no longer asked for")
        expect([row["dark_ms"] for row in sweep.rows()] == ["1.0", "20.0"], f"{sweep.rows()}")


@case("a point that fails or comes to a halt is named, and the others go on")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "circle.jsonl").write_text(CIRCLE)
        shutil.copy(RECORDING, folder)
        run = "[run]\nbest = false\nsplit = false\ndark-ms = 1\n"
        halts = Sweep(folder, f'[job]\nfiles = ["circle.jsonl", "{RECORDING.name}"]\n{run}', "halts")
        for _ in range(2):  # it would halt again, so it is not played again
            text, said = halts.run(code=1)
            expect("point files=circle.jsonl: circle: its ranks wait for each other in a circle" in said, said)
            expect("failed" in text and len(halts.files()) == 2, text)
        expect("are there already" in said and float(halts.rows()[1]["provisioned_ms"]) > 0 and "circle" in halts.rows()[0]["error"], f"{halts.rows()}")
        wrong = Sweep(folder, f'[job]\nmodel = "llama3-8b"\nlayers = 2\nexpert = [1, 2]\n{run}', "wrong")
        expect("point expert=2: --expert 2: llama3-8b has no experts" in wrong.run(code=2)[1], "degrees that do not fit")
        expect(len(wrong.rows()) == 2 and float(wrong.rows()[0]["provisioned_ms"]) > 0, f"{wrong.rows()}")


@case("a point whose process is killed is named, and played when the sweep is started again")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(folder)
        with in_mid_point(sweep, "--at-once", 1) as (process, playing):
            os.kill(playing[0], signal.SIGKILL)
            said = process.communicate(timeout=300)[1]
            expect(process.returncode == 2, f"{process.returncode}: {said}")
            expect(re.search(r"point pipeline=\S+: its process was killed \(Killed\): has the machine memory", said) and "1 failed" in said, said)
        expect(len(sweep.files()) == 7, f"{list(sweep.files())}")
        sweep.run()
        expect(len(sweep.files()) == 8, f"{list(sweep.files())}")


@case("progress: a line a point, with the time that is left; on a terminal one line that changes")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        said = Sweep(folder).run("--at-once", 1)[1].splitlines()
        expect(len(said) == 8 and all(re.fullmatch(rf"opus-sim: {i} of 8 points(, about [\d.]+ \w+ left)?: pipeline=\S+ \([\d.]+ \w+\)", line)
                                      for i, line in enumerate(said, 1)), f"{said}")
        expect(all("left" in line for line in said[:-1]) and "left" not in said[-1], f"{said}")
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = subprocess.Popen(Sweep(folder, name="terminal").command("--at-once", 1), stdout=subprocess.DEVNULL, stderr=there)
        os.close(there)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while more := os.read(here, 1 << 16):
                shown += more
        os.close(here)
        expect(process.wait(30) == 0, "it failed")
        expect(b"\n" not in shown and len(re.findall(rb"\r\x1b\[K\d of 8 points", shown)) >= 8 and shown.endswith(b"\r\x1b[K"), f"{shown}")


@case("what is wrong with a sweep's file is said with its line, the value and what to do")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        for text, *wanted in (
            ("", "is empty"),
            ('[job]\nmodel = "llama3-8b"\n[runs]\n', "line 3", "'runs'", "[job] and [run]"),
            ("[run]\nports = 2\n", "names no job"),
            ('[job]\nmodel = "llama3-8b"\nfiles = "x"\n', "line 3", "files and a model"),
            ('[job]\nmodel = "llama4"\n', "line 2", "llama4", "generate --help"),
            ('[job]\nmodel = "llama3-8b"\npipelines = 2\n', "line 3", "did you mean 'pipeline'?"),
            ('[job]\nfiles = "x"\npipeline = 2\n', "line 3", "'pipeline' is no option of opus-sim read"),
            ('[job]\nmodel = "llama3-8b"\n[run]\nports = [2, 99]\n', "line 4", "99", "1 to 64", "run --help"),
            ('[job]\nmodel = "llama3-8b"\n[run]\nports = "two"\n', "line 4", "two"),
            ('[job]\nmodel = "llama3-8b"\n[run]\nports = true\n', "line 4", "takes a value"),
            ('[job]\nmodel = "llama3-8b"\n[run]\nbest = 1\n', "line 4", "true or false"),
            ('[job]\nmodel = "llama3-8b"\n[run]\nseed = [1, 2, 1]\n', "line 4", "1 is listed twice"),
            ('[job]\nmodel = "llama3-8b"\n[run]\nseed = []\n', "line 4", "the list is empty"),
            ('[job]\nmodel = "llama3-8b"\n[run]\ntrace = "x"\n', "line 4", "'trace' is no option", "a point can have"),
            ('[job]\nmodel = "llama3-8b"\n[run]\nseed = 1979-05-27\n', "line 4", "must be text"),
            ('[job]\nmodel = "llama3-8b"\n[run\n', "line 3"),
            ('[job]\nfiles = "nowhere"\n', "nowhere: it is not there", "relative to the sweep's file"),
            ('[job]\nfiles = "größe"\n', "line 2", "only ASCII"),
            ('[job]\nmodel = "llama3-8b"\n[run]\n' + "".join(f"{k} = [{', '.join(map(str, range(1, 60)))}]\n" for k in ("ports", "seed", "trials", "dark-ms")),
             "line 7", "more than 1000000 points"),
        ):
            sweep = Sweep(folder, text)
            said = sweep.run(code=2)[1]
            expect(said.startswith(f"opus-sim: {sweep.file}: ") or "nowhere" in said, said)
            expect(said.count("\n") == 1 and all(word in said for word in wanted), f"{said} for {text}")
            expect(not sweep.out.exists() or not sweep.files(), "something was played")
        sweep.file.unlink()
        expect("cannot be read" in sweep.run(code=2)[1], "a file that is not there")
        Sweep(folder)
        said = subprocess.run([PROGRAM, "sweep", sweep.file, "--out", "/proc/nowhere"], capture_output=True, text=True)
        expect(said.returncode == 2 and "say another --out" in said.stderr, f"{said}")


@case("lists of files, of dark times and of words, flags, and options that both tables know")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(RECORDING, f"{folder}/a, b.jsonl")
        pathlib.Path(folder, "traces").mkdir()
        shutil.copy(RECORDING, f"{folder}/traces")
        sweep = Sweep(folder, '[job]\nfiles = ["a, b.jsonl", "traces"]\n[run]\ndark-ms = [[1, 25], [50]]\nbest = false\nguard = [true, false]\nports = 1\n')
        sweep.run("--json")
        rows = sweep.rows()
        expect([float(row["dark_ms"]) for row in rows] == [1, 1, 25, 25, 50, 50] * 2 or [float(row["dark_ms"]) for row in rows] == [1, 25, 1, 25, 50, 50] * 2, f"{rows}")
        expect({row["files"] for row in rows} == {"a, b.jsonl", "traces"} and {row["guard"] for row in rows} == {"true", "false"}, f"{rows}")
        expect(len({row["point"] for row in rows}) == 8, f"{rows}")
        names = Sweep(folder, '[job]\nmodel = "llama3-8b"\niterations = [2, 4]\n[run]\niterations = [2, 4]\n').run("--list")[0].split()
        expect(names[1] == "iterations=2_run.iterations=4", f"{names}")


def tasks(folder: str, environment: dict, count: int) -> Sweep:
    """The script's tasks and what comes after them, as Slurm starts them."""
    sweep = Sweep(folder)
    for task in range(1, count + 1):
        subprocess.run([SCRIPT, sweep.file, sweep.out], check=True, env=environment | {
            "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(count)})
    return sweep


@case("the tasks of the Slurm script play all points, and the job after them makes the table")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OPUS_SIM": str(PROGRAM)}
        sweep = tasks(folder, environment, 3)
        expect(len(sweep.files()) == 8, f"{list(sweep.files())}")
        subprocess.run([SCRIPT, sweep.file, sweep.out], check=True, env=environment | {"SLURM_JOB_ID": "8"})
        expect(len(sweep.rows()) == 8, f"{sweep.rows()}")
        # By hand: what it hands in.
        stand_in = pathlib.Path(folder, "bin/sbatch")
        stand_in.parent.mkdir()
        stand_in.write_text(f'#!/bin/sh\necho "$*" >> {folder}/sbatch\necho "9;cluster"\n')
        stand_in.chmod(0o755)
        subprocess.run([SCRIPT, sweep.file, sweep.out, "3"], check=True, stdout=subprocess.DEVNULL,
                       env={k: v for k, v in environment.items() if k != "SLURM_JOB_ID"} | {"PATH": f"{stand_in.parent}:{os.environ['PATH']}"})
        array, table = pathlib.Path(folder, "sbatch").read_text().splitlines()
        expect("--parsable --array=1-3 " in array and "--dependency=afterany:9 " in table and "--array" not in table, f"{array}\n{table}")


@case("a real Slurm plays a sweep as a job array, and makes the table after it")
def _(context):
    installed("sbatch")
    with tempfile.TemporaryDirectory() as folder, Slurm(1, 1, pathlib.Path(folder, "slurm")) as slurm:
        sweep = Sweep(folder)
        done = subprocess.run([SCRIPT, sweep.file, sweep.out, "3"], capture_output=True, text=True, timeout=60,
                              env=slurm.env | {"OPUS_SIM": str(PROGRAM), "SBATCH_MEM_PER_NODE": "0"})
        expect(done.returncode == 0, f"{done}")
        logs = lambda: "".join(f"\n{log}: {log.read_text()}" for log in sweep.out.glob("*.log"))  # noqa: E731
        try:
            wait_for(lambda: (sweep.out / "table.csv").exists(), "the table", seconds=120)
        except AssertionError as error:
            queue = subprocess.run(["squeue"], env=slurm.env, capture_output=True, text=True).stdout
            raise AssertionError(f"{error}\n{queue}{logs()}") from None
        expect(len(sweep.rows()) == 8 and len(sweep.files()) == 8 and not any(row["error"] for row in sweep.rows()), logs())


if __name__ == "__main__":
    sys.exit(cases.run(programs=False))
