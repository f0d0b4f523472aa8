"""Process groups of parts of the ranks, made in different ways, used in turn.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/groups.py [--eager] [--non-blocking]
"""
import argparse
import os

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--eager", action="store_true", help="communicators are made with their groups, and split from the first")
    parser.add_argument("--non-blocking", action="store_true", help="NCCL makes them, and launches, on threads of its own")
    args = parser.parse_args()

    if args.non_blocking:
        os.environ["TORCH_NCCL_USE_COMM_NONBLOCKING"] = "1"
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank) if args.eager else None)
    rank, world = dist.get_rank(), dist.get_world_size()

    halves = [list(range(world // 2)), list(range(world // 2, world))]
    turns = [list(range(0, world, 2)), list(range(1, world, 2))]
    if args.eager:
        groups = [dist.split_group(split_ranks=parts) for parts in (halves, turns)]
    else:
        groups = [[group for group in made if group is not dist.GroupMember.NON_GROUP_MEMBER][0]
                  for made in ([dist.new_group(part) for part in parts] for parts in (halves, turns))]

    for step in range(args.steps):
        for group in groups:
            value = torch.full((1 << 16,), rank, dtype=torch.long, device="cuda")
            dist.all_reduce(value, group=group)
            assert value[0].item() == sum(dist.get_process_group_ranks(group)), value[0]
        dist.barrier()
        if rank == 0:
            print(f"step {step}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
