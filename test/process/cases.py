"""Runs the cases of one file of process-level tests: real daemons, real rank processes.

    FILE_test.py BUILD [SUBSTRING...]

Prints 'PASS name', 'FAIL name' or 'SKIP name: why' for each and '<n> passed, <n> failed, <n> skipped' at
the end. After each case nothing of it may be left: no process, no file, no shared memory.
"""
import os
import pathlib
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from cluster import Build, Cluster, Leftovers, Shape, die_on_signals  # noqa: E402,F401
from cluster.leftovers import MARK  # noqa: E402

SANITIZED = bool(os.environ.get("OPUS_TEST_SANITIZED"))
SLOW = 4 if SANITIZED else 1  # limits that end hangs, not judge speed
_cases = []
_programs = True  # daemons and stand-ins must be built


class Skip(Exception):
    """The machine, or the build folder, lacks what the case needs."""


def case(name: str):
    def add(function):
        _cases.append((name, function))
        return function
    return add


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def wait_for(true, what: str, job=None, seconds: float = 30):
    """What `true` says once it says something; no rank of `job` may have failed till then."""
    until = time.monotonic() + seconds * SLOW
    while not (found := true()):
        said = f": {job.ranks[0].tail()}" if job else ""
        expect(time.monotonic() < until, f"waited in vain for {what}{said}")
        expect(job is None or not any(job.poll()), f"a rank failed before {what}{said}")
        time.sleep(0.02)
    return found


def nothing_in_the_dark(cluster, *jobs) -> None:
    """Nor was anything let pass, and so far all that these jobs computed is right."""
    light, counters = cluster.light(), cluster.counters()
    expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"{light}")
    expect(counters["passes"] == 0 and counters["aborts"] == 0, f"{counters}")
    expect(not any("wrong result" in rank.output() for job in jobs for rank in job.ranks), "a result was wrong")


class Context:
    """What a case is given."""

    def __init__(self, build: Build, mark: str):
        self.build, self.mark = build, mark

    def cluster(self, shape: Shape, **options) -> Cluster:
        return Cluster(self.build, shape, mark=self.mark, **options)


def _run_one(name: str, function, build: Build, number: int) -> str:
    mark = f"{os.getpid()}.{number}"
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="case-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # of the case and of all that it starts
        try:
            return _judge(name, function, build, mark, begin)
        finally:
            os.environ.pop("TMPDIR")
            tempfile.tempdir = None


def _judge(name: str, function, build: Build, mark: str, begin: float) -> str:
    leftovers = Leftovers(mark)
    try:
        if _programs and (missing := build.missing()):
            raise AssertionError("not built: " + ", ".join(missing))
        function(Context(build, mark))
        if left := leftovers.found():
            raise AssertionError("left behind: " + ", ".join(left))
    except Skip as why:
        print(f"SKIP {name}: {why}", flush=True)
        return "skipped"
    except Exception as error:
        if not isinstance(error, AssertionError):
            traceback.print_exc(limit=6, file=sys.stdout)
        print(f"FAIL {name} ({time.monotonic() - begin:.1f} s): {error}", flush=True)
        return "failed"
    print(f"PASS {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    return "passed"


def run(programs: bool = True) -> int:
    """`programs`: the cases need what jobs on emulated switches run."""
    global _programs
    _programs = programs
    die_on_signals()
    build, wanted = Build(sys.argv[1]), sys.argv[2:]
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for number, (name, function) in enumerate(_cases):
        if wanted and not any(w in name for w in wanted):
            continue
        counts[_run_one(name, function, build, number)] += 1
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)
    return 1 if counts["failed"] else 0
