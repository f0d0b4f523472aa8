"""Random jobs that any packet network would run to the end: the same seed gives the same job.

A global order of operations is drawn; each rank enqueues its own in that order, on random streams. With
`reorder`, neighbours in a rank's order that lie on different streams and communicators may change
places, and a receive may be posted well before its turn on a stream of its own: what depends on what
(streams and communicators are each in order) still follows the global order, so there is no cycle.
First uses come before, in the global order: NCCL makes its connections on the host then, and a receive
that is posted early for the first time would hang any program.

Never more neighbours than ports: with two ports a GPU, rings and shifts; with one, pairs of nodes.
"""
import random

from workload_text import Workload, grid

DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"]
REDUCTIONS = ["sum", "prod", "max", "min"]
RING = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]
PAIRWISE = ["all_to_all", "gather", "scatter"]
STREAMS = ["a", "b", "c"]


class Draw:
    def __init__(self, seed: int, nodes: int, gpus: int, ports: int, operations: int, reorder: bool):
        self.random = random.Random(seed)
        self.nodes, self.gpus, self.ports, self.reorder = nodes, gpus, ports, reorder
        self.w = Workload(f"random-{seed}", grid(nodes, gpus), iterations=self.random.randint(1, 3))
        self.items: list[list[list[dict]]] = []  # of each rank: its items, in global order
        self.program: list[list[list[dict]]] = [[] for _ in range(nodes * gpus)]
        self.make_comms()
        for _ in range(operations):
            self.random.choices([self.collective, self.transfer, self.shift, self.fused, self.pause],
                                weights=[6, 4, 2, 2, 3])[0]()

    def rank(self, node: int, gpu: int) -> int:
        return node * self.gpus + gpu

    def node(self, rank: int) -> int:
        return rank // self.gpus

    def make_comms(self) -> None:
        everyone = list(range(self.nodes * self.gpus))
        self.world = self.w.comm("world", [everyone])
        self.members = {"world": everyone}
        most = self.nodes if self.ports > 1 else 2
        for i in range(self.random.randint(1, 4)):
            nodes = sorted(self.random.sample(range(self.nodes), self.random.randint(min(2, self.nodes), most)))
            gpus = sorted(self.random.sample(range(self.gpus), self.random.randint(1, self.gpus)))
            ranks = [self.rank(n, g) for n in nodes for g in gpus]
            self.members[self.w.comm(f"c{i}", [ranks], self.random.choice(["", "world"]))] = ranks

    def spans(self, comm: str) -> int:
        return len({self.node(r) for r in self.members[comm]})

    def usable(self, most_nodes: int) -> list[str]:
        return [c for c in self.members if self.spans(c) <= most_nodes and len(self.members[c]) > 1]

    def size(self) -> int:
        return self.random.choice([0, 8, 4096, 4096, 40_000, 200_000])

    def stream(self) -> str:
        return self.random.choice(STREAMS)

    def add(self, rank: int, steps: list[dict]) -> None:
        self.program[rank].append(steps)

    # --- items -----------------------------------------------------------------------------------

    def one(self, comms: list[str], size: int) -> dict[int, dict]:
        """A collective on one of `comms`: the step of each member."""
        comm = self.random.choice(comms)
        pairwise = self.spans(comm) <= self.ports + 1
        do = self.random.choice(RING + (PAIRWISE if pairwise else []))
        step = {"do": do, "comm": comm, "bytes": size, "dtype": self.random.choice(DTYPES)}
        if do in ("broadcast", "reduce", "gather", "scatter"):
            step["root"] = self.random.randrange(len(self.members[comm]))
        if do in ("all_reduce", "reduce_scatter", "reduce"):
            step["reduction"] = self.random.choice(REDUCTIONS)
        return {r: dict(step, stream=self.stream()) for r in self.members[comm]}

    def collective(self) -> None:
        comms = self.usable(self.nodes if self.ports > 1 else 2)
        if comms:
            for rank, step in self.one(comms, self.size()).items():
                self.add(rank, [step])

    def fused(self) -> None:
        """Several calls in one group, of one communicator's members, alike on all of them."""
        comms = self.usable(self.nodes if self.ports > 1 else 2)
        if not comms:
            return
        comm = self.random.choice(comms)
        parts = [self.one([comm], self.size()) for _ in range(self.random.randint(2, 4))]
        for rank in self.members[comm]:
            self.add(rank, [{"do": "group_begin"}, *(p[rank] for p in parts), {"do": "group_end"}])

    def transfer(self) -> None:
        comm = self.random.choice(list(self.members))
        source, target = self.random.sample(self.members[comm], 2) if len(self.members[comm]) > 1 else (0, 0)
        if source == target:
            return
        size = self.size()
        self.add(source, [self.p2p("send", comm, target, size)])
        self.add(target, [self.p2p("recv", comm, source, size)])

    def p2p(self, do: str, comm: str, peer: int, size: int) -> dict:
        stream = "receive" if do == "recv" and self.random.random() < 0.5 else self.stream()
        return {"do": do, "comm": comm, "peer": self.members[comm].index(peer), "bytes": size, "stream": stream}

    def shift(self) -> None:
        """Each sends to the next node's and receives from the one before, in one group."""
        comms = [c for c in self.usable(self.nodes if self.ports > 1 else 2)
                 if self.spans(c) * len({r % self.gpus for r in self.members[c]}) == len(self.members[c])]
        if not comms:
            return
        comm = self.random.choice(comms)
        ranks, size = self.members[comm], self.size()
        columns = len({r % self.gpus for r in ranks})
        for i, rank in enumerate(ranks):
            after, before = ranks[(i + columns) % len(ranks)], ranks[(i - columns) % len(ranks)]
            if after == rank:
                return
            self.add(rank, [{"do": "group_begin"}, self.p2p("send", comm, after, size),
                            self.p2p("recv", comm, before, size), {"do": "group_end"}])

    def pause(self) -> None:
        rank = self.random.randrange(len(self.program))
        us = self.random.choice([100, 1000, 5000])
        self.add(rank, [{"do": "compute", "stream": self.stream(), "us": 0, "jitter_us": us}] if self.random.random() < 0.7
                 else [{"do": "host", "us": 0, "jitter_us": us}])

    # --- orders ----------------------------------------------------------------------------------

    @staticmethod
    def names(item: list[dict], key: str) -> set[str]:
        return {s[key] for s in item if key in s}

    def may_pass(self, a: list[dict], b: list[dict]) -> bool:
        return not (self.names(a, "stream") & self.names(b, "stream")) and not (self.names(a, "comm") & self.names(b, "comm")) \
            and all(s["do"] != "host" for s in a + b)

    def shuffle(self, items: list[list[dict]]) -> None:
        for i in range(1, len(items)):
            early = len(items[i]) == 1 and items[i][0]["do"] == "recv"
            steps = self.random.randint(0, 8 if early else 1)
            while i > 0 and steps > 0 and self.may_pass(items[i - 1], items[i]):
                items[i - 1], items[i] = items[i], items[i - 1]
                i, steps = i - 1, steps - 1

    def first_uses(self) -> list[list[dict]]:
        """Of each rank: one small call for every communicator and pair that the program uses."""
        out: list[list[dict]] = [[] for _ in self.program]
        steps = [(rank, s) for rank, items in enumerate(self.program) for item in items for s in item if "comm" in s]
        pairs = {(s["comm"], rank, self.members[s["comm"]][s["peer"]]) for rank, s in steps if s["do"] == "send"}
        for comm in sorted({s["comm"] for _, s in steps if "peer" not in s}):
            for rank in self.members[comm]:
                out[rank].append({"do": "all_reduce", "comm": comm, "bytes": 64, "stream": "a", "first_only": True})
        for comm, source, target in sorted(pairs):
            members = self.members[comm]
            out[source].append({"do": "send", "comm": comm, "peer": members.index(target), "bytes": 64, "stream": "a", "first_only": True})
            out[target].append({"do": "recv", "comm": comm, "peer": members.index(source), "bytes": 64, "stream": "a", "first_only": True})
        return out

    def workload(self) -> Workload:
        first = self.first_uses() if self.reorder else [[] for _ in self.program]
        for rank, items in enumerate(self.program):
            if self.reorder:
                self.shuffle(items)
            self.w.programs[rank] = first[rank] + [step for item in items for step in item]
            self.w.programs[rank].append({"do": "sync"})
        return self.w


def random_workload(seed: int, nodes: int, gpus: int, ports: int, operations: int = 20, reorder: bool = True) -> Workload:
    return Draw(seed, nodes, gpus, ports, operations, reorder).workload()
