"""Gradients of several batches before each step; an evaluation now and then; a checkpoint at its end.

    opus-emulate 4x1 --ports 4 -- torchrun --nproc-per-node 4 docs/examples/pytorch/accumulate_evaluate.py
"""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--accumulate", type=int, default=3, help="batches of a step")
    parser.add_argument("--evaluate-every", type=int, default=4, help="steps")
    parser.add_argument("--checkpoint", help="folder; default: one that is removed at the end")
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(*[nn.Linear(args.width, args.width) for _ in range(3)]).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of_a_batch() -> torch.Tensor:
        return model(torch.randn(32, args.width, device="cuda")).square().mean()

    for step in range(args.steps):
        with model.no_sync():
            for _ in range(args.accumulate - 1):
                loss_of_a_batch().backward()
        loss = loss_of_a_batch()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % args.evaluate_every == args.evaluate_every - 1:
            model.eval()
            with torch.no_grad():
                total = sum(loss_of_a_batch() for _ in range(2))
            dist.all_reduce(total)
            model.train()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"step {step}, loss {loss.item():.9g}", flush=True)

    folder = [args.checkpoint or (tempfile.mkdtemp() if dist.get_rank() == 0 else None)]
    dist.broadcast_object_list(folder)
    state = {"model": model.module.state_dict()}
    checkpoint.save(state, checkpoint_id=folder[0])
    checkpoint.load(state, checkpoint_id=folder[0])
    if dist.get_rank() == 0:
        print("checkpoint written and read", flush=True)
        if not args.checkpoint:
            import shutil
            shutil.rmtree(folder[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
