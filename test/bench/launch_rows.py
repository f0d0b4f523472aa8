"""What a hooked call costs the application's thread: the shim's own instruction counts (test/shim)."""
import json
import pathlib
import subprocess
import tempfile

from figure import Figure, missing

TEST = "shim instructions"
LIMIT_S = 300


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    tests = json.loads(subprocess.check_output(["meson", "introspect", "--tests", str(build)]))
    test = next((t for t in tests if t["name"] == TEST), None)
    if test is None:
        return [missing("instructions of a hooked call", "", f"the build has no test '{TEST}'")]
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "table"
        done = subprocess.run([*test["cmd"], "--table", str(table)], capture_output=True, text=True, timeout=LIMIT_S,
                              cwd=build)
        if not table.exists():
            return [missing("instructions of a hooked call", "", (done.stdout + done.stderr).strip().splitlines()[-1])]
        lines = [line.split("\t") for line in table.read_text().splitlines()]
    floor = next((float(count) for name, count, goal in lines if name.startswith("bare")), None)
    figures = []
    for name, count, goal in lines:
        if name.startswith("bare"):
            continue
        if not goal:
            figures.append(Figure(name, f"{float(count):.1f} instructions", "an unhooked call", None, "(no goal)", True))
            continue
        counted, most = float(count), float(goal)
        push = "push" in name and floor
        figures.append(Figure(name, f"{counted:.1f} instructions", f"{floor:.0f} bare ring" if push else "an unhooked call",
                              counted / floor if push else None, f"<= {most:g}", counted <= most))
    return figures
