"""What the random jobs of random_workload.py and random_campaign.py do, of what NCCL allows: counted, so that it shows when the
drawing ceases to meet something."""
from bare_nccl import CALLS, RING, is_played
from random_campaign import FEW_SLOTS, SHAPES, late_rank, ring_slots
from random_workload import random_workload
from workload_text import Workload

PLANNED = 4   # a plan needs so many iterations (docs/protocol.md)
# Of a hundred jobs at least so many, about half of what is drawn.
LEAST = {
    "more iterations than five": 12,
    "odd iterations after the fourth": 10,
    "iterations of other lengths": 8,
    "captured iterations": 15,
    "collectives and transfers of one communicator": 45,
    "launches of one communicator on several streams": 45,
    "first collective after a transfer on its stream": 25,
    "first use in the second half of a program": 45,
    "transfer of zero bytes": 45,
    "split of a split": 15,
    "communicator created in mid-job": 22,
    "communicator destroyed before others are used": 20,
    "communicator created after one was destroyed": 5,
    "communicator created again": 4,
    "group over several communicators": 35,
    "group of collectives and transfers of one communicator": 30,
    "group of collectives and transfers of several communicators": 15,
    "receive on a stream of its own": 45,
    "rank that comes late": 1,
    "small launch ring": 15,
    "small launch ring that goes round in one iteration": 8,
}


def drawn(seed: int) -> set[str]:
    """Of the first job of a seed, under stream gates."""
    shape = SHAPES[seed % len(SHAPES)]
    w = random_workload(seed, shape.nodes, shape.gpus, shape.ports, reorder=False, domain=shape.domain, captures=True,
                        slots=ring_slots(seed))
    found = _of_job(w)
    for rank in range(len(w.programs)):
        found |= _of_rank(w, rank)
    if late_rank(seed, len(w.programs)):
        found.add("rank that comes late")
    if ring_slots(seed):
        found.add("small launch ring")
        if max(map(_calls, w.programs)) > FEW_SLOTS:
            found.add("small launch ring that goes round in one iteration")
    return found


def _of_job(w: Workload) -> set[str]:
    parents = {c["comm"]: c.get("parent", "") for c in w.comms}
    iterations, steps = w.head["iterations"], [s for program in w.programs for s in program]
    said = {
        "more iterations than five": iterations > 5,
        "odd iterations after the fourth": any(s.get("every", 1) > 1 and any(is_played(s, i) for i in range(PLANNED, iterations))
                                               for s in steps if s["do"] in CALLS),
        "iterations of other lengths": "lengths" in w.head,
        "captured iterations": w.captured,
        "split of a split": any(parents.get(parent) for parent in parents.values()),
    }
    return {what for what, true in said.items() if true}


def _calls(program: list[dict]) -> int:
    return sum(s["do"] in CALLS and is_played(s, 1) for s in program)


class _Use:
    def __init__(self):
        self.streams, self.kinds, self.last = set(), set(), ""


def _of_rank(w: Workload, rank: int) -> set[str]:
    found, program, uses, known = set(), w.programs[rank], {}, set()
    ended, made, group = [], set(), None
    for at, s in enumerate(program):
        if s["do"] == "group_begin":
            group = []
        elif s["do"] == "group_end":
            found |= _of_group(group)
            group = None
        elif s["do"] == "create":
            found |= {"communicator created in mid-job"} if at > 0 else set()
            found |= {"communicator created after one was destroyed"} if ended else set()
            found |= {"communicator created again"} if s["comm"] in ended or s["comm"] in made else set()
            made.add(s["comm"])
        elif s["do"] == "destroy":
            ended.append(s["comm"])
        elif s["do"] in CALLS:
            group = group if group is None else [*group, s]
            found |= {"communicator destroyed before others are used"} if ended else set()
            found |= _of_call(s, uses.setdefault(s["comm"], _Use()))
            use = (s["comm"], s["do"] in RING, s.get("peer"))
            found |= {"first use in the second half of a program"} if use not in known and 2 * at > len(program) else set()
            known.add(use)
    return found


def _of_group(group: list[dict]) -> set[str]:
    comms = {s["comm"] for s in group}
    found = {"group over several communicators"} if len(comms) > 1 else set()
    kinds = {s["do"] in ("send", "recv") for s in group}
    several = len(comms) > 1
    if len(kinds) > 1:
        found.add(f"group of collectives and transfers of {'several communicators' if several else 'one communicator'}")
    return found


def _of_call(s: dict, use: _Use) -> set[str]:
    found, transfer = set(), s["do"] in ("send", "recv")
    said = {
        "transfer of zero bytes": transfer and s["bytes"] == 0,
        "receive on a stream of its own": s["do"] == "recv" and s["stream"] == "receive",
        "first collective after a transfer on its stream": not transfer and use.kinds == {True} and use.last == s["stream"],
    }
    use.kinds.add(transfer)
    use.streams.add(s["stream"])
    use.last = s["stream"]
    said["collectives and transfers of one communicator"] = len(use.kinds) > 1
    said["launches of one communicator on several streams"] = len(use.streams) > 1
    return found | {what for what, true in said.items() if true}
