#!/usr/bin/env python3
"""Checks docs/model/opus.pml with spin:   docs/model/scenarios.py [--quick] [--table] [NAME...]
over random programs:                      docs/model/scenarios.py --random COUNT [FIRST SEED] [--features]

Each scenario is a program that ends without Opus (checked first, with -DNO_OPUS) and so must end with it: no assertion
(I1, I2), no end before the end, no fair execution that never ends. 'breaks' names the rules, each a define of the model
that takes the rule away, without which it must not hold; 'base' are defines for all of its checks. The programs are in
programs.py. Prints one line for each check; ends with 'N passed, N failed'. OPUS_MODEL_KEEP=DIR keeps what failed.
--table writes the results into README.md.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import programs  # noqa: E402

LIMIT_S = int(os.environ.get("OPUS_MODEL_SECONDS", "170"))  # of one run of spin; what takes longer is said to be undecided
MEGABYTES = 5000


def mask(items):
    return sum(1 << i for i in set(items))


def tables(scenario, ranks):
    """tables.h and the defines that give its sizes."""
    circuits = scenario.get("circuits", programs.PAIRS)
    circuit_names = list(circuits)
    launches, after, turn = [], [], []
    for rank, streams in ranks.items():
        for stream in streams:
            before = None
            for launch in stream:
                launches.append((rank, launch))
                after.append(set(launch["after"]) | ({before} if before and not launch["host"] else set()))
                turn.append(set(launch["turn"]))
                if not launch["host"]:
                    before = launch["name"]
    rank_names = list(ranks)
    index = {launch["name"]: i for i, (_, launch) in enumerate(launches)}
    assert len(index) == len(launches), "launch names must be unique"
    phantoms = scenario.get("never", {})          # keys that are expected, and never come
    light = {**scenario["light"], **phantoms}
    pairs = scenario.get("pairs", {c: [c] for c in circuits})      # circuits that join a pair; any will do
    pair_names = list(pairs)
    keys = list(dict.fromkeys(k for _, launch in launches for k in launch["keys"])) + list(phantoms)
    data = list(dict.fromkeys(k for _, launch in launches for k in launch["data"]))
    met_by = lambda what, k: mask(i for i, (_, launch) in enumerate(launches) if k in launch[what])
    light_of = {k: mask(pair_names.index(c) for c in light.get(k, sum(light.values(), []))) for k in {*keys, *data}}
    runs = scenario.get("runs", {})
    switches = scenario.get("switches", [circuit_names])
    must = scenario.get("must", index)
    rows = {
        "RANK": [rank_names.index(rank) for rank, _ in launches],
        "AFTER": [mask(index[a] for a in names) for names in after],
        "TURN": [mask(index[a] for a in names) for names in turn],
        "KEYS": [mask(keys.index(k) for k in launch["keys"]) for _, launch in launches],
        "NEEDS": [programs.union(light_of[k] for k in launch["keys"]) for _, launch in launches],
        "DATA": [mask(data.index(k) for k in launch["data"]) for _, launch in launches],
        "MEMBERS": [met_by("keys", k) for k in keys],
        "SENT": [met_by("data", k) for k in data],
        "SENT_IN": [light_of[k] for k in data],
        "LIGHT": [light_of[k] for k in keys],
        "TRANSFER": [int(any(len(launch["keys"]) > 1 and k in launch["keys"] for _, launch in launches)) for k in keys],  # groups are of these
        "RUN": [mask(keys.index(n) for n in runs.get(k, "").split() if n in keys) for k in keys],
        "CIRCUITS": [mask(circuit_names.index(c) for c in pairs[p]) for p in pair_names],
        "CLASH": [mask(j for j, d in enumerate(circuit_names) if d != c and set(circuits[c]) & set(circuits[d])) for c in circuit_names],
        "PORTS": [mask(i for i, c in enumerate(circuit_names) if any(port.split(".")[0] == str(r) for port in circuits[c])) for r in rank_names],
        "SWITCH": [mask(circuit_names.index(c) for c in switch) for switch in switches],
    }
    text = "".join(f"static const int {name}[] = {{{', '.join(map(str, row))}}};\n" for name, row in rows.items())
    values = {"MUST": mask(index[n] for n in must), "LIT": mask(circuit_names.index(c) for c in scenario.get("lit", [])),
              "ROUND": mask(keys.index(k) for k in scenario.get("rounds", "").split()), "GUESSES": scenario.get("guesses", 1),
              "FALLIBLE": mask(scenario.get("fallible", range(len(switches))))}
    text += "enum { " + ", ".join(f"{n} = {v}" for n, v in values.items()) + " };\n"
    sizes = {"NL": len(launches), "NK": len(keys), "ND": len(data), "NP": len(pair_names), "NC": len(circuit_names), "NR": len(rank_names), "NS": len(switches)}
    return text, [f"-D{n}={v}" for n, v in sizes.items()]


class Result:
    def __init__(self, text, seconds):
        self.text, self.seconds = text, seconds
        found = re.search(r"^\s*(\d+) states, stored", text, re.M)
        self.states = int(found.group(1)) if found else 0
        errors = re.search(r"errors: (\d+)", text)
        self.finished = errors is not None and "max search depth too small" not in text and "memory" not in self.why()
        self.ok = self.finished and errors.group(1) == "0"

    def why(self):
        if "(pan: out of memory" in self.text or "pan: reached -DMEMLIM" in self.text:
            return "out of memory"
        found = re.search(r"pan:\d+: (.*?)(?: \(at depth|$)", self.text, re.M)
        if not found:
            return "holds" if "errors: 0" in self.text else "not finished"
        what = found.group(1)
        if "invalid end state" in what:
            return "stops before the end"
        if "acceptance cycle" in what:
            return "goes on for ever"
        return "moves under a launch (I2)" if "moved_under" in what else "starts in the dark (I1)" if "in_the_dark" in what else what


def check(folder, defines, live=False):
    defines = defines + (["-DLIVENESS"] if live else [])
    subprocess.run(["spin", "-a", *defines, "model.pml"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    kind = ["-DNFAIR=8"] if live else ["-DSAFETY"]
    subprocess.run(["gcc", "-O1", "-w", f"-DMEMLIM={MEGABYTES}", "-DVECTORSZ=2048", "-DNOREDUCE", "-DCOLLAPSE", *kind, "-o", "pan", "pan.c"],
                   cwd=folder, check=True)
    start = time.monotonic()
    out = subprocess.run(["timeout", str(LIMIT_S), "./pan", "-m2000000", *(["-a", "-f"] if live else [])], cwd=folder, capture_output=True, text=True)
    return Result(out.stdout + out.stderr, time.monotonic() - start)


class Report:
    def __init__(self):
        self.passed = self.failed = self.undecided = 0
        self.rows = []

    def table(self):
        head = "| scenario | states | liveness | with the rules | without: instead of the rule ... | then |\n|---|--:|--:|---|---|---|\n"
        return head + "".join("| " + " | ".join(row) + " |\n" for row in self.rows)

    def line(self, good, name, text):
        if good is None:
            self.undecided += 1
        elif good:
            self.passed += 1
        else:
            self.failed += 1
        print(f"{ {None: 'SKIP', True: 'ok  ', False: 'FAIL'}[good]} {name}: {text}", flush=True)


def keep(folder, name):
    where = os.environ.get("OPUS_MODEL_KEEP")
    if where:
        shutil.copytree(folder, pathlib.Path(where) / name.replace(" ", "_"), dirs_exist_ok=True)


def write(folder, scenario, ranks):
    text, sizes = tables(scenario, ranks)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tables.h").write_text(text)
    (folder / "model.pml").write_text((HERE / "opus.pml").read_text())
    return sizes


def check_rule(report, folder, name, scenario, rule):
    """Without this rule (a define, several with +) the scenario must not hold."""
    ranks = scenario.get("without", {}).get(rule, scenario["ranks"])
    defines = write(folder, scenario, ranks) + [f"-D{d}" for d in [*scenario.get("base", []), *(["ROUNDS"] if "rounds" in scenario else []), *rule.split("+")]]
    result = check(folder, defines + ["-DCHECK"])
    if result.ok:
        result = check(folder, defines, live=True)
    if not result.finished and not result.ok and result.why() in ("not finished", "out of memory"):
        return report.line(None, f"{name} without {rule}", result.why())
    text = "; ".join(programs.RULES[r] for r in rule.split("+"))
    if report.rows[-1][4] == "":
        report.rows[-1][4:] = [text, result.why()]
    else:
        report.rows.append(["", "", "", "", text, result.why()])
    report.line(not result.ok, f"{name} without {rule}", result.why() + ("" if not result.ok else ": so it does not test that rule"))
    if result.ok:
        keep(folder, f"{name}-{rule}")


def check_scenario(report, folder, name, scenario, rules=True, random=False):
    sizes = write(folder, scenario, scenario["ranks"])
    alone = check(folder, sizes + ["-DNO_OPUS"])
    if not alone.ok:
        return None if random else report.line(False, name, "does not end without Opus: not a scenario")
    defines = sizes + [f"-D{d}" for d in scenario.get("base", []) + (["ROUNDS"] if "rounds" in scenario else [])]
    safe = check(folder, defines + ["-DCHECK"])
    live = check(folder, defines, live=True) if safe.ok else None
    worst = live if safe.ok else safe
    if worst.finished or worst.ok:
        report.line(worst.ok, name, f"{safe.states} states, {live.states} for liveness, {safe.seconds + live.seconds:.1f} s" if worst.ok else worst.why())
        if not worst.ok:
            keep(folder, name)
    elif random and safe.ok and live.why() in ("not finished", "out of memory"):
        report.line(True, name, f"{safe.states} states; liveness {live.why()}")
    else:
        report.line(None if worst.why() in ("not finished", "out of memory") else False, name, worst.why() + worst.text[:300])
    report.rows.append([name, f"{safe.states:,}", f"{live.states:,}" if live else "", worst.why(), "", ""])
    for rule in scenario.get("breaks", []) if rules else []:
        check_rule(report, folder, name, scenario, rule)


def main():
    if not shutil.which("spin") or not shutil.which("gcc"):
        print("SKIP model: spin is not installed (tools/bootstrap.sh model)\n0 passed, 0 failed, 1 skipped")
        return 0
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if "--random" in sys.argv:
            count, first = int(names[0]), int(names[1]) if len(names) > 1 else 1
            for seed in range(first, first + count):
                program = programs.random_program(seed)
                if "--features" in sys.argv:
                    program = programs.random_features(seed, program)
                check_scenario(report, folder, f"random-{seed} {' '.join(program.get('base', []))}".strip(), program, random=True)
        else:
            for name, scenario in programs.SCENARIOS.items():
                if names and name not in names or "--quick" in sys.argv and not scenario.get("quick"):
                    continue
                check_scenario(report, folder, name, scenario)
    if "--table" in sys.argv:
        readme = HERE / "README.md"
        before, rest = readme.read_text().split("<!-- scenarios.py --table -->\n", 1)
        readme.write_text(before + "<!-- scenarios.py --table -->\n" + report.table() + "\n" + rest[rest.index("`SPECULATE`"):])
    print(f"{report.passed} passed, {report.failed} failed" + (f", {report.undecided} skipped" if report.undecided else ""))
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
