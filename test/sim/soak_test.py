#!/usr/bin/env python3
"""usage: soak_test.py SOAK BUILD"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

soak, build = sys.argv[1:3]
failed = 0


def check(behaviour: str, holds: bool, output: str) -> None:
    global failed
    print(f"{'ok  ' if holds else 'FAIL'} {behaviour}" + ("" if holds else "\n" + output))
    failed += not holds


with tempfile.TemporaryDirectory() as folder:
    state = pathlib.Path(folder, "state.json")

    def run(schedules: int, *more: str) -> str:
        command = [sys.executable, soak, build, "--schedules", str(schedules), "--chunk", "10", "--state", str(state), *more]
        return subprocess.run(command, capture_output=True, text=True).stdout

    first = run(100)
    played = json.loads(state.read_text())["done"]
    each = 10 * len(played)  # a chunk of each class
    check("a campaign plays each class and says how fast", f"\n{each} passed, 0 failed" in first and len(played) > 1
          and "events/s and core" in first, first)
    again = run(2 * each)
    played = json.loads(state.read_text())["done"]
    check("it goes on where it was stopped", f"going on after {each} schedules" in again and f"\n{2 * each} passed, 0 failed" in again
          and all(sorted(chunks) == [0, 1] for chunks in played.values()), again)
    state.write_text(state.read_text().replace('"commit": "', '"commit": "other-'))
    anew = run(100, "--page", folder + "/page.md", "--counted", "100")
    page = pathlib.Path(folder, "page.md").read_text()
    check("a page has what was played, what programs do, and which mistakes are noticed",
          f"**{each} schedules, 0 failed**" in page and "| `calm` | 10 |" in page and "transfer of zero bytes" in page and "retract-nothing" in page, page)
    check("another commit starts anew", "starting anew" in anew and f"\n{each} passed, 0 failed" in anew, anew)
program = pathlib.Path(build, "test/sim/opus_sim_test")
command = [program, "--class", "calm", "--seeds", "20", "--mutation", "start-without-go", "--failures", "1"]
report = subprocess.run(command, capture_output=True, text=True).stdout
told = re.search(r"^FAILED calm seed \d+ \(commit \w[^)]*\): I1.*\n  again: (.*)$", report, re.M)
check("a failure names its seed, its commit and what does not hold", told is not None, report)
replayed = subprocess.run(told[1].split(), capture_output=True, text=True) if told else None
check("the command that it prints plays it again", replayed is not None and replayed.returncode == 1 and "FAILS: I1" in replayed.stdout,
      replayed.stdout[-2000:] if replayed else "")
print(f"{6 - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
