#!/usr/bin/env python3
"""What the core does about wide launches grows with the nodes as n log n, in instructions counted by callgrind (they repeat).

usage: growth_test.py CORE_GROWTH
Each scenario (wide_scenarios.h) at two sizes. Nothing is held to a number of instructions, only to how they grow.
"""
import math
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "shim"))
from callgrind import count

program = sys.argv[1]
SMALL, LARGE = 64, 256
MOST = LARGE * math.log2(2 * LARGE) / (SMALL * math.log2(2 * SMALL))
SCENARIOS = {
    "look": "who might be suspended is looked up in steps that grow with the nodes",
    "suspend": "a wide launch that loses a circuit is suspended in steps that grow with the nodes",
    "restart": "all snapshots of a wide launch are taken in steps that grow with the nodes",
    "take_back": "a wide run is taken back in steps that grow with the nodes",
    "ports": "the ports under a wide launch are told in steps that grow with the nodes",
    "why": "why wide launches wait is told in steps that grow with the nodes",
}

if not shutil.which("valgrind"):
    print("SKIP the core's steps grow with the nodes: no valgrind")
    sys.exit(77)

failed = False
for name, behaviour in SCENARIOS.items():
    small, large = (count([program, name, str(nodes)]).total for nodes in (SMALL, LARGE))
    grown = large / small if small else math.inf
    failed = failed or grown > MOST
    print(f"{'ok  ' if grown <= MOST else 'FAIL'} {behaviour}: {small:,} instructions for {SMALL} nodes, {large:,} for {LARGE}: "
          f"{grown:.1f} times as many (n log n: {MOST:.1f})")
sys.exit(1 if failed else 0)
