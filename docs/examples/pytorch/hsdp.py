"""Hybrid sharding: parameters are spread over the ranks of a row of the mesh, and rows are replicas of each other.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/hsdp.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=2)
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (args.replicas, dist.get_world_size() // args.replicas), mesh_dim_names=("replicate", "shard"))

    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU()) for _ in range(args.layers)]).cuda()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
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
