"""The paper's job, shrunk: what enforce mode promises, and that the promise can be broken without gates."""
import pathlib
import sys

from cases import ROOT, SLOW, case, expect, run
from cluster import Play, Shape

JOB = ROOT / "tools" / "replay" / "workloads" / "llama3-8b-16gpu.jsonl"
# One port a GPU: with two, one circuit a pair soon has all the light that the job wants, and nothing moves any more.
SHAPE = Shape(nodes=4, gpus=4, ports=1, dark_ms=2)


def play(context, env: dict[str, str], patience_s: float = 60, may_fail: bool = False):
    with context.cluster(SHAPE) as cluster:
        job = Play(JOB, iterations=2, scale_bytes="1/8192", scale_time="1/20" if SLOW == 1 else "1/5", timeout_s=patience_s * SLOW,
                   env={"OPUS_REQUIRE": "1", **env})
        result = cluster.start_job(job).wait(120 * SLOW, expect_failure=may_fail)
        return result, cluster.light(), cluster.counters()


@case("the job loses no byte and misdelivers none in enforce mode")
def enforced(context) -> None:
    result, light, counters = play(context, {})
    expect(light.reconfigurations > 0, "no circuit was moved: the ranks were not under Opus")
    expect(light.misdelivered_bytes == 0, f"{light.misdelivered_bytes} bytes were misdelivered")
    expect(light.lost_bytes == 0 or counters["suspensions"] > 0, f"{light.lost_bytes} bytes were lost in the dark")
    expect(counters["passes"] == 0, f"{counters['passes']} launches were let pass")
    expect(result.total("mismatches") == 0, "a result was wrong")


@case("without gates the same job loses bytes")
def ungated(context) -> None:
    # What starts in the dark, in any order, may well block itself: the losses are what counts.
    _, light, _ = play(context, {"OPUS_GATE": "none"}, patience_s=3, may_fail=True)
    expect(light.lost_bytes > 0, "nothing was lost: the case above could not fail")


@case("in observe mode nothing is held and nothing moves")
def observed(context) -> None:
    shape = Shape(nodes=2, gpus=1, ports=2, dark_ms=1)
    from workload_text import Workload, grid
    w = Workload("observed", grid(2, 1), iterations=3)
    w.comm("pair", [[0, 1]])
    w.collective("all_reduce", "pair", [0, 1])
    with context.cluster(shape, emulator_options=["--always-lit"]) as cluster:
        path = w.write(cluster.folder / "w.jsonl")
        # The transport finds its own way where every port reaches every other.
        cluster.run_job(Play(path, timeout_s=20 * SLOW, env={"OPUS_MODE": "observe", "STANDIN_STEERING": ""}), 60 * SLOW)
        expect(cluster.light().reconfigurations == 0, "a circuit was moved")
        expect(cluster.counters()["demands"] == 0, "an observed launch was asked for")


if __name__ == "__main__":
    sys.exit(run())
