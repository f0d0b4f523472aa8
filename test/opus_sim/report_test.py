#!/usr/bin/env python3
"""The page of `opus-sim report`: the same each time, its figures those of --json, and what a real browser makes of it.

    report_test.py BUILD [SUBSTRING...]

OPUS_TEST_BROWSER names a browser (Chromium, or one of its kind); else what is found. `report_test.py BUILD --pictures FOLDER` writes the
pictures of the documentation.
"""
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "process"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import browser  # noqa: E402
import cases  # noqa: E402
from cases import ROOT, Skip, case, expect  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]) / "tools/opus-sim/opus-sim"
RECORDING = ROOT / "test/data/pytorch/pipeline-fsdp.jsonl"
MODEL = ["llama3-8b", "--layers", 4, "--tensor", 2, "--gpus-per-node", 2, "--pipeline", 2, "--data", 2, "--micro-batches", 4]
PLAYED = ["--ports", 2, "--dark-ms", "1,50", "--trials", 5, "--iterations", 6, "--try-ports", 4]

UNITS = {"": 1, "%": 0.01, "ns": 1e-6, "µs": 1e-3, "ms": 1, "s": 1e3, "min": 6e4, "h": 3.6e6, "B": 1, "USD": 1, "W": 1, "KiB": 2**10, "MiB": 2**20,
         "GiB": 2**30, "TiB": 2**40}


def run(*arguments) -> str:
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, timeout=900)
    expect(done.returncode == 0, f"{arguments} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def model_job(folder: str) -> str:
    job = f"{folder}/job.jsonl"
    run("generate", *MODEL, "--out", job)
    return job


def write_one_node(folder: str) -> str:
    job = f"{folder}/one.jsonl"
    run("generate", "llama3-8b", "--layers", 2, "--tensor", 2, "--gpus-per-node", 2, "--out", job)
    return job


def at(data, place: str):
    for key in place.split("/")[1:]:
        data = data[int(key) if isinstance(data, list) else key]
    return data


def check_figures(figures: list, data: dict) -> None:
    """Each figure is what the JSON has at its place, and its text is that, rounded as it says."""
    expect(len(figures) > 100, f"{len(figures)} figures")
    for place, value, text in figures:
        wanted = at(data, place)
        expect(float(value) == wanted, f"{place}: {value} on the page, {wanted} in --json")
        number, unit = re.fullmatch(r"([+-]?[\d,.]+(?:e[+-]?\d+)?) ?(\D*)", text).groups()
        number = number.replace(",", "")
        decimals = len(number.partition(".")[2])
        error = abs(float(number) * UNITS[unit] - wanted)
        # Durations and bytes have three digits at least, which is 0.5 % at most.
        expect(error <= 0.501 * 10**-decimals * UNITS[unit] or error <= 0.005 * abs(wanted), f"{place}: '{text}' for {wanted}")


class Page(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.figures, self.links, self.data, self.script = [], [], None, ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag == "data":
            self.data = [named["data-json"], named["value"], ""]
        if tag == "script":
            expect(named.get("type") == "application/json", f"a script: {named}")
        self.links += [named[key] for key in ("href", "src", "srcset", "action") if key in named]

    def handle_data(self, text):
        if self.data:
            self.data[2] += text
        if self.get_starttag_text() and self.get_starttag_text().startswith("<script"):
            self.script += text

    def handle_endtag(self, tag):
        if tag == "data":
            self.figures.append(self.data)
            self.data = None


@case("a report is the same each time, and its figures are those of --json")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        for job in (model_job(folder), RECORDING):
            first, second = pathlib.Path(folder, "a.html"), pathlib.Path(folder, "b.html")
            data = json.loads(run("report", job, *PLAYED, "--json", "--out", first))
            run("report", job, *PLAYED, "--out", second)
            expect(first.read_bytes() == second.read_bytes(), "the same job gave another page")
            expect(data == json.loads(run("run", job, *PLAYED, "--technologies", "--json")), "report and run differ")
            text = first.read_text()
            page = Page(text)
            check_figures(page.figures, data)
            expect(json.loads(page.script.strip()) == data, "the data within the page")
            expect(all(link.startswith("#") or link == "data:," for link in page.links), f"{page.links}")
            expect(not re.search(r"url\(|@import|https?:", text.split("<script")[0]), "the page leads elsewhere")
            for anchor in ("changes", "times", "technologies", "cost", "rails", "way", "dark", "windows", "load", "basis"):
                expect(f'id="{anchor}"' in text, f"no section {anchor}")


@case("cost and power of the job's network: as `cost` counts them for its nodes, GPUs and ports, with prices of one's own too")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        job, page, prices = model_job(folder), pathlib.Path(folder, "page.html"), pathlib.Path(folder, "prices.toml")
        prices.write_text('name = "a quote"\n[optical_switch.mems]\nports = 320\nusd = 32000\n[packet_switch]\nports = 32\nusd = 20000\nwatts = 900\n')
        short = ["--no-best", "--no-split", "--try-ports", 0, "--iterations", 2, "--dark-ms", 15, "--no-technologies"]
        for ports, options, technologies in ((1, [], "piezo"), (2, ["--prices", prices], "mems,piezo"), (2, ["--generation", "gb200"], "piezo")):
            said = json.loads(run("report", job, *short, "--ports", ports, *options, "--json", "--out", page))
            own, text = said["cost"], page.read_text()
            if options[:1] == ["--prices"]:
                # 15 ms are those of mems: whether it will do or not, it is what the page speaks of.
                expect(own["circuits"][0]["name"] == "circuits, mems" and "a quote" in text, f"{own}")
            alone = json.loads(run("cost", "--servers", 4, "--gpus", 2, "--nic-ports", ports, "--levels", 0, "--technology", technologies, "--json", *options))
            expect(own["packet"] == alone["sizes"][0]["packet"] and own["fabrics"] == alone["fabrics"] and own["prices"] == alone["prices"], f"{own}\n{alone}")
            for network in alone["sizes"][0]["circuits"]:
                expect(network in own["circuits"], f"{network} is not in {own['circuits']}")
            for r in own["ratios"]:
                packet, circuits = (next(n for n in own[k] if n["name"] == r[k]) for k in ("packet", "circuits"))
                expect(abs(r["cost_saved"] - 1 + circuits["usd"] / packet["usd"]) < 1e-9 and abs(r["power_saved"] - 1 + circuits["watts"] / packet["watts"]) < 1e-9, f"{r}")
            whole = [n for n in own["packet"] if not n["notes"]]
            expect(own["cheapest"]["packet"] == min(whole, key=lambda n: n["usd"])["name"] and own["cheapest"]["joins_all"], f"{own['cheapest']}")
            shown = {place for place, _, _ in Page(text).figures}
            for place in ("/cost/packet/3/usd", "/cost/circuits/0/watts", "/cost/cheapest/power_saved", "/cost/fabrics/0/gpus_by_levels/2", "/cost/prices/transceiver/usd"):
                expect(place in shown, f"{place} is not on the page")
            expect(text.count('aria-label="Cost"') == text.count('aria-label="Power"') == 1, "no plots of cost and power")
            # Circuits have parts for ports and transceivers; of a packet network ports' transceivers come beside, where they are priced.
            bars = re.search(r'aria-label="Cost">(.*?)</svg>', text, re.S).group(1).count("<rect")
            expect(bars == sum(len(n["terms"]) for k in ("packet", "circuits") for n in own[k]), f"{bars} parts of bars")
        prices.write_text("[packet_switch]\nport = 3\n")
        for command in ("run", "report"):
            done = subprocess.run([PROGRAM, command, job, "--prices", prices], capture_output=True, text=True, timeout=100)
            expect(done.returncode == 2 and "line 2: packet_switch: unknown key 'port'" in done.stderr, f"{done}")
        alone = json.loads(run("run", write_one_node(folder), *short, "--json"))
        expect(alone["cost"] is None, "a job of one node has a network between nodes")


@case("a report says where it cannot be written")
def _(context):
    done = subprocess.run([PROGRAM, "report", RECORDING, "--no-technologies", "--no-best", "--no-split", "--try-ports", "0", "--out", "/nowhere/page.html"],
                          capture_output=True, text=True, timeout=100)
    expect(done.returncode == 2 and "/nowhere/page.html" in done.stderr, f"{done.returncode}: {done.stderr}")


def opened():
    path = browser.program()
    if not path:
        raise Skip("no browser: apt-get install chromium, or name one in OPUS_TEST_BROWSER")
    return browser.Browser(path)


@case("a real browser shows a report: nothing is asked for, nothing goes wrong, the figures are those of --json")
def _(context):
    with tempfile.TemporaryDirectory() as folder, opened() as page:
        path = pathlib.Path(folder, "report.html")
        data = json.loads(run("report", model_job(folder), *PLAYED, "--json", "--out", path))
        page.window(1200, 900)
        page.open(path.as_uri())
        expect(page.requests() == [path.as_uri()], f"asked for: {page.requests()}")
        expect(page.complaints() == [], f"{page.complaints()}")
        check_figures(page.evaluate("[...document.querySelectorAll('data')].map(d => [d.dataset.json, d.value, d.textContent])"), data)
        expect(json.loads(page.evaluate("document.getElementById('data').textContent")) == data, "the data within the page")
        expect(page.evaluate("document.getElementById('verdict').textContent").replace("µs", "us") == data["conclusion"]["sentence"], "the verdict")
        colours = set()
        for scheme in ("light", "dark"):
            page.scheme(scheme)
            colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        expect(len(colours) == 2, f"light and dark look alike: {colours}")
        for width in (1200, 420):
            page.window(width, 900)
            wide = page.evaluate("document.documentElement.scrollWidth")
            expect(wide <= width, f"{wide} pixels wide in a window of {width}")
        # Every picture is drawn, and its text lies within the page.
        page.window(1200, 900)
        expect(page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 20)"), "a plot has no height")
        outside = page.evaluate("[...document.querySelectorAll('svg text')].filter(t => { const b = t.getBoundingClientRect();"
                                " return b.left < 0 || b.right > 1200; }).map(t => t.textContent)")
        expect(outside == [], f"outside of the page: {outside}")


def pictures(folder: pathlib.Path) -> None:
    """The pictures of docs/opus-sim.md."""
    with tempfile.TemporaryDirectory() as scratch, opened() as page:
        path = pathlib.Path(scratch, "report.html")
        job = f"{scratch}/job.jsonl"  # the paper's
        run("generate", "llama3-8b", "--layers", 16, "--tensor", 4, "--gpus-per-node", 4, "--pipeline", 2, "--data", 2, "--sharding", "fsdp", "--out", job)
        run("report", job, "--ports", 2, "--out", path)
        page.window(1180, 1500, 0.72)
        for scheme in ("light", "dark"):
            page.scheme(scheme)
            page.open(path.as_uri())
            (folder / f"opus-sim-report-{scheme}.png").write_bytes(page.picture())


if __name__ == "__main__":
    if "--pictures" in sys.argv:
        pictures(pathlib.Path(sys.argv[sys.argv.index("--pictures") + 1]))
        sys.exit(0)
    sys.exit(cases.run(programs=False))
