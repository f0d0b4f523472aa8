"""The live system and the simulator agree: the demo's job on emulated switches, and the same job by opus-sim."""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from cases import ROOT, SANITIZED, Skip, case, expect, run
from cluster import Play, Shape
from cluster.variants import AHEAD, DEMAND, PROVISIONED

WORKLOAD = ROOT / "tools" / "replay" / "workloads" / "llama3-8b-16gpu.jsonl"
SLOWER, DARK_MS = 4, 25  # gaps and dark time are a fourth of the job's own
LIMIT_S = 200
# Circuits of an iteration, of 48, that may be made twice. What a rank gives two streams at once comes a millisecond apart on a busy
# machine, so its group for the other circuit may be complete first; and plans are made of the times that were measured.
LATE = 2
CIRCUIT = re.compile(r"^\S+ ms program \S+: (.*)$")


class Moves:
    """Circuits that were made, and of each port, in order, where it was turned to. A port whose peer turned away and came back has not
    been turned."""

    def __init__(self, iterations: int):
        self.leads = collections.defaultdict(lambda: [[] for _ in range(iterations)])
        self.count = [0] * iterations
        self.now = {}

    def add(self, iteration: int, a: str, b: str) -> None:
        if self.now.get(a) == b and self.now.get(b) == a:
            return  # said again, and no move
        self.count[iteration] += 1
        for port, peer in ((a, b), (b, a)):
            if self.now.get(port) != peer:
                self.leads[port][iteration].append(peer)
            self.now[port] = peer


def live(context, variant: str, iterations: int) -> Moves:
    """Of real processes, by the controller's own recording."""
    with context.cluster(Shape(nodes=4, gpus=4, ports=1, dark_ms=DARK_MS / SLOWER)) as cluster:
        cluster.controller.kill()
        file = cluster.folder / "recording.jsonl"
        cluster.controller_options = [*AHEAD[variant], "--runs", "on" if variant == PROVISIONED else "off", "--record", str(file)]
        cluster.start_controller(cluster.address)
        play = Play(workload=WORKLOAD, iterations=iterations, scale_bytes="1/8192", scale_time=f"1/{SLOWER}", env={"OPUS_REQUIRE": "1"})
        result = cluster.run_job(play, LIMIT_S)
        light = cluster.light()
        expect(light.lost_bytes == 0 and light.misdelivered_bytes == 0, f"{light}")
        cluster.controller.signal(15)
        expect(cluster.controller.wait(20) == 0, "the controller did not end well")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    spans = [r["iterations"] for r in result.reports]
    ends = [max(s[i]["end_ns"] for s in spans) - lines[0]["began_ns"] for i in range(iterations)]
    moves = Moves(iterations)
    for a, b, when, up in (line["circuit"] for line in lines if "circuit" in line):
        if up and when <= ends[-1]:
            moves.add(next(i for i, end in enumerate(ends) if when <= end), a, b)
    return moves


def simulated(context, variant: str, iterations: int) -> list[tuple[str, str]]:
    """By opus-sim, which counts from the first iteration on: all circuits in order."""
    return circuits_of(context, variant, WORKLOAD, "--ports", "1", "--dark-ms", str(DARK_MS), "--gbits", "1e6", "--node-gbytes", "1e6", "--iterations", str(iterations))


def circuits_of(context, variant: str, *arguments) -> list[tuple[str, str]]:
    log = pathlib.Path(tempfile.mkstemp(suffix=".log")[1])
    done = subprocess.run([context.build.folder / "tools" / "opus-sim" / "opus-sim", "run", *arguments, "--no-best", "--no-split", "--log", log],
                          capture_output=True, text=True, timeout=LIMIT_S)
    expect(done.returncode == 0, done.stderr)
    made, wanted = [], False
    for line in log.read_text().splitlines():
        if line.startswith("# "):
            wanted = line.startswith("# on demand") == (variant == DEMAND)
        elif wanted and (found := CIRCUIT.match(line)):
            made += [tuple(pair.split("-")) for pair in found[1].split()]
    log.unlink()
    return made


def turns_of(circuits: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Of each port, where it is turned to, in order."""
    moves = Moves(1)
    for a, b in circuits:
        moves.add(0, a, b)
    return {port: leads for port, (leads,) in moves.leads.items()}


def agree(context, variant: str, iterations: int) -> None:
    """In an iteration circuits are made as often (LATE of them twice, at most), and each port is turned to the same peers in the same
    order, as in virtual time: to no other ones, on demand. Real processes on shared cores come late now and then: one of the last three
    iterations has to agree."""
    if SANITIZED:
        raise Skip("of time, which a sanitizer stretches")
    real = live(context, variant, iterations)
    long, short = simulated(context, variant, iterations), simulated(context, variant, iterations - 1)
    leads, before = turns_of(long), turns_of(short)
    expect(sorted(leads) == sorted(real.leads), f"other ports: {sorted(leads)}, {sorted(real.leads)}")

    def differs(iteration: int) -> str:
        if not 0 <= real.count[iteration] - (len(long) - len(short)) <= LATE:
            return f"{real.count[iteration]} circuits were made in iteration {iteration}, {len(long) - len(short)} in virtual time"
        for port, by_iteration in real.leads.items():
            mine, wanted = by_iteration[iteration], leads[port][len(before[port]):]
            rest = iter(mine)
            if not all(peer in rest for peer in wanted) or (variant == DEMAND and len(mine) > len(wanted)):
                return f"{port} was turned to {mine} in iteration {iteration}, in virtual time to {wanted}"
        return ""
    found = [differs(i) for i in range(iterations - 3, iterations)]
    expect("" in found, "; ".join(found))


@case("on demand: as many reconfigurations an iteration, and phases in the same order, as opus-sim says")
def on_demand(context) -> None:
    agree(context, DEMAND, 5)


@case("provisioned: as many reconfigurations an iteration, and phases in the same order, as opus-sim says")
def provisioned(context) -> None:
    agree(context, PROVISIONED, 8)


RECORDED = {"pipeline-fsdp": 1, "pipeline-ddp": 1, "pipeline": 2}  # test/data/agreement: ports of a GPU
FIRST_USES = 2  # of a port, at most: moves for connections that NCCL makes when it first uses a pair, which are not simulated


@case("jobs of PyTorch that were recorded live: circuits are made as often, and in the same order, as opus-sim says of what their ranks did")
def pytorch(context) -> None:
    for name, ports in RECORDED.items():
        file = ROOT / "test" / "data" / "agreement" / f"{name}.jsonl"
        real = Moves(1)
        for a, b, _, up in (line["circuit"] for line in map(json.loads, file.read_text().splitlines()) if "circuit" in line):
            if up:
                real.add(0, a, b)
        leads = turns_of(circuits_of(context, DEMAND, file, "--ports", str(ports), "--dark-ms", "10"))
        expect(sorted(leads) == sorted(real.leads), f"{name}: other ports: {sorted(leads)}, {sorted(real.leads)}")
        for port, (mine,) in real.leads.items():
            wanted = leads[port]
            expect(0 <= len(mine) - len(wanted) <= FIRST_USES, f"{name}: {port} was turned {len(mine)} times, in virtual time {len(wanted)} times")
            same = len(wanted) - (len(mine) != len(wanted))  # where there was a first use, the first may be to another peer
            expect(mine[len(mine) - same:] == wanted[len(wanted) - same:], f"{name}: {port} led to {mine}, in virtual time to {wanted}")


if __name__ == "__main__":
    sys.exit(run())
