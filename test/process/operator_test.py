"""What an operator sees and does with opus-ctl while jobs run: each of its commands, against real processes."""
import _ctypes
import json
import re
import shutil
import signal
import subprocess
import sys
import time

from cases import SLOW, case, expect, run, wait_for
from cluster import ChildFailed, Play, Shape
from workload_text import Workload, grid

PAIR = Shape(nodes=2, gpus=1, ports=1, dark_ms=2)
NARROW = Shape(nodes=3, gpus=1, ports=1, dark_ms=2)
WIDE = Shape(nodes=3, gpus=1, ports=1, dark_ms=10)
PLANS = 5  # of which one lasts a lap


def pair(iterations: int, late_ms: int = 0) -> Workload:
    """An AllReduce of two nodes; rank 1 computes before it."""
    w = Workload("pair", grid(2, 1), iterations)
    w.comm("pair", [[0, 1]])
    if late_ms:
        w.step(1, "compute", stream="s", us=late_ms * 1000)
    w.collective("all_reduce", "pair", [0, 1], size=40_000)
    return w


def rivals(iterations: int) -> Workload:
    """Rank 0 with rank 1, and beside it with rank 2: they want the one port of n0."""
    w = Workload("rivals", grid(3, 1), iterations)
    for peer in (1, 2):
        w.comm(f"p0{peer}", [[0, peer]])
        w.collective("all_reduce", f"p0{peer}", [0, peer], stream=f"s{peer}", size=40_000)
    return w


def triangle(iterations: int, us: int = 3000) -> Workload:
    """Three pairs of three ranks in turn: with one port each, its circuits move in every iteration, and are never at rest."""
    w = Workload("phases", grid(3, 1), iterations)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        w.comm(f"p{a}{b}", [[a, b]])
        for rank in (a, b):
            w.step(rank, "compute", stream="s", us=us)
        w.collective("all_reduce", f"p{a}{b}", [a, b], size=4000)
    return w


def start(cluster, workload: Workload, name: str = "job"):
    path = workload.write(cluster.folder / f"{name}.jsonl")
    return cluster.start_job(Play(path, timeout_s=60 * SLOW, env={"OPUS_GATE": "stream", "OPUS_REQUIRE": "1"}), name)


def words(cluster, *arguments: str) -> str:
    """What people read."""
    done = subprocess.run([cluster.build.ctl, "--controller", cluster.address, *arguments], capture_output=True,
                          text=True, timeout=20 * SLOW, env=cluster.env)
    expect(done.returncode == 0, f"opus-ctl {arguments}: {done.stderr}")
    return done.stdout


def refused(cluster, *arguments: str) -> str:
    try:
        cluster.ctl(*arguments)
    except ChildFailed as refusal:
        return str(refusal)
    raise AssertionError(f"opus-ctl {arguments} was not refused")


def forced(cluster, *move: str) -> bool:
    """False: the port is being turned by others just now."""
    try:
        cluster.ctl(*move, "--force")
    except ChildFailed as refusal:
        expect("try again" in str(refusal), str(refusal))
        return False
    return True


@case("status, jobs, groups, circuits, ports and watch show the job that runs")
def shown(context) -> None:
    with context.cluster(PAIR) as cluster:
        watch = subprocess.Popen(  # from the first launches on: in a run nothing is granted
            [cluster.build.ctl, "--controller", cluster.address, "--json", "watch", "--count", "20"], stdout=subprocess.PIPE, text=True,
            env=cluster.env)
        expect("watching" in watch.stdout.readline(), "opus-ctl watch says nothing")
        job = start(cluster, pair(100_000))
        wait_for(lambda: job.progress() >= 2, "the job to begin")
        status = cluster.ctl("status")
        expect([(n["node"], n["session"] > 0, n["ranks"]) for n in status["nodes"]] == [("n0", True, 1), ("n1", True, 1)], f"{status}")
        expect(all(s["session"] and s["map_known"] for s in status["switches"]), f"{status['switches']}")
        shown = cluster.ctl("jobs")["jobs"]
        expect([(j["job"], j["ranks"], j["nodes"]) for j in shown] == [("job", 2, ["n0", "n1"])], f"{shown}")
        groups = {g["size"]: g for g in cluster.ctl("groups")["groups"]}
        expect(groups[2]["verdict"] == "enforced" and groups[2]["job"] == "job"
               and [m["gpu"] for m in groups[2]["members"]] == ["n0.g0", "n1.g0"], f"{groups}")
        circuits = cluster.ctl("circuits")["circuits"]
        expect([(c["a"], c["b"]) for c in circuits] == [("n0.g0.p0", "n1.g0.p0")], f"{circuits}")
        busy = wait_for(lambda: [p for p in cluster.ctl("ports")["ports"] if p["use"] == "busy"], "a busy port")
        expect(busy[0]["peer"] in ("n0.g0.p0", "n1.g0.p0"), f"{busy}")
        expect(busy[0]["holders"] or "held " in busy[0]["note"], f"nobody holds it: {busy}")
        events = {json.loads(line)["event"] for line in watch.communicate(timeout=20 * SLOW)[0].splitlines()}
        expect({"gang granted", "launch done"} <= events, f"{events}")
        for command, word in (("status", "n1"), ("jobs", "job"), ("groups", "enforced"), ("circuits", "n1.g0.p0"),
                              ("ports", "n0.g0.p0"), ("why", "")):
            expect(word in words(cluster, command), f"opus-ctl {command} does not show {word}")
        job.stop()


@case("phases shows that a job is timed on demand first, and provisioned when its laps are known")
def guarded(context) -> None:
    with context.cluster(WIDE) as cluster:
        for number in range(PLANS):  # on a busy computer a plan may cost so much that the guard ends it: then another job is looked at
            job = start(cluster, triangle(100_000, us=15_000), f"job{number}")

            def asked() -> dict:
                return next((j for j in cluster.ctl("phases")["jobs"] if j["job"] == job.name), {})
            def provisioned() -> dict:
                return found if (found := asked().get("provision", {})).get("provision") else {}
            def followed_or_dropped() -> dict:
                found, said = asked(), words(cluster, "phases")
                if not found.get("provision", {}).get("provision"):
                    return found
                is_whole = "provisioned_to_on_demand" in found["provision"] and found.get("plan", {}).get("ports")
                return {**found, "said": said} if is_whole and "JOINED TO" in said else {}
            provision = wait_for(provisioned, "the job to be provisioned", job)
            expect(provision["guarded"] and provision["runs"] and provision["state"].startswith("provisioned"), f"{provision}")
            found = wait_for(followed_or_dropped, "a lap of it to be over", job)
            if "said" in found:
                break
            expect(found["provision"]["state"].startswith("on demand: "), f"{found}")
            job.stop()
        expect("said" in found, f"no plan of {PLANS} jobs was followed for a lap: {found}")
        expect(found["provision"].get("lap_ms", 0) > 0, f"{found}")
        expect("a lap on demand: " in found["said"], f"in words it is not told:\n{found['said']}")
        ports = {p["port"]: p["turns"] for p in found["plan"]["ports"]}
        expect({t["to"] for t in ports["n0.g0.p0"]} == {"n1.g0.p0", "n2.g0.p0"}, f"{ports}")
        expect(all(t["group_size"] == 2 and t["for"] in ("collective", "transfer") and t["lasts_ms"] > 0 for turns in ports.values() for t in turns), f"{ports}")
        for word in ("n0.g0.p0", "n1.g0.p0", "SLACK", "of 2 ranks"):
            expect(word in found["said"], f"opus-ctl phases does not say {word}:\n{found['said']}")
        job.stop()


@case("why names the member that is missing, asked by GPU, by process or by NCCL rank")
def missing(context) -> None:
    with context.cluster(PAIR) as cluster:
        job = start(cluster, pair(100_000, late_ms=1500))

        def rank_0_waits() -> list[dict]:  # not rank 1, which waits for it for a moment when rank 0 is late to connect
            return [w for w in cluster.waiting() if w["gpu"] == "n0.g0" and w["state"] == "missing member" and w["bytes"] > 0]
        waits = wait_for(rank_0_waits, "rank 0 to wait")
        process = waits[0]["rank"]
        expect(waits[0]["nccl_rank"] == 0, f"{waits}")

        def answer(who: str) -> list[str]:
            return [r for w in cluster.ctl("why", who)["waiting"] for r in w["reasons"]]
        for who in ("0", "n0.g0", process, "n0", "job:0"):
            wait_for(lambda: any("missing n1.g0 (rank 1 of 2): not ready" in r for r in answer(who)), f"why {who}")
        wait_for(lambda: not answer("1"), "why 1 to be empty: it waits for nobody")
        expect("no rank" in refused(cluster, "why", "7"), "there is no rank 7")
        expect("no rank" in refused(cluster, "why", "other:0"), "there is no job 'other'")
        wait_for(lambda: "rank 0" in (text := words(cluster, "why", "0")) and "missing n1.g0" in text, "the words")
        job.stop()


@case("where the largest communicators of a job count their ranks differently, nobody is called by such a number")
def unnumbered(context) -> None:
    with context.cluster(NARROW) as cluster:
        job = start(cluster, rivals(100_000))
        wait_for(lambda: job.progress() >= 2, "the job to begin")
        expect("no rank" in (text := refused(cluster, "why", "1")), text)
        waits = wait_for(cluster.waiting, "a launch to wait")
        expect(all(w["nccl_rank"] is None for w in waits), f"{waits}")
        job.stop()


@case("why names the port, who holds it and since when; moves under a launch are refused, unless forced")
def held(context) -> None:
    with context.cluster(NARROW) as cluster:
        job = start(cluster, rivals(100_000))
        wait_for(lambda: job.progress() >= 2, "the job to begin")

        def stopped_under_a_launch() -> list[dict]:
            cluster.emulators[0].signal(signal.SIGSTOP)  # no byte passes: what is in flight stays so
            time.sleep(0.1)
            found = [w for w in cluster.waiting() if any(" held by n" in r for r in w["reasons"])]
            if not found:
                cluster.emulators[0].signal(signal.SIGCONT)
            return found
        waiting = wait_for(stopped_under_a_launch, "one rival to wait for the other")[0]
        try:
            reason = next(r for r in waiting["reasons"] if " held by n" in r)
            # Either end may be done with it first.
            expect(re.match(r"port n0.g0.p0 held by n[012]\.r\d+ launch \d+ since ", reason), reason)
            expect(waiting["state"] == "queued" and waiting["since_ms"] > 0, f"{waiting}")
            peer = next(p["peer"] for p in cluster.ctl("ports")["ports"] if p["port"] == "n0.g0.p0")
            other = "n2.g0.p0" if peer == "n1.g0.p0" else "n1.g0.p0"
            for move in (("disconnect", "n0.g0.p0"), ("connect", "n0.g0.p0", other)):
                text = refused(cluster, *move)
                expect("n0.g0.p0" in text and re.search(r"\bn[012]\.r\d", text), f"it does not say who holds it: {text}")
        finally:
            cluster.emulators[0].signal(signal.SIGCONT)
        progress = job.progress()
        wait_for(lambda: job.progress() > progress + 3, "the job to go on")
        wait_for(lambda: forced(cluster, "disconnect", "n0.g0.p0"), "the port to be at rest")
        progress = job.progress()
        wait_for(lambda: job.progress() > progress + 3, "the job to go on after a forced move")
        job.stop()


@case("phases shows the windows of a job, its lap, and that a plan of it is followed")
def learned(context) -> None:
    with context.cluster(NARROW) as cluster:
        job = start(cluster, triangle(100_000))

        def planned() -> dict:
            return next((j for j in cluster.ctl("phases", "--job", "job")["jobs"] if j.get("plan", {}).get("followed")), {})
        told = wait_for(planned, "a plan to be followed", job)
        expect(told["plan"]["phases"] == 3 and told["plan"]["made"] >= 1, f"{told['plan']}")
        expect(told["phases"][0]["op"] == "AllReduce" and told["phases"][0]["windows"] > 0, f"{told}")
        expect("its lap has 3 phases" in words(cluster, "phases"), "not in words")
        job.stop()
        wait_for(lambda: cluster.ctl("phases")["jobs"][0]["ended"], "the job to have ended")
        expect(cluster.ctl("phases")["jobs"][0]["windows"] > 0, "forgotten with its ranks")


@case("connect and disconnect move circuits by hand, and say what is wrong with a name")
def by_hand(context) -> None:
    with context.cluster(NARROW) as cluster:
        wait_for(lambda: all(p["use"] != "unknown" for p in cluster.ctl("ports")["ports"]), "the switch to be read back")
        peer = {p["port"]: p["peer"] for p in cluster.ctl("ports")["ports"]}
        expect(set(peer.values()) == {None}, f"{peer}")
        cluster.ctl("connect", "n0.g0.p0", "n2.g0.p0")
        expect([(c["a"], c["b"]) for c in cluster.ctl("circuits")["circuits"]] == [("n0.g0.p0", "n2.g0.p0")], "not joined")
        expect(cluster.scpi_line(0, ":oxc:swit:conn:stat?").count("1") == 1, "the switch does not say so")
        cluster.ctl("disconnect", "n2.g0.p0")
        expect(not cluster.ctl("circuits")["circuits"], "still joined")
        expect("n0.g0.p0" in refused(cluster, "connect", "n0.g0.p1", "n1.g0.p0"), "it does not suggest a name")


@case("fence takes a port out of use, ports shows by whom and why, unfence brings it back")
def fences(context) -> None:
    with context.cluster(NARROW) as cluster:
        wait_for(lambda: all(p["use"] != "unknown" for p in cluster.ctl("ports")["ports"]), "the switch to be read back")
        cluster.ctl("fence", "n0.g0.p0", "--why", "cable to be cleaned")
        expect("fenced by hand" in (text := words(cluster, "ports")) and "cable to be cleaned" in text, text)
        expect("unfence" in refused(cluster, "connect", "n0.g0.p0", "n2.g0.p0"), "it was connected")
        cluster.ctl("unfence", "n0.g0.p0")
        expect("fenced" not in (text := words(cluster, "ports")), text)
        cluster.ctl("connect", "n0.g0.p0", "n2.g0.p0")
        expect("n0.g0.p0" in refused(cluster, "fence", "n0.g0.p1"), "it does not suggest a name")


LOADS_NCCL = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('loaded', flush=True); sys.stdin.read()"


@case("jobs names processes that have NCCL and no manager, with the shim and without, and no rank")
def without_opus(context) -> None:
    with context.cluster(PAIR) as cluster:
        job = start(cluster, pair(iterations=100_000))
        nccl = shutil.copy(_ctypes.__file__, cluster.folder / "libnccl.so.2")  # who looks goes by its name
        preloads = {"with": {"LD_PRELOAD": str(context.build.shim)}, "without": {}}
        others = {kind: subprocess.Popen([sys.executable, "-c", LOADS_NCCL, nccl], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**cluster.env, **env})
                  for kind, env in preloads.items()}
        try:
            for other in others.values():
                expect(other.stdout.readline() == "loaded\n", "it did not load NCCL")

            def told() -> dict:
                return {p["pid"]: p for p in cluster.ctl("jobs")["without_opus"] if p["node"] == "n0"}
            # A rank is none before it has met its manager.
            ranks = {r.pid for r in job.ranks}
            wait_for(lambda: {o.pid for o in others.values()} <= told().keys() and not ranks & told().keys(), "them to be named", job)
            seen = told()
            expect(seen[others["with"].pid]["shim"] and not seen[others["without"].pid]["shim"], f"{seen}")
            expect(seen[others["without"].pid]["library"].endswith("libnccl.so.2"), f"{seen}")
            text = words(cluster, "jobs")
            expect(re.search(rf"n0 +{others['without'].pid} +python\S* +the shim is not loaded +/\S*libnccl", text) is not None, text)
        finally:
            for other in others.values():
                other.kill()
                other.communicate()
        wait_for(lambda: not told().keys() & {o.pid for o in others.values()}, "them to be gone")


if __name__ == "__main__":
    sys.exit(run())
