#!/usr/bin/env python3
"""What a hooked call costs the application's thread, in instructions counted by callgrind (they repeat).

usage: instructions_test.py BENCH_HOOK BENCH_RING SHIM BARE_NCCL MINI_MANAGER [--table FILE]
Fails where a goal of the design is missed. The launch is recorded with gate none and no CUDA; its done, which is
a stream's to say where there are streams, is counted apart.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

hook, ring, shim, nccl, manager = sys.argv[1:6]
CALLS = 1000
PASSES, INTRA, ENFORCED = "2", "3", "1"

if not shutil.which("valgrind"):
    print("SKIP hooked calls cost few instructions: no valgrind")
    sys.exit(77)


def count(command, environment=None, apart=None):
    """Instructions inside measured(), without those of the function `apart`."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=measured*", f"--callgrind-out-file={folder}/out", *command],
                             capture_output=True, text=True, env={**os.environ, **(environment or {})})
        found = re.search(r"Collected : (\d+)", run.stderr)
        if run.returncode != 0 or not found:
            sys.exit(f"{' '.join(command)} failed:\n{run.stderr}")
        return int(found.group(1)) - (own_cost(f"{folder}/out", apart) if apart else 0)


def own_cost(path, function):
    """Instructions of one function, itself, from callgrind's file: its cost lines follow its fn= line."""
    names, inside, after_call, cost = {}, False, False, 0
    with open(path) as file:
        for line in file:
            if line.startswith(("fn=", "cfn=")):  # a name is written once, wherever it comes first
                number, _, name = line.partition("=")[2].strip().partition(" ")
                known = names.setdefault(number, name)
                if line.startswith("fn="):
                    inside = function in known
            elif line.startswith("calls="):
                after_call = True
            elif re.match(r"[+\-*\d]", line):
                if inside and not after_call:
                    cost += int(line.split()[1])
                after_call = False
    return cost


def hooked(verdict, **settings):
    with subprocess.Popen([manager, verdict], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        socket = served.stdout.readline().strip()
        environment = {"LD_PRELOAD": shim, "OPUS_NCCL_LIBRARY": nccl, "OPUS_SOCKET": socket, "OPUS_REQUIRE": "1", **settings}
        result = count([hook, str(CALLS)], environment, apart="plain_done")
        served.stdin.close()
    return result


unhooked = count([hook, str(CALLS)])
nothing = count([ring, str(CALLS), "nothing"])
rows = [
    # figure, instructions, goal
    ("mode off, over an unhooked call", (hooked(ENFORCED, OPUS_MODE="off") - unhooked) / CALLS, 5),
    ("intra-node communicator, over", (hooked(INTRA) - unhooked) / CALLS, 40),
    ("recorded launch, over", (hooked(ENFORCED, OPUS_GATE="none") - unhooked) / CALLS, 100),
    ("ring push", (count([ring, str(CALLS), "push"]) - nothing) / CALLS, 1.5 * 20),
    ("bare ring push (the floor; 20)", (count([ring, str(CALLS), "bare"]) - nothing) / CALLS, None),
]
failed = False
for figure, instructions, goal in rows:
    missed = goal is not None and instructions > goal
    failed = failed or missed
    print(f"{'FAIL' if missed else 'ok  '} {figure}: {instructions:.1f} instructions" + (f" (at most {goal:g})" if goal else ""))
# A hook that costs nothing was not there.
if rows[2][1] < 30 or rows[1][1] < 5:
    print("FAIL the shim was not in the way")
    failed = True
if "--table" in sys.argv:
    with open(sys.argv[sys.argv.index("--table") + 1], "w") as table:
        for figure, instructions, goal in rows:
            table.write(f"{figure}\t{instructions:.1f}\t{goal if goal is not None else ''}\n")
sys.exit(1 if failed else 0)
