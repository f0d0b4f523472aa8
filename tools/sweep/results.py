"""The runs of a sweep, in a file that is written after each of them, so that a sweep can go on where it ended."""
import dataclasses
import hashlib
import json
import pathlib
import statistics

from cluster import Build
from cluster.variants import DEMAND, LIT, PROVISIONED, Measured

FORMAT = 2


@dataclasses.dataclass
class Run:
    """dark_ms is 0 for always lit. number: which of the same kind."""
    variant: str
    dark_ms: float
    number: int
    first_s: float
    times_s: list[float]
    reconfigurations: int
    lost_bytes: int
    misdelivered_bytes: int
    suspensions: int
    hidden_ns: int
    exposed_ns: int

    @property
    def kind(self) -> tuple[str, float, int]:
        return self.variant, self.dark_ms, self.number


def run_of(dark_ms: float, number: int, m: Measured) -> Run:
    c = m.counters
    return Run(m.variant, dark_ms, number, m.all[0], m.times, m.light.reconfigurations, m.light.lost_bytes, m.light.misdelivered_bytes,
               c.get("suspensions", 0), *m.dark_ns)


def conditions(build: Build, workload: pathlib.Path, ports: int, iterations: int, scale_bytes: str) -> dict:
    """What runs must have in common to stand in one table: the programs themselves above all."""
    return {"format": FORMAT, "programs": build.fingerprint(),
            "workload": hashlib.sha256(workload.read_bytes()).hexdigest()[:16], "ports": ports, "iterations": iterations, "scale_bytes": scale_bytes}


class Results:
    def __init__(self, file: pathlib.Path, under: dict):
        self.file, self.under, self.runs = file, under, []

    def load(self) -> str:
        """Takes over the runs of an earlier sweep. Returns why not; "" where there was none, or all went well."""
        try:
            found = json.loads(self.file.read_text())
            if differing := [k for k, v in self.under.items() if found["conditions"].get(k) != v]:
                return f"its {' and '.join(differing)} differ{'s' if len(differing) == 1 else ''}"
            self.runs = [Run(**r) for r in found["runs"]]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            return f"it cannot be read: {error}"
        return ""

    def add(self, run: Run) -> None:
        self.runs.append(run)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps({"conditions": self.under, "runs": [dataclasses.asdict(r) for r in self.runs]}, indent=1))
        part.replace(self.file)

    def has(self, kind: tuple[str, float, int]) -> bool:
        return any(r.kind == kind for r in self.runs)

    # --- figures ---------------------------------------------------------------------------------

    def cell(self, variant: str, dark_ms: float) -> list[Run]:
        return [r for r in self.runs if r.variant == variant and r.dark_ms == (0 if variant == LIT else dark_ms)]

    def times(self, variant: str, dark_ms: float = 0) -> list[float]:
        return [t for r in self.cell(variant, dark_ms) for t in r.times_s]

    def overhead(self, variant: str, dark_ms: float) -> float | None:
        """Percent over always lit, by medians."""
        ours, lit = self.times(variant, dark_ms), self.times(LIT)
        return 100 * (statistics.median(ours) / statistics.median(lit) - 1) if ours and lit else None

    def hidden(self, dark_ms: float) -> float | None:
        """Percent of the dark that granted gangs would have waited for, by the controller's count."""
        runs = self.cell(PROVISIONED, dark_ms)
        away, waited = sum(r.hidden_ns for r in runs), sum(r.exposed_ns for r in runs)
        return 100 * away / (away + waited) if away + waited else None

    def suspensions(self, dark_ms: float) -> int:
        return sum(r.suspensions for c in (DEMAND, PROVISIONED) for r in self.cell(c, dark_ms))
