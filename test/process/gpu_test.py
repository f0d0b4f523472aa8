"""Which GPU a rank is on, and so which rail, when the ordinal does not say: one visible GPU a task, lists, UUIDs; and two
ranks that claim one GPU (docs/fabric.md, "Which GPU a rank is on")."""
import re
import sys

from cases import SLOW, case, expect, nothing_in_the_dark, run, wait_for
from cluster import Play, Shape
from cluster.fabric import standin_uuid
from workload_text import Workload, grid


def per_rail(nodes: int, gpus: int) -> Workload:
    """An AllReduce on each rail."""
    w = Workload("rails", grid(nodes, gpus), 20)
    rails = [[n * gpus + g for n in range(nodes)] for g in range(gpus)]
    w.comm("rail", rails)
    for rail in rails:
        w.collective("all_reduce", "rail", rail, size=50_000)
    return w


def delivered(cluster) -> list[int]:
    """Bytes by rail."""
    return [int(re.findall(r"-?\d+", cluster.scpi_line(rail, ":emulator:count?"))[1]) for rail in range(cluster.shape.gpus)]


def play(cluster, workload: Workload, **more) -> Play:
    """As launchers leave it: neither Opus nor the stand-in is told a rank's GPU."""
    path = workload.write(cluster.folder / "w.jsonl")
    return Play(path, timeout_s=60 * SLOW, env={"OPUS_GPU": "", "STANDIN_GPU": "", "OPUS_GATE": "stream"}, **more)


def run_seen(context, seen, shape: Shape, used: list[int]) -> None:
    """seen(node, gpu): what that rank's environment says of GPUs. `used`: the rails that its GPUs are on, and no others."""
    with context.cluster(shape) as cluster:
        w = per_rail(shape.nodes, len(used))
        env = [seen(node, gpu) for node, gpu in w.head["places"]]
        job = cluster.start_job(play(cluster, w, rank_env=env))
        job.wait(60 * SLOW)
        nothing_in_the_dark(cluster, job)
        expect(cluster.counters()["demands"] > 0, "nobody asked for circuits")
        rails = [r for r, count in enumerate(delivered(cluster)) if count > 0]
        expect(rails == used, f"bytes on rails {rails}, not {used}")


@case("ranks that see one GPU each, all as ordinal 0, are on the rails of their GPUs, by the fabric file's PCI ids")
def one_each(context) -> None:
    run_seen(context, lambda _, gpu: {"STANDIN_OPEN_GPUS": f"{gpu}", "CUDA_VISIBLE_DEVICES": "0"},
             Shape(nodes=2, gpus=2, dark_ms=2, known_by=("pci",)), [0, 1])


@case("likewise by its UUIDs, where tasks are given UUIDs")
def uuids(context) -> None:
    run_seen(context, lambda node, gpu: {"CUDA_VISIBLE_DEVICES": standin_uuid(node, gpu)},
             Shape(nodes=2, gpus=2, dark_ms=2, known_by=("uuid",)), [0, 1])


@case("a list of some of a node's GPUs, of what a container was left, means these GPUs")
def some(context) -> None:
    run_seen(context, lambda *_: {"STANDIN_OPEN_GPUS": "1,3", "CUDA_VISIBLE_DEVICES": "0,1"},
             Shape(nodes=2, gpus=4, dark_ms=2, known_by=("pci", "uuid")), [1, 3])


@case("two ranks that claim one GPU of a node are refused, by their pids and the GPU's name")
def claimed(context) -> None:
    with context.cluster(Shape(nodes=2, gpus=2, dark_ms=2)) as cluster:
        env = [{"STANDIN_OPEN_GPUS": f"{gpu}"} for _, gpu in grid(2, 2)]  # and the fabric file names none of them
        w = Workload("all", grid(2, 2), 1000)
        w.comm("world", [[0, 1, 2, 3]])
        w.collective("all_reduce", "world", [0, 1, 2, 3], size=20_000)
        job = cluster.start_job(play(cluster, w, rank_env=[{"OPUS_REQUIRE": "enforce", **e} for e in env]))
        codes = [rank.wait(60 * SLOW) for rank in job.ranks]
        expect(codes == [3, 3, 3, 3], f"{codes}: {job.ranks[0].tail()}")
        named = ["claims a GPU that another rank has" in rank.output() for rank in job.ranks]
        expect(any(named), job.ranks[0].output())
        for rank, says in zip(job.ranks, named):  # one that is still inside NCCL sees the others leave
            expect(says or "remote process exited" in rank.output(), rank.output())
        pids = {rank.process.pid for rank in job.ranks}
        said = re.search(r"pids? (\d+) and (\d+).* both .*n[01]\.g0", cluster.controller.output())
        expect(bool(said) and {int(said[1]), int(said[2])} <= pids, cluster.controller.output())
        job.stop()


if __name__ == "__main__":
    sys.exit(run())
