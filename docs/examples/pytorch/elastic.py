"""A rank dies in the middle; torchrun starts all of them again, and they go on from the last checkpoint.

    opus-emulate 4x1 -- torchrun --nproc-per-node 4 --max-restarts 1 docs/examples/pytorch/elastic.py
"""
import argparse
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--fails-at", type=int, default=4, help="step at which the last rank dies, the first time")
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # torchrun keeps its store: without a prefix of its own an attempt may find the unique id of the one before.
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=False)
    dist.init_process_group("nccl", store=dist.PrefixStore(f"attempt {attempt}", store), rank=rank, world_size=world)
    first_time = attempt == "0"
    saved = pathlib.Path(tempfile.gettempdir(), f"elastic-{os.environ['TORCHELASTIC_RUN_ID']}.step")
    begin = int(saved.read_text()) if saved.exists() else 0

    for step in range(begin, args.steps):
        if first_time and step == args.fails_at and rank == world - 1:
            os._exit(1)
        value = torch.ones(1 << 16, dtype=torch.long, device="cuda")
        dist.all_reduce(value)
        assert value[0].item() == world, value[0]
        if rank == 0:
            saved.write_text(str(step + 1))
            print(f"step {step}", flush=True)

    dist.barrier()
    if rank == 0:
        saved.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
