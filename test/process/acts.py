"""Ranks in Python that do what few programs do, step by step as a test lets them."""
import sys

from cases import MARK, ROOT, SANITIZED, SLOW, Skip, expect, nothing_in_the_dark, wait_for
from cluster import Shape
from cluster.program import Program, ProgramFailed, program_env

SHAPE = Shape(nodes=3, gpus=1, ports=1, dark_ms=2)
PATIENCE_S = 20  # without progress
ENV = {"OPUS_GATE": "stream", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}


class Act:
    """Three ranks that play an act of a program, one a node. Context manager."""

    def __init__(self, context, act: str, shape: Shape = SHAPE, program: str = "graph_rank.py",
                 ranks: tuple[int, ...] = (0, 1, 2)):
        if SANITIZED:
            raise Skip("ranks are Python's here, which sanitizers judge, too")
        self.context, self.act, self.program, self.cluster, self.numbers = context, act, program, context.cluster(shape), ranks

    def __enter__(self) -> "Act":
        self.cluster.__enter__()
        self.folder = self.cluster.folder / self.act
        self.folder.mkdir()
        env = program_env(self.cluster, shim=True, gpu="h100", scale_time=0, times=None, job=self.act,
                          more={"TMPDIR": str(self.folder), MARK: self.context.mark, **ENV, "OPUS_REQUIRE": "enforce"})
        command = [sys.executable, str(ROOT / "test" / "process" / self.program), str(self.folder), self.act]
        self.ranks = [Program(self.cluster, command, {**env, "RANK": str(r), "WORLD_SIZE": "3", "LOCAL_RANK": "0"}, self.folder / f"log{r}",
                              quiet=True) for r in self.numbers]
        return self

    def __exit__(self, *_) -> None:
        for rank in self.ranks:
            rank.stop(0)
        self.cluster.__exit__()

    def said(self, *what: str) -> bool:
        return all((self.folder / w).exists() for w in what)

    def say(self, what: str) -> None:
        (self.folder / what).touch()

    def logs(self) -> str:
        return "".join(f"\nrank {n}:\n" + (rank.log.read_text(errors="replace") if rank.log.exists() else "") for n, rank in enumerate(self.ranks))

    def until(self, true, what: str, dead: tuple[int, ...] = ()) -> None:
        def looked() -> bool:
            for n, rank in enumerate(self.ranks):
                if n not in dead and rank.process.poll() is not None:
                    raise AssertionError(f"rank {n} ended before {what}{self.logs()}")
            return true()
        try:
            wait_for(looked, what, seconds=PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; waiting: {self.cluster.waiting()}{self.logs()}") from None

    def end(self, dead: tuple[int, ...] = (), lossless: bool = True) -> None:
        """All have played it to the end; and nothing of them is left, nothing waits, nothing has passed."""
        left = [n for n in range(len(self.ranks)) if n not in dead]
        self.until(lambda: self.said(*(f"rank{self.numbers[n]}" for n in left)), "the end of the act", dead)
        self.say("end")
        try:
            for n in left:
                self.ranks[n].wait(PATIENCE_S * SLOW, 2 * PATIENCE_S * SLOW)
        except ProgramFailed as error:
            raise AssertionError(f"{error}{self.logs()}") from None
        waiting = self.cluster.waiting()
        expect(not waiting, f"launches of ranks that have ended wait: {waiting}")
        if lossless:
            nothing_in_the_dark(self.cluster)
