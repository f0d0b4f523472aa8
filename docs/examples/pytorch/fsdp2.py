"""Fully sharded data parallelism: parameters, gradients and optimizer state are spread over all ranks; a layer's parameters
are gathered before it is used, and its gradients scattered after.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/fsdp2.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")

    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU()) for _ in range(args.layers)]).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for step in range(args.steps):
        batch = torch.randn(32, args.width, device="cuda")
        loss = nn.functional.mse_loss(model(batch), batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"step {step}, loss {loss.item():.9g}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
