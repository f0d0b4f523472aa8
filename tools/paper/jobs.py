"""The papers' jobs as workload files: made by opus-sim generate from a model's dimensions, or by opus-replay from a recorded order."""
import json
import pathlib
import subprocess

# TorchTitan's settings beside the artifact: 8192 tokens, two micro-batches of four sequences; tensor parallel 4, two stages.
LLAMA_8B = ("llama3-8b", "--tensor", 4, "--pipeline", 2, "--sharding", "fsdp", "--gpus-per-node", 4, "--micro-batches", 2, "--micro-batch", 4)
# No DeepSeek-V3 of 16B is among opus-sim's models: a dense one with as many layers and parameters (27, 15.7 thousand million in all).
DEEPSEEK_16B = ("llama3-8b", "--layers", 27, "--hidden", 2048, "--feed-forward", 92_000, "--tensor", 4, "--pipeline", 2, "--data", 2,
                "--sharding", "fsdp", "--gpus-per-node", 4, "--micro-batches", 2, "--micro-batch", 2, "--sequence", 2048)
# The artifact's simulator: its generator's default dimensions (8192 wide, feed-forward 28672, 8 of 64 heads keys), one micro-batch, no norm.
SIMULATED = ("llama3-70b", "--layers", 96, "--tensor", 2, "--pipeline", 2, "--data", 2, "--sharding", "none", "--gpus-per-node", 2,
             "--micro-batches", 1, "--micro-batch", 128, "--sequence", 4096)
# The paper does not say how the thousand GPUs are used: this is one way that takes about 20 s at 400 TFLOP/s.
LLAMA_405B = ("llama3-405b", "--tensor", 8, "--pipeline", 8, "--data", 16, "--sharding", "fsdp", "--micro-batches", 10, "--micro-batch", 1)


class Jobs:
    def __init__(self, build: pathlib.Path, folder: pathlib.Path):
        self.sim, self.replay, self.folder = build / "tools/opus-sim/opus-sim", build / "tools/replay/opus-replay", folder

    def _write(self, name: str, command: list, norm: bool, scale: float) -> pathlib.Path:
        lines = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout.splitlines()
        path = self.folder / f"{name}.jsonl"
        with open(path, "w") as out:
            for line in lines:
                step = json.loads(line)
                if not norm and step.get("comm") == "world" and "do" in step:
                    continue
                if scale != 1 and "us" in step:
                    step["us"] = max(1, round(step["us"] * scale))
                    line = json.dumps(step)
                print(line, file=out)
        return path

    def generated(self, name: str, arguments: tuple, tflops: float, norm: bool = True) -> pathlib.Path:
        """`norm`: the all-reduce over all ranks that the generator puts before the optimizer."""
        return self._write(name, [self.sim, "generate", *arguments, "--gpu-tflops", tflops], norm, 1)

    def recorded(self, scale: float = 1) -> pathlib.Path:
        """Llama3-8B on 16 GPUs in the order that the authors' profile shows; computation takes `scale` times as long."""
        return self._write("recorded", [self.replay, "generate", "llama3-8b"], True, scale)
