"""I5 and the rows of the failure table about switches: what is believed of a switch is what it says, whoever
moved it, whatever became of the session or of the controller that sent the last command.
"""
import sys
import time

from cases import SLOW, case, expect, run, wait_for
from cluster import ChildFailed, Play, Shape
from workload_text import Workload, grid

PAIR = Shape(nodes=2, gpus=1, ports=2, dark_ms=2)
RING = Shape(nodes=3, gpus=1, ports=2, dark_ms=2)
RAILS = Shape(nodes=2, gpus=2, ports=2, dark_ms=2)
NARROW = Shape(nodes=3, gpus=1, ports=1, dark_ms=2)
TWICE = Shape(nodes=6, gpus=1, ports=1, dark_ms=2)


def steady(iterations: int) -> Workload:
    """One pair of nodes: its circuits never need to move."""
    w = Workload("steady", grid(2, 1), iterations)
    w.comm("pair", [[0, 1]])
    for rank in range(2):
        w.step(rank, "compute", stream="s", us=5000)
        w.step(rank, "all_reduce", comm="pair", stream="s", bytes=40_000, dtype="float32")
    return w


def moving(iterations: int) -> Workload:
    """Pairs of three nodes in turn: circuits move all the time."""
    w = Workload("moving", grid(3, 1), iterations)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        w.comm(f"p{a}{b}", [[a, b]])
    for a, b in ((0, 1), (1, 2), (0, 2)):
        w.collective("all_reduce", f"p{a}{b}", [a, b], size=40_000)
    return w


def apart(iterations: int) -> Workload:
    """The same twice, over nodes of their own: two gangs always wait that have no port in common."""
    w = Workload("apart", grid(6, 1), iterations)
    pairs = [(first + a, first + b) for a, b in ((0, 1), (1, 2), (0, 2)) for first in (0, 3)]
    for a, b in pairs:
        w.comm(f"p{a}{b}", [[a, b]])
    for a, b in pairs:
        w.collective("all_reduce", f"p{a}{b}", [a, b], size=40_000)
    return w


def around(iterations: int) -> Workload:
    """A ring of three nodes: needs both ports of each."""
    w = Workload("around", grid(3, 1), iterations)
    w.comm("all", [[0, 1, 2]])
    w.collective("all_reduce", "all", [0, 1, 2], size=40_000)
    return w


def two_rails(iterations: int) -> Workload:
    """Two jobs in one: the ranks of each rail have nothing to do with the other's."""
    w = Workload("two-rails", grid(2, 2), iterations)
    w.comm("rail", [[0, 2], [1, 3]])
    w.collective("all_reduce", "rail", [0, 1, 2, 3], size=40_000)
    return w


def start(cluster, workload: Workload, patience_s: float = 60, name: str = "job", hold_ms: int = 30_000):
    path = workload.write(cluster.folder / f"{name}.jsonl")
    job = cluster.start_job(Play(path, timeout_s=patience_s * SLOW, env={
        "OPUS_GATE": "stream", "OPUS_REQUIRE": "1", "OPUS_HOLD_MS": str(hold_ms * SLOW)}), name)
    wait_for(lambda: job.progress() >= 2, "the job to begin", job)
    return job


def must_end_well(cluster, job) -> None:
    result = job.wait(120 * SLOW)
    expect(result.total("mismatches") == 0, "a result was wrong")
    expect(not cluster.waiting(), f"somebody still waits: {cluster.waiting()}")


def port(cluster, name: str) -> dict:
    return next(p for p in cluster.ctl("ports")["ports"] if p["port"] == name)


@case("another client of a switch moves circuits under a job: it is shown, put right, and the job goes on")
def another_hand(context) -> None:
    with context.cluster(PAIR, controller_options=["--map-period-ms", "300"]) as cluster:
        job = start(cluster, steady(200))
        cluster.scpi_line(0, ":oxc:swit:conn:add (@1),(@2)")  # both ports of n0 looped: it reaches nobody
        must_end_well(cluster, job)
        switch = cluster.ctl("status")["switches"][0]
        told = " ".join(switch["differences"])
        expect("n0.g0.p0 leads to n0.g0.p1, was thought to lead to n1.g0.p" in told, f"not shown: {switch}")
        expect(told in cluster.controller.output() or switch["differences"][0] in cluster.controller.output(), "not logged")
        counters = cluster.counters()
        expect(counters["differences"] > 0 and counters["passes"] == 0, f"{counters}")


@case("a controller is killed while a switch is slow: the next one believes no map before that command is over")
def killed_in_mid_program(context) -> None:
    for attempt in range(2):
        with context.cluster(NARROW) as cluster:
            job = start(cluster, moving(60))
            before = cluster.light()
            cluster.scpi_line(0, ":emulator:fault:late 700")
            moves = cluster.light().reconfigurations
            wait_for(lambda: any(p["use"] == "moving" for p in cluster.ctl("ports")["ports"]), "a change set", job)
            expect(cluster.light().reconfigurations == moves, "the switch was not late")
            cluster.restart_controller()
            must_end_well(cluster, job)
            light = cluster.light() - before
            expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"{light}")
            expect(cluster.counters()["differences"] == 0, "the late command was a surprise")


@case("the session of a switch drops in mid-change: it is read back and the job goes on")
def session_drops(context) -> None:
    with context.cluster(NARROW) as cluster:
        job = start(cluster, moving(60))
        before = cluster.light()
        for _ in range(3):
            progress = job.progress()
            cluster.scpi_line(0, ":emulator:fault:drop 1")
            wait_for(lambda: job.progress() > progress or job.poll() == [0, 0, 0], "the job to go on", job)
        must_end_well(cluster, job)
        light = cluster.light() - before
        expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"{light}")
        expect(cluster.counters()["switch_errors"] >= 1, "no session was lost")


@case("a session that drops is one rail's: launches of the others go on")
def other_rails(context) -> None:
    with context.cluster(RAILS) as cluster:
        job = start(cluster, two_rails(100_000))
        cluster.emulators[1].signal(19)  # SIGSTOP: silent, not gone
        cluster.ctl("disconnect", "n0.g0.p0", "--force")  # rail 0's circuits must really be made anew
        done = cluster.counters()["launches_done"]
        wait_for(lambda: cluster.counters()["launches_done"] > done + 10, "rail 0 to go on", job)
        cluster.emulators[1].signal(18)
        job.stop()


@case("the job goes on over the other port where the switch refuses one, or brings no light to it; it is shown")
def one_port_less(context) -> None:
    for fault, note in ((":oxc:swit:port:dis (@1)", "refused"), (":emulator:fault:stuck (@1)", "no light")):
        with context.cluster(PAIR) as cluster:
            cluster.scpi_line(0, fault)
            must_end_well(cluster, start(cluster, steady(30)))
            expect(note in port(cluster, "n0.g0.p0")["note"], f"not shown: {port(cluster, 'n0.g0.p0')}")
            expect(cluster.light().lost_bytes == 0, "bytes were lost")


@case("a switch that refuses everything for a while fences no port, and the job goes on")
def all_refused(context) -> None:
    for lasts_s in (0.3, 4):
        with context.cluster(TWICE) as cluster:
            job = start(cluster, apart(60))
            cluster.scpi_line(0, ":emulator:fault:refuse 1000000")
            wait_for(lambda: cluster.counters()["switch_errors"] >= 1, "a refusal", job)
            time.sleep(lasts_s)
            if lasts_s > 1:
                note = cluster.ctl("status")["switches"][0]["note"]
                expect("fails whatever it is told" in note, f"not shown: {note}")
            cluster.scpi_line(0, ":emulator:fault:clear")
            fenced = [p["port"] for p in cluster.ctl("ports")["ports"] if p["use"] == "fenced"]
            must_end_well(cluster, job)
            expect(not fenced, f"fenced: {fenced}")
            counters = cluster.counters()
            expect(counters["passes"] == 0 and counters["aborts"] == 0, f"{counters}")
            expect("fenced" not in cluster.controller.output(), "a port was fenced")


@case("a port fenced by hand in mid-job goes dark, the job goes on over the other, and it comes back by hand alone")
def by_hand(context) -> None:
    with context.cluster(PAIR) as cluster:
        job = start(cluster, steady(100_000))
        wait_for(lambda: port(cluster, "n0.g0.p0")["peer"], "its circuit")
        cluster.ctl("fence", "n0.g0.p0", "--why", "cable to be cleaned")
        wait_for(lambda: port(cluster, "n0.g0.p0")["peer"] is None, "it to be dark", job)
        progress = job.progress()
        wait_for(lambda: job.progress() > progress + 20, "the job to go on", job)

        def asks_for_nothing() -> bool:
            grants, progress = cluster.counters()["grants"], job.progress()
            time.sleep(0.5)
            return cluster.counters()["grants"] == grants and job.progress() > progress

        wait_for(asks_for_nothing, "its light to be at rest", job)
        shown = port(cluster, "n0.g0.p0")
        expect(shown["use"] == "fenced" and shown["peer"] is None and shown["fence"]["by"] == "hand"
               and shown["fence"]["why"] == "cable to be cleaned" and shown["fence"]["since_ms"] > 0, f"{shown}")
        try:
            dark = next(p["port"] for p in cluster.ctl("ports")["ports"] if p["port"].startswith("n1.") and p["peer"] is None)
            cluster.ctl("connect", "n0.g0.p0", dark)
            expect(False, "it was connected")
        except ChildFailed as refusal:
            expect("unfence" in str(refusal), str(refusal))
        cluster.ctl("unfence", "n0.g0.p0")
        wait_for(lambda: port(cluster, "n0.g0.p0")["peer"], "it to be used again", job)
        expect(port(cluster, "n0.g0.p0")["fence"] is None, "still fenced")
        counters = cluster.counters()
        expect(counters["passes"] == 0 and counters["suspensions"] == 0, f"{counters}")
        light = cluster.light()
        expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"{light}")
        job.stop()


@case("a port that is needed and refused is fenced; then the policy acts by name; it is taken back when it works")
def fenced(context) -> None:
    with context.cluster(RING) as cluster:
        cluster.scpi_line(0, ":oxc:swit:port:dis (@1)")
        path = around(3).write(cluster.folder / "job.jsonl")
        job = cluster.start_job(Play(path, timeout_s=60 * SLOW, env={"OPUS_REQUIRE": "1", "OPUS_POLICY": "abort"}))
        job.wait(60 * SLOW, expect_failure=True)
        expect(all(job.poll()), f"nobody is told: {job.poll()}")
        shown = port(cluster, "n0.g0.p0")
        expect(shown["use"] == "fenced" and shown["fence"]["by"] == "controller" and "refused" in shown["fence"]["why"],
               f"{shown}")
        expect("fenced n0.g0.p0 (ocs-r0 port 1)" in cluster.controller.output(), "not logged")
        expect("aborted: " in cluster.managers[0].output() and "n0.g0" in cluster.managers[0].output(),
               f"its manager does not say why: {cluster.managers[0].tail()}")
        cluster.scpi_line(0, ":oxc:swit:port:enab (@1)")
        wait_for(lambda: all(p["use"] != "fenced" for p in cluster.ctl("ports")["ports"]), "the ports to be taken back",
                 seconds=60)
        expect("n0.g0.p0 (ocs-r0 port 1) works again" in cluster.controller.output(), "not logged")
        cluster.run_job(Play(path, timeout_s=60 * SLOW, env={"OPUS_REQUIRE": "1"}), 60 * SLOW, "again")


@case("a switch that needs a longer hold time than the default is named at start, with what it needs")
def slow_switch(context) -> None:
    with context.cluster(Shape(nodes=2, gpus=1, ports=1, dark_ms=120_000)) as cluster:
        wait_for(lambda: "ocs-r0 is dark for 120000 ms: launches that wait for it are held for up to 960100 ms"
                 in cluster.controller.output(), "the controller to say so")


@case("a switch reboots, with its circuits or without: the job goes on")
def reboot(context) -> None:
    for what in ("keep,200", "lose,200"):
        with context.cluster(NARROW) as cluster:
            job = start(cluster, moving(60))
            cluster.scpi_line(0, f":emulator:reboot {what}")
            must_end_well(cluster, job)
            expect(cluster.counters()["passes"] == 0, "launches were passed")


if __name__ == "__main__":
    sys.exit(run())
