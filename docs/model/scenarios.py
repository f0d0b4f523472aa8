#!/usr/bin/env python3
"""Checks docs/model/opus.pml with spin over every scenario:  docs/model/scenarios.py [NAME...]
or over random programs:                                               docs/model/scenarios.py --random N [FIRST SEED]

'breaks' names a rule (a define of the model) without which the scenario must fail. Each scenario is a program that ends without Opus (checked first, with -DNO_OPUS) and so must end with it.
A program is, per rank, a list of streams; a stream a list of launches; a launch a name, the keys it brings,
and launches of other streams of the rank that it waits for (an event, or the order of its communicator).
A key is met by every launch that names it.
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def L(name, keys, after=()):
    return {"name": name, "keys": keys.split(), "after": list(after)}


# Circuits are pairs of ports 'rank.port'; light: which circuits a key needs.
PAIRS = {"01": ("0.0", "1.0"), "02": ("0.0", "2.0"), "12": ("1.0", "2.0")}

SCENARIOS = {
    # The protocol's table (those without runs and speculation).
    "A1": dict(ranks={0: [[L("xy", "x y")]], 1: [[L("x1", "x"), L("y1", "y")]]},
               light={"x": ["01"], "y": ["01"]}, breaks="UNION_OF_KEYS"),
    "A2": dict(ranks={0: [[L("ab", "a b")]],
                      1: [[L("g1", "g")]],
                      2: [[L("a2", "a"), L("b2", "b")], [L("g2", "g")]]},
               light={"a": ["02"], "b": ["02"], "g": ["12"]}, breaks="NO_JOINERS"),
    "A3": dict(ranks={0: [[L("X0", "X")]],
                      1: [[L("a1", "a"), L("X1", "X"), L("b1", "b")]],
                      2: [[L("ab", "a b")]]},
               light={"a": ["12"], "b": ["12"], "X": ["01"]}, breaks="NO_SUSPENSION"),
    "F": dict(ranks={0: [[L("r0", "q")], [L("s0", "p")]],
                     1: [[L("r1", "p")], [L("s1", "q")]]},
              light={"p": ["01"], "q": ["01"]}),
    "G1": dict(ranks={0: [[L("L0", "L"), L("C0", "C")]],
                      1: [[L("L1", "L")], [L("C1", "C")]]},
               light={"L": ["01"], "C": ["01"]}),
    "G2": dict(ranks={0: [[L("D0", "D"), L("a0", "a")], [L("b0", "b", after=["a0"])]],
                      1: [[L("a1", "a"), L("b1", "b")]],
                      2: [[L("D2", "D")]]},
               light={"a": ["01"], "b": ["01"], "D": ["02"]}),
    "K": dict(ranks={0: [[L("p0", "p"), L("P0", "P")]],
                     1: [[L("p1", "p"), L("P1", "P")], [L("q1", "q"), L("Q1", "Q")]],
                     2: [[L("q2", "q"), L("Q2", "Q")]]},
              light={"p": ["01"], "P": ["01"], "q": ["12"], "Q": ["12"]}),
    # Receives posted early on their own stream, the sender comes after a collective on the same ports.
    "early_receive": dict(ranks={0: [[L("r0", "r")], [L("X0", "X")]],
                                 1: [[L("X1", "X")]],
                                 2: [[L("r2", "r")]]},
                          light={"r": ["02"], "X": ["01"]}),
    # Two communicators over the same ports reached in different stream orders.
    "crossed": dict(ranks={0: [[L("u0", "u")], [L("v0", "v")]],
                           1: [[L("v1", "v"), L("t1", "t")], [L("u1", "u")]],
                           2: [[L("t2", "t")]]},
                    light={"u": ["01"], "v": ["01"], "t": ["12"]}),
    # A ring of three over two ports a rank, and a pair that takes one of the ports away.
    "ring_and_pair": dict(ranks={0: [[L("R0", "R"), L("P0", "P")]],
                                 1: [[L("R1", "R")], [L("P1", "P")]],
                                 2: [[L("R2", "R"), L("S2", "S")]],
                                 3: [[L("S3", "S")]]},
                          circuits={"01": ("0.1", "1.0"), "12": ("1.1", "2.0"), "20": ("2.1", "0.0"), "01b": ("0.0", "1.1"), "23": ("2.1", "3.0")},
                          light={"R": ["01", "12", "20"], "P": ["01b"], "S": ["23"]}),
}


def table(scenario):
    circuits = scenario.get("circuits", PAIRS)
    circuit_names = list(circuits)
    launches, after_names = [], []
    for rank, streams in scenario["ranks"].items():
        for stream in streams:
            before = None
            for launch in stream:
                waits = set(launch["after"])
                if before:
                    waits.add(before)
                before = launch["name"]
                launches.append(launch)
                after_names.append(waits)
    index = {l["name"]: i for i, l in enumerate(launches)}
    assert len(index) == len(launches), "launch names must be unique"
    key_names = sorted({k for l in launches for k in l["keys"]})
    mask = lambda items: sum(1 << i for i in set(items))
    light = {k: mask(circuit_names.index(c) for c in scenario["light"][k]) for k in key_names}
    lines = [f"#define NL {len(launches)}", f"#define NK {len(key_names)}", f"#define NC {len(circuit_names)}", "inline tables() {"]
    rows = []
    for i, l in enumerate(launches):
        rows.append(f"after[{i}] = {mask(index[a] for a in after_names[i])}")
        rows.append(f"keys[{i}] = {mask(key_names.index(k) for k in l['keys'])}")
        needs = 0
        for k in l["keys"]:
            needs |= light[k]
        rows.append(f"needs[{i}] = {needs}")
    for i, k in enumerate(key_names):
        rows.append(f"members[{i}] = {mask(j for j, l in enumerate(launches) if k in l['keys'])}")
        rows.append(f"light[{i}] = {light[k]}")
    for i, c in enumerate(circuit_names):
        rows.append(f"clash[{i}] = {mask(j for j, d in enumerate(circuit_names) if d != c and set(circuits[c]) & set(circuits[d]))}")
    lines.append(";\n".join("    " + r for r in rows))
    lines.append("}")
    return "\n".join(lines) + "\n"


def random_scenario(seed):
    """Three ranks, two streams each, pairs over one port a rank. May not end even without Opus (then skipped)."""
    draw = random.Random(seed)
    launches = {r: [[], []] for r in range(3)}
    light = {}
    for n in range(draw.randint(3, 4)):
        a, b = draw.sample(range(3), 2)
        key = f"k{n}"
        light[key] = ["".join(str(r) for r in sorted((a, b)))]
        for r in (a, b):
            stream = draw.choice(launches[r])
            if stream and draw.random() < 0.35 and light[stream[-1]["keys"][0]] == light[key]:
                stream[-1]["keys"].append(key)       # group { ... }; to another peer it could not be routed
            else:
                stream.append(L(f"{key}r{r}", key))
    for r in range(3):                                # an event between the streams
        if all(launches[r]) and draw.random() < 0.4:
            draw.choice(launches[r][1])["after"].append(draw.choice(launches[r][0])["name"])
    return dict(ranks=launches, light=light)


def check(folder, defines, run_options):
    """(ok, states, text): no assertion violated, no invalid end state, no non-progress cycle."""
    subprocess.run(["spin", "-a", *defines, "model.pml"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    progress = ["-DNP", "-DNFAIR=8"] if "-l" in run_options else []
    subprocess.run(["gcc", "-O2", "-w", "-DMEMLIM=4096", "-DVECTORSZ=4096", *progress, *([] if progress else ["-DSAFETY"]),
                    "-o", "pan", "pan.c"], cwd=folder, check=True)
    out = subprocess.run(["./pan", "-m1000000", *run_options], cwd=folder, capture_output=True, text=True, timeout=900).stdout
    errors = next((line for line in out.splitlines() if "errors:" in line), "")
    states = next((line.split()[0] for line in out.splitlines() if "states, stored" in line), "?")
    ok = errors.rstrip().endswith("errors: 0") and "max search depth too small" not in out
    return ok, states, out


def main():
    if not shutil.which("spin"):
        print("SKIP model: spin is not installed (apt-get install spin)")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = 0
    names, scenarios = sys.argv[1:], dict(SCENARIOS)
    if names[:1] == ["--random"]:
        first, count = int(names[2]) if len(names) > 2 else 1, int(names[1])
        scenarios = {f"random-{seed}": random_scenario(seed) for seed in range(first, first + count)}
        names = []
    for name, scenario in scenarios.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "model.pml").write_text(table(scenario) + (HERE / "opus.pml").read_text())
            alone, _, _ = check(folder, ["-DNO_OPUS"], [])
            if not alone and name.startswith("random-"):
                continue
            if not alone:
                print(f"FAIL {name}: does not end without Opus: not a scenario")
                failed += 1
                continue
            safe, states, text = check(folder, ["-DCHECK"], [])
            live, live_states, live_text = check(folder, [], ["-l", "-f"]) if safe else (False, "-", "")
            without = scenario.get("breaks")
            if safe and live and without and check(folder, ["-DCHECK", f"-D{without}"], [])[0]:
                failed += 1
                print(f"FAIL {name}: holds with -D{without} as well, so it does not test that rule")
            elif safe and live:
                passed += 1
                print(f"ok   {name}: {states} states, {live_states} for liveness", flush=True)
            else:
                failed += 1
                print(f"FAIL {name}: {'a fair cycle without progress' if safe else 'assertion or end state'}")
                keep = os.environ.get("OPUS_MODEL_KEEP")
                if keep:
                    shutil.copytree(folder, pathlib.Path(keep) / name, dirs_exist_ok=True)
                print("\n".join("     | " + line for line in (text if not safe else live_text).splitlines()[:12]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
