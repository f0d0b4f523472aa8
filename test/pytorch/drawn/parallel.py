"""How a drawn program is parallel: data, pipeline or tensor."""
import contextlib
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn import functional as F

from collectives import Rails
from model import TOKENS, WIDTH, Attention, Residual, blocks_of, model_of, plain_blocks_of


def plan_of(draw: random.Random, local: int, rails: Rails):
    torch.manual_seed(draw.randrange(1000))
    kind = draw.choice((Data, Data, Data, Pipeline, *((Tensor,) if dist.get_world_size() % 2 == 0 else ())))
    return kind(draw, local, rails)


def mesh_of(draw: random.Random, name: str, suits) -> DeviceMesh:
    """Dimensions `name` and "data" over all ranks, so that those of `name` suit."""
    world = dist.get_world_size()
    ranks = torch.arange(world)
    shapes = []
    for inner in (n for n in range(1, world + 1) if world % n == 0):
        grid = ranks.view(-1, inner)
        shapes += [(grid, names) for names in ((name, "data"), ("data", name)) if all(suits(g) for g in (grid.T if names[0] == name else grid).tolist())]
    grid, names = draw.choice(shapes)
    return init_device_mesh("cuda", tuple(grid.shape), mesh_dim_names=names)


class Data:
    """Every rank has the whole model, or shards of it."""

    def __init__(self, draw: random.Random, local: int, rails: Rails):
        kinds = ("ddp", "ddp", "fsdp1", "fsdp2", "fsdp2", "manual", *(("hsdp",) if dist.get_world_size() % 2 == 0 else ()))
        self.kind = draw.choice(kinds)
        self.precision = draw.choice(("fp32", "bf16", "fp16"))
        self.accumulate = draw.choice((1, 1, 2, 3))
        self.clip = draw.random() < 0.3
        unused = self.kind == "ddp" and draw.random() < 0.3
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
            from torch.distributed.fsdp import MixedPrecisionPolicy
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

    def evaluate(self, x) -> None:
        self.model.eval()
        with torch.no_grad():
            self.loss(x)
        self.model.train()

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


class Pipeline:
    """Stages over nodes; the replicas of a stage are whole, or sharded."""

    def __init__(self, draw: random.Random, local: int, rails: Rails):
        mesh = mesh_of(draw, "stage", lambda g: len(g) > 1 and all(rails.alike(a, b) for a in g for b in g))
        at, ranks, replicas = mesh.get_local_rank("stage"), mesh["stage"].size(), mesh["data"].size()
        name = draw.choice(("GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble"))
        how, self.accumulate, chunks = draw.choice(("summed", "fsdp2")), 1, draw.choice((2, 4))
        halves = "Zero" in name  # zero bubble splits a backward in two; only plain layers can do that
        schedule = get_schedule_class(name)
        if issubclass(schedule, PipelineScheduleSingle):
            chunks, mine, count = max(chunks, ranks), [at], ranks
        else:
            chunks, mine, count = ranks * (chunks // 2), [at, 2 * ranks - 1 - at if name == "ZBVZeroBubble" else ranks + at], 2 * ranks
        self.rows = chunks * draw.choice((1, 2))  # of a batch
        modules = [[nn.Embedding(TOKENS, WIDTH)] * (i == 0) + (plain_blocks_of(draw) if halves else blocks_of(draw)) + [nn.Linear(WIDTH, TOKENS)] * (i == count - 1) for i in range(count)]
        modules = [nn.Sequential(*modules[i]).cuda() for i in mine]
        if replicas > 1 and how == "fsdp2":
            modules = [fully_shard(m, mesh=mesh["data"], reshard_after_forward=False) for m in modules]
        device = torch.device("cuda", local)
        stages = [PipelineStage(m, i, count, device, group=mesh.get_group("stage")) for m, i in zip(modules, mine)]
        self.schedule = schedule(stages[0] if len(stages) == 1 else stages, chunks, loss_fn=lambda y, x: F.cross_entropy(y.flatten(0, 1), x.flatten()))
        self.first, self.last, self.model = 0 in mine, count - 1 in mine, nn.ModuleDict({str(i): m for i, m in zip(mine, modules)})
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, foreach=False)
        self.text = ["pipeline", str(mesh.mesh.tolist()), name, f"{chunks} chunks", how if replicas > 1 else ""]
        self.replicas = mesh.get_group("data") if replicas > 1 and how == "summed" else None

    def step(self, batches) -> torch.Tensor:
        x = batches[0].repeat(self.rows // 4 + 1, 1)[:self.rows]
        losses = []
        self.schedule.step(*((x,) if self.first else ()), **({"target": x, "losses": losses} if self.last else {}))
        for p in self.model.parameters() if self.replicas else ():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG, self.replicas)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).mean() if losses else torch.zeros(())

    def evaluate(self, x) -> None:
        x = x.repeat(self.rows // 4 + 1, 1)[:self.rows]
        self.schedule.eval(*((x,) if self.first else ()), **({"target": x, "losses": []} if self.last else {}))


class Tensor:
    """Matrices over ranks by columns, then by rows; the sequence between them, or not."""

    def __init__(self, draw: random.Random, local: int, rails: Rails):
        self.mesh = mesh_of(draw, "tensor", lambda g: len(g) > 1 and len(g) <= rails.joined and rails.any_to_any(g))
        self.sequence, self.accumulate = draw.random() < 0.5, draw.choice((1, 2))
        along = {"input_layouts": Shard(1)} if self.sequence else {}
        plan = {"layers.1": ColwiseParallel(**along), "layers.3": RowwiseParallel(**({"output_layouts": Shard(1), "use_local_output": False} if self.sequence else {}))}
        if self.sequence:
            plan["layers.0"] = SequenceParallel()
        blocks = [Residual(draw.choice((nn.ReLU, nn.GELU, nn.SiLU))).cuda() for _ in range(draw.randint(1, 4))]
        for block in blocks:
            parallelize_module(block, self.mesh["tensor"], plan)
        sharded = self.mesh["data"].size() > 1 and draw.random() < 0.7
        if sharded:
            for block in blocks:
                fully_shard(block, mesh=self.mesh["data"])
        self.model = nn.Sequential(*blocks)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=False)
        self.text = ["tensor", str(self.mesh), "sequence" if self.sequence else "", "sharded" if sharded else "", f"x{self.accumulate}"]

    def loss(self, x):
        tokens = 8 // self.mesh["tensor"].size() if self.sequence else 8
        x = torch.randn(x.shape[0], tokens, WIDTH, device="cuda")
        y = self.model(DTensor.from_local(x, self.mesh["tensor"], [Shard(1)]) if self.sequence else x)
        return (y.to_local() if isinstance(y, DTensor) else y).square().mean()

    def evaluate(self, x) -> None:
        with torch.no_grad():
            self.loss(x)

    def step(self, batches) -> torch.Tensor:
        for x in batches:
            loss = self.loss(x)
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss
