"""A program of PyTorch that is drawn: groups, a model, how it is parallel, and collectives between its steps whose results are checked.

    opus-emulate 4x1 --ports 4 -- torchrun --nproc-per-node 4 drawn_program.py --seed 7

All ranks draw the same. What a kernel computes means nothing on emulated GPUs, so what is checked is sent as it was made on the host.
"""
import argparse
import contextlib
import os
import random
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F

WIDTH = 64
DTYPES = (torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.float16, torch.uint8)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.drop(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)))


class Residual(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), activation(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.layers(x)


class Convolution(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, (3, 1), padding=(1, 0), bias=False), norm, nn.ReLU())

    def forward(self, x):
        return x + self.layers(x.transpose(1, 2).unsqueeze(-1)).squeeze(-1).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):
        return x + self.layer(x)[0]


class Sometimes(nn.Module):
    """Its parameters have a gradient in some steps only."""
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(WIDTH, WIDTH), 0

    def forward(self, x):
        self.calls += 1
        return x + self.layer(x) if self.calls % 3 else x


def model_of(draw: random.Random, unused: bool, of_batches: bool) -> nn.Module:
    blocks = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(("attention", "attention", "residual", "residual", "residual", "convolution", "recurrent"))
        activation, cell = draw.choice((nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh)), draw.choice((nn.LSTM, nn.GRU))
        blocks.append({"attention": Attention, "residual": lambda: Residual(activation),
                       "convolution": lambda: Convolution(nn.BatchNorm2d(WIDTH) if of_batches else nn.GroupNorm(4, WIDTH)),
                       "recurrent": lambda: Recurrent(cell)}[kind]())
    if unused:
        blocks.append(Sometimes())
    return nn.Sequential(nn.Embedding(97, WIDTH), *blocks, nn.Linear(WIDTH, 97))


# --- collectives, checked ---------------------------------------------------------------------------

def made(rank: int, n: int, dtype: torch.dtype, salt: int) -> torch.Tensor:
    return ((torch.arange(n) * 7 + rank * 3 + salt) % 11).to(dtype)


class Collectives:
    def __init__(self, draw: random.Random, groups: list, joined: int):
        self.draw, self.groups, self.joined, self.rank = draw, groups, joined, dist.get_rank()
        self.side = torch.cuda.Stream()

    def one(self, step: int) -> None:
        draw = self.draw
        group = draw.choice(self.groups)
        # All draw alike, also those who are in no part of it.
        n, dtype, salt = draw.choice((1, 5, 1000, 30000)), draw.choice(DTYPES), draw.randrange(9)
        name = draw.choice(("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into", "reduce_scatter", "all_to_all", "uneven",
                            "gather", "scatter", "pair", "ring", "barrier", "coalesced", "objects", "object_list", "functional"))
        late, side, root, op = draw.random() < 0.4, draw.random() < 0.3, draw.randrange(8), draw.choice(("SUM", "MAX", "MIN"))
        sizes = [[draw.choice((0, 1, 3, 700)) for _ in range(8)] for _ in range(8)]
        mine = next((part for part in group[0] if self.rank in part), None)
        if mine is None:
            return
        if len(mine) > self.joined and name in ("all_to_all", "uneven", "gather", "scatter"):
            name = "all_reduce"
        with torch.cuda.stream(self.side) if side else contextlib.nullcontext():
            if side:
                self.side.wait_stream(torch.cuda.default_stream())
            wanted, got = getattr(self, name)(mine, group[1], n=n, dtype=dtype, salt=salt, late=late, root=root % len(mine), op=op, sizes=sizes)
            for x, y in zip(wanted, got, strict=True):
                y = y.cpu()
                assert torch.equal(x, y), f"step {step}: {name} of {n} {dtype} among {mine}: {y.flatten()[:8]} instead of {x.flatten()[:8]}"
        if side:
            torch.cuda.default_stream().wait_stream(self.side)

    def wait(self, work, late) -> None:
        if late:
            torch.ones(256, 256, device="cuda") @ torch.ones(256, 256, device="cuda")
        if work is not None:
            work.wait()

    @staticmethod
    def reduced(op, parts):
        stacked = torch.stack([p.to(torch.float64) for p in parts])
        return {"SUM": stacked.sum(0), "MAX": stacked.amax(0), "MIN": stacked.amin(0)}[op].to(parts[0].dtype)

    def all_reduce(self, mine, group, n, dtype, salt, late, op, **_):
        x = made(self.rank, n, dtype, salt).cuda()
        self.wait(dist.all_reduce(x, getattr(dist.ReduceOp, op), group, async_op=late), late)
        return [self.reduced(op, [made(r, n, dtype, salt) for r in mine])], [x]

    def broadcast(self, mine, group, n, dtype, salt, late, root, **_):
        x = made(self.rank, n, dtype, salt).cuda()
        self.wait(dist.broadcast(x, mine[root], group, async_op=late), late)
        return [made(mine[root], n, dtype, salt)], [x]

    def reduce(self, mine, group, n, dtype, salt, late, root, op, **_):
        x = made(self.rank, n, dtype, salt).cuda()
        self.wait(dist.reduce(x, mine[root], getattr(dist.ReduceOp, op), group, async_op=late), late)
        return ([self.reduced(op, [made(r, n, dtype, salt) for r in mine])], [x]) if self.rank == mine[root] else ([], [])

    def all_gather(self, mine, group, n, dtype, salt, late, **_):
        parts = [torch.full((n,), 77, dtype=dtype, device="cuda") for _ in mine]
        self.wait(dist.all_gather(parts, made(self.rank, n, dtype, salt).cuda(), group, async_op=late), late)
        return [made(r, n, dtype, salt) for r in mine], parts

    def all_gather_into(self, mine, group, n, dtype, salt, late, **_):
        whole = torch.full((n * len(mine),), 77, dtype=dtype, device="cuda")
        self.wait(dist.all_gather_into_tensor(whole, made(self.rank, n, dtype, salt).cuda(), group, async_op=late), late)
        return [torch.cat([made(r, n, dtype, salt) for r in mine])], [whole]

    def reduce_scatter(self, mine, group, n, dtype, salt, late, op, **_):
        mine_now = torch.full((n,), 77, dtype=dtype, device="cuda")
        x = made(self.rank, n * len(mine), dtype, salt).cuda()
        self.wait(dist.reduce_scatter_tensor(mine_now, x, getattr(dist.ReduceOp, op), group, async_op=late), late)
        at = mine.index(self.rank)
        return [self.reduced(op, [made(r, n * len(mine), dtype, salt)[at * n:(at + 1) * n] for r in mine])], [mine_now]

    def all_to_all(self, mine, group, n, dtype, salt, late, **_):
        x, got = made(self.rank, n * len(mine), dtype, salt).cuda(), torch.full((n * len(mine),), 77, dtype=dtype, device="cuda")
        self.wait(dist.all_to_all_single(got, x, group=group, async_op=late), late)
        at = mine.index(self.rank)
        return [torch.cat([made(r, n * len(mine), dtype, salt)[at * n:(at + 1) * n] for r in mine])], [got]

    def uneven(self, mine, group, dtype, salt, late, sizes, **_):
        at, k = mine.index(self.rank), len(mine)
        give, take = sizes[at][:k], [sizes[i][at] for i in range(k)]
        x, got = made(self.rank, sum(give), dtype, salt).cuda(), torch.full((sum(take),), 77, dtype=dtype, device="cuda")
        self.wait(dist.all_to_all_single(got, x, take, give, group=group, async_op=late), late)
        parts = [made(mine[i], sum(sizes[i][:k]), dtype, salt)[sum(sizes[i][:at]):sum(sizes[i][:at + 1])] for i in range(k)]
        return [torch.cat(parts)], [got]

    def gather(self, mine, group, n, dtype, salt, late, root, **_):
        parts = [torch.full((n,), 77, dtype=dtype, device="cuda") for _ in mine] if self.rank == mine[root] else None
        self.wait(dist.gather(made(self.rank, n, dtype, salt).cuda(), parts, mine[root], group, async_op=late), late)
        return ([made(r, n, dtype, salt) for r in mine], parts) if parts else ([], [])

    def scatter(self, mine, group, n, dtype, salt, late, root, **_):
        parts = [made(r, n, dtype, salt).cuda() for r in mine] if self.rank == mine[root] else None
        x = torch.full((n,), 77, dtype=dtype, device="cuda")
        self.wait(dist.scatter(x, parts, mine[root], group, async_op=late), late)
        return [made(self.rank, n, dtype, salt)], [x]

    def pair(self, mine, group, n, dtype, salt, late, root, **_):
        a, b = mine[root], mine[(root + 1) % len(mine)]
        x = made(self.rank, n, dtype, salt).cuda()
        if self.rank == a and a != b:
            self.wait(dist.isend(x, b, group), late)
        elif self.rank == b and a != b:
            self.wait(dist.irecv(x, a, group), late)
            return [made(a, n, dtype, salt)], [x]
        return [], []

    def ring(self, mine, group, n, dtype, salt, late, **_):
        at = mine.index(self.rank)
        to, of = mine[(at + 1) % len(mine)], mine[at - 1]
        if to == self.rank:
            return [], []
        x, got = made(self.rank, n, dtype, salt).cuda(), torch.full((n,), 77, dtype=dtype, device="cuda")
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, to, group), dist.P2POp(dist.irecv, got, of, group)]):
            self.wait(work, late)
        return [made(of, n, dtype, salt)], [got]

    def barrier(self, mine, group, late, **_):
        self.wait(dist.barrier(group, async_op=late, device_ids=[torch.cuda.current_device()]), late)
        return [], []

    def coalesced(self, mine, group, n, dtype, salt, **_):
        xs = [made(self.rank, n + i, dtype, salt).cuda() for i in range(3)]
        with dist._coalescing_manager(group=group, device=torch.device("cuda", torch.cuda.current_device()), async_ops=True) as work:
            for x in xs:
                dist.all_reduce(x, group=group)
        work.wait()
        return [self.reduced("SUM", [made(r, n + i, dtype, salt) for r in mine]) for i in range(3)], xs

    def objects(self, mine, group, salt, **_):
        got = [None] * len(mine)
        dist.all_gather_object(got, {"rank": self.rank, "salt": "x" * salt * self.rank}, group)
        assert got == [{"rank": r, "salt": "x" * salt * r} for r in mine], got
        return [], []

    def object_list(self, mine, group, salt, root, **_):
        got = [self.rank, "y" * salt] if self.rank == mine[root] else [None, None]
        dist.broadcast_object_list(got, mine[root], group, device=torch.device("cuda", torch.cuda.current_device()))
        assert got == [mine[root], "y" * salt], got
        return [], []

    def functional(self, mine, group, n, dtype, salt, **_):
        x = functional.all_gather_tensor(made(self.rank, n, dtype, salt).cuda(), 0, group or dist.group.WORLD)
        return [torch.cat([made(r, n, dtype, salt) for r in mine])], [functional.wait_tensor(x)]


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


# --- how it is parallel -----------------------------------------------------------------------------

class Plan:
    def __init__(self, draw: random.Random, local: int):
        self.draw = draw
        kinds = ("ddp", "ddp", "fsdp1", "fsdp2", "fsdp2", "manual", *(("hsdp",) if dist.get_world_size() % 2 == 0 else ()))
        self.kind = draw.choice(kinds)
        self.precision = draw.choice(("fp32", "bf16", "fp16"))
        self.accumulate = draw.choice((1, 1, 2, 3))
        self.clip = draw.random() < 0.3
        unused = self.kind == "ddp" and draw.random() < 0.3
        torch.manual_seed(draw.randrange(1000))
        model = model_of(draw, unused, self.kind in ("ddp", "manual")).cuda()  # shards are of other types than running means
        self.text = [self.kind, self.precision, f"x{self.accumulate}", "clip" if self.clip else ""]
        if self.kind == "ddp":
            options = {"find_unused_parameters": unused, "bucket_cap_mb": draw.choice((0.01, 0.1, 25)), "gradient_as_bucket_view": draw.random() < 0.5,
                       "broadcast_buffers": draw.random() < 0.7, "static_graph": not unused and self.accumulate == 1 and draw.random() < 0.3}
            self.model = nn.parallel.DistributedDataParallel(model, device_ids=[local], **options)
            hook = draw.choice((None, None, "fp16", "bf16", "powersgd"))
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
            if hook == "powersgd":
                self.model.register_comm_hook(powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
            elif hook:
                self.model.register_comm_hook(None, getattr(default_hooks, f"{hook}_compress_hook"))
            self.text += [str(options), str(hook)]
        elif self.kind == "fsdp1":
            from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy
            strategy = draw.choice(("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"))
            self.model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Attention, Residual}), device_id=local,
                                                  sharding_strategy=ShardingStrategy[strategy], use_orig_params=draw.random() < 0.7,
                                                  limit_all_gathers=draw.random() < 0.5, forward_prefetch=draw.random() < 0.5)
            self.text.append(strategy)
        elif self.kind in ("fsdp2", "hsdp"):
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
            mesh = init_device_mesh("cuda", (2, dist.get_world_size() // 2), mesh_dim_names=("r", "s")) if self.kind == "hsdp" else None
            how = {"mesh": mesh, "reshard_after_forward": draw.random() < 0.6}
            if draw.random() < 0.4:
                how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for block in model:
                if draw.random() < 0.8:
                    fully_shard(block, **how)
            self.model = fully_shard(model, **how)
            self.text.append(str({k: v for k, v in how.items() if k != "mesh"}))
        else:
            self.model = model
        name = draw.choice(("sgd", "adamw", "fused", "zero"))
        if self.kind in ("ddp", "manual") and name == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer
            self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.SGD, lr=1e-3, momentum=0.9,
                                                     parameters_as_bucket_view=draw.random() < 0.5)
        elif name == "sgd":
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        else:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=name == "fused")
        self.text.append(type(self.optimizer).__name__)
        self.scaler = torch.amp.GradScaler("cuda") if self.precision == "fp16" and self.kind in ("ddp", "manual") else None

    def loss(self, x):
        dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]
        with torch.autocast("cuda", dtype) if dtype else contextlib.nullcontext():
            return F.cross_entropy(self.model(x).flatten(0, 1).float(), x.flatten())

    def unsynced(self):
        if self.kind in ("ddp", "fsdp1"):
            return self.model.no_sync()
        return contextlib.nullcontext()

    def step(self, batches) -> torch.Tensor:
        for i, x in enumerate(batches):
            last = i == len(batches) - 1
            if self.kind in ("fsdp2", "hsdp"):
                self.model.set_requires_gradient_sync(last)
            with contextlib.nullcontext() if last else self.unsynced():
                loss = self.loss(x)
                (self.scaler.scale(loss) if self.scaler else loss).backward()
        if self.kind == "manual":
            for p in self.model.parameters():
                if p.grad is not None:
                    dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0) if self.kind != "fsdp1" else self.model.clip_grad_norm_(1.0)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        return (torch.arange(8) * 5 + i) % 97


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--joined", type=int, default=4, help="ranks that all have circuits to each other")
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
    plan = Plan(draw, local)
    workers = draw.choice((0, 0, 1))
    evaluates, saves = draw.choice((0, 3)), draw.choice((0, 0, 4))
    many = draw.choice((2, 8, 20))
    if rank == 0:
        print(f"seed {args.seed}: {'eager' if eager else 'lazy'}{', non-blocking' if non_blocking else ''}, {backend}, groups {[g[0] for g in groups]}, "
              f"{' '.join(plan.text)}, {workers} workers, evaluates {evaluates}, saves {saves}, {many} collectives a step", flush=True)
    sampler = torch.utils.data.DistributedSampler(Tokens(), seed=args.seed)
    loader = torch.utils.data.DataLoader(Tokens(), 4, sampler=sampler, num_workers=workers, pin_memory=draw.random() < 0.5, drop_last=True)
    batches = iter(loader)
    collectives = Collectives(draw, groups, args.joined)
    for step in range(args.steps):
        loss = plan.step([next(batches).cuda(non_blocking=True) for _ in range(plan.accumulate)])
        for _ in range(draw.randint(0, many)):
            collectives.one(step)
        if evaluates and step % evaluates == evaluates - 1:
            plan.model.eval()
            with torch.no_grad():
                plan.loss(next(batches).cuda())
            plan.model.train()
        if saves and step % saves == saves - 1 and args.joined >= dist.get_world_size():
            import torch.distributed.checkpoint as dcp
            from torch.distributed.checkpoint.state_dict import get_model_state_dict
            folder = [tempfile.mkdtemp(prefix="drawn-")] if rank == 0 else [None]
            dist.broadcast_object_list(folder, 0, device=torch.device("cuda", local))
            dcp.save(get_model_state_dict(plan.model), checkpoint_id=folder[0])
        torch.cuda.synchronize()
        if rank == 0:
            print(f"step {step}, loss {loss.item():.9g}", flush=True)
    if draw.random() < 0.7:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
