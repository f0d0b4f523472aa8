"""No byte is lost in the dark or misdelivered in enforce mode, over random jobs with random delays.

OPUS_RANDOM_WORKLOADS: how many of each kind (default 35; `make soak` 1,000). OPUS_RANDOM_SEED: the first.
A failing seed is in the message and gives the same job again; what waited for what is there too.
"""
import json
import os
import random
import sys
import time

from cases import SANITIZED, SLOW, case, expect, run
from cluster import JobFailed, Play, Shape
from random_workload import random_workload

COUNT = int(os.environ.get("OPUS_RANDOM_WORKLOADS", "4" if SANITIZED else "35"))
FIRST = int(os.environ.get("OPUS_RANDOM_SEED", "1"))
SHAPES = [Shape(2, 2, 2, 1), Shape(3, 1, 2, 2), Shape(2, 1, 1, 3), Shape(3, 2, 2, 1), Shape(4, 1, 2, 1), Shape(3, 1, 1, 1),
          Shape(4, 1, 4, 2), Shape(4, 2, 2, 1)]
PAIRS = [Shape(4, 1, 2, 1), Shape(4, 2, 2, 1), Shape(4, 1, 1, 2), Shape(6, 1, 2, 1)]  # two jobs on one fabric
PER_CLUSTER = 20
PATIENCE_S = 30  # without progress
LOOK_S = 12      # after which what waits is written down


class Campaign:
    def __init__(self, context, gate: str, reorder: bool, shapes: list[Shape] = SHAPES, jobs: int = 1):
        self.context, self.gate, self.reorder, self.shapes, self.jobs = context, gate, reorder, shapes, jobs
        self.lost = self.losers = 0

    def run(self, enough: int = 0) -> None:
        """Fails at the first wrong result or hang. enough: jobs that lost bytes, after which it ends."""
        seeds = list(range(FIRST, FIRST + COUNT))
        for i, shape in enumerate(self.shapes):
            own = [x for x in seeds if x % len(self.shapes) == i]
            for at in range(0, len(own), PER_CLUSTER):
                # Every other cluster moves circuits only when asked.
                provision = ["--provision", "off"] if (i + at // PER_CLUSTER) % 2 else []
                with self.context.cluster(shape, controller_options=provision) as cluster:
                    for seed in own[at:at + PER_CLUSTER]:
                        self.one(cluster, seed)
                        if enough and self.losers == enough:
                            return

    def one(self, cluster, seed: int) -> None:
        shape, gate = cluster.shape, self.gate
        who = f"seed {seed}, {shape.nodes} nodes x {shape.gpus} GPUs x {shape.ports} ports, gate {gate}, {self.jobs} jobs"
        before, suspended = cluster.light(), cluster.counters()["suspensions"]
        started = [cluster.start_job(play, f"seed{seed}-{n}") for n, play in enumerate(self.plays(cluster, seed))]
        look = Look(cluster)
        try:
            for job in started:
                job.wait(2 * PATIENCE_S * SLOW, look.sometimes)
        except JobFailed as error:
            for job in started:
                job.stop()
            if gate != "none":  # what starts in any order may well block itself
                raise AssertionError(f"{who}: {error}\n{look.seen}") from None
        light = cluster.light() - before
        self.lost, self.losers = self.lost + light.lost_bytes, self.losers + (light.lost_bytes > 0)
        if gate == "none":
            return
        expect(light.misdelivered_bytes == 0, f"{who}: {light.misdelivered_bytes} bytes were misdelivered")
        counters = cluster.counters()
        expect(light.lost_bytes == 0 or counters["suspensions"] > suspended, f"{who}: {light.lost_bytes} bytes were lost in the dark")
        expect(counters["passes"] == 0, f"{who}: {counters['passes']} launches were let pass")

    def plays(self, cluster, seed: int) -> list[Play]:
        shape = cluster.shape
        env = {"OPUS_GATE": self.gate, "OPUS_REQUIRE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
        out = []
        for n, nodes in enumerate(self.node_sets(shape, seed)):
            workload = random_workload(seed + 1_000_000 * n, len(nodes), shape.gpus, shape.ports, reorder=self.reorder)
            path = workload.write(cluster.folder / f"{seed}-{n}.jsonl")
            out.append(Play(path, seed=seed, timeout_s=(PATIENCE_S if self.gate != "none" else 2) * SLOW, env=env,
                            places=[(node, gpu) for node in nodes for gpu in range(shape.gpus)]))
        return out

    def node_sets(self, shape: Shape, seed: int) -> list[list[int]]:
        """Of each job; jobs share the switches, not the GPUs."""
        if self.jobs == 1:
            return [list(range(shape.nodes))]
        nodes = random.Random(seed).sample(range(shape.nodes), shape.nodes)
        return [nodes[:shape.nodes // 2], nodes[shape.nodes // 2:]]


class Look:
    """What waits for what, of a job that takes too long."""

    def __init__(self, cluster):
        self.cluster, self.begin, self.seen = cluster, time.monotonic(), ""

    def sometimes(self) -> None:
        if self.seen or time.monotonic() - self.begin < LOOK_S * SLOW:
            return
        self.seen = "\n".join(f"  {what}: {json.dumps(self.cluster.ctl(what))}" for what in ("why", "ports", "status"))


@case("random jobs lose nothing under stream gates, in any stream order")
def stream(context) -> None:
    Campaign(context, "stream", reorder=True).run()


@case("random jobs lose nothing under host gates, in one order")
def host(context) -> None:
    Campaign(context, "host", reorder=False).run()


@case("two random jobs on one fabric lose nothing")
def two_jobs(context) -> None:
    Campaign(context, "stream", reorder=True, shapes=PAIRS, jobs=2).run()


@case("with gating switched off the same jobs lose bytes")
def none(context) -> None:
    campaign = Campaign(context, "none", reorder=True)
    campaign.run(enough=3)
    expect(campaign.lost > 0, "no job lost a byte: the cases above could not fail")
    print(f"  {campaign.losers} jobs lost {campaign.lost} bytes")


if __name__ == "__main__":
    sys.exit(run())
