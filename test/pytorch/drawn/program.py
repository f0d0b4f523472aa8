"""A program of PyTorch that is drawn: groups, a model, how it is parallel, and collectives between its steps whose results are checked.

    opus-emulate 4x1 --ports 4 -- torchrun --nproc-per-node 4 test/pytorch/drawn/program.py --seed 7

All ranks draw the same. What a kernel computes means nothing on emulated GPUs, so what is checked is sent as it was made on the host.
"""
import argparse
import os
import random
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from collectives import Collectives, Rails
from graphs import graphs_of
from model import COMPILED, TOKENS
from parallel import plan_of


def groups_of(draw: random.Random, eager: bool) -> list:
    """Of each: its parts, and the group of this rank's part."""
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = [([list(range(world))], None)]
    for _ in range(draw.randint(0, 3)):
        order = draw.sample(range(world), world)
        cut = draw.randint(1, world)
        parts = [sorted(part) for part in (order[:cut], order[cut:]) if part]
        how = draw.choice(("new", "split", "mesh", "subgroups"))
        if how == "split" and eager:
            groups.append((parts, dist.split_group(split_ranks=parts)))
        elif how == "mesh" and world % 2 == 0:
            mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("a", "b"))
            for name in ("a", "b"):
                own = mesh.get_group(name)
                groups.append((mesh.mesh.tolist() if name == "b" else mesh.mesh.T.tolist(), own))
        elif how == "subgroups" and world % 2 == 0:
            own, _ = dist.new_subgroups(2)
            groups.append(([[r, r + 1] for r in range(0, world, 2)], own))
        else:
            made_groups = [dist.new_group(part) for part in parts]
            groups.append((parts, next((g for g, part in zip(made_groups, parts) if rank in part), None)))
    return groups


def compiles_of(draw: random.Random) -> list:
    return [draw.choice(("default", "default", "reduce-overhead"))] if draw.random() < 0.2 else []


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        return (torch.arange(8) * 5 + i) % TOKENS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--joined", type=int, default=4, help="ranks that all have circuits to each other")
    parser.add_argument("--gpus", type=int, default=1, help="of each node")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    eager, non_blocking = draw.random() < 0.4, draw.random() < 0.2
    if non_blocking:
        os.environ["TORCH_NCCL_USE_COMM_NONBLOCKING"] = "1"
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    backend = draw.choice(("nccl", "cpu:gloo,cuda:nccl"))
    dist.init_process_group(backend, device_id=torch.device("cuda", local) if eager else None)
    rank = dist.get_rank()
    groups = groups_of(draw, eager)
    rails = Rails(args.gpus, args.joined)
    COMPILED.extend(compiles_of(random.Random(f"compiled of {args.seed}")))
    plan = plan_of(draw, local, rails)
    workers = draw.choice((0, 0, 1))
    evaluates, saves = draw.choice((0, 3)), draw.choice((0, 0, 4))
    many = draw.choice((2, 8, 20))
    if rank == 0:
        print(f"seed {args.seed}: {'eager' if eager else 'lazy'}{', non-blocking' if non_blocking else ''}, {backend}, groups {[g[0] for g in groups]}, "
              f"{' '.join(plan.text)}, compiled {COMPILED}, {workers} workers, evaluates {evaluates}, saves {saves}, {many} collectives a step", flush=True)
    sampler = torch.utils.data.DistributedSampler(Tokens(), seed=args.seed)
    loader = torch.utils.data.DataLoader(Tokens(), 4, sampler=sampler, num_workers=workers, pin_memory=draw.random() < 0.5, drop_last=True)
    batches = iter(loader)
    collectives = Collectives(draw, groups, rails)
    # Behind host gates a graph keeps its circuits, which others may need (docs/limits.md).
    graphs = graphs_of(random.Random(f"graphs of {args.seed}"), collectives) if os.environ.get("OPUS_GATE") != "host" else []
    for step in range(args.steps):
        loss = plan.step([next(batches).cuda(non_blocking=True) for _ in range(plan.accumulate)])
        for _ in range(draw.randint(0, many)):
            collectives.some(step)
            if graphs and collectives.draw.random() < 0.3:
                collectives.draw.choice(graphs).replay(step)
        if evaluates and step % evaluates == evaluates - 1:
            plan.evaluate(next(batches).cuda())
        if saves and step % saves == saves - 1 and args.joined >= dist.get_world_size():
            import torch.distributed.checkpoint as dcp
            from torch.distributed.checkpoint.state_dict import get_model_state_dict
            folder = [tempfile.mkdtemp(prefix="drawn-")] if rank == 0 else [None]
            dist.broadcast_object_list(folder, 0, device=torch.device("cuda", local))
            dcp.save(get_model_state_dict(plan.model), checkpoint_id=folder[0])
        torch.cuda.synchronize()
        if rank == 0:
            print(f"step {step}, loss {loss.item():.9g}", flush=True)
    graphs.clear()  # NCCL ends no communicator that a graph still uses
    if draw.random() < 0.7:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
