#!/usr/bin/env python3
"""Records the jobs of this folder again: record.py BUILD [NAME...], where PyTorch is (`make test-pytorch` installs it)."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
KEPT = re.compile(r'"(format|rank|group|member|launch|ended)":')  # README.md: what else a recording has is of the fabric
STEPS = 8
OTHER_STEPS = {"fsdp": 12, "hsdp": 12, "pipeline-fsdp": 12, "pipeline-ddp": 12,  # enough for a plan to be followed
               "pipeline-interleaved": 6, "pipeline-zero-bubble": 6, "graph": 6, "mix-3d": 4}  # large
# Of docs/examples/pytorch, and how many ports a GPU has; 4x4 where a job has 16 ranks.
JOBS = {
    "fsdp": ("fsdp2.py", 2),
    "hsdp": ("hsdp.py", 2),
    "pipeline-fsdp": ("mix_3d.py --tensor 1", 2),
    "pipeline-ddp": ("mix_3d.py --tensor 1 --replicate", 2),
    "ddp": ("ddp.py", 2),
    "pipeline": ("pipeline.py", 2),
    "pipeline-interleaved": ("pipeline.py --schedule Interleaved1F1B", 2),
    "pipeline-zero-bubble": ("pipeline.py --schedule ZBVZeroBubble", 2),
    "tensor": ("tensor_parallel.py", 4),
    "expert": ("expert_parallel.py", 4),
    "context": ("context_parallel.py", 2),
    "accumulate-evaluate": ("accumulate_evaluate.py", 4),
    "graph": ("graph.py --tensor 2", 2),
    "graph-callables": ("graph.py --tensor 2 --callables", 2),
    "groups-new": ("groups.py", 2),
    "groups-split": ("groups.py --eager", 2),
    "groups-non-blocking": ("groups.py --eager --non-blocking", 2),
    "late": ("late_rank.py --seconds 5", 2),
    "watchdog": ("watchdog.py --timeout 5", 2),
    "elastic": ("elastic.py", 2),
    "mix-3d": ("mix_3d.py", 2),
}
OWN_STEPS = ("watchdog", "elastic", "late")
LEFT = ("watchdog", "elastic")  # a launch is let pass for a rank that has left: opus-emulate ends with 1


def record(build: str, name: str, torchrun: pathlib.Path, folder: pathlib.Path) -> None:
    words, ports = JOBS[name]
    script, *options = words.split()
    nodes, gpus = (4, 4) if name == "mix-3d" else (4, 1)
    times = folder / "kernels.time"
    times.write_text("gemm 1000\n")
    steps = [] if name in OWN_STEPS else ["--steps", str(OTHER_STEPS.get(name, STEPS))]
    launcher = ["--max-restarts", "1"] if name == "elastic" else []
    command = [sys.executable, ROOT / "tools" / "emulation" / "opus-emulate", f"{nodes}x{gpus}", "--build", build, "--out", folder / name, "--ports", ports,
               "--dark-ms", 10, "--time", times, "--quiet", "--", torchrun, "--nproc-per-node", nodes * gpus, *launcher,
               ROOT / "docs" / "examples" / "pytorch" / script, *options, *steps]
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    recording = folder / name / "provisioned" / "recording.jsonl"
    if done.returncode != (1 if name in LEFT else 0):
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    lines = [line for line in recording.read_text().splitlines() if KEPT.search(line)]
    to = pathlib.Path(__file__).with_name(f"{name}.jsonl")
    to.write_text("\n".join(lines) + "\n")
    print(f"{to.name}: {len(lines)} lines, {to.stat().st_size} bytes", flush=True)


def main() -> None:
    build, names = sys.argv[1], sys.argv[2:] or JOBS
    torch = subprocess.run([ROOT / "tools" / "pytorch.sh", "--where"], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        for name in names:
            record(build, name, pathlib.Path(torch) / "bin" / "torchrun", pathlib.Path(folder))


if __name__ == "__main__":
    main()
