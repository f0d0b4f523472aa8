#!/usr/bin/env python3
"""The page of the papers' figures: published beside ours, what must come out exactly, and what is said where a figure is not reproduced.

    paper_test.py BUILD [SUBSTRING...]
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/process"))
sys.path.insert(0, str(ROOT / "tools"))
import cases  # noqa: E402
from cases import case, expect  # noqa: E402
from paper.played import fitted  # noqa: E402

BUILD = pathlib.Path(sys.argv[1])


def page(*arguments, code=0) -> str:
    done = subprocess.run([sys.executable, str(ROOT / "tools/opus-paper"), "--build", str(BUILD), *arguments], capture_output=True, text=True, timeout=500)
    expect(done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout if code == 0 else done.stderr


def rows(text: str) -> dict:
    """figure: (published, ours, difference)"""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: tuple(row[1:]) for row in cells if len(row) == 4}


@case("GPUs of a fabric, cost and power: what is published comes out, and what does not is named")
def _(context):
    text = page("--only", "table3,cost")
    found = rows(text)
    expect(found["piezo, 576 ports, domains of 72"] == ("20,736", "20,736", "+0"), text)
    expect(found["piezo, 576 ports, domains of 8"] == ("2,304", "2,304", "+0"), text)
    for name, (theirs, ours, difference) in found.items():
        if not theirs or not theirs[0].isdigit() or theirs == "70.50 %" or "domains" in name:
            continue
        expect(abs(float(difference.split()[0])) < 0.3, f"{name}: {theirs} {ours} {difference}")
    expect(sum(1 for row in found.values() if row[0].endswith(("x", "%"))) == 10, text)
    expect("**Not reproduced**: v1's 70.5 %" in text and found["cost saved, DGX H200, 400 Gbit/s (v1, figure 7)"][1] == "76.74 %", text)


@case("the simulation of 8 GPUs: on demand, dark time adds what the paper's simulator adds; the same page each time")
def _(context):
    text = page("--only", "simulated")
    found = rows(text)
    for dark, added in ((1, "+2.0"), (10, "+20.0"), (50, "+100.0")):
        expect(found[f"on demand, {dark} ms"] == (f"{added} ms", f"{added} ms", "+0.0 ms"), text)
    again = page("--only", "simulated")
    expect(rows(again) == found, "the same programs gave another table")


@case("windows are counted, or it is said that they are not")
def _(context):
    text = page("--only", "windows")
    expect("windows over 1 ms" in rows(text) or "Not counted" in text, text)


@case("a model is fitted to one run, and a run that nothing fits is refused")
def _(context):
    x = fitted(lambda scale: 50 + 200 * scale, 1000, 1.0)
    expect(abs(50 + 200 * x - 1000) < 0.11, f"{x}")
    x = fitted(lambda scale: max(900, 400 * scale), 1000, 1.0)
    expect(abs(x - 2.5) < 1e-3, f"{x}")
    for wanted in (lambda scale: 500.0, lambda scale: 2000 + scale):
        try:
            fitted(wanted, 1000, 1.0)
        except ValueError as error:
            expect("nothing near 1" in str(error), f"{error}")
        else:
            raise AssertionError("what cannot be reached was reached")


@case("a section that there is not is refused")
def _(context):
    expect("there is no section figure9" in page("--only", "cost,figure9", code=2), "another message")


if __name__ == "__main__":
    sys.exit(cases.run(programs=False))
