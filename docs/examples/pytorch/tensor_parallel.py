"""Tensor parallelism with sequence parallelism: matrices are spread over ranks by columns, then by rows; between them the
sequence is.

    opus-emulate 4x1 --ports 4 -- torchrun --nproc-per-node 4 docs/examples/pytorch/tensor_parallel.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


PLAN = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",))

    torch.manual_seed(0)
    model = nn.Sequential(*[Block(args.width) for _ in range(args.layers)]).cuda()
    for block in model:
        parallelize_module(block, mesh, PLAN)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    for step in range(args.steps):
        part = torch.randn(4, 64 // mesh.size(), args.width, device="cuda")  # of the sequence, this rank's
        loss = model(DTensor.from_local(part, mesh, [Shard(1)])).to_local().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"step {step}, loss {loss.item():.9g}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
