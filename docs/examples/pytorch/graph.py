"""A whole step captured into a CUDA graph and replayed: forward, backward with DDP's all-reduces, and the optimizer. Replays
make no call to NCCL. With --callables forward and backward are a graph each, and DDP calls NCCL between them.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/graph.py [--tensor 2] [--callables]
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 11  # steps before a capture: what PyTorch asks for with DDP, which arranges its buckets in the first ones


class Layer(nn.Module):
    """A linear layer; where ranks share its matrix, each has some rows of the input, and results are added up."""

    def __init__(self, width: int, group: dist.ProcessGroup):
        super().__init__()
        self.group = group
        self.share = nn.Linear(width // group.size(), width, bias=False)

    def forward(self, x):
        mine = self.share(x.chunk(self.group.size(), -1)[self.group.rank()])
        return nn.functional.relu(all_reduce(mine, group=self.group) if self.group.size() > 1 else mine)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tensor", type=int, default=1, help="ranks that share each matrix")
    parser.add_argument("--callables", action="store_true", help="make_graphed_callables, with DDP's calls of NCCL outside of the graphs")
    args = parser.parse_args()

    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # a watchdog may not ask for what is being captured
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

    mesh = init_device_mesh("cuda", (dist.get_world_size() // args.tensor, args.tensor), mesh_dim_names=("data", "tensor"))

    torch.manual_seed(0)
    model = nn.Sequential(*[Layer(args.width, mesh["tensor"].get_group()) for _ in range(args.layers)]).cuda()
    data = torch.randn(32, args.width, device="cuda")
    if args.callables:
        model = torch.cuda.make_graphed_callables(model, (data,))

    last = torch.zeros((), device="cuda")

    def step() -> None:
        loss = nn.functional.mse_loss(model(data), data)
        loss.backward()
        last.copy_(loss.detach())
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    stream = torch.cuda.Stream()  # for DDP, its first steps and the capture alike
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.set_stream(stream)
    model = DistributedDataParallel(model, device_ids=[local_rank], process_group=mesh["data"].get_group(), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    for _ in range(WARM_UP):
        step()

    play = step
    if not args.callables:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            step()
        play = graph.replay

    for number in range(args.steps):
        data.copy_(torch.randn(32, args.width, device="cuda"))
        play()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"step {number}, loss {last.item():.9g}", flush=True)

    play = graph = model = None  # NCCL ends no communicator that a graph still uses
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
