#!/usr/bin/env python3
"""Measures every figure of the benchmark table against its floor, in one run.

    test/bench/run.py BUILD [--only NAME...] [--runs N] [--out DIR] [--page FILE]

Prints the table, writes DIR/table.md and DIR/table.json (default: bench-results/), and FILE, a page for docs/results. A row
whose program is not built, or that cannot run here, says so and why. Exit code 1 when a goal is missed or a row has no figure.
What each row means: docs/benchmarks.md.
"""
import argparse
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import agreement_rows
import controller_rows
import demo_rows
import emulation_rows
import figure
import idle_rows
import launch_rows
import page
import path_rows
import pickup_rows
import scaling_rows
import sim_rows
import startup_rows
from stage import NotBuilt

GROUPS = {
    "launch": launch_rows.rows,
    "startup": startup_rows.rows,
    "path": path_rows.rows,
    "pickup": pickup_rows.rows,
    "controller": controller_rows.rows,
    "scaling": scaling_rows.rows,
    "idle": idle_rows.rows,
    "demo": demo_rows.rows,
    "emulation": emulation_rows.rows,
    "agreement": agreement_rows.rows,
    "sim": sim_rows.rows,
}
# Parts of these, by themselves with --only.
PARTS = {"observe": emulation_rows.observe_rows, "enforce": emulation_rows.enforce_rows, "kineto": sim_rows.reading_rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", choices=[*GROUPS, *PARTS], default=list(GROUPS))
    parser.add_argument("--runs", type=int, default=7, help="alternating runs of each side, at least 5 for the record")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench-results"))
    parser.add_argument("--page", type=pathlib.Path, help="a page of what was measured, with date and machine")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    core, other = cores[0], cores[-1]
    figures, load = [], os.getloadavg()[0]
    for name in options.only:
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        try:
            figures += {**GROUPS, **PARTS}[name](options.build, options.runs, core, other)
        except NotBuilt as e:
            figures.append(figure.missing(name, "", f"{e} is not built"))
        except Exception as e:  # one row that cannot be measured does not cost the others
            figures.append(figure.missing(name, "", f"{type(e).__name__}: {e}"))
    figure.write(figures, options.out)
    if options.page:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(page.text(figures, options.only, (load, os.getloadavg()[0])))
    print(figure.markdown(figures))
    print(f"written to {options.out}/table.md and table.json")
    return 0 if all(f.met for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
