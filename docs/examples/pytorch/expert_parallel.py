"""Expert parallelism: each rank has an expert. Tokens go to their experts and back by all-to-all; how many is told first, and
some experts get none.

    opus-emulate 4x1 --ports 4 -- torchrun --nproc-per-node 4 docs/examples/pytorch/expert_parallel.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=128, help="of a rank")
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(rank)
    expert = nn.Sequential(nn.Linear(args.width, 4 * args.width), nn.GELU(), nn.Linear(4 * args.width, args.width)).cuda()
    optimizer = torch.optim.AdamW(expert.parameters(), lr=1e-3)

    for step in range(args.steps):
        tokens = torch.randn(args.tokens, args.width, device="cuda", requires_grad=True)
        # A router would choose; here an expert of each step is left out by all, and one by this rank.
        chosen = torch.randint(world, (args.tokens,))
        chosen[(chosen == step % world) | (chosen == (rank + step) % world)] = (step + 1) % world
        sent = torch.bincount(chosen, minlength=world)

        counts = torch.empty(world, dtype=torch.long, device="cuda")
        dist.all_to_all_single(counts, sent.cuda())
        received = counts.tolist()

        inputs = torch.empty(sum(received), args.width, device="cuda")
        inputs = all_to_all_single(inputs, tokens, received, sent.tolist())
        outputs = expert(inputs)
        combined = torch.empty(args.tokens, args.width, device="cuda")
        combined = all_to_all_single(combined, outputs, sent.tolist(), received)

        loss = nn.functional.mse_loss(combined, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if rank == 0:
            print(f"step {step}, loss {loss.item():.9g}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
