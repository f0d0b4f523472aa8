"""Several GPUs a process, a thread each, over nodes."""
import sys

from acts import Act
from cases import case, expect, run
from cluster import Shape


@case("two processes of two GPUs on two nodes, a thread a GPU: each thread's launches are held, while communicators come and go")
def threads(context) -> None:
    with Act(context, "threads", Shape(nodes=2, gpus=2, ports=2, dark_ms=2), "threads_rank.py", ranks=(0, 2)) as act:
        act.end()
        expect(act.cluster.counters()["demands"] > 0, "nobody asked for circuits")


if __name__ == "__main__":
    sys.exit(run())
