#!/usr/bin/env python3
"""PyTorch's own wheel on emulated GPUs: each job of docs/examples/pytorch runs to its end under enforce, and loses nothing.

    pytorch_test.py BUILD [SUBSTRING...]      what `make test-pytorch` runs; OPUS_TEST_DARK_MS: dark time (default 10; drawn programs draw theirs)

OPUS_PYTORCH_DRAWN: how many drawn programs (drawn/program.py; default 8), from seed OPUS_PYTORCH_SEED on (default 1). Needs the environment that `make test-pytorch` makes; each case says SKIP without it.
OPUS_FRAMEWORKS=1: the frameworks of frameworks/, too (`make test-frameworks`).
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "process"))
from cases import SANITIZED, Skip, case, expect, run  # noqa: E402
from cluster.leftovers import MARK  # noqa: E402

JOBS = ROOT / "docs" / "examples" / "pytorch"
DARK_MS = os.environ.get("OPUS_TEST_DARK_MS", "10")
LIMIT_S = 900  # ends a hang; nobody is judged by the clock
FOUR_PORTS = ("--ports", "4")  # every node has a circuit to each of three others


def environment() -> pathlib.Path:
    found = subprocess.run([ROOT / "tools" / "pytorch.sh", "--where"], capture_output=True, text=True, timeout=20)
    if found.returncode != 0:
        raise Skip("there is no PyTorch; `make test-pytorch` installs it (5 GB)")
    if SANITIZED:
        raise Skip("PyTorch is not instrumented")
    return pathlib.Path(found.stdout.strip())


def frameworks() -> pathlib.Path:
    if os.environ.get("OPUS_FRAMEWORKS") != "1":
        raise Skip("`make test-frameworks` runs it")
    environment()
    found = subprocess.run([ROOT / "tools" / "frameworks.sh", "--where"], capture_output=True, text=True, timeout=20)
    if found.returncode != 0:
        raise Skip("there are no frameworks; `make test-frameworks` installs them")
    return pathlib.Path(found.stdout.strip())


class Emulation:
    """opus-emulate and torchrun, one process a rank."""

    def __init__(self, context, script: str, *arguments: str, shape: str = "4x1", options: tuple = (), launcher: tuple = (), python: pathlib.Path | None = None):
        torchrun = (python or environment()) / "bin" / "python", "-m", "torch.distributed.run"
        self.out = pathlib.Path(tempfile.mkdtemp(prefix="pytorch-"))
        self.temporary = self.out / "tmp"  # of all that is started: torchrun and PyTorch leave folders there
        self.temporary.mkdir()
        nodes, gpus = map(int, shape.split("x"))
        command = [sys.executable, ROOT / "tools" / "emulation" / "opus-emulate", shape, "--build", context.build.folder, "--out", self.out,
                   "--dark-ms", DARK_MS, "--limit", str(LIMIT_S), "--patience", "180", *options, "--", *torchrun,
                   "--nproc-per-node", str(nodes * gpus), *launcher, JOBS / script, *arguments]
        # Of a collective that fails PyTorch dumps stacks for minutes on a busy machine, and aborts a process that ends meanwhile.
        # What torch.compile makes is kept beside PyTorch: it takes minutes, once.
        env = {**os.environ, MARK: context.mark, "TMPDIR": str(self.temporary), "TORCH_INCLUDE_STACK_TRACE": "0",
               "TORCHINDUCTOR_CACHE_DIR": str(environment().parent / "inductor")}
        self.process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=self.temporary, start_new_session=True)

    def __enter__(self) -> "Emulation":
        return self

    def __exit__(self, *_) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()  # and with it, by the kernel, the daemons
            self.process.wait()
        shutil.rmtree(self.out, ignore_errors=True)

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=LIMIT_S + 120)
        left = list(self.temporary.glob("opus-*"))
        expect(not left, f"left behind: {left}")
        return self.process.returncode, said


def job(context, script: str, *arguments: str, steps: int, left: int = 0, **how) -> dict:
    """Runs it to its end; what came of it. left: so many launches at most wait for a rank that leaves, and are let pass for it."""
    with Emulation(context, script, *arguments, **how) as emulation:
        code, said = emulation.end()
        expect(code == 0 or (left and code == 1 and "launches were let pass" in said), f"it ended with {code}:\n{said[-6000:]}")
        (result,) = json.loads((emulation.out / "result.json").read_text())
        lines = (emulation.out / "provisioned" / "recording.jsonl").read_text().splitlines()
    counters, light = result["counters"], result["light"]
    expect(len(result["steps"]) == steps - 1, f"{len(result['steps']) + 1} steps were seen, not {steps}:\n{said[-3000:]}")
    expect(counters["demands"] + counters.get("run_launches", 0) > 0, "no launch was gated")
    expect(counters["passes"] <= left and counters["aborts"] == 0, f"launches were let pass: {counters}")
    expect(light["misdelivered_bytes"] == 0 and (light["lost_bytes"] == 0 or counters["suspensions"] > 0), f"lost: {light}")
    expect(any('"launch"' in line for line in lines) and any('"ended"' in line for line in lines), "the recording is not whole")
    return {**result, "said": said}


def captured_job(context, *arguments: str) -> None:
    result = job(context, "graph.py", "--steps", "6", *arguments, steps=6)
    expect("not held" not in result["said"], f"replays were not held:\n{result['said'][-3000:]}")


@case("ddp: data parallel")
def ddp(context) -> None:
    job(context, "ddp.py", "--steps", "6", steps=6)


@case("pipeline: 1F1B, stages tell each other shapes")
def pipeline(context) -> None:
    job(context, "pipeline.py", "--steps", "6", steps=6)


@case("pipeline: interleaved 1F1B, two stages a rank")
def pipeline_interleaved(context) -> None:
    job(context, "pipeline.py", "--steps", "5", "--schedule", "Interleaved1F1B", steps=5)


@case("pipeline: zero bubble, the second stages in reverse")
def pipeline_zero_bubble(context) -> None:
    job(context, "pipeline.py", "--steps", "5", "--schedule", "ZBVZeroBubble", steps=5)


@case("mix: pipeline, fully sharded and tensor parallel on 16 ranks")
def mix_3d(context) -> None:
    job(context, "mix_3d.py", "--steps", "5", steps=5, shape="4x4")


@case("mix: pipeline and DDP")
def mix_replicated(context) -> None:
    job(context, "mix_3d.py", "--steps", "6", "--tensor", "1", "--replicate", steps=6)


@case("fsdp2: fully sharded")
def fsdp2(context) -> None:
    job(context, "fsdp2.py", "--steps", "6", steps=6)


@case("hsdp: sharded in rows, replicated over columns")
def hsdp(context) -> None:
    job(context, "hsdp.py", "--steps", "6", steps=6)


@case("tensor parallel with sequence parallel (DTensor)")
def tensor_parallel(context) -> None:
    job(context, "tensor_parallel.py", "--steps", "5", steps=5, options=FOUR_PORTS)


@case("expert parallel: all-to-all with empty experts")
def expert_parallel(context) -> None:
    job(context, "expert_parallel.py", "--steps", "5", steps=5, options=FOUR_PORTS)


@case("context parallel: keys and values go round")
def context_parallel(context) -> None:
    job(context, "context_parallel.py", "--steps", "5", steps=5)


@case("accumulate: gradients of several batches, evaluation, a distributed checkpoint")
def accumulate(context) -> None:
    job(context, "accumulate_evaluate.py", "--steps", "8", steps=8, options=FOUR_PORTS)


@case("groups: new_group, communicators made when they are first used")
def lazy_groups(context) -> None:
    job(context, "groups.py", "--steps", "6", steps=6)


@case("groups: split_group, communicators made with their groups")
def eager_groups(context) -> None:
    job(context, "groups.py", "--steps", "6", "--eager", steps=6)


@case("groups: non-blocking communicators")
def non_blocking_groups(context) -> None:
    job(context, "groups.py", "--steps", "6", "--eager", "--non-blocking", steps=6)


@case("graph: a captured step is replayed, its all-reduces wait for circuits that move")
def graph_of_a_step(context) -> None:
    captured_job(context, "--tensor", "2")


@case("graph: forward and backward are captured one by one, with calls between them")
def graphed_callables(context) -> None:
    captured_job(context, "--tensor", "2", "--callables")


@case("compile: blocks by torch.compile, fully sharded, and what Triton makes of them")
def compiled(context) -> None:
    job(context, "compile.py", "--steps", "5", steps=5)


@case("compile: blocks replayed from CUDA graphs, and DDP")
def compiled_and_replayed(context) -> None:
    job(context, "compile.py", "--steps", "6", "--replicate", "--mode", "reduce-overhead", steps=6)


@case("values that programs decide by: drawn numbers in bounds, whether any, whether all")
def decided(context) -> None:
    with Emulation(context, str(ROOT / "test" / "pytorch" / "decisions.py"), shape="1x1", options=("--only", "always-lit")) as emulation:
        code, said = emulation.end()
        expect(code == 0 and "as decided" in said, f"it ended with {code}:\n{said[-3000:]}")


@case("watchdog: a collective that one rank never joins is aborted, and all go on")
def watchdog(context) -> None:
    job(context, "watchdog.py", "--timeout", "5", steps=8, left=3)


@case("elastic: a rank dies, and torchrun starts all again")
def elastic(context) -> None:
    job(context, "elastic.py", steps=8, left=3, launcher=("--max-restarts", "1"))


@case("late: a rank comes a minute late, twice")
def late(context) -> None:
    job(context, "late_rank.py", "--seconds", "60", steps=6)


# Behind host gates: every job but those that capture launches, or need one to return before it is let go (docs/emulation.md).
BEHIND_HOST_GATES = {
    "ddp": ("ddp.py",),
    "fully sharded": ("fsdp2.py",),
    "sharded in rows": ("hsdp.py",),
    "pipeline, 1F1B": ("pipeline.py",),
    "pipeline, interleaved 1F1B": ("pipeline.py", "--schedule", "Interleaved1F1B"),
    "pipeline, zero bubble": ("pipeline.py", "--schedule", "ZBVZeroBubble"),
    "pipeline and fully sharded": ("mix_3d.py", "--tensor", "1"),
    "tensor parallel": ("tensor_parallel.py",),
    "expert parallel": ("expert_parallel.py",),
    "context parallel": ("context_parallel.py",),
    "accumulate, evaluate, checkpoint": ("accumulate_evaluate.py",),
    "new_group": ("groups.py",),
    "split_group": ("groups.py", "--eager"),
    "non-blocking communicators": ("groups.py", "--eager", "--non-blocking"),
    "a late rank": ("late_rank.py", "--seconds", "5"),
}
FULLY_JOINED = ("tensor_parallel.py", "expert_parallel.py", "accumulate_evaluate.py")  # all-to-alls, scatters and gathers


for name, words in BEHIND_HOST_GATES.items():
    @case(f"host gate: {name}")
    def behind_host_gates(context, words=words) -> None:
        ports = FOUR_PORTS if words[0] in FULLY_JOINED else ()
        job(context, *words, "--steps", "5", steps=5, options=("--gate", "host", *ports))


@case("host gate: elastic, a rank dies, and torchrun starts all again")
def elastic_behind_host_gates(context) -> None:
    job(context, "elastic.py", steps=8, left=3, launcher=("--max-restarts", "1"), options=("--gate", "host"))


@case("host gate: what is captured keeps its circuits, and it is said")
def graph_behind_host_gates(context) -> None:
    result = job(context, "graph.py", "--steps", "6", steps=6, options=("--gate", "host"))  # its circuits never move
    expect("keeps its circuits until its graph is destroyed" in result["said"], f"nothing was said of replays:\n{result['said'][-3000:]}")


# --- frameworks -------------------------------------------------------------------------------------------------

FRAMEWORKS = {
    "accelerate and transformers: DDP": ("with_accelerate.py", "ddp", "2x2"),
    "accelerate and transformers: FSDP2": ("with_accelerate.py", "fsdp2", "2x2"),
    "Lightning: DDP": ("with_lightning.py", "ddp", "2", "2x2"),
    "Lightning: FSDP": ("with_lightning.py", "fsdp", "2", "2x2"),
    "DeepSpeed: ZeRO 2": ("with_deepspeed.py", "2", "2x2"),
    "DeepSpeed: ZeRO 3": ("with_deepspeed.py", "3", "4x1"),
    "DeepSpeed: pipeline": ("with_deepspeed.py", "pipeline", "2x2"),
    "Megatron-core: tensor and pipeline parallel": ("with_megatron.py", "2", "2", "1", "2x2"),
    "Megatron-core: interleaved pipeline, and replicas": ("with_megatron.py", "1", "2", "2", "4x1"),
    "torchtitan: fully sharded, compiled, its step in a CUDA graph": ("with_torchtitan.py", "2x2"),
    "torchtitan: pipeline and fully sharded": ("with_torchtitan.py", "--parallelism.pipeline_parallel_degree", "2", "--training.disable_cuda_graphs", "4x1"),
}
FRAMEWORK_STEPS = {"with_accelerate.py": 8, "with_lightning.py": 12, "with_deepspeed.py": 12, "with_megatron.py": 12}  # torchtitan says them otherwise


for name, (script, *rest) in FRAMEWORKS.items():
    @case(f"framework: {name}")
    def framework(context, script=script, rest=rest) -> None:
        *arguments, shape = rest
        steps = FRAMEWORK_STEPS.get(script, 1)
        said = job(context, str(ROOT / "test" / "pytorch" / "frameworks" / script), *arguments, steps=steps, shape=shape, python=frameworks())["said"]
        if script == "with_torchtitan.py":
            graphs = "--training.disable_cuda_graphs" not in arguments
            expect("torchtitan ended" in said and ("Recorded CUDA graph" in said) == graphs, f"it did not train:\n{said[-3000:]}")


# --- drawn programs -----------------------------------------------------------------------------------------------

DRAWN = ROOT / "test" / "pytorch" / "drawn" / "program.py"
DRAWN_STEPS = 6


def drawn_program(context, seed: int) -> None:
    draw = random.Random(f"surroundings of {seed}")
    shape, ports, dark_ms = draw.choice(("4x1", "4x1", "2x2", "2x1", "3x1")), draw.choice((2, 4)), draw.choice((5, 10, 25))
    nodes, gpus = map(int, shape.split("x"))
    joined = nodes * gpus if nodes <= ports + 1 else ports + 1
    arguments = (str(DRAWN), "--seed", str(seed), "--steps", str(DRAWN_STEPS), "--joined", str(joined), "--gpus", str(gpus))
    options = ("--ports", str(ports), "--dark-ms", str(dark_ms), "--patience", "60")
    try:
        job(context, *arguments, steps=DRAWN_STEPS, shape=shape, options=options)
    except (AssertionError, subprocess.TimeoutExpired) as failed:
        try:
            with Emulation(context, *arguments, shape=shape, options=(*options, "--only", "always-lit")) as emulation:
                code, said = emulation.end()
            without = f"it ends with {code}" + (f":\n{said[-2000:]}" if code != 0 else "")
        except (AssertionError, subprocess.TimeoutExpired) as also:
            without = f"it cannot be played: {also}"
        raise AssertionError(f"OPUS_PYTORCH_SEED={seed} OPUS_PYTORCH_DRAWN=1 python3 test/pytorch/pytorch_test.py BUILD drawn: {failed}\n"
                             f"without Opus, always lit, {without}") from None


@case("drawn programs: models, how they are parallel, groups and collectives that nobody chose")
def drawn(context) -> None:
    first = int(os.environ.get("OPUS_PYTORCH_SEED", "1"))
    failures = []
    for seed in range(first, first + int(os.environ.get("OPUS_PYTORCH_DRAWN", "8"))):
        try:
            drawn_program(context, seed)
        except AssertionError as failed:
            failures.append(str(failed))
    expect(not failures, "\n".join(failures))


@case("table: a job is measured in turns, and the page goes on where it was")
def table(context) -> None:
    environment()
    with tempfile.TemporaryDirectory(prefix="pytorch-") as out:
        command = [sys.executable, ROOT / "tools" / "pytorch-table", "--build", context.build.folder, "--out", out, "--jobs", "new_group",
                   "--variants", "always-lit", "provisioned", "--dark-ms", DARK_MS, "--rounds", "1", "--steps", "13"]
        for there in (False, True):
            done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * LIMIT_S,
                                  env={**os.environ, MARK: context.mark})
            expect(done.returncode == 0, f"it ended with {done.returncode}:\n{done.stdout[-3000:]}")
            expect(("2 of 2 runs are there" in done.stdout) == there, f"what was measured:\n{done.stdout[-3000:]}")
        page = (pathlib.Path(out) / "pytorch.md").read_text()
        rows = [line for line in page.splitlines() if line.startswith("| groups, new_group |")]
        expect(len(rows) == 2 and rows[0].count(" %") == 1 and "No byte was lost" in page, page)


if __name__ == "__main__":
    sys.exit(run())
