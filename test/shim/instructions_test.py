#!/usr/bin/env python3
"""What a hooked call costs the application's thread, in instructions counted by callgrind (they repeat).

usage: instructions_test.py BENCH_HOOK BENCH_RING SHIM BARE_NCCL BARE_CUDA MINI_MANAGER [--table FILE] [--functions]
Fails where a goal of the design is missed, or where a figure has grown by more than a twentieth since it was written
down here. What the driver does is counted apart; that the stream's own operations cost more than their calls (their
arguments, and keeping the application's meanwhile) is in the rows with gates, and not in "recorded launch", which has
no stream at all, nor a done: that is a stream's to say.
"""
import pathlib
import shutil
import subprocess
import sys

from callgrind import Count, count

hook, ring, shim, nccl, cuda, manager = sys.argv[1:7]
CALLS, GROUPS = 1000, 200
PASSES, INTRA, ENFORCED = "2", "3", "1"
GROWTH = 1.05

if not shutil.which("valgrind"):
    print("SKIP hooked calls cost few instructions: no valgrind")
    sys.exit(77)


def hooked(verdict: str, what: list[str], **settings: str) -> Count:
    with subprocess.Popen([manager, verdict, "open"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        socket = served.stdout.readline().strip()
        environment = {"LD_PRELOAD": shim, "OPUS_NCCL_LIBRARY": nccl, "OPUS_SOCKET": socket, "OPUS_REQUIRE": "1", **settings}
        result = count([hook, *what], environment)
        served.stdin.close()
    return result


def over(verdict: str, what: list[str], **settings: str) -> float:
    """Instructions of one call over an unhooked one."""
    counted = hooked(verdict, what, **settings)
    if "--functions" in sys.argv:
        print(what, settings, {n: c / int(what[0]) for n, c in sorted(counted.functions.items(), key=lambda x: -x[1]) if c > int(what[0])})
    apart = counted.of("opus::shim::(anonymous namespace)::plain_done") + counted.objects.get(pathlib.Path(cuda).name, 0)
    return (counted.total - apart - count([hook, *what]).total) / int(what[0])


LONE, SEND = [str(CALLS), "lone", "1"], [str(CALLS), "send", "1"]
PAIR, EIGHT = [str(GROUPS), "group", "1"], [str(GROUPS), "group", "8"]
STREAM, HOST = {"BENCH_CUDA": cuda}, {"BENCH_CUDA": cuda, "OPUS_GATE": "host"}
nothing = count([ring, str(CALLS), "nothing"]).total
rows = [
    # figure, instructions, goal, what it was
    ("mode off, over an unhooked call", over(ENFORCED, LONE, OPUS_MODE="off"), 5, 1),
    ("intra-node communicator, over", over(INTRA, LONE), 40, 29),
    ("recorded launch, over", over(ENFORCED, LONE, OPUS_GATE="none"), 100, 99),
    ("behind a stream gate, over", over(ENFORCED, LONE, **STREAM), None, 221),
    ("send behind a stream gate, over", over(ENFORCED, SEND, **STREAM), None, 228),
    ("behind an open host gate, over", over(ENFORCED, LONE, **HOST), None, 202),
    ("the same without CUDA, over", over(ENFORCED, LONE, OPUS_GATE="host"), None, 161),
    ("group of a send and a receive, stream gate, over", over(ENFORCED, PAIR, **STREAM), None, 772),
    ("group of 8 sends and 8 receives, stream gate, over", over(ENFORCED, EIGHT, **STREAM), None, 3369),
    ("group of a send and a receive, host gate, over", over(ENFORCED, PAIR, **HOST), None, 753),
    ("ring push", (count([ring, str(CALLS), "push"]).total - nothing) / CALLS, 1.5 * 20, 23),
    ("bare ring push (the floor; 20)", (count([ring, str(CALLS), "bare"]).total - nothing) / CALLS, None, None),
]
failed = False
for figure, instructions, goal, was in rows:
    missed = goal is not None and instructions > goal
    grown = was is not None and instructions > GROWTH * was + 0.5
    failed = failed or missed or grown
    print(f"{'FAIL' if missed or grown else 'ok  '} {figure}: {instructions:.1f} instructions" +
          (f" (at most {goal:g})" if goal else "") + (f" (was {was})" if grown else ""))
# A hook that costs nothing was not there.
if rows[2][1] < 30 or rows[1][1] < 5:
    print("FAIL the shim was not in the way")
    failed = True
if "--table" in sys.argv:
    with open(sys.argv[sys.argv.index("--table") + 1], "w") as table:
        for figure, instructions, goal, _ in rows:
            table.write(f"{figure}\t{instructions:.1f}\t{goal if goal is not None else ''}\n")
sys.exit(1 if failed else 0)
