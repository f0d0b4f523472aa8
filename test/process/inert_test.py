"""The shim where there is nothing to do: no manager, no GPU, no NCCL."""
import os
import subprocess
import sys

from cases import SLOW, case, expect, run
from cluster import Play, Shape
from workload_text import Workload, grid


def preload(context) -> dict[str, str]:
    """Without a sanitizer's runtime: neither these programs nor the shim are instrumented."""
    return {"PATH": os.environ.get("PATH", ""), "LD_PRELOAD": str(context.build.shim), "OPUS_RUNTIME_DIR": "/nonexistent/opus"}


@case("a program without NCCL says and returns the same under the shim")
def no_nccl(context) -> None:
    for command in (["/bin/sh", "-c", "echo one; echo two >&2; exit 3"], ["/bin/ls", "/"], ["/bin/true"]):
        bare = subprocess.run(command, capture_output=True, timeout=30)
        shimmed = subprocess.run(command, capture_output=True, timeout=30 * SLOW, env=preload(context))
        expect((bare.returncode, bare.stdout, bare.stderr) == (shimmed.returncode, shimmed.stdout, shimmed.stderr),
               f"{command}: {shimmed.returncode} {shimmed.stderr.decode(errors='replace')[:500]}")


@case("a job without a manager runs as without the shim, and the shim says nothing")
def no_manager(context) -> None:
    w = Workload("pair", grid(2, 1), iterations=2)
    w.comm("pair", [[0, 1]])
    w.collective("all_reduce", "pair", [0, 1])
    w.send("pair", 0, 1, 5000)
    with context.cluster(Shape(nodes=2, gpus=1, ports=2), opus=False) as cluster:
        path = w.write(cluster.folder / "w.jsonl")
        cluster.runtime(0), cluster.runtime(1)
        result = cluster.run_job(Play(path, shim=True, timeout_s=20 * SLOW), 60 * SLOW)
        expect(result.total("mismatches") == 0, "a result was wrong")
        said = [line for r in cluster.jobs[0].ranks for line in r.output().splitlines() if "opus-replay: rank" not in line]
        expect(not said, f"it said: {said[:3]}")


@case("OPUS_REQUIRE=1 says in one line that no manager answers")
def required(context) -> None:
    w = Workload("pair", grid(2, 1))
    w.comm("pair", [[0, 1]])
    w.collective("all_reduce", "pair", [0, 1])
    with context.cluster(Shape(nodes=2, gpus=1, ports=2), opus=False) as cluster:
        path = w.write(cluster.folder / "w.jsonl")
        cluster.run_job(Play(path, shim=True, timeout_s=20 * SLOW, env={"OPUS_REQUIRE": "1"}), 60 * SLOW)
        for rank in cluster.jobs[0].ranks:
            said = [line for line in rank.output().splitlines() if line.startswith("opus:") or "manager" in line]
            expect(len(said) == 1, f"{len(said)} lines about the missing manager: {said[:3]}")


if __name__ == "__main__":
    sys.exit(run())
