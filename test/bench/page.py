"""A page of results for docs/results: what was measured, when and where, and what no row of the table has room for."""
import datetime
import os
import pathlib
import sys

import figure
import scaling_rows

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from cluster.machine import machine  # noqa: E402


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
