"""CUDA graphs of drawn collectives: captured once, and replayed between other calls, each time with its inputs set anew."""
import random

import torch

from collectives import Collectives, check, finished, started

CAPTURED = ("all_reduce", "broadcast", "reduce", "all_gather_into", "reduce_scatter", "all_to_all", "ring")


class Captured:
    """Some collectives of drawn groups, in one graph. Before the capture each is called once, as PyTorch asks for."""

    def __init__(self, collectives: Collectives, count: int):
        self.inputs, self.checked = [], []
        parts = [part for part in (collectives.drawn(CAPTURED) for _ in range(count)) if part[1] is not None]
        for name, mine, group, what in parts:
            run = getattr(collectives, name)(mine, group, **what)
            check(f"before a capture: {name} among {mine}", *finished(run, *started(run)))
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph() if parts else None
        if self.graph is None:
            return
        collectives.on_gpu = self.static
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            for name, mine, group, what in parts:
                run = getattr(collectives, name)(mine, group, **what)
                self.checked.append((f"{name} of {what['n']} {what['dtype']} among {mine}", *finished(run, *started(run))))
        del collectives.on_gpu

    def static(self, host: torch.Tensor) -> torch.Tensor:
        """A tensor that replays use again."""
        self.inputs.append((torch.empty_like(host, device="cuda"), host))
        return self.inputs[-1][0]

    def replay(self, step: int) -> None:
        if self.graph is None:
            return
        for static, host in self.inputs:
            static.copy_(host)
        self.graph.replay()
        for text, wanted, got in self.checked:
            check(f"step {step}, replayed: {text}", wanted, got)


def graphs_of(draw: random.Random, collectives: Collectives) -> list:
    return [Captured(collectives, draw.randint(1, 4)) for _ in range(draw.choice((0, 0, 1, 2)))]
