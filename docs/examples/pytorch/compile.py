"""torch.compile: blocks are compiled by TorchInductor and Triton, fully sharded, or replicated (DDP).

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/compile.py --mode reduce-overhead

On emulated GPUs, what Triton makes is loaded and launched, and computes nothing. `--mode reduce-overhead` replays the blocks from CUDA graphs.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for layer in (self.up, self.down):
            nn.init.trunc_normal_(layer.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--replicate", action="store_true", help="DDP instead of fully_shard")
    parser.add_argument("--mode", default="default", help="of torch.compile: default, reduce-overhead")
    args = parser.parse_args()

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")

    torch.manual_seed(0)
    with torch.device("cuda", local):
        model = nn.Sequential(*[Block(args.width) for _ in range(args.layers)])
    for block in model:
        block.compile(mode=args.mode)
    if args.replicate:
        model = DistributedDataParallel(model, device_ids=[local])
    else:
        for block in model:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for step in range(args.steps):
        batch = torch.randn(32, args.width, device="cuda")
        loss = nn.functional.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"step {step}, loss {loss.item():.9g}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
