"""Data parallelism: each rank has the whole model; DDP adds up gradients, bucket by bucket, while backward goes on.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/ddp.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU()) for _ in range(args.layers)]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[local_rank], bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for step in range(args.steps):
        data = torch.randn(32, args.width, device="cuda")
        loss = nn.functional.mse_loss(model(data), data)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"step {step}, loss {loss.item():.9g}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
