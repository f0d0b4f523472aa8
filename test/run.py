#!/usr/bin/env python3
"""Runs every test that meson knows of a build folder and counts cases.

Counts come from doctest's summary, or from a closing line 'N passed, N failed[, N skipped]'; a test that
prints neither counts as one case by its exit code (77: skipped). A case that lacks what it needs prints
'SKIP case: why' and is counted as skipped. In a build with a sanitizer, whatever it reports in any process
of a test is a failure of that test, however the process ended; a test that fails there without a report, beside
others on a machine that is ten times too slow, is run again alone, decides then, and is named at the end.
Logs: BUILD/test-logs/. Ends with 'N passed, N failed'.
"""
import argparse
import concurrent.futures
import ctypes
import json
import operator
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

DOCTEST = re.compile(r"test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")
RUNTIME_ERROR = re.compile(r"^.*runtime error: .*(?:\n +#\d.*){0,16}", re.M)
FINDING = re.compile(r"ERROR: |WARNING: |(?:Direct|Indirect) leak of")
MOST_REPORTS = 4  # shown of a test
REPORT_LINES = 60  # shown of a report
MOST_JOBS = 4  # tests at a time; most of their time they wait
ADDR_NO_RANDOMIZE = 0x0040000
PLAIN = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)


def count(output: str, code: int) -> tuple[int, int, int]:
    """(passed, failed, skipped) of one test's output."""
    plain = PLAIN.findall(output)
    if plain:
        passed, failed, skipped = (int(x or 0) for x in plain[-1])
    else:
        # A child process of a doctest program may print a summary of its own; the parent's is the last.
        doctest = DOCTEST.findall(output)
        if doctest:
            _, passed, failed = map(int, doctest[-1])
            skipped = len(re.findall(r"^SKIP ", output, re.M))
            passed -= min(passed, skipped)
        elif code == 77:
            passed, failed, skipped = 0, 0, 1
        else:
            passed, failed, skipped = (1, 0, 0) if code == 0 else (0, 1, 0)
    if code not in (0, 77) and failed == 0:
        failed = 1
    return passed, failed, skipped


def digest(report: str) -> str:
    """Of a sanitizer's report what a reader of CI's output needs: what it found, and the first thing found with all its stacks."""
    # A frame begins with its function and ends with its file; templates fill what is between.
    lines = [line if len(line) <= 200 else line[:110] + " ... " + line[-85:] for line in report.splitlines()]
    first = next((i for i, line in enumerate(lines) if "ERROR: " in line or "WARNING: " in line), 0)
    end = next((i for i in range(first, len(lines)) if lines[i].startswith("SUMMARY: ")), len(lines))
    kept, seen = lines[first:min(end, first + REPORT_LINES)], set()
    # Each further finding's own words and where it happened, not its whole stack.
    for line in lines[first + len(kept):]:
        if (FINDING.search(line) or line.startswith("SUMMARY: ")) and line not in seen and len(seen) < REPORT_LINES:
            seen.add(line)
            kept.append(line)
    return "\n".join(kept) + "\n"


class Runner:
    """Runs tests of a build folder, several at a time, and ends those that still run when it is left."""

    def __init__(self, build: pathlib.Path, sanitizer: str):
        self.build, self.sanitizer = build, sanitizer
        # The limits are there to end hangs, not to judge speed: a busy machine, or instrumented programs, may be slow.
        self.scale = 3 if sanitizer == "none" else 6
        self.logs = build / "test-logs"
        self.logs.mkdir(exist_ok=True)
        self._children: set[subprocess.Popen] = set()
        self.reported: set[str] = set()  # names of tests with a sanitizer's report

    def run(self, test: dict) -> tuple[str, int, float]:
        """(output, exit code, seconds). What sanitizers say stands at the end, shortened; in the log whole."""
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", test["name"])
        log, reports = self.logs / (name + ".log"), self.logs / (name + ".report")
        for old in self.logs.glob(reports.name + ".*"):
            old.unlink()
        start = time.monotonic()
        if not os.access(test["cmd"][0], os.X_OK):
            return f"test/run.py: {test['cmd'][0]} is not there to run: was the folder built whole?", -1, 0
        with open(log, "wb") as out:
            child = subprocess.Popen(test["cmd"], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                     cwd=test["workdir"] or self.build, start_new_session=True,
                                     env={**os.environ, **self._environment(reports), **test["env"]})
            self._children.add(child)
            try:
                code = child.wait(timeout=(test["timeout"] or 600) * self.scale)
            except subprocess.TimeoutExpired:
                code = -1
                out.write(b"\ntest/run.py: timed out\n")
            finally:
                self._end(child)
        output = log.read_text(errors="replace")
        if self.sanitizer != "none" and (found := RUNTIME_ERROR.findall(output)):  # UBSan's, which go to stderr
            self.reported.add(test["name"])
            code = code or -1
            output += "\n" + "\n".join(["test/run.py: undefined behaviour:", *found[:MOST_REPORTS]]) + "\n"
        with open(log, "ab") as out:
            for number, report in enumerate(sorted(self.logs.glob(reports.name + ".*"))):
                text = report.read_text(errors="replace")
                out.write(f"\ntest/run.py: a sanitizer's report, {report}:\n{text}".encode())
                if number < MOST_REPORTS:
                    output += f"\ntest/run.py: a sanitizer's report, {report}:\n" + digest(text)
                code = code or -1
                self.reported.add(test["name"])
        return output, code, time.monotonic() - start

    def end_all(self) -> None:
        for child in list(self._children):
            self._end(child)

    def _end(self, child: subprocess.Popen) -> None:
        try:  # and whatever it left behind in its session
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        self._children.discard(child)

    def _environment(self, reports: pathlib.Path) -> dict[str, str]:
        """Reports go to files: a daemon that a test kills, or whose output nobody reads, does not take them along."""
        if self.sanitizer == "none":
            return {"OPUS_TEST_SANITIZED": ""}
        suppressions = pathlib.Path(__file__).resolve().parent / "thread_sanitizer.supp"
        return {"OPUS_TEST_SANITIZED": "1",
                # GCC 12's LeakSanitizer falls over what it notes of the TLS of libraries that are loaded later.
                "ASAN_OPTIONS": f"log_path={reports}:intercept_tls_get_addr=0",
                "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",  # beside ASan it has no file of its own
                "TSAN_OPTIONS": f"log_path={reports}:suppressions={suppressions}"}


def ended(number: int, _) -> None:
    """Once: `timeout` tells us, and so does make, and a second telling would cut short how we end what still runs."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def fix_addresses() -> None:
    """GCC 12's ThreadSanitizer does not start where the kernel scatters mappings wider than it knows of."""
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)  # of us and of what we start; where it is forbidden, as it was


def report(test: dict, output: str, code: int, seconds: float) -> tuple[int, int, int]:
    passed, failed, skipped = count(output, code)
    lines = [f"{'FAIL' if failed else 'ok  '} {test['name']}: {passed} passed, {failed} failed, {skipped} skipped ({seconds:.1f} s)"]
    lines += [f"     {line}" for line in re.findall(r"^SKIP .*$", output, re.M)]
    if failed:
        own, mark, said = output.partition("\ntest/run.py: ")  # what sanitizers said never pushes out what the test did
        lines += ["     | " + line for line in [*own.splitlines()[-80:], *(mark + said).splitlines()]]
    print("\n".join(lines), flush=True)
    return passed, failed, skipped


def main() -> int:
    p = argparse.ArgumentParser(prog="test/run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path, help="a build folder, built")
    p.add_argument("wanted", nargs="*", metavar="part", help="only tests whose name contains one of these")
    p.epilog = f"TEST_JOBS: tests at a time (default: one more than there are cores, at most {MOST_JOBS})"
    a = p.parse_args()
    build, wanted = a.build.resolve(), a.wanted
    if not (build / "build.ninja").exists():
        p.error(f"{a.build}: not a build folder; `make build` makes one")
    tests = json.loads(subprocess.check_output(["meson", "introspect", "--tests", str(build)]))
    tests = [t for t in tests if not wanted or any(w in t["name"] for w in wanted)]
    if not tests:
        print("no test was found")
        return 1
    options = json.loads(subprocess.check_output(["meson", "introspect", "--buildoptions", str(build)]))
    sanitizer = next((o["value"] for o in options if o["name"] == "b_sanitize"), "none")
    if "thread" in sanitizer:
        fix_addresses()
        if not wanted:
            alone = [t for t in tests if any(s.endswith("one thread") for s in t["suite"])]
            tests = [t for t in tests if t not in alone]
            print(f"without a second thread there is no race: left out are {', '.join(t['name'] for t in alone)}")
    # Started in the background by a shell, or by nohup, we are deaf to it, and so would be what the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, ended)
    runner = Runner(build, sanitizer)
    jobs = int(os.environ.get("TEST_JOBS", min((os.cpu_count() or 1) + 1, MOST_JOBS)))
    tests.sort(key=lambda t: -(t["timeout"] or 0))  # the longest first: none is left over at the end
    totals, again = (0, 0, 0), []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            running = {pool.submit(runner.run, test): test for test in tests}
            for done in concurrent.futures.as_completed(running):
                test = running[done]
                found = report(test, *done.result())
                if found[1] and sanitizer != "none" and jobs > 1 and test["name"] not in runner.reported:
                    again.append(test)
                else:
                    totals = tuple(map(operator.add, totals, found))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            runner.end_all()
            raise
    for test in again:
        found = report(test, *runner.run(test))
        totals = tuple(map(operator.add, totals, found))
        print(f"{test['name']}: failed beside others, " + ("failed alone" if found[1] else "passed alone"), flush=True)
    passed, failed, skipped = totals
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
