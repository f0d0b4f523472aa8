"""Which circuits calls need that meet in one launch (docs/protocol.md: needs), on a grid of nodes and GPUs."""
from bare_nccl import PAIRWISE


class Needs:
    """`gpus` a node; NVLink domains of `domain` nodes, 0: NVLink ends at the node."""

    def __init__(self, gpus: int, domain: int):
        self.gpus, self.domain = gpus, domain
        self.neighbours: dict[tuple[int, int], set[int]] = {}  # of a node, on a rail

    def most(self) -> int:
        return max(map(len, self.neighbours.values()), default=0)

    def add(self, ranks: list[int], step: dict) -> None:
        """A call of a communicator of these ranks, which are of the same local indices on all their nodes."""
        if step["do"] == "send":
            target = ranks[step["peer"]]
            return self.join(step["rank"] // self.gpus, target // self.gpus, target % self.gpus)
        rails = {r % self.gpus for r in ranks}
        nodes = list(dict.fromkeys(r // self.gpus for r in ranks))
        pairs = [(a, b) for a in nodes for b in nodes] if step["do"] in PAIRWISE else self.ring(nodes, len(rails) > 1)
        for a, b in pairs:
            for rail in rails:
                self.join(a, b, rail)

    def join(self, a: int, b: int, rail: int) -> None:
        if self.nccl_node(a) != self.nccl_node(b):
            self.neighbours.setdefault((a, rail), set()).add(b)
            self.neighbours.setdefault((b, rail), set()).add(a)

    def nccl_node(self, node: int) -> int:
        return node // self.domain if self.domain else node

    def ring(self, nodes: list[int], turn: bool) -> list[tuple[int, int]]:
        """Nodes that rings join. `turn`: they have a second GPU, by which a ring can leave by the NIC that it came in by."""
        stops: dict[int, list[int]] = {}
        for node in nodes:
            stops.setdefault(self.nccl_node(node), []).append(node)
        hosts = list(stops.values())
        if not turn and any(len(h) > 1 for h in hosts):
            return [(a[-1], b[0]) for a, b in zip(hosts, hosts[1:] + hosts[:1])]
        return [(a[i % len(a)], b[i]) for a, b in zip(hosts, hosts[1:] + hosts[:1]) for i in range(len(b))]
