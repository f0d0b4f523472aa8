"""CUDA graphs: each replay is held for its circuits, as the calls were that it was captured from.

Three nodes, one GPU with one port each; a communicator for each pair of them. So no two have their circuits at once, and
what runs unseen sends into the dark. The first iteration is eager, the second is captured, all later ones are replays.
"""
import signal
import sys

from acts import ENV, PATIENCE_S, SHAPE, Act
from apart import apart
from cases import SLOW, case, expect, nothing_in_the_dark, run, wait_for
from cluster import Play, Shape
from workload_text import Workload, grid

PAIRS = [(0, 1), (1, 2), (0, 2)]


def workload(iterations: int, gap_us: int = 0, nodes: int = 3) -> Workload:
    """Collectives, transfers and a group of transfers on every pair, one pair after the other, on two streams that meet."""
    w = Workload("replays", grid(nodes, 1), iterations=iterations)
    pairs = [(a, b) for a, b in PAIRS if b < nodes]
    for a, b in pairs:
        w.comm(f"c{a}{b}", [[a, b]])
    for a, b in pairs:
        comm = f"c{a}{b}"
        for rank, peer in ((a, 1), (b, 0)):
            if gap_us:
                w.step(rank, "compute", stream="s", us=gap_us)
            w.step(rank, "all_reduce", comm=comm, stream="s", bytes=4096)
            w.step(rank, "record", event=comm, stream="s")
            w.step(rank, "wait", event=comm, stream="t")
            w.step(rank, "send" if rank == a else "recv", comm=comm, peer=peer, stream="t", bytes=4096)
            w.step(rank, "group_begin")
            for _ in range(2):
                w.step(rank, "send", comm=comm, peer=peer, stream="t", bytes=1024)
                w.step(rank, "recv", comm=comm, peer=peer, stream="t", bytes=1024)
            w.step(rank, "group_end")
            w.step(rank, "record", event=f"{comm} back", stream="t")
            w.step(rank, "wait", event=f"{comm} back", stream="s")
    return w


@case("each replay of a graph is held for its circuits, and none is lost in the dark")
def replays(context) -> None:
    with context.cluster(SHAPE) as cluster:
        path = workload(12).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV | {"OPUS_REQUIRE": "enforce"}))
        result = job.wait(6 * PATIENCE_S * SLOW)
        expect(result.codes == [0, 0, 0], f"{result.codes}: {job.ranks[0].tail()}")
        nothing_in_the_dark(cluster, job)
        moved = cluster.light().reconfigurations
        expect(moved >= 12 * (len(PAIRS) - 1), f"only {moved} moves: the replays were not seen")


@case("iterations that are replayed are laps: when their light is at rest nobody asks for replays any more")
def at_rest(context) -> None:
    iterations = 400
    with context.cluster(Shape(nodes=2, gpus=1, ports=2, dark_ms=10)) as cluster:  # without laps: after 5 s
        path = workload(iterations, gap_us=1000, nodes=2).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV))
        result = job.wait(6 * PATIENCE_S * SLOW)
        expect(result.codes == [0, 0], f"{result.codes}: {job.ranks[0].tail()}")
        nothing_in_the_dark(cluster, job)
        launches, counters = 3 * 2 * iterations, cluster.counters()
        expect(counters["demands"] < launches / 2, f"{launches} launches, {counters}")


@case("and where it moves, circuits move ahead of replays")
def ahead(context) -> None:
    with context.cluster(SHAPE) as cluster:
        path = workload(100, gap_us=5000).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV))
        result = job.wait(6 * PATIENCE_S * SLOW)
        expect(result.codes == [0, 0, 0], f"{result.codes}: {job.ranks[0].tail()}")
        nothing_in_the_dark(cluster, job)
        expect(cluster.counters()["speculations_used"] > 50, f"{cluster.counters()}")


@case("a manager that is killed and started again finds the graphs that live, and holds their replays")
def restarted(context) -> None:
    with context.cluster(SHAPE) as cluster:
        path = workload(60, gap_us=5000).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV))
        for node, iteration in enumerate((6, 16, 26)):
            wait_for(lambda at=iteration: f"iteration {at} of" in job.ranks[0].output(), f"iteration {iteration}", job)
            cluster.restart_manager(node)
        result = job.wait(6 * PATIENCE_S * SLOW)
        expect(result.codes == [0, 0, 0], f"{result.codes}: {job.ranks[0].tail()}")
        nothing_in_the_dark(cluster, job)


@case("in a graph, what comes after a group of several communicators waits for its own alone")
def several(context) -> None:
    with context.cluster(Shape(nodes=2, gpus=1, ports=2, dark_ms=2)) as cluster:
        path = apart(40).write(cluster.folder / "apart.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV | {"OPUS_REQUIRE": "enforce"}))
        result = job.wait(6 * PATIENCE_S * SLOW)
        expect(result.codes == [0, 0], f"{result.codes}: {job.ranks[0].tail()}")
        nothing_in_the_dark(cluster, job)


@case("behind host gates circuits are pinned for what is captured: it is said, and no replay is lost in the dark")
def host_gates(context) -> None:
    with context.cluster(Shape(nodes=3, gpus=1, ports=2, dark_ms=2)) as cluster:  # a port for each peer
        path = workload(20, gap_us=5000).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV | {"OPUS_GATE": "host", "OPUS_REQUIRE": "enforce"}))
        result = job.wait(6 * PATIENCE_S * SLOW)
        expect(result.codes == [0, 0, 0], f"{result.codes}: {job.ranks[0].tail()}")
        nothing_in_the_dark(cluster, job)
        for rank in job.ranks:
            said = [line for line in rank.output().splitlines() if "CUDA graph" in line]
            expect(len(said) == 1 and "keeps its circuits" in said[0] and "OPUS_GATE=stream" in said[0], f"{said}")
        waiting = cluster.waiting()
        expect(not waiting, f"launches of ranks that have ended wait: {waiting}")


@case("where some hold replays of a graph and others pin its circuits, neither waits for the other, and it is said")
def mixed_gates(context) -> None:
    with context.cluster(Shape(nodes=2, gpus=1, ports=1, dark_ms=2)) as cluster:  # the circuit stays where it is
        path = workload(20, gap_us=5000, nodes=2).write(cluster.folder / "replays.jsonl")
        job = cluster.start_job(Play(path, graph=True, timeout_s=PATIENCE_S * SLOW, env=ENV, rank_env=[{"OPUS_GATE": g} for g in ("host", "stream")]))
        job.wait(6 * PATIENCE_S * SLOW)
        wait_for(lambda: "hold replays of CUDA graphs, others cannot" in cluster.controller.output(), "a controller that says why it holds no more")


@case("a communicator is aborted while replays of it wait: its graph ends, and everybody goes on")
def aborted(context) -> None:
    with Act(context, "aborted") as act:
        act.until(lambda: act.said("launched") and act.cluster.waiting(), "replays that wait")
        act.say("abort")
        act.end()


@case("both ranks of a communicator abort it while circuits move for its replays: everybody goes on")
def aborted_in_the_dark(context) -> None:
    with Act(context, "aborted_in_the_dark", Shape(nodes=3, gpus=1, ports=1, dark_ms=300)) as act:
        act.until(lambda: act.said("launched-0", "launched-1"), "launched graphs")
        act.say("abort")
        act.end(lossless=False)


@case("a rank is killed while replays wait, of its own and for it: the others abort what it was in, and go on")
def killed(context) -> None:
    with Act(context, "killed") as act:
        act.until(lambda: act.said("launched-0", "launched-2") and len(act.cluster.waiting()) >= 2, "replays that wait")
        act.ranks[0].process.send_signal(signal.SIGKILL)
        act.ranks[0].process.wait()
        act.say("killed")
        act.end(dead=(0,), lossless=False)


@case("graphs of two communicators are in flight at once, and take turns where they want the same port")
def at_once(context) -> None:
    with Act(context, "at_once") as act:
        act.end()


@case("executables of a graph, and calls, take turns in the order of their launches, on whatever streams")
def two_executables(context) -> None:
    with Act(context, "two_executables") as act:
        for n in range(3):
            act.until(lambda: act.said(f"launched-{n}-0", f"launched-{n}-1") and
                      (len(act.cluster.waiting()) >= 2 or act.said(f"other-business-{n}")), "other business of rank 1")
            act.say(f"let-go-{n}")
        act.end()


@case("graphs and executables that are destroyed while they run end as they would have")
def destroyed(context) -> None:
    with Act(context, "destroyed") as act:
        act.end()


@case("an executable that is updated between replays is held for what it does now")
def updated(context) -> None:
    with Act(context, "updated") as act:
        act.end()


if __name__ == "__main__":
    sys.exit(run())
