"""A picture of one rail over one iteration, an SVG: what each GPU's rank did, and whom its ports were joined to.

From the controller's trace files (opus-controller --trace) of runs of one job. What is left white in a port's row is dark.
"""
import dataclasses
import html
import json
import pathlib

WIDTH, LEFT, RIGHT, LANE, GAP, HEAD = 1120, 78, 12, 13, 9, 34
PEER = ("#4477aa", "#ee8866", "#44aa77", "#aa4499", "#999933", "#77aadd", "#882255", "#ddcc77")
LAUNCH, TRANSFER, PEERS, CIRCUIT, INK, FAINT = "#66778a", "#9db4c8", "#f3e3c3", "#cc2222", "#222222", "#dddddd"
LEAST_WAIT_US = 2_000   # what is shorter is no wait for a circuit
GRANT_WITHIN_US = 5_000  # of a launch's gang, before the launch goes
TRANSFERS = {"Send", "Recv"}


@dataclasses.dataclass
class Panel:
    title: str
    trace: pathlib.Path    # of the controller
    begin_us: float        # of the iteration that is shown, by the controller's clock
    end_us: float


def events_of(trace: pathlib.Path) -> list[dict]:
    """The closing brackets may be missing, as the format allows."""
    text = trace.read_text().strip()
    return json.loads(text if text.endswith("]}") else text.rstrip(",\n") + "]}")["traceEvents"]


def gangs_of(events: list[dict]) -> dict[str, list[tuple[float, float]]]:
    """By communicator: when each of its gangs was complete, and granted."""
    begun: dict[int, float] = {}
    out: dict[str, list[tuple[float, float]]] = {}
    for e in events:
        if e.get("cat") == "gang" and e["name"] == "complete":
            if e["ph"] == "b":
                begun[e["id"]] = e["ts"]
            else:
                out.setdefault(e["args"]["gang"].split()[-1], []).append((begun[e["id"]], e["ts"]))
    return out


def waits(hold: dict, gangs: dict[str, list[tuple[float, float]]]) -> list[dict]:
    """A hold as what it was: until its gang was complete it waited for peers, from then on for a circuit."""
    begin, end = hold["ts"], hold["ts"] + hold["dur"]
    granted = [(abs(g - end), c) for c, g in gangs.get(hold["args"]["communicator"], []) if abs(g - end) < GRANT_WITHIN_US]
    complete = min(max(min(granted)[1], begin), end) if granted else end
    return [{"name": "peers", "ts": begin, "dur": complete - begin}] + \
        ([{"name": "circuit", "ts": complete, "dur": end - complete}] if end - complete >= LEAST_WAIT_US else [])


def rows_of(trace: pathlib.Path) -> dict[str, dict[str, list[dict]]]:
    """'ranks' and 'circuits': the spans of each row by its name."""
    events = events_of(trace)
    gangs = gangs_of(events)
    kinds = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    names = {(e["pid"], e["tid"]): e["args"]["name"].split()[0] for e in events if e["name"] == "thread_name"}
    out: dict[str, dict[str, list[dict]]] = {"ranks": {}, "circuits": {}}
    for e in events:
        if e["ph"] == "X" and kinds[e["pid"]] in out:
            out[kinds[e["pid"]]].setdefault(names[e["pid"], e["tid"]], []).extend(waits(e, gangs) if e["name"] == "hold" else [e])
    return out


class Drawing:
    def __init__(self):
        self.parts: list[str] = []
        self.y = 0.0

    def text(self, x: float, y: float, text: str, *, size: int = 11, anchor: str = "start", weight: str = "normal") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">{html.escape(text)}</text>')

    def box(self, x: float, width: float, colour: str, height: float = LANE, y: float | None = None) -> None:
        self.parts.append(f'<rect x="{x:.2f}" y="{self.y if y is None else y:.1f}" width="{max(width, 0.3):.2f}" height="{height:.1f}" fill="{colour}"/>')

    def svg(self) -> str:
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y:.0f}" font-family="sans-serif">'
                f'<rect width="{WIDTH}" height="{self.y:.0f}" fill="white"/>' + "".join(self.parts) + "</svg>\n")


def lane(drawing: Drawing, panel: Panel, spans: list[dict], colour_of) -> None:
    scale = (WIDTH - LEFT - RIGHT) / (panel.end_us - panel.begin_us)
    drawing.box(LEFT, WIDTH - LEFT - RIGHT, FAINT, 0.5, drawing.y + LANE)
    for e in sorted(spans, key=lambda e: e["name"] == "circuit"):  # seen above what ran
        begin, end = max(e["ts"], panel.begin_us), min(e["ts"] + e["dur"], panel.end_us)
        if end > begin and (colour := colour_of(e)):
            drawing.box(LEFT + (begin - panel.begin_us) * scale, (end - begin) * scale, colour)
    drawing.y += LANE


def draw_panel(drawing: Drawing, panel: Panel, gpus: list[str], rows: dict) -> None:
    drawing.y += HEAD
    drawing.text(LEFT, drawing.y - 12, f"{panel.title}: {(panel.end_us - panel.begin_us) / 1e6:.3f} s", size=13, weight="bold")
    colours = dict(zip(gpus, PEER * len(gpus)))

    def launch_colour(e: dict) -> str:
        if e["name"] in ("peers", "circuit"):
            return PEERS if e["name"] == "peers" else CIRCUIT
        return TRANSFER if e["name"] in TRANSFERS else LAUNCH
    for gpu in gpus:
        drawing.text(LEFT - 8, drawing.y + LANE - 2, gpu, anchor="end")
        lane(drawing, panel, rows["ranks"].get(gpu, []), launch_colour)
        for port in sorted(p for p in rows["circuits"] if p.rsplit(".", 1)[0] == gpu):
            drawing.text(LEFT - 8, drawing.y + LANE - 2, port.rsplit(".", 1)[1], size=9, anchor="end")
            lane(drawing, panel, rows["circuits"][port], lambda e: colours[e["name"].rsplit(".", 1)[0]])
        drawing.y += GAP


def legend(drawing: Drawing, gpus: list[str]) -> None:
    drawing.y += 8
    x = float(LEFT)
    for text, colour in [("collective", LAUNCH), ("transfer", TRANSFER), ("waits for peers", PEERS), ("waits for a circuit", CIRCUIT), *((f"joined to {g}", c) for g, c in zip(gpus, PEER * len(gpus)))]:
        drawing.box(x, 11, colour, 11)
        drawing.text(x + 15, drawing.y + 10, text)
        x += 26 + 6.4 * len(text)
    drawing.y += 22


def picture(path: pathlib.Path, panels: list[Panel], rail: int = 0) -> None:
    """Of the GPUs of one rail. Panels share their scale of time only where their iterations last as long."""
    drawing, all_rows = Drawing(), [rows_of(p.trace) for p in panels]
    gpus = sorted({p.rsplit(".", 1)[0] for rows in all_rows for p in rows["circuits"] if p.split(".")[1] == f"g{rail}"})
    for panel, rows in zip(panels, all_rows):
        draw_panel(drawing, panel, gpus, rows)
    legend(drawing, gpus)
    path.write_text(drawing.svg())
