"""No byte is lost in the dark or misdelivered in enforce mode, over random jobs with random delays.

OPUS_RANDOM_WORKLOADS: how many of each kind (default 6; `make soak` 1,000). OPUS_RANDOM_SEED: the first.
A failing seed is in the message and gives the same job again.
"""
import os
import sys

from cases import SANITIZED, SLOW, case, expect, run
from cluster import JobFailed, Play, Shape
from random_workload import random_workload

COUNT = int(os.environ.get("OPUS_RANDOM_WORKLOADS", "3" if SANITIZED else "6"))
FIRST = int(os.environ.get("OPUS_RANDOM_SEED", "1"))
SHAPES = [Shape(2, 2, 2, 1), Shape(3, 1, 2, 2), Shape(2, 1, 1, 3), Shape(3, 2, 2, 1), Shape(4, 1, 2, 1), Shape(3, 1, 1, 1)]
PER_CLUSTER = 10


def campaign(context, gate: str, reorder: bool) -> tuple[int, int]:
    """Bytes lost and jobs that lost some. Fails at the first wrong result or hang."""
    lost = losers = 0
    seeds = list(range(FIRST, FIRST + COUNT))
    by_shape = {s: [x for x in seeds if SHAPES[x % len(SHAPES)] == s] for s in SHAPES}
    for shape, own in by_shape.items():
        for at in range(0, len(own), PER_CLUSTER):
            with context.cluster(shape) as cluster:
                for seed in own[at:at + PER_CLUSTER]:
                    bytes_lost = one(cluster, shape, seed, gate, reorder)
                    lost, losers = lost + bytes_lost, losers + (bytes_lost > 0)
                    if gate == "none" and losers == 3:
                        return lost, losers  # that shows it
    return lost, losers


def one(cluster, shape: Shape, seed: int, gate: str, reorder: bool) -> int:
    who = f"seed {seed}, {shape.nodes} nodes x {shape.gpus} GPUs x {shape.ports} ports, gate {gate}"
    path = random_workload(seed, shape.nodes, shape.gpus, shape.ports, reorder=reorder).write(cluster.folder / f"{seed}.jsonl")
    before, suspended = cluster.light(), cluster.counters()["suspensions"]
    play = Play(path, seed=seed, timeout_s=(30 if gate != "none" else 2) * SLOW,
                env={"OPUS_GATE": gate, "OPUS_REQUIRE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    try:
        cluster.run_job(play, 60 * SLOW, name=f"seed{seed}")
    except JobFailed as error:
        if gate != "none":  # what starts in any order may well block itself
            raise AssertionError(f"{who}: {error}") from None
    light = cluster.light() - before
    if gate != "none":
        expect(light.misdelivered_bytes == 0, f"{who}: {light.misdelivered_bytes} bytes were misdelivered")
        suspensions = cluster.counters()["suspensions"] - suspended
        expect(light.lost_bytes == 0 or suspensions > 0, f"{who}: {light.lost_bytes} bytes were lost in the dark")
        passes = cluster.counters()["passes"]
        expect(passes == 0, f"{who}: {passes} launches were let pass")
    return light.lost_bytes


@case("random jobs lose nothing under stream gates, in any stream order")
def stream(context) -> None:
    campaign(context, "stream", reorder=True)


@case("random jobs lose nothing under host gates, in one order")
def host(context) -> None:
    campaign(context, "host", reorder=False)


@case("with gating switched off the same jobs lose bytes")
def none(context) -> None:
    lost, losers = campaign(context, "none", reorder=True)
    expect(lost > 0, "no job lost a byte: the cases above could not fail")
    print(f"  {losers} jobs lost {lost} bytes")


if __name__ == "__main__":
    sys.exit(run())
