#!/usr/bin/env python3
"""Runs every test that meson knows of a build folder and counts cases.

    test/run.py BUILD [SUBSTRING...]     only tests whose name contains one of them

Counts come from doctest's summary, or from a closing line 'N passed, N failed[, N skipped]'; a test that
prints neither counts as one case by its exit code (77: skipped). A case that lacks what it needs prints
'SKIP case: why' and is counted as skipped. Logs: BUILD/test-logs/. Ends with 'N passed, N failed'.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

DOCTEST = re.compile(r"test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")
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


def run(test: dict, build: pathlib.Path, logs: pathlib.Path, scale: float) -> tuple[str, int, float]:
    env = dict(os.environ, **test["env"])
    log = logs / (re.sub(r"[^A-Za-z0-9_.-]+", "_", test["name"]) + ".log")
    start = time.monotonic()
    with open(log, "wb") as out:
        child = subprocess.Popen(test["cmd"], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                 cwd=test["workdir"] or build, env=env, start_new_session=True)
        try:
            code = child.wait(timeout=(test["timeout"] or 600) * scale)
        except subprocess.TimeoutExpired:
            code = -1
            out.write(b"\ntest/run.py: timed out\n")
        finally:
            try:  # whatever it left behind in its session
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
    return log.read_text(errors="replace"), code, time.monotonic() - start


def main() -> int:
    build = pathlib.Path(sys.argv[1]).resolve()
    wanted = sys.argv[2:]
    tests = json.loads(subprocess.check_output(["meson", "introspect", "--tests", str(build)]))
    tests = [t for t in tests if not wanted or any(w in t["name"] for w in wanted)]
    logs = build / "test-logs"
    logs.mkdir(exist_ok=True)
    # Instrumented programs are several times slower; the limits are there to end hangs, not to judge speed.
    options = json.loads(subprocess.check_output(["meson", "introspect", "--buildoptions", str(build)]))
    sanitizer = next((o["value"] for o in options if o["name"] == "b_sanitize"), "none")
    sanitized = sanitizer != "none"
    if "thread" in sanitizer and not wanted:
        alone = [t for t in tests if any(s.endswith("one thread") for s in t["suite"])]
        tests = [t for t in tests if t not in alone]
        print(f"without a second thread there is no race: left out are {', '.join(t['name'] for t in alone)}")
    os.environ["OPUS_TEST_SANITIZED"] = "1" if sanitized else ""
    suppressions = pathlib.Path(__file__).resolve().parent / "thread_sanitizer.supp"
    os.environ.setdefault("TSAN_OPTIONS", f"suppressions={suppressions}")
    # Started in the background by a shell, or by nohup, we are deaf to it, and so would be what the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    passed = failed = skipped = 0
    for test in tests:
        output, code, seconds = run(test, build, logs, 4 if sanitized else 1)
        p, f, s = count(output, code)
        passed, failed, skipped = passed + p, failed + f, skipped + s
        print(f"{'ok  ' if f == 0 else 'FAIL'} {test['name']}: {p} passed, {f} failed, {s} skipped ({seconds:.1f} s)", flush=True)
        for line in re.findall(r"^SKIP .*$", output, re.M):
            print(f"     {line}")
        if f:
            print("\n".join("     | " + line for line in output.splitlines()[-60:]), flush=True)
    if not tests:
        print("no test was found")
        return 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
