"""One job in opus-sim."""
import dataclasses
import json
import pathlib
import subprocess

from cluster.variants import DEMAND, PROVISIONED

KEYS = {DEMAND: "on_demand", PROVISIONED: "provisioned"}


@dataclasses.dataclass(frozen=True)
class Network:
    gbits: float
    node_gbytes: float
    ports: int = 1


# Perlmutter: a Slingshot NIC of 200 Gbit/s a GPU, NVLink of 300 GB/s each way.
PERLMUTTER = Network(200, 300)


class Played:
    def __init__(self, told: dict):
        self.told = told
        self.lit_ms = told["electrical_ms"]

    def ms(self, variant: str, dark_ms: float) -> float:
        return next(p for p in self.told["points"] if p["dark_ms"] == dark_ms)[KEYS[variant]]["iteration_ms"]

    def over(self, variant: str, dark_ms: float) -> float:
        return self.ms(variant, dark_ms) / self.lit_ms - 1

    def of(self, variant: str, dark_ms: float, figure: str) -> float:
        return next(p for p in self.told["points"] if p["dark_ms"] == dark_ms)[KEYS[variant]][figure]

    @property
    def windows(self) -> dict | None:
        return self.told.get("windows")


class Player:
    def __init__(self, build: pathlib.Path):
        self.program = build / "tools/opus-sim/opus-sim"
        # Other numbers of ports are of no interest here, and take most of the time.
        told = subprocess.run([self.program, "run", "--help"], check=True, capture_output=True, text=True).stdout
        self.extra = ["--try-ports", "0"] if "--try-ports" in told else []

    def play(self, job: pathlib.Path, network: Network, dark_ms: list, *more: str) -> Played:
        command = [self.program, "run", job, "--gbits", network.gbits, "--node-gbytes", network.node_gbytes, "--ports", network.ports,
                   "--dark-ms", ",".join(map(str, dark_ms)), "--no-best", "--no-split", *self.extra, *more, "--json"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"opus-paper: {' '.join(map(str, command))} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr}")
        return Played(json.loads(done.stdout))

    def electrical_ms(self, job: pathlib.Path, network: Network) -> float:
        return self.play(job, network, [0], "--iterations", "2").lit_ms


def fitted(electrical_ms, wanted_ms: float, first: float, turns: int = 12, near: float = 1e-4) -> float:
    """The x at which electrical_ms(x), which never falls, is wanted_ms within `near` of it; by secants from `first`."""
    a, at_a = first, electrical_ms(first)
    b = a * wanted_ms / at_a
    for _ in range(turns):
        at_b = electrical_ms(b)
        if abs(at_b / wanted_ms - 1) <= near:
            return b
        if at_b == at_a:  # something else takes the time
            beyond = b * 2 if at_b < wanted_ms else b / 2
        else:
            beyond = b + (wanted_ms - at_b) * (b - a) / (at_b - at_a)
        a, at_a, b = b, at_b, max(beyond, b / 10)
    raise ValueError(f"nothing near {first:g} takes {wanted_ms:g} ms")
