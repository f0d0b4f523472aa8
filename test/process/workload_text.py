"""Writes workload files (docs/workloads.md) for tests."""
import json
import pathlib


class Workload:
    def __init__(self, name: str, places: list[tuple[int, int]], iterations: int = 1):
        self.head = {"workload": 1, "name": name, "iterations": iterations, "places": places}
        self.comms: list[dict] = []
        self.programs: list[list[dict]] = [[] for _ in places]  # a role a rank
        self.captured = False  # the second iteration, into a CUDA graph that the later ones replay (Play.graph)

    def comm(self, name: str, groups: list[list[int]], parent: str = "") -> str:
        self.comms.append({"comm": name, "groups": groups, **({"parent": parent} if parent else {})})
        return name

    def group_of(self, comm: str, rank: int) -> list[int]:
        groups = next(c["groups"] for c in self.comms if c["comm"] == comm)
        return next((g for g in groups if rank in g), [])

    def step(self, rank: int, do: str, **fields) -> dict:
        step = {"do": do, **fields}
        self.programs[rank].append(step)
        return step

    def collective(self, do: str, comm: str, ranks: list[int], stream: str = "s", size: int = 4096, **fields) -> None:
        for rank in ranks:
            self.step(rank, do, comm=comm, stream=stream, bytes=size, **fields)

    def send(self, comm: str, source: int, target: int, size: int, stream: str = "s", to_stream: str = "") -> None:
        """World ranks."""
        members = self.group_of(comm, source)
        self.step(source, "send", comm=comm, peer=members.index(target), stream=stream, bytes=size)
        self.step(target, "recv", comm=comm, peer=members.index(source), stream=to_stream or stream, bytes=size)

    def text(self) -> str:
        lines = [self.head, *self.comms]
        lines += [{"role": f"rank{r}", "ranks": [r]} for r in range(len(self.programs))]
        lines += [{"role": f"rank{r}", **s} for r, program in enumerate(self.programs) for s in program]
        return "".join(json.dumps(line) + "\n" for line in lines)

    def write(self, path: pathlib.Path) -> pathlib.Path:
        path.write_text(self.text())
        return path


def grid(nodes: int, gpus: int) -> list[tuple[int, int]]:
    return [(n, g) for n in range(nodes) for g in range(gpus)]
