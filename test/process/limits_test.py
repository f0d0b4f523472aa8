"""What a gate cannot serve, shown: the cases themselves end the wait (docs/workloads.md, the manual).

A receive that is posted before its sender can send: the host gate stops the thread that would enable the
sender. With one hardware queue the stream gate may do the same to other streams. Stream gates with
enough queues serve both programs.
"""
import sys
import time

from cases import SLOW, case, expect, run
from cluster import JobFailed, Play, Shape
from workload_text import Workload, grid

SHAPE = Shape(nodes=2, gpus=1, ports=2, dark_ms=1)


def connect(w: Workload, pairs: list[tuple[str, int, int]], comms: list[str]) -> None:
    """First uses, in one order: NCCL makes connections on the host, so that a first receive cannot be early."""
    for comm in comms:
        w.collective("all_reduce", comm, [0, 1], size=64, first_only=True)
    for comm, source, target in pairs:
        w.step(source, "send", comm=comm, peer=target, stream="s", bytes=64, first_only=True)
        w.step(target, "recv", comm=comm, peer=source, stream="s", bytes=64, first_only=True)


def early_receive() -> Workload:
    """Rank 0 posts a receive, then the all-reduce that rank 1 must see through before it sends."""
    w = Workload("early-receive", grid(2, 1), iterations=3)
    w.comm("p2p", [[0, 1]])
    w.comm("dp", [[0, 1]])
    connect(w, [("p2p", 1, 0)], ["dp"])
    w.step(0, "recv", comm="p2p", peer=1, stream="receive", bytes=9000)
    w.step(0, "all_reduce", comm="dp", stream="s", bytes=9000)
    w.step(1, "all_reduce", comm="dp", stream="s", bytes=9000)
    w.step(1, "send", comm="p2p", peer=0, stream="s", bytes=9000)
    return w


def crossed() -> Workload:
    """Two communicators that share ports, reached in different stream orders, receives posted early."""
    w = Workload("crossed", grid(2, 1), iterations=5)
    for name in ("x", "y", "there", "back"):  # a communicator's launches are in order: one for each direction
        w.comm(name, [[0, 1]])
    connect(w, [("there", 0, 1), ("back", 1, 0)], ["x", "y"])
    for rank, order, mine, other in ((0, "xy", "there", "back"), (1, "yx", "back", "there")):
        w.step(rank, "recv", comm=other, peer=1 - rank, stream="receive", bytes=3000)
        for name in order:
            w.step(rank, "compute", stream=name, us=0, jitter_us=2000)
            w.step(rank, "all_reduce", comm=name, stream=name, bytes=20_000)
        w.step(rank, "record", stream="x", event="x")
        w.step(rank, "wait", stream="y", event="x")
        w.step(rank, "send", comm=mine, peer=1 - rank, stream="y", bytes=3000)
    return w


def play(context, workload: Workload, env: dict[str, str], patience_s: float = 30):
    with context.cluster(SHAPE) as cluster:
        path = workload.write(cluster.folder / "w.jsonl")
        cluster.run_job(Play(path, timeout_s=patience_s * SLOW, env={"OPUS_REQUIRE": "1", **env}), (patience_s + 30) * SLOW)
        return cluster.light()


def stalls(context, workload: Workload, env: dict[str, str]) -> None:
    """The ranks make no progress, and the controller can say for whom they wait."""
    with context.cluster(SHAPE) as cluster:
        path = workload.write(cluster.folder / "w.jsonl")
        job = cluster.start_job(Play(path, timeout_s=300, env={"OPUS_REQUIRE": "1", **env}))
        until, why = time.monotonic() + 30 * SLOW, []
        while time.monotonic() < until and not why:
            expect(None in job.poll(), "the job ended: this backend serves it after all")
            why = cluster.waiting()
            time.sleep(0.2)
        time.sleep(2)
        expect(None in job.poll(), "the job ended: this backend serves it after all")
        expect(bool(why), "opus-ctl why does not say who waits")
        job.stop()


@case("stream gates serve receives posted before their sender can send")
def stream(context) -> None:
    light = play(context, early_receive(), {"OPUS_GATE": "stream", "CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    expect(light.lost_bytes == 0, f"{light.lost_bytes} bytes were lost")


@case("stream gates serve two communicators reached in different stream orders")
def orders(context) -> None:
    light = play(context, crossed(), {"OPUS_GATE": "stream", "CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    expect(light.misdelivered_bytes == 0, f"{light.misdelivered_bytes} bytes were misdelivered")


@case("the same programs end without Opus")
def bare(context) -> None:
    for workload in (early_receive(), crossed()):
        with context.cluster(SHAPE, opus=False) as cluster:
            path = workload.write(cluster.folder / "w.jsonl")
            cluster.run_job(Play(path, shim=False, timeout_s=30 * SLOW), 60 * SLOW)


@case("host gates stop at a receive posted before its sender can send, and why says so")
def host(context) -> None:
    stalls(context, early_receive(), {"OPUS_GATE": "host"})


@case("one hardware queue stops stream gates likewise, and why says so")
def one_queue(context) -> None:
    stalls(context, early_receive(), {"OPUS_GATE": "stream", "CUDA_DEVICE_MAX_CONNECTIONS": "1"})


def full(late_us: int) -> Workload:
    """Rank 2's transfer comes first, of all that rank 0 has room for, but comes late. Rank 1's needs the same port."""
    w = Workload("full", grid(3, 1), iterations=2)
    w.comm("late", [[0, 2]])
    w.comm("early", [[0, 1]])
    w.step(2, "compute", stream="s", us=late_us)
    for comm, rank in (("late", 2), ("early", 1)):
        w.step(0, "recv", comm=comm, peer=1, stream=comm, bytes=9000)
        w.step(rank, "send", comm=comm, peer=0, stream="s", bytes=9000)
    return w


@case("a launch that does not end within 10 s gives its ports to others that wait")
def unexplained(context) -> None:
    with context.cluster(Shape(nodes=3, gpus=1, ports=1, dark_ms=1)) as cluster:
        path = full(late_us=2_000_000 * SLOW).write(cluster.folder / "w.jsonl")
        env = {"OPUS_REQUIRE": "1", "OPUS_GATE": "stream", "STANDIN_IN_ORDER": "1"}
        cluster.run_job(Play(path, timeout_s=60 * SLOW, env=env), 90 * SLOW)
        counters = cluster.counters()
        expect(counters["passes"] == 0 and counters["suspensions"] > 0, f"{counters}")


if __name__ == "__main__":
    sys.exit(run())
