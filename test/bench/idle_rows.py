"""What the daemons do while the job computes: how often each process wakes."""
import pathlib
import time

from figure import Figure
from stage import Stage

NODES, GPUS = 4, 4
WATCH_S = 20
SETTLE_S = 3
LOOK_S = 0.01
BURST_S = 0.05  # what follows a wake so soon belongs to it: threads, and daemons, hand one event to each other
GOAL = 1.0


def switches(pid: int) -> dict[str, int]:
    """Context switches of each thread, voluntary or not: it slept and ran again."""
    found = {}
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        text = status.read_text()
        name = text.split("Name:", 1)[1].split("\n", 1)[0].strip()
        found[f"{name}/{status.parent.name}"] = sum(
            int(line.split()[1]) for line in text.splitlines() if "ctxt_switches" in line)
    return found


def watch(pids: list[int]) -> dict[int, dict]:
    """For each process: wakes a second (bursts of any of its threads), switches a second, by thread."""
    start = {pid: switches(pid) for pid in pids}
    last, wakes = dict(start), dict.fromkeys(pids, 0)
    begin = time.monotonic()
    woke = dict.fromkeys(pids, begin - BURST_S)
    while (now := time.monotonic()) - begin < WATCH_S:
        time.sleep(LOOK_S)
        for pid in pids:
            seen = switches(pid)
            if seen != last[pid] and now - woke[pid] > BURST_S:
                wakes[pid] += 1
                woke[pid] = now
            last[pid] = seen
    seconds = now - begin
    return {pid: {"wakes_per_s": wakes[pid] / seconds,
                  "switches_per_s": sum(last[pid].values()) / seconds - sum(start[pid].values()) / seconds,
                  "threads": {t: (last[pid][t] - start[pid].get(t, 0)) / seconds for t in last[pid]}} for pid in pids}


def rows(build: pathlib.Path, runs: int, core: int, other: int) -> list[Figure]:
    with Stage(build) as stage:
        fabric = stage.fabric(nodes=NODES, gpus=GPUS, ports=2)
        controller, address = stage.controller(fabric)
        managers = [stage.manager(f"n{n}", address) for n in range(NODES)]
        time.sleep(1)
        stage.start("bench_idle_ranks", ["--gpus", str(GPUS), *[str(socket) for _, socket in managers]])
        time.sleep(SETTLE_S)
        groups = {"opus-manager": [child.pid for child, _ in managers], "opus-controller": [controller.pid],
                  "opus-ocs-emu": [child.pid for child in stage.emulators]}
        seen = watch([pid for pids in groups.values() for pid in pids])
    figures = []
    for name, pids in groups.items():
        most = max(pids, key=lambda pid: seen[pid]["wakes_per_s"])
        wakes = seen[most]["wakes_per_s"]
        # A wake more or less at the ends of the watch is no miss.
        figures.append(Figure(f"idle, {name}", f"{wakes:.2f} wakes/s", f"{seen[most]['switches_per_s']:.1f} thread switches/s",
                              None, f"<= {GOAL:g} wake/s", wakes <= GOAL + 1.5 / WATCH_S,
                              data={str(pid): seen[pid] for pid in pids}))
    return figures
