"""One rank begins late, and later waits in the middle of its work; the others wait for it, and nothing is lost.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/late_rank.py --seconds 60
"""
import argparse
import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()

    late = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    if late:
        time.sleep(args.seconds)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")

    for step in range(args.steps):
        if late and step == args.steps // 2:
            time.sleep(args.seconds)
        value = torch.ones(1 << 16, dtype=torch.long, device="cuda")
        dist.all_reduce(value)
        assert value[0].item() == dist.get_world_size(), value[0]
        if dist.get_rank() == 0:
            print(f"step {step}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
