"""Pipeline parallelism, 1F1B: each rank has some layers and passes activations on and gradients back, a micro-batch at a time.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/pipeline_1f1b.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=2, help="of a stage")
    parser.add_argument("--micro-batches", type=int, default=8)
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device())

    torch.manual_seed(rank)
    module = nn.Sequential(*[nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU()) for _ in range(args.layers)]).to(device)
    stage = PipelineStage(module, rank, world, device)
    schedule = Schedule1F1B(stage, args.micro_batches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    batch = torch.randn(4 * args.micro_batches, args.width, device=device)
    for step in range(args.steps):
        if rank == 0:
            schedule.step(batch)
        elif rank == world - 1:
            schedule.step(target=batch, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if rank == 0:
            print(f"step {step}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
