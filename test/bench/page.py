"""A page of results for docs/results: what was measured, when and where, and what no row of the table has room for."""
import datetime
import os
import pathlib
import platform

import figure
import scaling_rows


def machine() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


def text(figures: list[figure.Figure], groups: list[str], load: tuple[float, float]) -> str:
    """`load`: before and after, of one minute."""
    turn = ", at real-time priority (chrt -f 1)" if os.sched_getscheduler(0) == os.SCHED_FIFO else ""
    parts = [f"# Benchmarks: {', '.join(groups)}\n",
             f"Written by `test/bench/run.py build --only {' '.join(groups)} --page` on {datetime.date.today()}; {machine()}; "
             f"load {load[0]:.1f} before, {load[1]:.1f} after{turn}. `docs/benchmarks.md` says what the rows mean.\n",
             figure.markdown(figures)]
    if "scaling" in groups:
        parts.append(scaling_rows.wide_table(figures))
    return "\n".join(parts)
