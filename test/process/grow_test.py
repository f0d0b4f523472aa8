"""A communicator that grows: its new members know it by another id than the old ones, and it is held all the same."""
import sys

from acts import Act
from cases import case, expect, run
from cluster import Shape


@case("a communicator that has grown by a rank of another node is held, and so is one that is split from it")
def grown(context) -> None:
    with Act(context, "grown", Shape(nodes=3, gpus=1, ports=2, dark_ms=2), "grow_rank.py") as act:
        act.until(lambda: act.said("rank0", "rank1", "rank2"), "all sums")
        groups = act.cluster.ctl("groups")["groups"]
        expect(sorted((g["size"], g["verdict"]) for g in groups) == [(2, "enforced"), (3, "enforced"), (3, "enforced")],
               f"held are not the old one, the grown one and its child: {groups}")
        act.end()


if __name__ == "__main__":
    sys.exit(run())
