"""I8: the application's numbers are the same bits with and without the shim, whatever it calls.

opus-replay compares every result, bit for bit, with what it must be; so each run is right, or the case
fails and names operation, rank, iteration and element.
"""
import itertools
import sys

from cases import SLOW, case, expect, run
from cluster import Play, Shape
from random_workload import DTYPES, MESH, REDUCTIONS, RING
from workload_text import Workload, grid

SHAPE = Shape(nodes=2, gpus=2, ports=2, dark_ms=1)
WORLD = [0, 1, 2, 3]
ODD = 3001  # elements: no multiple of anything


def width(dtype: str) -> int:
    return 1 if dtype.endswith("int8") else 2 if dtype.endswith("float16") else 8 if dtype.endswith("64") else 4


def every_operation() -> Workload:
    """Every operation with every type it takes, over nodes and inside them."""
    w = Workload("every-operation", grid(2, 2))
    w.comm("world", [WORLD])
    w.comm("rails", [[0, 2], [1, 3]], "world")
    w.comm("nodes", [[0, 1], [2, 3]], "world")
    w.comm("own", [[0, 2]])
    for dtype in DTYPES:
        for do in RING + MESH:
            reductions = REDUCTIONS if do in ("all_reduce", "reduce_scatter", "reduce") else ["sum"]
            for comm, reduction in itertools.product(("world", "rails", "nodes"), reductions):
                w.collective(do, comm, WORLD, "s", ODD * width(dtype), dtype=dtype, reduction=reduction,
                             root=1 if do in ("broadcast", "reduce", "gather", "scatter") else 0)
        w.send("world", 0, 3, ODD * width(dtype))
        w.send("rails", 3, 1, ODD * width(dtype))
        w.send("nodes", 2, 3, ODD * width(dtype))
    w.collective("all_reduce", "own", [0, 2])
    return w


def every_group() -> Workload:
    """Group shapes: collectives of one and of several communicators, exchanges, to oneself, empty, mixed."""
    w = Workload("every-group", grid(2, 2), iterations=2)
    w.comm("world", [WORLD])
    w.comm("rails", [[0, 2], [1, 3]], "world")
    w.comm("nodes", [[0, 1], [2, 3]], "world")

    def group(bodies: dict[int, list[dict]]) -> None:
        for rank, steps in bodies.items():
            w.programs[rank] += [{"do": "group_begin"}, *steps, {"do": "group_end"}]

    def c(do: str, comm: str, stream: str = "s", size: int = 12_000) -> dict:
        return {"do": do, "comm": comm, "stream": stream, "bytes": size, "dtype": "float32"}

    def p(do: str, comm: str, peer: int, stream: str = "s", size: int = 50_000) -> dict:
        return {"do": do, "comm": comm, "peer": peer, "stream": stream, "bytes": size}

    group({r: [c("all_reduce", "world"), c("all_gather", "world"), c("reduce_scatter", "world")] for r in WORLD})
    group({r: [c("all_reduce", "world", "s"), c("all_reduce", "rails", "t")] for r in WORLD})
    group({r: [c("all_gather", "rails", "s"), c("all_reduce", "nodes", "s")] for r in WORLD})
    group({r: [c("all_reduce", "rails", "s"), c("all_gather", "rails", "t")] for r in WORLD})
    group({r: [p("send", "rails", 1 - r // 2), p("recv", "rails", 1 - r // 2)] for r in WORLD})
    group({r: [p(do, "world", peer) for peer in WORLD for do in ("send", "recv")] for r in WORLD})
    group({r: [c("all_reduce", "world", size=0), p("send", "world", r, size=64), p("recv", "world", r, size=64)] for r in WORLD})
    group({r: [c("all_reduce", "world", size=0)] for r in WORLD})
    group({r: [c("all_gather", "rails"), p("send", "rails", 1 - r // 2), p("recv", "rails", 1 - r // 2)] for r in WORLD})
    return w


def play(context, workload: Workload, shim: bool, env: dict | None = None) -> None:
    with context.cluster(SHAPE, opus=shim) as cluster:
        path = workload.write(cluster.folder / "workload.jsonl")
        result = cluster.run_job(Play(path, shim=shim, env=env or {}, timeout_s=30 * SLOW), 120 * SLOW)
        expect(result.total("checked_bytes") > 0, "nothing was checked")
        light = cluster.light()
        expect(light.delivered_bytes > 0, "no byte crossed the fabric")
        expect(light.misdelivered_bytes == 0, f"{light.misdelivered_bytes} bytes were misdelivered")
        if shim:
            expect(light.reconfigurations > 0, "no circuit was moved: the shim did nothing")
            expect(light.lost_bytes == 0, f"{light.lost_bytes} bytes were lost in the dark")


for name, make in (("every operation and type", every_operation), ("every group shape", every_group)):
    case(f"{name} is right without the shim")(lambda c, make=make: play(c, make(), False))
    for gate in ("host", "stream"):
        case(f"{name} is right under the {gate} gate")(
            lambda c, make=make, gate=gate: play(c, make(), True, {"OPUS_GATE": gate, "OPUS_REQUIRE": "1"}))


if __name__ == "__main__":
    sys.exit(run())
