"""A collective that one rank never joins: after --timeout seconds the watchdog of each of the others' ProcessGroupNCCL aborts
its communicator. Then all leave that group, make another, and go on.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 docs/examples/pytorch/watchdog.py
"""
import argparse
import datetime
import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=10, help="seconds")
    args = parser.parse_args()

    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "2"  # abort the communicator, and let the process live
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"  # nor is a timeout the end of it
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    timeout = datetime.timedelta(seconds=args.timeout)
    group = dist.new_group(timeout=timeout)

    for step in range(args.steps):
        value = torch.ones(1 << 16, dtype=torch.long, device="cuda")
        if step == args.steps // 2:
            if rank != world - 1:
                work = dist.all_reduce(value, group=group, async_op=True)
                while not work.is_completed():
                    time.sleep(0.1)
                assert work.exception() is not None, "nobody aborted it"
            dist.barrier()  # in the default group: those that wait here had their timeout
            dist.destroy_process_group(group)
            group = dist.new_group(timeout=timeout)
        else:
            dist.all_reduce(value, group=group)
            assert value[0].item() == world, value[0]
        if rank == 0:
            print(f"step {step}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
