"""Rank processes: opus-replay, once a rank, and what came of it."""
import dataclasses
import json
import pathlib
import time

from .process import Child, stop_all

EXIT_MEANING = {1: "a result was wrong", 2: "bad arguments or workload", 3: "an NCCL or CUDA error",
                4: "no progress"}


class JobFailed(Exception):
    """Some rank failed, or did not end in time. Names ranks and logs."""


@dataclasses.dataclass
class Play:
    """What every rank of a job is told."""
    workload: pathlib.Path | str
    iterations: int = 0
    scale_bytes: str = "1"
    scale_time: str = "1"
    seed: int = 1
    check: bool = True
    shim: bool = True            # LD_PRELOAD the shim
    without_shim: tuple[int, ...] = ()  # but not in these ranks
    late: tuple[int, ...] = ()   # ranks that begin when they are sent SIGCONT
    steered: bool = True         # ports lead where the manager says; else anywhere (--always-lit)
    trace: bool = False
    graph: bool = False          # all iterations but the first are replays of a CUDA graph
    timeout_s: float = 60        # a rank's own patience without progress
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    rank_env: list[dict[str, str]] | None = None  # and more, of each rank
    places: list[tuple[int, int]] | None = None  # (node, gpu) a rank; None: as the workload says
    devices: list[int] | None = None             # each rank's CUDA ordinal, where its environment changes what it sees

    def read_places(self) -> list[tuple[int, int]]:
        if self.places is None:
            with open(self.workload) as file:
                self.places = [tuple(p) for p in json.loads(file.readline())["places"]]
        return self.places


@dataclasses.dataclass
class JobResult:
    codes: list[int]             # exit codes by rank
    reports: list[dict | None]   # by rank, where the rank wrote one
    seconds: float
    transport: dict[str, int] = dataclasses.field(default_factory=dict)  # stand-in counters, summed over ranks

    def iteration_seconds(self) -> list[float]:
        """From the last rank's end of one iteration to the last rank's end of the next."""
        spans = [r["iterations"] for r in self.reports if r]
        if not spans:
            return []
        ends = [max(s[i]["end_ns"] for s in spans) for i in range(len(spans[0]))]
        begin = min(s[0]["begin_ns"] for s in spans)
        return [(b - a) / 1e9 for a, b in zip([begin, *ends], ends)]

    def total(self, key: str) -> int:
        return sum(r[key] for r in self.reports if r)


class Job:
    def __init__(self, name: str, ranks: list[Child], folder: pathlib.Path):
        self.name, self.ranks, self.folder = name, ranks, folder
        self._begin = time.monotonic()

    def poll(self) -> list[int | None]:
        return [r.process.poll() for r in self.ranks]

    def progress(self, rank: int | None = None) -> int:
        """Iterations that the rank has finished; without a rank, that all have: ranks need not be as far as one another."""
        if rank is None:
            return min(self.progress(r) for r in range(len(self.ranks)))
        return self.ranks[rank].output().count(": iteration ")

    def wait(self, timeout_s: float, each=None, expect_failure: bool = False) -> JobResult:
        """Waits for all ranks; raises JobFailed at the first rank that fails, or after `timeout_s`.

        each: called now and then while waiting. expect_failure: wait for all to end, however they do."""
        until = self._begin + timeout_s
        while None in (codes := self.poll()):
            if each:
                each()
            failed = [r for r, c in enumerate(codes) if c]
            if failed and not expect_failure:
                time.sleep(0.5)  # let others say what they saw
                self._fail("failed", [r for r, c in enumerate(self.poll()) if c])
            if time.monotonic() > until:
                self._fail(f"not ended after {timeout_s:g} s", [r for r, c in enumerate(codes) if c is None])
            time.sleep(0.02)
        if any(codes) and not expect_failure:
            self._fail("failed", [r for r, c in enumerate(codes) if c])
        return self.result(codes)

    def stop(self) -> None:
        stop_all(self.ranks, 0.5)

    def result(self, codes: list[int | None]) -> JobResult:
        reports, transport = [], {}
        for r in range(len(self.ranks)):
            path = self.folder / f"rank{r}.json"
            reports.append(json.loads(path.read_text()) if path.exists() else None)
            for key, value in read_stats(self.folder / f"rank{r}.transport").items():
                transport[key] = transport.get(key, 0) + value
        return JobResult(list(codes), reports, time.monotonic() - self._begin, transport)

    def _fail(self, what: str, ranks: list[int]) -> None:
        codes = self.poll()
        lines = [f"{self.name}: ranks {', '.join(map(str, ranks))} {what}"]
        for r in ranks[:4]:
            why = "" if codes[r] is None else f" (exit code {codes[r]}" + (
                f": {EXIT_MEANING[codes[r]]})" if codes[r] in EXIT_MEANING else ")")
            lines.append(f"  rank {r}{why}, log {self.ranks[r].log}:\n{self.ranks[r].tail()}")
        raise JobFailed("\n".join(lines))


def read_stats(path: pathlib.Path) -> dict[str, int]:
    """What a stand-in wrote at its end: a JSON object of numbers, or lines 'name value'."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = dict(line.replace("=", " ").split()[:2] for line in text.splitlines() if len(line.replace("=", " ").split()) >= 2)
    out = {}
    for key, value in found.items():
        try:
            out[key] = int(value)
        except (TypeError, ValueError):
            pass
    return out
