"""Pipeline parallelism: each rank has some layers and passes activations on and gradients back, a micro-batch at a time.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/pipeline.py [--schedule Interleaved1F1B]
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=2, help="of a stage")
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--schedule", default="1F1B", help="or GPipe; Interleaved1F1B, InterleavedZeroBubble: two stages a rank; "
                        "ZBVZeroBubble: two, the second ones in reverse")
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device())

    kind = get_schedule_class(args.schedule)
    if issubclass(kind, PipelineScheduleSingle):
        mine, count = [rank], world
    elif args.schedule == "ZBVZeroBubble":
        mine, count = [rank, 2 * world - 1 - rank], 2 * world
    else:
        mine, count = [rank, world + rank], 2 * world

    torch.manual_seed(rank)
    modules = [nn.Sequential(*[nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU()) for _ in range(args.layers)]).to(device) for _ in mine]
    stages = [PipelineStage(module, index, count, device) for module, index in zip(modules, mine)]
    schedule = kind(stages[0] if len(stages) == 1 else stages, args.micro_batches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD([p for module in modules for p in module.parameters()], lr=1e-3)

    batch = torch.randn(4 * args.micro_batches, args.width, device=device)
    inputs = (batch,) if 0 in mine else ()
    targets = {"target": batch, "losses": []} if count - 1 in mine else {}
    for step in range(args.steps):
        schedule.step(*inputs, **targets)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if rank == 0:
            print(f"step {step}\n", end="", flush=True)  # in one piece: other ranks write, too
        if targets:
            print(f"loss of step {step}: {torch.stack(targets['losses']).mean().item():.9g}\n", end="", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
