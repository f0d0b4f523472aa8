"""opus-run --observe: a job on two nodes, with no manager and no controller; what opus-sim makes of the two recordings."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from cases import MARK, ROOT, SANITIZED, SLOW, Cluster, Shape, Skip, case, expect, run, wait_for
from cluster.program import program_env

JOB = ROOT / "test" / "process" / "observed_rank.py"
NODES, GPUS = 2, 2
RANKS, STEPS = NODES * GPUS, 5
# Of one rank in one step, as opus-sim counts bytes: (operation, size of the group): (calls, bytes).
STEP = {("all_reduce", 4): (2, 1000 + 8), ("all_gather", 4): (1, 40), ("reduce_scatter", 4): (1, 4 * 12), ("broadcast", 4): (1, 20),
        ("all_reduce", 2): (1, 64), ("send", 2): (1, 100), ("recv", 2): (1, 100)}
LAUNCHES = 6  # of a rank in a step; a group is one
LIMIT_S = 60 * SLOW


class Observed:
    """The job's two nodes, each under an opus-run of its own. No Opus beside, and GPUs and light are emulated."""

    def __init__(self, context, *job: str, env: dict | None = None, names: tuple = ("n0", "n1"), options: tuple = ()):
        if SANITIZED:
            raise Skip("ranks are Python's here, which sanitizers judge, too")
        self.context, self.folder = context, pathlib.Path(tempfile.mkdtemp(prefix="observed-"))
        self.out, self.marks = self.folder / "out", self.folder / "marks"
        self.marks.mkdir()
        self.runs, self.said = [], []
        self.job, self.more, self.names, self.options = job, env or {}, names, options

    def __enter__(self) -> "Observed":
        self.cluster = Cluster(self.context.build, Shape(nodes=NODES, gpus=GPUS), opus=False, mark=self.context.mark)
        self.cluster.__enter__()
        env = {k: v for k, v in program_env(self.cluster, shim=False, gpu="h100", scale_time=1, times=None, job="job").items()
               if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        opus_run = self.context.build.folder / "tools" / "run" / "opus-run"
        for node, name in enumerate(self.names):
            command = [opus_run, "--observe", "--node", name, "--out", self.out, *self.options, "--", sys.executable, JOB, str(node), self.marks, *self.job]
            self.runs.append(subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                              env={**env, MARK: self.context.mark, "OPUS_JOB": "job", **self.more}, start_new_session=True))
        return self

    def __exit__(self, *_) -> None:
        for one in self.runs:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
            one.stdout.close()
        self.cluster.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self, *codes: int) -> list[str]:
        """What each said; they must end with these codes."""
        said = [one.communicate(timeout=LIMIT_S)[0] for one in self.runs]
        found = tuple(one.returncode for one in self.runs)
        expect(found == codes, f"they ended with {found}, not {codes}:\n" + "\n".join(said)[-4000:])
        return said

    def at(self, mark: str) -> None:
        wait_for((self.marks / mark).exists, mark)

    def file(self, node: int) -> pathlib.Path:
        return self.out / f"n{node}.jsonl"

    def sim(self, *arguments, code: int = 0) -> dict:
        done = subprocess.run([str(a) for a in (self.context.build.folder / "tools" / "opus-sim" / "opus-sim", *arguments)], capture_output=True, text=True, timeout=LIMIT_S)
        expect(done.returncode == code, f"opus-sim {arguments} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout) if code == 0 else {"error": done.stderr}

    def read(self, *paths, code: int = 0) -> dict:
        return self.sim("read", "--json", *(paths or (self.out,)), code=code)

    def observers(self) -> list[int]:
        found = []
        for one in self.runs:
            children = pathlib.Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
            found += [int(c) for c in children if "opus-observer" in pathlib.Path(f"/proc/{c}/comm").read_text()]
        return found


def lines(file: pathlib.Path, kind: str) -> list:
    return [line[kind] for line in map(json.loads, file.read_text().splitlines()) if kind in line]


def operations(read: dict) -> dict:
    return {(o["operation"], o["group_size"]): (o["calls"], o["bytes"]) for o in read["operations"]}


def of_steps(steps: int) -> dict:
    return {what: (calls * RANKS * steps, size * RANKS * steps) for what, (calls, size) in STEP.items()}


def assumed(read: dict, what: str) -> str:
    found = [line for line in read["assumed"] if what in line]
    expect(len(found) == 1, f"not told once: {what}: {read['assumed']}")
    return found[0]


@case("two nodes are recorded, and read as one job: ranks, groups, operations and bytes are what the program did")
def whole(context) -> None:
    with Observed(context, "--steps", str(STEPS)) as job:
        said = job.end(0, 0)
        for node, text in enumerate(said):
            expect(f"recorded {LAUNCHES * GPUS * STEPS} launches of {GPUS} ranks of node n{node}: {job.file(node)}" in text, text)
            expect("not recorded" not in text and "its launches are recorded, not held" in text, text)
        read = job.read()
        expect((read["files"], read["ranks"], read["world"], read["groups_by_size"]) == (2, RANKS, RANKS, {"2": 2, "4": 1}), f"{read}")
        expect(operations(read) == of_steps(STEPS), f"{operations(read)}\nnot\n{of_steps(STEPS)}")
        expect(sum(o["recorded_ms"] for o in read["operations"]) > 0, f"{read['operations']}")
        played = job.sim("run", "--json", "--dark-ms", "10", job.out)
        expect(played["electrical_ms"] > 0 and played["points"][0]["on_demand"]["iteration_ms"] > played["electrical_ms"], f"{played}")
        expect(json.dumps(played) == json.dumps(job.sim("run", "--json", "--dark-ms", "10", job.out)), "the same files, another answer")
        names = {line["name"]: line["gpu"] for f in (0, 1) for line in map(json.loads, job.file(f).read_text().splitlines()) if line.get("gpu")}
        expect(sorted(names.values()) == ["n0.g0", "n0.g1", "n1.g0", "n1.g1"], f"{names}")
        expect(subprocess.run([context.build.ctl, "--json", "summary", job.file(0)], capture_output=True, timeout=30).returncode == 0, "opus-ctl cannot read it")


@case("clocks that differ are aligned by the ends of collectives, and by how much is told")
def skewed(context) -> None:
    with Observed(context, "--steps", "20") as job:
        job.end(0, 0)
        straight = job.read()
        text = job.file(1).read_text().splitlines(keepends=True)
        header = json.loads(text[0])
        header["began_ns"] += 7_000_000_000
        job.file(1).write_text(json.dumps(header) + "\n" + "".join(text[1:]))
        skewed = job.read()

        def told(read: dict) -> float:
            line = assumed(read, "the clock of n1 is ")
            words = line.split()
            return float(words[5]) * (1 if " ahead of " in line else -1)
        expect(abs(told(skewed) - told(straight) - 7000) < 1e-6, f"{skewed['assumed']} after {straight['assumed']}")
        for a, b in zip(straight["operations"], skewed["operations"]):
            expect(abs(a["recorded_ms"] - b["recorded_ms"]) < 1e-6, f"{a} {b}")


@case("a node that is missing is an error that says what to do, and so is a recording given twice")
def missing(context) -> None:
    with Observed(context) as job:
        job.end(0, 0)
        error = job.read(job.file(0), code=2)["error"]
        expect("n0.jsonl: group " in error and "2 of them are in no file given (2 to 3)" in error and "--fill" in error, error)
        error = job.sim("read", "--json", "--fill", job.file(0), code=2)["error"]
        expect("not every operation is of all ranks: --fill cannot make them up" in error, error)
        copy = job.folder / "copy.jsonl"
        shutil.copy(job.file(0), copy)
        error = job.read(job.file(0), job.file(1), copy, code=2)["error"]
        expect("it is the same recording as" in error, error)


@case("kill -9 of a rank: both recordings are read as far as all members went, and the loss is told")
def killed(context) -> None:
    with Observed(context, "--steps", "100000", "--sick", "3:4") as job:
        job.runs[1].wait(LIMIT_S)
        os.killpg(job.runs[0].pid, signal.SIGTERM)  # its ranks wait for one that is no more
        for one in job.runs:
            one.communicate(timeout=LIMIT_S)
        read = job.read()
        whole, kept = of_steps(4), operations(read)
        # What the killed one has no part in may have gone on for a while.
        for what in whole:
            expect(kept[what] == whole[what] or (what[1] == 2 and kept[what] > whole[what]), f"{what}: {kept}\nnot\n{whole}")
        assumed(read, "left out: ")
        expect(len(lines(job.file(1), "gone")) == GPUS, "the file does not say that its ranks are gone")


@case("a full ring: the program goes on, and what was lost is counted and told")
def full(context) -> None:
    burst = 300
    with Observed(context, "--steps", "2", "--burst", str(burst), options=("--ring-slots", "64")) as job:
        for rank in range(RANKS):
            job.at(f"waiting{rank}")
        observers = job.observers()
        expect(len(observers) == 2, f"{observers}")
        for pid in observers:
            os.kill(pid, signal.SIGSTOP)
        (job.marks / "go").touch()
        for rank in range(RANKS):
            job.at(f"burst{rank}")
        for pid in observers:
            os.kill(pid, signal.SIGCONT)
        said = job.end(0, 0)
        for node, text in enumerate(said):
            lost = {number: count for number, count, _ in lines(job.file(node), "lost")}
            expect(len(lost) == GPUS and all(0 < n <= burst for n in lost.values()), f"{lost}")
            expect(f"not recorded: {sum(lost.values())} launches of {GPUS} ranks: their rings had no room" in text, text)
            launches = lines(job.file(node), "launch")
            expect(len(launches) + sum(lost.values()) == GPUS * (2 * LAUNCHES + burst), f"{len(launches)} launches and {lost} lost")
        read = job.read()
        whole, kept = of_steps(2), operations(read)
        expect(all(kept[k] == whole[k] for k in whole if k != ("all_reduce", 4)), f"{kept}")
        calls = kept[("all_reduce", 4)][0]
        expect(whole[("all_reduce", 4)][0] <= calls < whole[("all_reduce", 4)][0] + RANKS * burst, f"{calls}")
        expect(sum("its ring had no room" in line for line in read["assumed"]) == RANKS, f"{read['assumed']}")


@case("observers that stand still hold nobody up: communicators are made, and the job goes on to its end")
def stopped(context) -> None:
    with Observed(context, "--steps", str(STEPS), "--wait") as job:
        for rank in range(RANKS):
            job.at(f"waiting{rank}")
        observers = job.observers()
        for pid in observers:
            os.kill(pid, signal.SIGSTOP)
        (job.marks / "go").touch()
        for rank in range(RANKS):
            job.at(f"step{STEPS - 1}.{rank}")
        for pid in observers:
            os.kill(pid, signal.SIGCONT)
        job.end(0, 0)
        read = job.read()
        expect(operations(read)[("all_gather", 4)] == of_steps(STEPS)[("all_gather", 4)], f"{read}")


@case("opus-run is killed: the observer ends by itself when the ranks have, and its recording is whole")
def orphaned(context) -> None:
    with Observed(context, "--steps", str(STEPS), "--burst", "1", options=("--quiet",)) as job:
        for rank in range(RANKS):
            job.at(f"waiting{rank}")
        observers = job.observers()
        job.runs[0].kill()
        (job.marks / "go").touch()
        wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in observers), "the observers' end")
        job.runs[1].communicate(timeout=LIMIT_S)
        read = job.read()
        expect(read["ranks"] == RANKS and operations(read)[("broadcast", 4)] == of_steps(STEPS)[("broadcast", 4)], f"{read}")


@case("a program that has nothing to do with NCCL keeps its exit code, and leaves no recording")
def nothing(context) -> None:
    opus_run = context.build.folder / "tools" / "run" / "opus-run"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([opus_run, "--observe", "--out", folder, "--", "/bin/sh", "-c", "exit 3"], capture_output=True, text=True, timeout=LIMIT_S)
        expect(done.returncode == 3 and "nothing is recorded: no process of this node has made a communicator" in done.stderr, f"{done}")
        expect(not list(pathlib.Path(folder).iterdir()), "a file is left")
        done = subprocess.run([opus_run, "--observe", "--out", "/proc/none", "--", "/bin/echo", "ran"], capture_output=True, text=True, timeout=LIMIT_S)
        expect(done.returncode == 2 and "ran" not in done.stdout and "cannot write the recording /proc/none" in done.stderr, f"{done}")


@case("opus-run --emulate --observe: a recording a node")
def emulated(context) -> None:
    if SANITIZED:
        raise Skip("ranks are Python's here, which sanitizers judge, too")
    with tempfile.TemporaryDirectory() as folder:
        marks = pathlib.Path(folder) / "marks"
        marks.mkdir()
        env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        done = subprocess.run([context.build.folder / "tools" / "run" / "opus-run", "--emulate", "2x2", "--observe", "--build", context.build.folder, "--out",
                               pathlib.Path(folder) / "out", "--", sys.executable, ROOT / "test" / "process" / "emulated_job.py", "4", marks, "--steps", "8"],
                              capture_output=True, text=True, timeout=LIMIT_S, env={**env, MARK: context.mark})
        expect(done.returncode == 0, f"{done.stdout}{done.stderr}")
        where = pathlib.Path(folder) / "out" / "observed" / "recording"
        expect(f"opus-sim run {where}" in done.stdout, done.stdout)
        sim = subprocess.run([context.build.folder / "tools" / "opus-sim" / "opus-sim", "read", "--json", where], capture_output=True, text=True, timeout=LIMIT_S)
        expect(sim.returncode == 0, sim.stderr)
        expect(operations(json.loads(sim.stdout)) == {("all_reduce", 4): (32, 128)}, sim.stdout)


if __name__ == "__main__":
    sys.exit(run())
