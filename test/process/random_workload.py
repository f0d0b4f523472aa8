"""Random jobs that any packet network would run to the end: the same seed gives the same job.

A global order of items is drawn, calls and groups of calls; each rank's program is its own share of it, in that order, on
random streams. Such a program ends: whatever is the first not to have happened waits for nothing. With `reorder`, ranks
then do things sooner or later than that, receives much sooner: what NCCL numbers keeps its order, everything else may
change, and what would hang bare NCCL (bare_nccl.py) is not drawn. First uses come when they come.

Communicators are made of unique ids and of splits, of splits of splits too, before the first iteration or in its midst, and
may be destroyed and made again; some are gone after the first iteration. Items are played in each iteration, in the first
only or in every n-th. One program of four has more than five iterations: a plan begins no sooner than with the fourth.

In some jobs no communicator blocks: their calls return before they are done, and children of theirs are complete later. Some of the
communicators that are there at the start are shrunk from their parents.

With `captures` the second iteration of some jobs is captured into a CUDA graph, which the later ones replay: of those that make
and end no communicator in it. Their hosts wait for no stream then.

Never more neighbours than ports: with two ports a GPU, rings and shifts; with one, pairs of nodes.
"""
import random

from bare_nccl import CALLS, PAIRWISE, is_played, stuck, transfers
from circuit_needs import Needs
from workload_text import Workload, grid

DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"]
REDUCTIONS = ["sum", "prod", "max", "min"]
RING = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]
MESH = sorted(PAIRWISE)
STREAMS = ["a", "b", "c"]
ALWAYS: dict = {}
SHORT = 0.15  # of the communicators that are there from the start
FAR, DARING = 8, 6  # how much sooner a receive may come; other changes of a rank's order that are tried

Item = list[dict]


def flat(lists) -> list:
    return [x for one in lists for x in one]


class Group:
    """One of a communicator's groups of ranks."""

    def __init__(self, comm: str, ranks: list[int], when: dict):
        self.comm, self.ranks, self.when, self.gone = comm, ranks, when, False


class Draw:
    def __init__(self, seed: int, nodes: int, gpus: int, ports: int, operations: int, reorder: bool, domain: int, captures: bool,
                 slots: int):
        self.random = random.Random(seed)
        self.nodes, self.gpus, self.ports, self.reorder, self.domain, self.captures = nodes, gpus, ports, reorder, domain, captures
        self.slots = slots
        self.queue = slots * 3 // 4  # launches of several slots need free ones in a row, and those that wait stay where they are
        self.w = Workload(f"random-{seed}", grid(nodes, gpus), iterations=self.iterations())
        if self.random.random() < 0.2:
            self.w.head["lengths"] = [1, 0.5, 2]
        self.program: list[list[Item]] = [[] for _ in range(nodes * gpus)]  # of each rank: its items, in global order
        self.events = 0
        self.make_comms()
        burst = self.random.randrange(operations) if slots else -1
        for i in range(operations):
            if i == burst:
                self.burst()
            self.random.choices([self.collective, self.transfer, self.shift, self.fused, self.batch, self.pause, self.order, self.live,
                                 self.mixed],
                                weights=[6, 5, 2, 2, 3, 2, 1, 2, 2])[0]()

    def rank(self, node: int, gpu: int) -> int:
        return node * self.gpus + gpu

    def node(self, rank: int) -> int:
        return rank // self.gpus

    def iterations(self) -> int:
        return self.random.randint(6, 10) if self.random.random() < 0.25 else self.random.choice([1, 2, 3, 3, 4, 5])

    # --- communicators ---------------------------------------------------------------------------

    def make_comms(self) -> None:
        everyone = list(range(self.nodes * self.gpus))
        self.groups = [Group(self.w.comm("world", [everyone]), everyone, ALWAYS)]
        self.unmade: list[tuple[dict, dict | None]] = []  # and when, where it has gone before
        for i in range(self.random.randint(1, 5)):
            later = self.random.random() < 0.3
            parent = self.random.choice(["", *{g.comm: None for g in self.groups}])
            groups = self.some_ranks() if not parent else [g for p in self.ranks_of(parent) for g in self.parts(p)]
            if not groups:
                continue
            comm = self.w.comm(f"c{i}", groups, parent)
            if later:
                self.w.comms[-1]["later"] = True
                self.unmade.append((self.w.comms[-1], None))
            else:
                short = self.random.random() < SHORT  # gone after the first iteration
                self.groups += [Group(comm, g, {"first_only": True} if short else ALWAYS) for g in groups]
                for g in self.groups[-len(groups):]:
                    g.gone = short

    def ranks_of(self, comm: str) -> list[list[int]]:
        return next(c["groups"] for c in self.w.comms if c["comm"] == comm)

    def some_ranks(self) -> list[list[int]]:
        """The same local indices of some nodes, or of each node its own."""
        nodes = sorted(self.random.sample(range(self.nodes), self.random.randint(1, self.most_nodes())))
        gpus = sorted(self.random.sample(range(self.gpus), self.random.randint(1, self.gpus)))
        if self.random.random() < 0.15:
            return [[self.rank(n, g) for g in gpus] for n in nodes]
        return [[self.rank(n, g) for n in nodes for g in gpus]]

    def parts(self, ranks: list[int]) -> list[list[int]]:
        """What one group of a parent is split into; who is left has no color."""
        nodes, gpus = sorted({self.node(r) for r in ranks}), sorted({r % self.gpus for r in ranks})
        way = self.random.random()
        if way < 0.3:  # a rail each
            parts = [[r for r in ranks if r % self.gpus == g] for g in gpus]
        elif way < 0.45:
            parts = [[r for r in ranks if self.node(r) == n] for n in nodes]
        else:
            chosen = self.random.sample(nodes, self.random.randint(min(2, len(nodes)), min(len(nodes), self.most_nodes())))
            parts = [[r for r in ranks if self.node(r) in chosen]]
        if self.random.random() < 0.2:
            for part in parts:
                self.random.shuffle(part)  # keys of their own
        return [p for p in parts if p]

    def most_nodes(self) -> int:
        return self.nodes if self.ports > 1 else min(2, self.nodes)

    def live(self) -> None:
        """A communicator comes to be, or goes."""
        if self.unmade and self.random.random() < 0.7:
            self.create(*self.unmade.pop(0))
            return
        comm = self.random.choice([g.comm for g in self.groups])
        if comm != "world" and not any(c.get("parent") == comm for c, _ in self.unmade):
            when = self.destroy(comm)
            if self.random.random() < 0.6:
                self.unmade.append((next(c for c in self.w.comms if c["comm"] == comm), when))

    def create(self, comm: dict, again: dict | None) -> None:
        """`again`: in which iterations it has gone before, and no others."""
        parent = comm.get("parent", "")
        if parent and not any(g.comm == parent for g in self.groups):
            return  # it has gone before
        when = next(g.when for g in self.groups if g.comm == parent) if parent else ALWAYS
        if again is not None and when and when != again:
            return
        when = again if again is not None else when or self.random.choice([ALWAYS, ALWAYS, {"every": 2}, {"first_only": True}])
        asked = self.ranks_of(parent) if parent else comm["groups"]
        for rank in sorted(r for g in asked for r in g):  # nothing may be under way on a parent that is split
            self.add(rank, [{"do": "sync", **when}] * bool(parent) + [{"do": "create", "comm": comm["comm"], **when}])
        # What is made in the first iteration stays; the rest goes at the end of its own.
        stays = when.get("first_only", False)
        self.groups += [Group(comm["comm"], g, ALWAYS if stays else when) for g in comm["groups"]]
        for g in self.groups[-len(comm["groups"]):]:
            g.gone = not stays

    def destroy(self, comm: str) -> dict:
        """For good, but what is made in each iteration goes in each. Says when."""
        groups = [g for g in self.groups if g.comm == comm]
        when = groups[0].when if groups[0].gone else {"every": self.w.head["iterations"]}
        for group in groups:
            for rank in group.ranks:
                self.add(rank, [{"do": "destroy", "comm": comm, **when}])
        self.groups = [g for g in self.groups if g.comm != comm]
        return when

    def spans(self, group: Group) -> int:
        return len({self.node(r) for r in group.ranks})

    def usable(self, most_nodes: int) -> list[Group]:
        return [g for g in self.groups if self.spans(g) <= most_nodes]

    # --- items -----------------------------------------------------------------------------------

    def size(self) -> int:
        return self.random.choice([0, 0, 8, 4096, 4096, 40_000, 200_000])

    def stream(self) -> str:
        return self.random.choice(STREAMS)

    def when(self, *groups: Group) -> dict:
        """In which iterations: those in which the communicators are there, or some of them."""
        own = next((g.when for g in groups if g.when), ALWAYS)
        more = self.random.choices([ALWAYS, {"first_only": True}, {"every": 2}, {"every": 3}], weights=[14, 2, 2, 1])[0]
        varies = {"varies": True} if "lengths" in self.w.head and self.random.random() < 0.5 else {}
        return {**(own or more), **varies}

    def add(self, rank: int, item: Item) -> None:
        self.program[rank].append(item)

    def one(self, group: Group, when: dict) -> dict[int, dict]:
        """A collective of `group`: the step of each member."""
        do = self.random.choice(RING + (MESH if self.spans(group) <= self.ports + 1 else []))
        step = {"do": do, "comm": group.comm, "bytes": self.size(), "dtype": self.random.choice(DTYPES), **when}
        if do in ("broadcast", "reduce", "gather", "scatter"):
            step["root"] = self.random.randrange(len(group.ranks))
        if do in ("all_reduce", "reduce_scatter", "reduce"):
            step["reduction"] = self.random.choice(REDUCTIONS)
        return {r: dict(step, stream=self.stream()) for r in group.ranks}

    def collective(self) -> None:
        groups = self.usable(self.most_nodes())
        if groups:
            group = self.random.choice(groups)
            for rank, step in self.one(group, self.when(group)).items():
                self.add(rank, [step])

    def burst(self) -> None:
        """More small collectives than the launch ring has slots: a rank's host fills it, when another comes later."""
        groups = [g for g in self.usable(self.most_nodes()) if self.spans(g) > 1]
        if groups:
            group = self.random.choice(groups)
            when = self.when(group)
            for _ in range(self.random.randint(self.slots, 2 * self.slots)):
                step = {"do": "all_reduce", "comm": group.comm, "bytes": 8, "stream": self.stream(), **when}
                for rank in group.ranks:
                    self.add(rank, [dict(step)])

    def mixed(self) -> None:
        """Collectives and transfers in one group, of one or several communicators."""
        self.fused(collectives=self.random.randint(1, 3), transfers=self.random.randint(1, 3))

    def fused(self, collectives: int = 0, transfers: int = 0) -> None:
        """Several calls in one group, of one or several communicators, alike on all of their members: collectives, if no more is said."""
        groups = self.usable(self.most_nodes())
        if not groups:
            return
        first = self.random.choice(groups)
        # Of one time: a communicator that is not always there needs another's word for when.
        others = [g for g in groups if g.when == first.when and set(g.ranks) & set(first.ranks)]
        chosen = [first, *self.random.sample(others, self.random.randint(0, min(2, len(others))))]
        when = self.when(first)
        parts = [(g, self.one(g, when)) for g in self.random.choices(chosen, k=collectives or self.random.randint(2, 4))]
        calls = [(g, part[g.ranks[0]]) for g, part in parts]
        for group in self.random.choices([g for g in chosen if len(g.ranks) > 1], k=transfers) if len(first.ranks) > 1 else []:
            source, target = self.random.sample(group.ranks, 2)
            ends, calls = self.two_ends(group, source, target, when), [*calls, (group, self.edge(group, source, target))]
            parts.append((group, ends))
        if not self.routable(calls):
            return
        self.random.shuffle(parts)
        for rank in sorted({r for g, _ in parts for r in g.ranks}):
            self.add(rank, self.grouped([p[rank] for _, p in parts if rank in p], when))

    @staticmethod
    def grouped(steps: Item, when: dict) -> Item:
        own = {k: v for k, v in when.items() if k != "varies"}
        return [{"do": "group_begin", **own}, *steps, {"do": "group_end", **own}]

    def pair(self) -> tuple[Group, int, int] | None:
        group = self.random.choice([g for g in self.groups if len(g.ranks) > 1])
        source, target = self.random.sample(group.ranks, 2)
        return group, source, target

    def p2p(self, do: str, group: Group, peer: int, size: int, when: dict) -> dict:
        stream = "receive" if do == "recv" and self.random.random() < 0.5 else self.stream()
        return {"do": do, "comm": group.comm, "peer": group.ranks.index(peer), "bytes": size, "stream": stream, **when}

    def two_ends(self, group: Group, source: int, target: int, when: dict) -> dict[int, dict]:
        """A transfer: the steps of its two ranks."""
        size = self.size()
        return {source: self.p2p("send", group, target, size, when), target: self.p2p("recv", group, source, size, when)}

    @staticmethod
    def edge(group: Group, source: int, target: int) -> dict:
        return {"do": "send", "peer": group.ranks.index(target), "rank": source}  # as circuit_needs.py takes it

    def transfer(self) -> None:
        group, source, target = self.pair()
        for rank, step in self.two_ends(group, source, target, self.when(group)).items():
            self.add(rank, [step])

    def batch(self) -> None:
        """Transfers of several communicators at one time; a rank may make a group of its own, or call one by one.

        Communicators of one group that share a stream launch in an order that nobody knows: all ranks have groups then,
        or each communicator a stream of its own.
        """
        drawn = {}
        first = self.pair()
        for _ in range(self.random.randint(2, 6)):
            group, source, target = self.pair()
            if group.when == first[0].when and len({c for c, *_ in drawn} | {group.comm}) <= len(STREAMS):
                drawn[group.comm, source, target] = group
        when = self.when(first[0])
        edges = [(g, self.edge(g, source, target)) for (_, source, target), g in drawn.items()]
        if not drawn or not self.routable(edges):
            return
        comms = list(dict.fromkeys(comm for comm, *_ in drawn))
        some = self.random.random() < 0.6  # of the ranks have a group
        own = dict(zip(comms, STREAMS)) if some and len(comms) > 1 else {}
        calls: dict[int, Item] = {}
        for (_, source, target), group in drawn.items():
            for rank, step in self.two_ends(group, source, target, when).items():
                calls.setdefault(rank, []).append(step)
        for rank, steps in sorted(calls.items()):
            for step in steps:
                step["stream"] = own.get(step["comm"], step["stream"])
            if len(steps) > 1 and not (some and self.random.random() < 0.4):
                self.add(rank, self.grouped(steps + (self.to_itself(rank, when) if self.random.random() < 0.1 else []), when))
            else:
                for step in steps:
                    self.add(rank, [step])

    def to_itself(self, rank: int, when: dict) -> Item:
        group = self.groups[0]
        size, peer, stream = self.size(), group.ranks.index(rank), "itself"
        step = {"comm": group.comm, "peer": peer, "bytes": size, "stream": stream, **when}
        return [{"do": "send", **step}, {"do": "recv", **step}]

    def shift(self) -> None:
        """Each sends to the next node's and receives from the one before, in one group."""
        groups = [g for g in self.usable(self.most_nodes())
                  if self.spans(g) * len({r % self.gpus for r in g.ranks}) == len(g.ranks) and self.spans(g) > 1]
        if not groups:
            return
        group = self.random.choice(groups)
        ranks, size, when = sorted(group.ranks), self.size(), self.when(group)
        columns = len({r % self.gpus for r in ranks})
        for i, rank in enumerate(ranks):
            after, before = ranks[(i + columns) % len(ranks)], ranks[(i - columns) % len(ranks)]
            self.add(rank, self.grouped([self.p2p("send", group, after, size, when),
                                         self.p2p("recv", group, before, size, when)], when))

    def pause(self) -> None:
        rank = self.random.randrange(len(self.program))
        us = self.random.choice([100, 1000, 5000])
        self.add(rank, [{"do": "compute", "stream": self.stream(), "us": 0, "jitter_us": us}] if self.random.random() < 0.7
                 else [{"do": "host", "us": 0, "jitter_us": us}])

    def order(self) -> None:
        """One of a rank's streams waits for another, or its host does."""
        rank, stream = self.random.randrange(len(self.program)), self.stream()
        if self.random.random() < 0.4:
            self.add(rank, [{"do": "sync", "stream": stream}])
            return
        self.events += 1
        after = self.random.choice([s for s in [*STREAMS, "receive"] if s != stream])
        self.add(rank, [{"do": "record", "stream": after, "event": f"e{self.events}"},
                        {"do": "wait", "stream": stream, "event": f"e{self.events}"}])

    def routable(self, calls: list[tuple[Group, dict]]) -> bool:
        """What meets in one launch can have all its circuits at once."""
        needs = Needs(self.gpus, self.domain)
        for group, step in calls:
            needs.add(group.ranks, step)
        return needs.most() <= self.ports

    # --- orders ----------------------------------------------------------------------------------

    @staticmethod
    def names(item: Item, key: str) -> set[str]:
        return {s[key] for s in item if key in s}

    def numbers(self, rank: int, item: Item) -> set:
        """What NCCL numbers in an item: it must come in this order on all ranks."""
        out: set = set()
        for s in item:
            if s["do"] in ("create", "destroy"):
                out |= {(s["comm"], "life"), (self.parent(s["comm"]), "life")}
            elif s["do"] in CALLS:
                members = self.w.group_of(s["comm"], rank)
                out |= {(s["comm"], "coll")} if s["do"] not in ("send", "recv") else set()
                if s["do"] not in RING:
                    out |= {(s["comm"], pair) for pair in transfers(s, members, rank)}
        return out

    def parent(self, comm: str) -> str:
        return next((c.get("parent", "") for c in self.w.comms if c["comm"] == comm), "")

    def may_change(self, rank: int, a: Item, b: Item) -> bool:
        ours, theirs = self.numbers(rank, a), self.numbers(rank, b)
        lives = {comm for comm, what in ours | theirs if what == "life"}
        return not ours & theirs and not (lives & {c for c, _ in ours} and lives & {c for c, _ in theirs})

    def is_free(self, rank: int, a: Item, b: Item) -> bool:
        """Items of which neither waits for the other."""
        return not (self.names(a, "stream") & self.names(b, "stream")) and not (self.names(a, "comm") & self.names(b, "comm")) \
            and all(s["do"] not in ("host", "sync", "create", "destroy") for s in a + b)

    def shuffle(self, rank: int) -> list[Item]:
        items = list(self.program[rank])
        for i in range(1, len(items)):
            early = len(items[i]) == 1 and items[i][0]["do"] == "recv"
            steps = self.random.randint(0, FAR if early else 1)
            while i > 0 and steps > 0 and self.is_free(rank, items[i - 1], items[i]) and self.may_change(rank, items[i - 1], items[i]):
                items[i - 1], items[i] = items[i], items[i - 1]
                i, steps = i - 1, steps - 1
        return items

    def dare(self, rank: int) -> list[Item]:
        """An item comes sooner, whatever waits for it on this rank."""
        items = list(self.program[rank])
        i = self.random.randrange(1, len(items))
        for _ in range(self.random.randint(1, 4)):
            if i > 0 and self.may_change(rank, items[i - 1], items[i]):
                items[i - 1], items[i] = items[i], items[i - 1]
                i -= 1
        return items

    def capture(self) -> None:
        """Drawn apart: what else a seed draws stays what it is."""
        steps = [s for s in flat(map(flat, self.program)) if is_played(s, 1)]
        lives = any(s["do"] in ("create", "destroy") for s in steps)
        # What is captured keeps its slots while the graph is there.
        fills = self.slots and max(sum(s["do"] in CALLS for s in p if is_played(s, 1)) for p in map(flat, self.program)) > self.slots // 2
        if self.w.head["iterations"] < 2 or lives or fills or random.Random(f"{self.w.head['name']} captured").random() < 0.4:
            return
        self.w.captured = True
        for rank, items in enumerate(self.program):
            kept = [[s for s in item if s["do"] != "sync" or not is_played(s, 1)] for item in items]
            self.program[rank] = [item for item in kept if item]

    def ways(self) -> None:
        """How communicators are made. Drawn apart, too."""
        drawn = random.Random(f"{self.w.head['name']} ways")
        waits = self.w.captured or drawn.random() > 0.35  # NCCL takes no group of both kinds
        for comm in self.w.comms:
            if comm.get("parent", "") == "" and not waits:
                comm["non_blocking"] = True
            elif self.may_shrink(comm) and drawn.random() < 0.5:
                comm["shrink"] = True

    def may_shrink(self, comm: dict) -> bool:
        """Of each group of its parent one at most, in its order, and somebody is left out: who does not count this child, as NCCL
        does, and so must not be in one that its parent has after it."""
        if not comm.get("parent") or comm.get("later"):
            return False
        children = [c for c in self.w.comms if c.get("parent") == comm["parent"]]
        if children[-1] is not comm or any(c.get("later") for c in children):
            return False
        parents = self.ranks_of(comm["parent"])
        of = [next(i for i, p in enumerate(parents) if g[0] in p) for g in comm["groups"]]
        return len(set(of)) == len(of) and all(g == [r for r in parents[i] if r in g] and len(g) < len(parents[i])
                                               for i, g in zip(of, comm["groups"]))

    def ends(self) -> bool:
        self.w.programs = [flat(items) for items in self.program]
        return not stuck(self.w, self.queue)

    def try_orders(self, orders: dict[int, list[Item]]) -> None:
        """As many of these orders of ranks as still end: all, or each half by itself."""
        before = {rank: self.program[rank] for rank in orders}
        for rank, items in orders.items():
            self.program[rank] = items
        if self.ends():
            return
        for rank, items in before.items():
            self.program[rank] = items
        ranks = list(orders)
        for half in (ranks[:len(ranks) // 2], ranks[len(ranks) // 2:]):
            if half and len(ranks) > 1:
                self.try_orders({rank: orders[rank] for rank in half})

    def workload(self) -> Workload:
        for comm in [g.comm for g in self.groups if g.gone]:
            if any(g.comm == comm for g in self.groups):
                self.destroy(comm)
        if self.captures:
            self.capture()
        self.ways()
        if self.reorder:
            self.try_orders({rank: self.shuffle(rank) for rank in range(len(self.program))})
            for _ in range(DARING):
                rank = self.random.randrange(len(self.program))
                if len(self.program[rank]) > 1:
                    self.try_orders({rank: self.dare(rank)})
        if not self.ends():
            raise AssertionError(f"{self.w.head['name']} does not end: {stuck(self.w, self.queue)[:3]}")
        for program in self.w.programs if not self.w.captured else []:
            program.append({"do": "sync"})
        return self.w


def random_workload(seed: int, nodes: int, gpus: int, ports: int, operations: int = 20, reorder: bool = True,
                    domain: int = 0, captures: bool = False, slots: int = 0) -> Workload:
    """`slots`: of a launch ring that shall be full at times; 0: it is large."""
    return Draw(seed, nodes, gpus, ports, operations, reorder, domain, captures, slots).workload()
