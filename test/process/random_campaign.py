"""Campaigns of random jobs: drawn, played on emulated clusters, judged; with a journal they can be long.

A seed gives the same job on the same fabric again, and a failure says how; what waited for what is there too, and whether
the job ends without Opus.
"""
import dataclasses
import json
import pathlib
import random
import shutil
import signal
import time

from cases import SLOW, expect
from cluster import ChildFailed, JobFailed, Play, Shape
from cluster.fabric import standin_uuid
from random_workload import random_workload

KNOWN = ("pci", "uuid")  # what the fabric file says of GPUs, where ranks see them in an order of their own
SHAPES = [Shape(2, 2, 2, 1, known_by=KNOWN), Shape(3, 1, 2, 2), Shape(2, 1, 1, 3), Shape(3, 2, 2, 1, known_by=KNOWN), Shape(4, 1, 2, 1),
          Shape(3, 1, 1, 1), Shape(4, 1, 4, 2), Shape(4, 2, 2, 1, known_by=KNOWN), Shape(4, 2, 2, 1, domain=2),
          Shape(4, 1, 2, 1, domain=2)]
MOST_SEEN = 4  # GPUs that a rank sees of its node, where that is drawn
# Most jobs are over before a guard would let anything be done ahead.
AHEAD = [["--guard", "off", "--provision", "on", "--runs", "on"], ["--provision", "off", "--runs", "off"],
         ["--guard", "off", "--provision", "on", "--runs", "off"], ["--guard", "off", "--provision", "off", "--runs", "on"],
         ["--provision", "on", "--runs", "on"], ["--guard", "off"]]
PER_CLUSTER = 20
PATIENCE_S = 30  # without progress
ENOUGH_LOSERS = 3
DRAWN_WRONGLY = "it was drawn wrongly"
MOST_WRONG = 0.1  # of the jobs in surroundings that their generator does not know
LOOK_S = 12      # after which what waits is written down
FEW_SLOTS = 64   # of the launch ring of every fifth job: it may go round, and be full for a moment
LATE = 0.03      # of the jobs have a rank that comes late


def ring_slots(seed: int) -> int:
    """0: as many as where nobody says otherwise. All shapes (SHAPES) have their turn."""
    return FEW_SLOTS if (seed + seed // len(SHAPES)) % 5 == 0 else 0


def late_rank(seed: int, ranks: int) -> tuple[int, float] | None:
    """Of a job: a rank that begins so many seconds after the others."""
    draw = random.Random(f"{seed} late")
    return (draw.randrange(ranks), draw.uniform(1, 3)) if draw.random() < LATE else None


class DrawnWrongly(Exception):
    """A job does not end without Opus either. Its launches pass when it is stopped."""


class Campaign:
    def __init__(self, context, name: str, gate: str, reorder: bool, seeds: range, *, shapes: list[Shape] = SHAPES, jobs: int = 1,
                 journal: pathlib.Path | None = None, patience_s: float = PATIENCE_S, env: dict[str, str] | None = None):
        self.env = env or {}
        self.context, self.name, self.gate, self.reorder, self.shapes, self.jobs = context, name, gate, reorder, shapes, jobs
        self.seeds, self.patience_s = seeds, patience_s
        self.played = self.lost = self.losers = self.suspensions = self.wrong = 0
        self.journal = Journal(context.build, journal, name) if journal else None

    def run(self) -> None:
        """Fails at the first wrong result or hang; with a journal, at the end."""
        for seeds in self.clusters():
            while seeds:
                logs = self.journal.folder / f"{self.name}-logs" if self.journal else None
                with self.context.cluster(self.shape(seeds[0]), controller_options=self.options(seeds[0]), logs=logs) as cluster:
                    seeds = self.some(cluster, seeds)
                if logs:
                    shutil.rmtree(logs, ignore_errors=True)
                if self.seen_enough():
                    return
        expect(self.wrong <= MOST_WRONG * self.played, f"{self.wrong} of {self.played} jobs do not end without Opus either")
        if self.journal:
            failures = self.journal.failures
            print(f"  {self.name}: {len(self.journal.passed)} seeds passed, {len(failures)} failed; of those played now "
                  f"{self.losers} lost or misdelivered bytes of suspended launches ({self.suspensions} suspensions)")
            expect(not failures, "\n".join(f"seed {seed}: {why}" for seed, why in sorted(failures.items())))

    def clusters(self) -> list[list[int]]:
        """Seeds that play on one cluster, one after another. All of a seed's surroundings follow from it."""
        blocks: dict[tuple[int, int], list[int]] = {}
        for seed in self.seeds:
            if not (self.journal and self.journal.has(seed)):
                blocks.setdefault((seed // (PER_CLUSTER * len(self.shapes)), seed % len(self.shapes)), []).append(seed)
        return [seeds for _, seeds in sorted(blocks.items())]

    def shape(self, seed: int) -> Shape:
        return self.shapes[seed % len(self.shapes)]

    def options(self, seed: int) -> list[str]:
        """Clusters take turns in how much is done ahead of demand."""
        return AHEAD[(seed // (PER_CLUSTER * len(self.shapes)) + seed) % len(self.shapes) % len(AHEAD)]

    def some(self, cluster, seeds: list[int]) -> list[int]:
        """Returns those that another cluster must play: what failed may have spoilt this one."""
        for i, seed in enumerate(seeds):
            try:
                self.one(cluster, seed)
            except DrawnWrongly:
                self.wrong += 1
                if self.journal:
                    self.journal.succeed(seed)
                return seeds[i + 1:]
            except (AssertionError, ChildFailed) as error:
                if not self.journal:
                    raise
                self.journal.fail(seed, str(error), cluster)
                return seeds[i + 1:]
            if self.journal:
                self.journal.succeed(seed)
            if self.seen_enough():
                break
        return []

    def seen_enough(self) -> bool:
        return self.gate == "none" and self.losers >= ENOUGH_LOSERS

    def one(self, cluster, seed: int) -> None:
        shape, gate = cluster.shape, self.gate
        who = (f"seed {seed}, {shape.nodes} nodes x {shape.gpus} GPUs x {shape.ports} ports, gate {gate}, {self.jobs} jobs, "
               f"{' '.join(self.options(seed))}; again: OPUS_RANDOM_SEED={seed} OPUS_RANDOM_WORKLOADS=1 "
               f"python3 test/process/random_test.py {self.context.build.folder.name} '{self.name}'")
        before, losses, suspended = cluster.light(), len(cluster.losses()), len(cluster.suspended_nodes())
        plays = self.plays(cluster, seed)
        started = [cluster.start_job(play, f"seed{seed}-{n}") for n, play in enumerate(plays)]
        self.played += 1
        look = Look(cluster, min(LOOK_S, 0.7 * self.patience_s))
        late = late_rank(seed, len(started[0].ranks))

        def meanwhile() -> None:
            look.sometimes()
            if plays[0].late and time.monotonic() > look.begin + late[1]:
                started[0].ranks[late[0]].signal(signal.SIGCONT)
        try:
            for job in started:
                job.wait(2 * self.patience_s * SLOW, meanwhile)
        except JobFailed as error:
            for job in started:
                job.stop()
            if gate != "none":  # what starts in any order may well block itself
                bare = self.without_opus(shape, plays)
                if self.env and DRAWN_WRONGLY in bare:  # bare_nccl.py knows nothing of these surroundings
                    raise DrawnWrongly from None
                raise AssertionError(f"{who}: {error}\n{bare}\n{look.seen}") from None
        light = cluster.light() - before
        self.lost, self.losers = self.lost + light.lost_bytes, self.losers + (light.lost_bytes + light.misdelivered_bytes > 0)
        if gate == "none":
            return
        suspensions = cluster.suspended_nodes()[suspended:]
        self.suspensions += len(suspensions)
        # A suspended launch goes on sending while its circuits lead elsewhere, and what it sent before is answered; nobody else may. Where a busy computer keeps an
        # answer for long, what has arrived is sent once more, and is answered when all are done: of that nothing needs light.
        bad = [loss for loss in cluster.losses()[losses:] if not (loss.again or loss.node in suspensions or loss.is_answer_to(suspensions))]
        expect(not bad, f"{who}: {bad[0].bytes} bytes were {bad[0].what}, and so were {len(bad) - 1} other frames: {bad[:3]}" if bad else "")
        passes = cluster.counters()["passes"]
        expect(passes == 0, f"{who}: {passes} launches were let pass")

    def plays(self, cluster, seed: int) -> list[Play]:
        shape = cluster.shape
        env = self.env | {"OPUS_GATE": self.gate, "OPUS_REQUIRE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
        if slots := ring_slots(seed):  # a busy machine is no full ring
            env |= {"OPUS_RING_SLOTS": str(slots), "OPUS_RING_WAIT_MS": str(int(500 * self.patience_s * SLOW))}
        out = []
        for n, nodes in enumerate(self.node_sets(shape, seed)):
            workload = random_workload(seed + 1_000_000 * n, len(nodes), shape.gpus, shape.ports, reorder=self.reorder,
                                       domain=shape.domain, captures=self.gate == "stream",  # no other gate holds replays
                                       slots=ring_slots(seed))
            path = workload.write(cluster.folder / f"{seed}-{n}.jsonl")
            late = late_rank(seed, len(nodes) * shape.gpus) if n == 0 and self.gate != "none" else None
            patience_s = self.patience_s if self.gate != "none" else 2
            play = Play(path, seed=seed, late=(late[0],) if late else (), timeout_s=patience_s * SLOW, env=env, graph=workload.captured,
                        places=[(node, gpu) for node in nodes for gpu in range(shape.gpus)])
            out.append(self.seen(play, shape, random.Random(f"{seed}.{n} seen")))
        return out

    @staticmethod
    def seen(play: Play, shape: Shape, drawn: random.Random) -> Play:
        """In some jobs nobody tells a rank's GPU, and each sees some GPUs of its node in an order of its own, its own one among them:
        by their numbers, or by UUIDs."""
        if not shape.known_by or drawn.random() < 0.6:
            return play
        by_uuid, envs, devices = drawn.random() < 0.5, [], []
        for node, gpu in play.places:
            others = [g for g in range(MOST_SEEN) if g != gpu]
            order = drawn.sample(others, drawn.randint(0, len(others))) + [gpu]
            drawn.shuffle(order)
            envs.append({"OPUS_GPU": "", "STANDIN_GPU": "",
                         "CUDA_VISIBLE_DEVICES": ",".join(standin_uuid(node, g) if by_uuid else str(g) for g in order)})
            devices.append(order.index(gpu))
        return dataclasses.replace(play, rank_env=envs, devices=devices)

    def without_opus(self, shape: Shape, plays: list[Play]) -> str:
        """Whether the jobs are to blame: a program that hangs is played on a network that is always lit, without a shim."""
        with self.context.cluster(shape, opus=False) as cluster:
            for n, play in enumerate(plays):
                bare = dataclasses.replace(play, shim=False, steered=False, late=())
                try:
                    cluster.run_job(bare, 2 * self.patience_s * SLOW, f"bare{n}")
                except JobFailed as error:
                    return f"  job {n} does not end without Opus either, {DRAWN_WRONGLY}: {error}"
        return "  without Opus it ends"

    def node_sets(self, shape: Shape, seed: int) -> list[list[int]]:
        """Of each job; jobs share the switches, not the GPUs."""
        if self.jobs == 1:
            return [list(range(shape.nodes))]
        nodes = random.Random(seed).sample(range(shape.nodes), shape.nodes)
        return [nodes[:shape.nodes // 2], nodes[shape.nodes // 2:]]


class Journal:
    """Of one campaign: which seeds passed and which failed, as long as the programs are the same."""

    def __init__(self, build, folder: pathlib.Path, name: str):
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / (name.replace(" ", "-") + ".json")
        self.programs = build.fingerprint()
        self.passed: set[int] = set()
        self.failures: dict[int, str] = {}
        if self.file.exists() and (found := json.loads(self.file.read_text()))["programs"] == self.programs:
            self.passed, self.failures = set(found["passed"]), {int(seed): why for seed, why in found["failed"].items()}

    def has(self, seed: int) -> bool:
        return seed in self.passed or seed in self.failures

    def succeed(self, seed: int) -> None:
        self.passed.add(seed)
        self._write()

    def fail(self, seed: int, why: str, cluster) -> None:
        print(f"  failed: {why}", flush=True)
        self.failures[seed] = why
        kept = self.folder / f"{self.file.stem}-{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(cluster.logs, kept)
        for path in cluster.folder.glob(f"{seed}-*.jsonl"):
            shutil.copy(path, kept)
        self._write()

    def _write(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps({"programs": self.programs, "passed": sorted(self.passed), "failed": self.failures}, indent=1))
        part.replace(self.file)


class Look:
    """What waits for what, of a job that takes too long."""

    def __init__(self, cluster, after_s: float):
        self.cluster, self.after_s, self.begin, self.seen = cluster, after_s, time.monotonic(), ""

    def sometimes(self) -> None:
        if self.seen or time.monotonic() - self.begin < self.after_s * SLOW:
            return
        self.seen = "\n".join(f"  {what}: {json.dumps(self.cluster.ctl(what))}" for what in ("why", "ports", "status"))
