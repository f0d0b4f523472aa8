"""Every kind of workload that opus-replay generates, small, with interludes and changing lengths: the same
bits on an always-lit fabric without Opus and on switches that are dark while they move."""
import subprocess
import sys

from cases import SLOW, case, expect, run
from cluster import Play, Shape

ITERATIONS = 4
SMALL = ["--iterations", str(ITERATIONS), "--layers", "4", "--micro-batches", "4", "--layer-bytes", "20000", "--activation-bytes", "50000",
         "--forward-us", "200", "--backward-us", "400", "--optimizer-every", "2", "--evaluate-every", "3",
         "--checkpoint-every", "4", "--lengths", "1,0.5,2"]
# Programs such as NCCL allows; among them are hosts that are busy for minutes, so their time is short.
RANDOM = [f"random-{seed}" for seed in (1, 3, 4, 71, 86, 95)]
# Experts use all GPUs of their nodes, so that their rails cross.
SHAPES = {Shape(4, 1, 2, 2): ["dp", "fsdp", "pp", "interleaved", "zero-bubble", "cp", "3d", "4d"],
          Shape(4, 2, 2, 2): ["3d", "ep", "4d-moe", *RANDOM]}


def play_all(context, opus: bool) -> dict[str, int]:
    """Bytes checked, by kind."""
    checked = {}
    for shape, kinds in SHAPES.items():
        with context.cluster(shape, opus=opus, controller_options=["--guard", "off", "--provision", "on", "--runs", "on"]) as cluster:
            for kind in kinds:
                path, name = cluster.folder / f"{kind}.jsonl", f"{kind}-{shape.gpus}"
                options = ["random", "--seed", kind.split("-")[1], "--iterations", str(ITERATIONS)] if kind in RANDOM else [kind, *SMALL]
                subprocess.run([context.build.replay, "generate", *options, "--nodes", str(shape.nodes), "--gpus",
                                str(shape.gpus), "--out", path], check=True, timeout=20 * SLOW)
                before = cluster.light()
                play = Play(path, shim=opus, scale_time="1/1000" if kind in RANDOM else "1/10", timeout_s=30 * SLOW,
                            env={"CUDA_DEVICE_MAX_CONNECTIONS": "32", **({"OPUS_REQUIRE": "1"} if opus else {})})
                result = cluster.run_job(play, 90 * SLOW, name=name)
                expect(result.total("mismatches") == 0, f"{name}: wrong results")
                checked[name] = result.total("checked_bytes")
                light = cluster.light() - before
                expect(light.misdelivered_bytes == 0, f"{name}: {light.misdelivered_bytes} bytes were misdelivered")
                expect(not opus or light.lost_bytes == 0 or cluster.counters()["suspensions"] > 0,
                       f"{name}: {light.lost_bytes} bytes were lost in the dark")
            expect(not opus or cluster.counters()["passes"] == 0, "launches were let pass")
    return checked


@case("every generated workload gives the same bits with and without Opus")
def same_bits(context) -> None:
    without, under = play_all(context, opus=False), play_all(context, opus=True)
    expect(without == under and all(without.values()), f"not the same was checked: {without}, {under}")


if __name__ == "__main__":
    sys.exit(run())
