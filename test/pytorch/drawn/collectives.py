"""Collectives and transfers among drawn groups, alone or several in flight; what arrives is checked against what the host computes.

Each is a generator: it starts something, yields what is to be waited for, and returns what it wanted and what it got.
"""
import concurrent.futures
import contextlib
import random
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

DTYPES = (torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.float16, torch.uint8)
AMONG_ALL = ("all_to_all", "uneven", "gather", "scatter")  # may send from any rank to any other
IN_FLIGHT = ("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into", "reduce_scatter", "all_to_all", "uneven", "ring")
ALL = (*IN_FLIGHT, "gather", "scatter", "pair", "barrier", "coalesced", "objects", "object_list", "functional")


def made(rank: int, n: int, dtype: torch.dtype, salt: int) -> torch.Tensor:
    return ((torch.arange(n) * 7 + rank * 3 + salt) % 11).to(dtype)


def empty(n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((n,), 77, dtype=dtype, device="cuda")


def reduced(op: str, parts: list) -> torch.Tensor:
    stacked = torch.stack([p.to(torch.float64) for p in parts])
    return {"SUM": stacked.sum(0), "MAX": stacked.amax(0), "MIN": stacked.amin(0)}[op].to(parts[0].dtype)


class Rails:
    """Which ranks can send to each other: `gpus` of each node, and `joined` ranks all have circuits to each other."""

    def __init__(self, gpus: int, joined: int):
        self.gpus, self.joined = gpus, joined

    def alike(self, a: int, b: int) -> bool:
        return a // self.gpus == b // self.gpus or a % self.gpus == b % self.gpus

    def any_to_any(self, ranks: list) -> bool:
        """NCCL goes by a rank of the sender's node that is on the receiver's rail, and the group must have it."""
        return all(self.alike(a, b) or a // self.gpus * self.gpus + b % self.gpus in ranks for a in ranks for b in ranks)


class Collectives:
    def __init__(self, draw: random.Random, groups: list, rails: Rails):
        self.draw, self.groups, self.rails, self.rank = draw, groups, rails, dist.get_rank()
        self.own = random.Random(f"rank {self.rank}: {draw.random()}")  # naps, and the order of waits
        self.side = torch.cuda.Stream()

    def name_for(self, name: str, mine: list) -> str:
        if name in AMONG_ALL and (len(mine) > self.rails.joined or not self.rails.any_to_any(mine)):
            return "all_reduce"
        return "all_gather" if name == "ring" and not self.rails.any_to_any(mine) else name

    def drawn(self, names: tuple) -> tuple:
        """All ranks draw alike, also those who are in no part of it."""
        draw = self.draw
        group, name = draw.choice(self.groups), draw.choice(names)
        what = {"n": draw.choice((1, 5, 1000, 30000)), "dtype": draw.choice(DTYPES), "salt": draw.randrange(9), "op": draw.choice(("SUM", "MAX", "MIN")),
                "late": draw.random() < 0.4, "root": draw.randrange(8), "sizes": [[draw.choice((0, 1, 3, 700)) for _ in range(8)] for _ in range(8)]}
        mine = next((part for part in group[0] if self.rank in part), None)
        if mine is not None:
            what["root"] %= len(mine)
            name = self.name_for(name, mine)
        return name, mine, group[1], what

    def some(self, step: int) -> None:
        """By the program's thread, or by another while it waits: what runs side by side in orders of its own may hang NCCL itself."""
        if self.draw.random() < 0.8:
            return self.several(step)
        with concurrent.futures.ThreadPoolExecutor(1, initializer=torch.cuda.set_device, initargs=(torch.cuda.current_device(),)) as other:
            other.submit(self.several, step).result()

    def several(self, step: int) -> None:
        """One, or several in flight."""
        count = self.draw.choice((1, 1, 1, 2, 3))
        side, nap, busy = (self.draw.random() < chance for chance in (0.3, 0.2, 0.3))
        if nap:
            time.sleep(self.own.random() * 0.01)
        with torch.cuda.stream(self.side) if side else contextlib.nullcontext():
            if side:
                self.side.wait_stream(torch.cuda.default_stream())
            in_flight = []
            for _ in range(count):
                name, mine, group, what = self.drawn(ALL if count == 1 else IN_FLIGHT)
                if mine is None:
                    continue
                if count > 1:
                    what["late"] = True
                run = getattr(self, name)(mine, group, **what)
                text = f"step {step}: {name} of {what['n']} {what['dtype']} among {mine}"
                in_flight.append((text, run, *started(run)))
            if busy:
                torch.ones(256, 256, device="cuda") @ torch.ones(256, 256, device="cuda")
            self.own.shuffle(in_flight)
            for text, run, work, result in in_flight:
                check(text, *finished(run, work, result))
        if side:
            torch.cuda.default_stream().wait_stream(self.side)

    def on_gpu(self, host: torch.Tensor) -> torch.Tensor:
        return host.cuda()

    def all_reduce(self, mine, group, n, dtype, salt, late, op, **_):
        x = self.on_gpu(made(self.rank, n, dtype, salt))
        yield dist.all_reduce(x, getattr(dist.ReduceOp, op), group, async_op=late)
        return [reduced(op, [made(r, n, dtype, salt) for r in mine])], [x]

    def broadcast(self, mine, group, n, dtype, salt, late, root, **_):
        x = self.on_gpu(made(self.rank, n, dtype, salt))
        yield dist.broadcast(x, mine[root], group, async_op=late)
        return [made(mine[root], n, dtype, salt)], [x]

    def reduce(self, mine, group, n, dtype, salt, late, root, op, **_):
        x = self.on_gpu(made(self.rank, n, dtype, salt))
        yield dist.reduce(x, mine[root], getattr(dist.ReduceOp, op), group, async_op=late)
        return ([reduced(op, [made(r, n, dtype, salt) for r in mine])], [x]) if self.rank == mine[root] else ([], [])

    def all_gather(self, mine, group, n, dtype, salt, late, **_):
        parts = [empty(n, dtype) for _ in mine]
        yield dist.all_gather(parts, self.on_gpu(made(self.rank, n, dtype, salt)), group, async_op=late)
        return [made(r, n, dtype, salt) for r in mine], parts

    def all_gather_into(self, mine, group, n, dtype, salt, late, **_):
        whole = empty(n * len(mine), dtype)
        yield dist.all_gather_into_tensor(whole, self.on_gpu(made(self.rank, n, dtype, salt)), group, async_op=late)
        return [torch.cat([made(r, n, dtype, salt) for r in mine])], [whole]

    def reduce_scatter(self, mine, group, n, dtype, salt, late, op, **_):
        got, x = empty(n, dtype), self.on_gpu(made(self.rank, n * len(mine), dtype, salt))
        yield dist.reduce_scatter_tensor(got, x, getattr(dist.ReduceOp, op), group, async_op=late)
        at = mine.index(self.rank)
        return [reduced(op, [made(r, n * len(mine), dtype, salt)[at * n:(at + 1) * n] for r in mine])], [got]

    def all_to_all(self, mine, group, n, dtype, salt, late, **_):
        x, got = self.on_gpu(made(self.rank, n * len(mine), dtype, salt)), empty(n * len(mine), dtype)
        yield dist.all_to_all_single(got, x, group=group, async_op=late)
        at = mine.index(self.rank)
        return [torch.cat([made(r, n * len(mine), dtype, salt)[at * n:(at + 1) * n] for r in mine])], [got]

    def uneven(self, mine, group, dtype, salt, late, sizes, **_):
        at, k = mine.index(self.rank), len(mine)
        give, take = sizes[at][:k], [sizes[i][at] for i in range(k)]
        x, got = self.on_gpu(made(self.rank, sum(give), dtype, salt)), empty(sum(take), dtype)
        yield dist.all_to_all_single(got, x, take, give, group=group, async_op=late)
        parts = [made(mine[i], sum(sizes[i][:k]), dtype, salt)[sum(sizes[i][:at]):sum(sizes[i][:at + 1])] for i in range(k)]
        return [torch.cat(parts)], [got]

    def ring(self, mine, group, n, dtype, salt, **_):
        at = mine.index(self.rank)
        to, of = mine[(at + 1) % len(mine)], mine[at - 1]
        if to == self.rank:
            return [], []
        x, got = self.on_gpu(made(self.rank, n, dtype, salt)), empty(n, dtype)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, to, group), dist.P2POp(dist.irecv, got, of, group)])
        for work in works:
            yield work
        return [made(of, n, dtype, salt)], [got]

    def gather(self, mine, group, n, dtype, salt, late, root, **_):
        parts = [empty(n, dtype) for _ in mine] if self.rank == mine[root] else None
        yield dist.gather(made(self.rank, n, dtype, salt).cuda(), parts, mine[root], group, async_op=late)
        return ([made(r, n, dtype, salt) for r in mine], parts) if parts else ([], [])

    def scatter(self, mine, group, n, dtype, salt, late, root, **_):
        parts = [made(r, n, dtype, salt).cuda() for r in mine] if self.rank == mine[root] else None
        x = empty(n, dtype)
        yield dist.scatter(x, parts, mine[root], group, async_op=late)
        return [made(self.rank, n, dtype, salt)], [x]

    def pair(self, mine, group, n, dtype, salt, root, **_):
        a, b = mine[root], mine[(root + 1) % len(mine)]
        if a == b or not self.rails.alike(a, b):  # PyTorch may make a communicator of the two alone
            return [], []
        if self.rank == a:
            yield dist.isend(made(self.rank, n, dtype, salt).cuda(), b, group)
        elif self.rank == b:
            x = empty(n, dtype)
            yield dist.irecv(x, a, group)
            return [made(a, n, dtype, salt)], [x]
        return [], []

    def barrier(self, mine, group, late, **_):
        yield dist.barrier(group, async_op=late, device_ids=[torch.cuda.current_device()])
        return [], []

    def coalesced(self, mine, group, n, dtype, salt, **_):
        xs = [made(self.rank, n + i, dtype, salt).cuda() for i in range(3)]
        with dist._coalescing_manager(group=group, device=torch.device("cuda", torch.cuda.current_device()), async_ops=True) as work:
            for x in xs:
                dist.all_reduce(x, group=group)
        yield work
        return [reduced("SUM", [made(r, n + i, dtype, salt) for r in mine]) for i in range(3)], xs

    def objects(self, mine, group, salt, **_):
        got = [None] * len(mine)
        dist.all_gather_object(got, {"rank": self.rank, "salt": "x" * salt * self.rank}, group)
        assert got == [{"rank": r, "salt": "x" * salt * r} for r in mine], got
        yield None
        return [], []

    def object_list(self, mine, group, salt, root, **_):
        got = [self.rank, "y" * salt] if self.rank == mine[root] else [None, None]
        dist.broadcast_object_list(got, mine[root], group, device=torch.device("cuda", torch.cuda.current_device()))
        assert got == [mine[root], "y" * salt], got
        yield None
        return [], []

    def functional(self, mine, group, n, dtype, salt, **_):
        x = functional.all_gather_tensor(made(self.rank, n, dtype, salt).cuda(), 0, group or dist.group.WORLD)
        yield None
        return [torch.cat([made(r, n, dtype, salt) for r in mine])], [functional.wait_tensor(x)]


def started(run) -> tuple:
    """What to wait for, or what it returned."""
    try:
        return next(run), None
    except StopIteration as end:
        return None, end.value


def finished(run, work, result):
    while result is None:
        if work is not None:
            work.wait()
        work, result = started(run)
    return result


def check(text: str, wanted: list, got: list) -> None:
    for x, y in zip(wanted, got, strict=True):
        y = y.cpu()
        assert torch.equal(x, y), f"{text}: {y.flatten()[:8]} instead of {x.flatten()[:8]}"
