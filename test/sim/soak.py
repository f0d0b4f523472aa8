#!/usr/bin/env python3
"""A long campaign of the simulation, on all cores, that goes on where it was stopped.

usage: soak.py BUILD [--schedules 1000000] [--jobs CORES] [--state FILE] [--chunk 500] [--page FILE [--counted 1000]]

Each class plays the seeds 1, 2, 3, ... What has been played is in the state file, with the commit: another commit
starts anew. A schedule that fails prints its seed, its commit, the end of its log, and the command that plays it again.
--page: a page of results, with how often programs do what, and which deliberate mistakes are noticed.
Ends with status 1 if any failed.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

CLASSES = ["calm", "ranks", "managers", "controller", "network", "switches", "foreign", "mixed", "windows", "silence", "early",
           "wide"]
LINE = re.compile(r"^(\w+) +(\d+) schedules, +(\d+) events, .*; ([\d.]+) schedules/s, ([\d.]+) events/s$", re.M)
MOST_FAILURES = 5

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--schedules", type=int, default=1_000_000)
parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--chunk", type=int, default=500)
parser.add_argument("--state", type=pathlib.Path)
parser.add_argument("--page", type=pathlib.Path)
parser.add_argument("--counted", type=int, default=1000, help="schedules of which the page says what programs do; a fifth for each mistake")
arguments = parser.parse_args()
program = arguments.build / "test/sim/opus_sim_test"
state_file = arguments.state or arguments.build / "simulation-soak.json"
commit = subprocess.run([program, "--commit"], capture_output=True, text=True, check=True).stdout.strip()


def load() -> dict:
    fresh = {"commit": commit, "chunk": arguments.chunk, "done": {}, "schedules": 0, "events": 0, "core_seconds": 0.0, "failed": 0}
    if not state_file.exists():
        return fresh
    state = json.loads(state_file.read_text())
    if state["commit"] != commit or state["chunk"] != arguments.chunk:
        print(f"starting anew: {state_file} is of {state['commit']}, in chunks of {state['chunk']}")
        return fresh
    print(f"going on after {state['schedules']} schedules ({state_file})")
    return state


def save(state: dict) -> None:
    new = state_file.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.rename(state_file)


def page() -> str:
    """In Markdown."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
    from cluster.machine import machine

    def said(*options: str) -> str:
        done = subprocess.run([program, *options], capture_output=True, text=True)
        if done.returncode not in (0, 1):  # 1: something does not occur, or is not noticed, in so few; the page shows it
            sys.exit(f"{program} {' '.join(options)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return "```\n" + "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines()) + "\n```\n"
    drawn, mistakes = arguments.counted, max(1, arguments.counted // 5)
    played = {name: len(chunks) * arguments.chunk for name, chunks in state["done"].items()}
    rows = "\n".join(f"| `{name}` | {played[name]:,} |" for name in CLASSES if name in played)
    return f"""# Simulated schedules

Written by `test/sim/soak.py --page` on {time.strftime('%Y-%m-%d')}, commit {commit}; {machine()}. `docs/simulation.md` says what is
played and what is checked.

**{state['schedules']:,} schedules, {state['failed']} failed**, {state['events']:,} events, {state['events'] / max(state['core_seconds'], 1e-9):,.0f} events a second and core.

| class | schedules |
| --- | --- |
{rows}

## What programs do

In how many of {drawn:,} schedules of a class each thing occurs (`opus_sim_test --drawn --seeds {drawn}`).

{said("--drawn", "--seeds", str(drawn))}
## Deliberate mistakes

In how many of {mistakes} schedules each is noticed, and by which check (`opus_sim_test --mutations --seeds {mistakes}`).

{said("--mutations", "--seeds", str(mistakes))}"""


def play(name: str, chunk: int) -> tuple[str, int, str]:
    command = [program, "--class", name, "--first", str(chunk * arguments.chunk + 1), "--seeds", str(arguments.chunk)]
    return name, chunk, subprocess.run(command, capture_output=True, text=True).stdout


state = load()
per_class = -(-arguments.schedules // (len(CLASSES) * arguments.chunk))
todo = [(name, chunk) for chunk in range(per_class) for name in CLASSES if chunk not in state["done"].get(name, [])]
total = per_class * len(CLASSES) * arguments.chunk
begin = told = time.monotonic()
at_begin = state["schedules"]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def tell() -> None:
    rate = (state["schedules"] - at_begin) / max(time.monotonic() - begin, 1e-9)
    per_core = state["events"] / max(state["core_seconds"], 1e-9)
    left = (total - state["schedules"]) / rate if rate > 0 else 0
    print(f"{state['schedules']} of {total} schedules, {state['failed']} failed; {rate:.0f} schedules/s on {arguments.jobs} cores, "
          f"{per_core:.0f} events/s and core; {left / 60:.0f} min left", flush=True)


with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
    waiting = iter(todo)
    running = {pool.submit(play, *job) for job in [j for _, j in zip(range(arguments.jobs), waiting)]}
    while running:
        over, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in over:
            name, chunk, output = future.result()
            line = LINE.search(output)
            if line is None:
                print(f"{name}, seeds from {chunk * arguments.chunk + 1}: the simulation ended early\n{output}")
                state["failed"] += 1
            else:
                state["schedules"] += int(line[2])
                state["events"] += int(line[3])
                state["core_seconds"] += int(line[3]) / max(float(line[5]), 1)
                state["failed"] += len(set(re.findall(rf"^FAILED {name} seed (\d+)", output, re.M)))
                state["done"].setdefault(name, []).append(chunk)
                if "FAILED" in output:
                    print(output, flush=True)
            save(state)
            if state["failed"] < MOST_FAILURES and (job := next(waiting, None)) is not None:
                running.add(pool.submit(play, *job))
        if time.monotonic() - told > 10:
            told = time.monotonic()
            tell()
tell()
failed = state["failed"]
if arguments.page:
    arguments.page.write_text(page())
print(f"{state['schedules'] - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
