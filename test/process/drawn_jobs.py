"""Writes random jobs (random_workload.py) as files for opus-replay, a GPU a node: in any stream order, some of them captured
(any/), and in one order, as host gates need it (one/).

    drawn_jobs.py --nodes N --ports N --seeds FIRST LAST --out FOLDER

FOLDER/any/SEED.jsonl, or SEED.graph.jsonl, which is to be played with --graph.
"""
import argparse
import pathlib

from random_workload import random_workload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--ports", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs=2, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    for order in ("any", "one"):
        folder = args.out / order
        folder.mkdir(parents=True, exist_ok=True)
        for seed in range(args.seeds[0], args.seeds[1] + 1):
            workload = random_workload(seed, args.nodes, 1, args.ports, reorder=order == "any", captures=order == "any")
            workload.write(folder / f"{seed}{'.graph' if workload.captured else ''}.jsonl")


if __name__ == "__main__":
    main()
