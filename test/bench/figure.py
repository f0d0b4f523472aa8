"""A row of the table, and the table: what was measured, against what, and whether the goal is met."""
import dataclasses
import json
import pathlib
import platform
import statistics


@dataclasses.dataclass
class Figure:
    name: str
    measured: str         # with its unit
    baseline: str = ""    # the floor, with its unit
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None  # None: could not be measured. True and no goal: shown, judged by nothing
    note: str = ""
    data: dict = dataclasses.field(default_factory=dict)


def missing(name: str, goal: str, why: str) -> Figure:
    return Figure(name, "not measured", goal=goal, note=why)


def median_ratio(measured: list[float], baseline: list[float]) -> float:
    """The median of the ratios of runs that alternated."""
    return statistics.median(m / b for m, b in zip(measured, baseline))


def us(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} us"


def markdown(figures: list[Figure]) -> str:
    head = ["figure", "measured", "floor or baseline", "ratio", "goal", "met"]
    rows = [[f.name, f.measured, f.baseline, "" if f.ratio is None else f"{f.ratio:.2f}", f.goal,
             "no figure" if f.met is None else "" if f.met and not f.goal else "yes" if f.met else "NO"] for f in figures]
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths)) + " |" for r in [head, *rows]]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    notes = [f"- {f.name}: {f.note}" for f in figures if f.note]
    return "\n".join(lines + ([""] + notes if notes else [])) + "\n"


def write(figures: list[Figure], directory: pathlib.Path) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "table.md").write_text(markdown(figures))
    document = {"machine": {"kernel": platform.release(), "processor": platform.machine()},
                "figures": [dataclasses.asdict(f) for f in figures]}
    (directory / "table.json").write_text(json.dumps(document, indent=2) + "\n")
