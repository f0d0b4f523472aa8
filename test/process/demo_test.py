"""`make demo` itself, shrunk: its table, and that nothing is left of it however it ends."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from cases import ROOT, SLOW, case, expect, run
from cluster import Leftovers, Shape
from cluster.leftovers import MARK, marked_processes
from interruption import Interruption

DEMO = ROOT / "tools" / "opus-demo"
PLACES = 40 if SLOW == 1 else 10


def start(context, logs: str, iterations: int, *more: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, str(DEMO), "--build", str(context.build.folder), "--logs", logs + "/demo",
                             "--iterations", str(iterations), "--scale-time", "1/20" if SLOW == 1 else "1/5",
                             "--scale-bytes", "1/8192", *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=dict(os.environ, **{MARK: context.mark}), start_new_session=True)


@case("the demo ends by itself with its table, its trace and its picture")
def whole(context) -> None:
    logs = tempfile.mkdtemp(prefix="demo-test-")
    demo = start(context, logs, 2)
    try:
        said, _ = demo.communicate(timeout=200 * SLOW)
        expect(demo.returncode == 0, f"it ended with {demo.returncode}:\n{said}")
        for word in ("iteration time", "overhead", "reconfigurations", "bytes lost in the dark", "misdelivered", "suspensions",
                     "launches gated", "control plane", "time scale", "on demand", "provisioned", "dark time hidden"):
            expect(word in said, f"the table lacks '{word}':\n{said}")
        events = json.loads((pathlib.Path(logs) / "demo" / "trace.json").read_text())["traceEvents"]
        expect(sum(e.get("ph") == "X" for e in events) > 100, "the trace is nearly empty")
        drawn(pathlib.Path(logs) / "demo" / "rail.svg")
    finally:
        demo.kill()  # and with it, by the kernel, all that it started
        demo.wait()
        shutil.rmtree(logs, ignore_errors=True)


def drawn(picture: pathlib.Path) -> None:
    """Both variants of a rail: each GPU with a port, circuits of several peers in it, and launches."""
    root = xml.etree.ElementTree.parse(picture).getroot()
    texts, boxes = ([e for e in root if e.tag.endswith(tag)] for tag in ("text", "rect"))
    said = [t.text for t in texts]
    for title in ("on demand", "provisioned"):
        expect(sum(t.startswith(title + ": ") for t in said) == 1, f"the picture lacks '{title}': {said}")
    for gpu in (f"n{n}.g0" for n in range(4)):
        expect(said.count(gpu) == 2, f"{gpu} is {said.count(gpu)} times in the picture")
    colours = {b.get("fill") for b in boxes}
    expect(len(boxes) > 100 and len(colours) > 5, f"{len(boxes)} boxes of {len(colours)} colours")


def interrupted(context, number: signal.Signals, only: str) -> None:
    logs = tempfile.mkdtemp(prefix="demo-test-")
    left = Leftovers(context.mark)
    demo = start(context, logs, 400, "--only", only)
    try:
        until = time.monotonic() + 60 * SLOW
        while len(marked_processes(context.mark)) < (26 if only != "always-lit" else 21):  # ranks, daemons, and itself
            expect(demo.poll() is None and time.monotonic() < until, f"not all was started: {marked_processes(context.mark)}")
            time.sleep(0.05)
        time.sleep(2)
        expect(demo.poll() is None, "it ended before it was interrupted")
        demo.send_signal(number)
        demo.communicate(timeout=30 * SLOW)
        expect(demo.returncode != 0, "it said that all was well")
        found = left.found(5 * SLOW)
        if number == signal.SIGKILL:  # nobody can remove its folder then; processes and shared memory go
            for path in [f for f in found if f.startswith(tempfile.gettempdir() + "/opus-")]:
                found.remove(path)
                shutil.rmtree(path, ignore_errors=True)
        expect(not found, f"left behind: {found}")
    finally:
        demo.kill()
        demo.wait()
        shutil.rmtree(logs, ignore_errors=True)


for sent, during in ((signal.SIGINT, "always-lit"), (signal.SIGINT, "provisioned"), (signal.SIGTERM, "on-demand"), (signal.SIGKILL, "provisioned")):
    case(f"{sent.name} in the {during} run leaves no process and no shared memory")(
        lambda c, sent=sent, during=during: interrupted(c, sent, during))


@case("a cluster that is interrupted while it starts leaves nothing, wherever it was")
def interrupted_start(context) -> None:
    def start_one(at: int) -> Interruption:
        with Interruption(at) as interruption, context.cluster(Shape(nodes=1, gpus=1, ports=2)):
            interruption.over()
        return interruption
    lines = start_one(0).lines
    expect(lines > 100, f"only {lines} lines were seen")
    left = Leftovers(context.mark)
    for at in range(1, lines, lines // PLACES):
        place = start_one(at).place
        expect(place and not (found := left.found(0)), f"interrupted at {place or 'no line'}: left behind: {found}")


if __name__ == "__main__":
    sys.exit(run())
