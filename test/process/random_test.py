"""No byte is lost in the dark or misdelivered in enforce mode, over random jobs with random delays.

OPUS_RANDOM_WORKLOADS: how many of each kind (default 20; `make soak` more). OPUS_RANDOM_SEED: the first.
OPUS_RANDOM_JOURNAL: a folder. With it a campaign goes on after a failure, whose logs are kept there, and one
that was stopped goes on where it was.
"""
import collections
import os
import pathlib
import sys

from cases import SANITIZED, case, expect, run
from cluster import Shape
from random_campaign import Campaign
from random_drawn import LEAST, drawn

COUNT = int(os.environ.get("OPUS_RANDOM_WORKLOADS", "4" if SANITIZED else "20"))
FIRST = int(os.environ.get("OPUS_RANDOM_SEED", "1"))
DRAWN = range(1, 501)  # counted, not played
LEAST_UNGATED = 35  # of which some lose bytes, however late slow ranks come
JOURNAL = os.environ.get("OPUS_RANDOM_JOURNAL", "")
PAIRS = [Shape(4, 1, 2, 1), Shape(4, 2, 2, 1), Shape(4, 1, 1, 2), Shape(6, 1, 2, 1)]  # two jobs on one fabric


def campaign(context, name: str, gate: str, reorder: bool, **more) -> Campaign:
    journal = pathlib.Path(JOURNAL) if JOURNAL and gate != "none" else None
    count = max(COUNT, LEAST_UNGATED) if gate == "none" else COUNT
    return Campaign(context, name, gate, reorder, range(FIRST, FIRST + count), journal=journal, **more)


@case("random jobs do what NCCL allows, each thing often enough")
def census(_) -> None:
    count = collections.Counter(what for seed in DRAWN for what in drawn(seed))
    for what, least in LEAST.items():
        print(f"  {100 * count[what] / len(DRAWN):5.1f} % {what}")
        expect(100 * count[what] >= least * len(DRAWN), f"{what}: {count[what]} of {len(DRAWN)} jobs, {least} % are wanted")


@case("random jobs lose nothing under stream gates, in any stream order")
def stream(context) -> None:
    campaign(context, "under stream gates", "stream", reorder=True).run()


@case("random jobs lose nothing where calls that make connections wait for the whole device")
def drained(context) -> None:
    campaign(context, "where calls wait for the device", "stream", reorder=False, env={"STANDIN_DRAINS": "1"}).run()


@case("random jobs lose nothing under host gates, in one order")
def host(context) -> None:
    campaign(context, "under host gates", "host", reorder=False).run()


@case("two random jobs on one fabric lose nothing")
def two_jobs(context) -> None:
    campaign(context, "two random jobs", "stream", reorder=True, shapes=PAIRS, jobs=2).run()


@case("with gating switched off the same jobs lose bytes")
def none(context) -> None:
    jobs = campaign(context, "gating switched off", "none", reorder=True)
    jobs.run()
    expect(jobs.lost > 0, "no job lost a byte: the cases above could not fail")
    print(f"  {jobs.losers} jobs lost {jobs.lost} bytes")


if __name__ == "__main__":
    sys.exit(run())
