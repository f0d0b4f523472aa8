"""opus-emulate itself, without PyTorch: what a run leaves, and how it ends when something else than its end ends it."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cases import MARK, ROOT, SANITIZED, SLOW, Skip, case, expect, run, wait_for

JOB = ROOT / "test" / "process" / "emulated_job.py"
RANKS = 4
LAUNCHES = (8 + 1) * RANKS  # of a job of 8 steps: one of a rank connects
LIMIT_S = 120 * SLOW  # ends a hang of the test


class Emulation:
    """opus-emulate with emulated_job.py; all that both leave is in a folder that goes with it."""

    def __init__(self, context, *options: str, job: tuple = (), program: tuple = (sys.executable, ROOT / "tools" / "emulation" / "opus-emulate")):
        if SANITIZED:
            raise Skip("ranks are Python's here, which sanitizers judge, too")
        self.context = context
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="emulate-"))
        self.out, self.temporary, self.marks = (self.folder / name for name in ("out", "tmp", "marks"))
        self.temporary.mkdir()
        self.marks.mkdir()
        own = () if "--build" in options or len(program) == 1 else ("--build", context.build.folder)
        shape = ("--emulate", "2x2") if program[-1].name == "opus-run" else ("2x2",)
        command = [*program, *shape, *own, "--dark-ms", "2", "--limit", "100", "--out", self.out, *options, "--",
                   sys.executable, JOB, str(RANKS), self.marks, *job]
        env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        self.process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**env, MARK: context.mark, "TMPDIR": str(self.temporary)}, start_new_session=True)

    def __enter__(self) -> "Emulation":
        return self

    def __exit__(self, *_) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def at_step(self, step: int) -> None:
        wait_for((self.marks / f"step{step}").exists, f"step {step}", seconds=60)

    def end(self, code: int) -> str:
        """What it said; it must end with `code`, and leave nothing: processes are what cases.py looks for."""
        said, _ = self.process.communicate(timeout=LIMIT_S)
        expect(self.process.returncode == code, f"it ended with {self.process.returncode}, not {code}:\n{said[-4000:]}")
        left = list(self.temporary.iterdir())
        expect(not left, f"left behind: {left}")
        return said

    def recording(self, variant: str = "provisioned") -> list[dict]:
        """Lines of the recording; opus-ctl reads it as well."""
        file = self.out / variant / "recording.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        expect(lines and lines[0].get("format") == "opus-recording", f"not a recording: {lines[:1]}")
        done = subprocess.run([self.context.build.ctl, "--json", "summary", file], capture_output=True, text=True, timeout=30)
        expect(done.returncode == 0 and json.loads(done.stdout), f"opus-ctl summary ended with {done.returncode}: {done.stderr}")
        return lines

    def trace(self, variant: str = "provisioned") -> list[dict]:
        return json.loads((self.out / variant / "trace.json").read_text())["traceEvents"]


def launches(lines: list[dict]) -> int:
    return sum("launch" in line for line in lines)


@case("a job runs to its end, and leaves a table, a result, a recording and a trace")
def whole(context) -> None:
    with Emulation(context, job=("--steps", "8")) as emulation:
        said = emulation.end(0)
        (result,) = json.loads((emulation.out / "result.json").read_text())
        expect(len(result["steps"]) == 7 and result["counters"]["grants"] > 0 and result["light"]["lost_bytes"] == 0, f"{result}")
        expect((emulation.out / "table.txt").read_text().strip() in said, f"the table is not what was printed:\n{said}")
        lines = emulation.recording()
        expect(launches(lines) == LAUNCHES, f"{launches(lines)} launches were recorded")
        expect(any("ended" in line for line in lines), "the recording has no end")
        names = {event.get("args", {}).get("name", "") for event in emulation.trace() if event.get("ph") == "M"}
        expect(any("rail" in name or "ocs" in name for name in names), f"the trace names no switch: {sorted(names)}")


@case("--compare: a run of each variant")
def compared(context) -> None:
    with Emulation(context, "--compare", job=("--steps", "8")) as emulation:
        said = emulation.end(0)
        table = (emulation.out / "table.txt").read_text()
        for title in ("always lit, no Opus", "on demand", "provisioned"):
            expect(title in table and f"opus-emulate: {title}" in said, f"no {title}:\n{said}")
        rows = {line[:34].strip(): line for line in table.splitlines()}
        expect(rows["step, median"].count(" ms") == 3 and rows["over always lit"].count(" %") == 2, table)
        expect([r["variant"] for r in json.loads((emulation.out / "result.json").read_text())] == ["always-lit", "on-demand", "provisioned"], "variants")
        for variant in ("on-demand", "provisioned"):
            expect(launches(emulation.recording(variant)) == LAUNCHES and emulation.trace(variant), variant)
        expect(not (emulation.out / "always-lit" / "recording.jsonl").exists(), "a run without Opus has a recording")


@case("Ctrl-C in the midst of it, and again: 130, and nothing is left")
def interrupted(context) -> None:
    with Emulation(context, job=("--steps", "100000")) as emulation:
        emulation.at_step(2)
        for _ in range(5):
            emulation.process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        said = emulation.end(130)
        # A rank may say that its peers are gone before it is stopped itself; opus-emulate says nothing of the kind.
        expect("interrupted; everything it started is stopped" in said and 'opus-emulate", line' not in said, said[-2000:])
        expect(launches(emulation.recording()) > 0, "the recording is empty")


@case("Ctrl-C before the first step, and SIGTERM: as clear an end")
def interrupted_early(context) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with Emulation(context, job=("--steps", "100000")) as emulation:
            wait_for((emulation.out / "provisioned" / "manager1.log").exists, "managers", seconds=60)
            emulation.process.send_signal(number)
            expect("Traceback" not in emulation.end(code), "a traceback")


@case("a rank fails: its own code, its own words, and nothing is left of the others")
def failing(context) -> None:
    for how, code in (("exit", 7), ("kill", 137)):
        with Emulation(context, job=("--sick", f"1:3:{how}")) as emulation:
            said = emulation.end(code)
            expect(f"opus-emulate: the program ended with {code}" in said and str(emulation.out) in said, said[-2000:])
            expect(how == "kill" or "this rank gives up" in said, said[-2000:])
            expect(launches(emulation.recording()) > 0, "the recording is empty")


@case("a rank hangs: the run is ended, and says who waits for whom")
def hanging(context) -> None:
    with Emulation(context, "--patience", "4", job=("--sick", "3:3:hang")) as emulation:
        said = emulation.end(124)
        expect("nothing was said and no byte moved for 4 s" in said and "opus-ctl why:" in said, said[-2000:])
        why = said[said.index("opus-ctl why:"):]
        expect("AllReduce" in why and "n1" in why, f"the rank that is missing is not named:\n{why}")


@case("what cannot be run is refused before anything is started, in one line")
def refused(context) -> None:
    for options, what in ((("--only", "dimly"), "dimly"), (("--time", "no-such-file"), "no-such-file"), (("--controller", "'"), "--controller")):
        with Emulation(context, *options) as emulation:
            said = emulation.end(2)
            expect(what in said.splitlines()[-1] and not emulation.out.exists(), said)


@case("as it is installed: opus-run --emulate")
def installed(context) -> None:
    if SANITIZED:
        raise Skip("what is instrumented is not installed")
    meson = shutil.which("meson")
    if not meson:
        raise Skip("there is no meson")
    with tempfile.TemporaryDirectory() as tree:
        done = subprocess.run([meson, "install", "-C", context.build.folder, "--no-rebuild", "--quiet", "--destdir", tree], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        expect(done.returncode == 0, f"meson install ended with {done.returncode}:\n{done.stdout[-2000:]}")
        (opus_run,) = pathlib.Path(tree).rglob("bin/opus-run")
        with Emulation(context, program=(opus_run,), job=("--steps", "8")) as emulation:
            said = emulation.end(0)
            expect(launches(emulation.recording()) == LAUNCHES, said[-2000:])
            where = (emulation.out / "provisioned" / "program.log").read_text()
            expect("step 7" in where, where)


if __name__ == "__main__":
    sys.exit(run())
