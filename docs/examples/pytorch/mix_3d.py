"""Three kinds of parallelism at once: tensor parallel within a node, pipeline stages over nodes, and the replicas of a stage
fully sharded (FSDP2), or each whole with gradients added up (--replicate, DDP).

    opus-emulate 4x4 -- torchrun --nproc-per-node 16 docs/examples/pytorch/mix_3d.py
    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/mix_3d.py --tensor 1
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.relu(self.up(x)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4, help="of a stage")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--pipeline", type=int, default=2, help="stages")
    parser.add_argument("--tensor", type=int, default=4, help="ranks that share each matrix: those of a node")
    parser.add_argument("--replicate", action="store_true", help="DDP instead of FSDP2; with --tensor 1")
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    replicas = dist.get_world_size() // (args.pipeline * args.tensor)
    mesh = init_device_mesh("cuda", (args.pipeline, replicas, args.tensor), mesh_dim_names=("pp", "dp", "tp"))
    index, last = mesh["pp"].get_local_rank(), args.pipeline - 1

    torch.manual_seed(index)
    module = nn.Sequential(*[Block(args.width) for _ in range(args.layers)]).to(device)
    if args.tensor > 1:
        for block in module:
            parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    if args.replicate:
        module = DistributedDataParallel(module, device_ids=[local_rank], process_group=mesh["dp"].get_group())
    else:
        for block in module:
            fully_shard(block, mesh=mesh["dp"], reshard_after_forward=False)
        fully_shard(module, mesh=mesh["dp"], reshard_after_forward=False)

    stage = PipelineStage(module, index, args.pipeline, device, group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, args.micro_batches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, foreach=False)

    batch = torch.randn(4 * args.micro_batches, args.width, device=device)
    for step in range(args.steps):
        if index == 0:
            schedule.step(batch)
        elif index == last:
            losses: list = []
            schedule.step(target=batch, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"step {step}\n", end="", flush=True)  # in one piece: other ranks write, too
        if index == last:
            print(f"loss of step {step}: {torch.stack(losses).mean().item():.9g}\n", end="", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
