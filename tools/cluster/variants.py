"""One job in three variants: always lit without Opus, on demand, provisioned. For opus-demo and
opus-sweep.

An iteration's time is that from the last rank's end of one iteration to the last rank's end of the next. The
first one, in which NCCL meets its peers and shapes are passed, is kept apart; of a provisioned run three more: two in
which it is seen what the job does again and again, and the first that is planned. They are shown by themselves. Of the
others the median counts: many ranks share few cores here, and a hiccup of the computer is not the fabric's.
"""
import dataclasses
import pathlib
import shutil
import statistics
import time

from .cluster import Build, Cluster, Light
from .fabric import Shape
from .play import JobResult, Play

START_LIMIT_S, RUN_SLACK = 60, 3.0

LIT, DEMAND, PROVISIONED = "always-lit", "on-demand", "provisioned"
VARIANTS = (LIT, DEMAND, PROVISIONED)
AHEAD = {DEMAND: ["--provision", "off"], PROVISIONED: ["--provision", "on"]}  # of the controller
WARM_UP = {LIT: 1, DEMAND: 1, PROVISIONED: 4}  # iterations kept apart
TITLE = {LIT: "always lit, no Opus", DEMAND: "on demand", PROVISIONED: "provisioned"}


class Unclean(Exception):
    """A daemon did not end as it must."""


@dataclasses.dataclass
class Measured:
    variant: str
    result: JobResult
    light: Light
    counters: dict[str, int]
    before: dict[str, int]  # counters when the first iteration that counts had begun
    traces: list[pathlib.Path]

    @property
    def times(self) -> list[float]:
        """Of the iterations that count."""
        return self.all[WARM_UP[self.variant]:] or self.all[-1:]

    @property
    def dark_ns(self) -> tuple[int, int]:
        """Hidden, and waited for, by the controller's own count, since the first iteration that counts."""
        hidden, exposed = (self.counters.get(k, 0) - self.before.get(k, 0) for k in ("dark_hidden_ns", "dark_exposed_ns"))
        return hidden, exposed

    @property
    def all(self) -> list[float]:
        return self.result.iteration_seconds()

    @property
    def median(self) -> float:
        return statistics.median(self.times)


def measure(build: Build, shape: Shape, play: Play, variant: str, logs: pathlib.Path, *, expected_s: float, gate: str = "auto",
            trace: pathlib.Path | None = None, tell=None, runs: str = "on") -> Measured:
    """Plays the job once on a cluster of its own. As many iterations of each variant count: a provisioned run has three more.

    expected_s: of an iteration, for the time limit. trace: where the controller's goes. tell(text): progress.
    runs: on or off, where provisioned.
    """
    opus = variant != LIT
    options = [*AHEAD[variant], "--runs", runs if variant == PROVISIONED else "off"] if opus else None
    iterations = play.iterations + WARM_UP[variant] - 1
    play = dataclasses.replace(play, iterations=iterations, shim=opus, env={**play.env, **({"OPUS_GATE": gate, "OPUS_REQUIRE": "1"} if opus else {})})
    with Cluster(build, shape, opus=opus, logs=logs, trace=trace if opus else None, controller_options=options) as cluster:
        job = cluster.start_job(play, variant)
        before: dict[str, int] = {}

        def each():
            if opus and not before and job.progress() >= WARM_UP[variant]:
                before.update(cluster.counters())
            if tell:
                tell(f"{TITLE[variant]}: iteration {min(job.progress() + 1, play.iterations)} of {play.iterations}")
            time.sleep(0.5)
        result = job.wait(START_LIMIT_S + play.iterations * expected_s * RUN_SLACK, each)
        out = Measured(variant, result, cluster.light(), cluster.counters() if opus else {}, before, [])
        for path in (job.folder / f"rank{r}.trace" for r in range(len(job.ranks))):  # they go with the cluster's folder
            if path.exists():
                out.traces.append(pathlib.Path(shutil.copy(path, logs / path.name)))
    if cluster.unclean:
        raise Unclean("did not end cleanly:\n  " + "\n  ".join(cluster.unclean))
    return out


def wrong(run: Measured) -> list[str]:
    """What must hold of a run under Opus, and does not."""
    light, c, found = run.light, run.counters, []
    if run.variant == LIT:
        return found
    who = TITLE[run.variant]
    if light.misdelivered_bytes:
        found.append(f"{who}: {light.misdelivered_bytes:,} bytes came out at a port they were not meant for")
    if light.lost_bytes and not c.get("suspensions"):
        found.append(f"{who}: {light.lost_bytes:,} bytes were lost in the dark, and nothing was suspended")
    if not light.reconfigurations:
        found.append(f"{who}: no circuit was ever moved: the ranks were not under Opus")
    if c.get("passes") or c.get("aborts"):
        found.append(f"{who}: {c.get('passes', 0)} launches were let pass and {c.get('aborts', 0)} failed by policy")
    return found
