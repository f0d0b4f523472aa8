"""Does a workload end by itself, on any NCCL and without Opus?

What waits for what follows from the programs alone, whatever the times: the graph of it has a cycle, or the workload
ends. What NCCL does is taken at its strictest:

- a host makes the connections that a call is the first to use, pairs before rings, and blocks until the others make them;
- a kernel waits for the streams of its calls and for the one before it of its communicator;
- of a kernel's calls the collectives come first, then the transfers, all at one time; each waits for its members;
- communicators of one group launch one after another, in the order of a number that nobody knows: both orders must end;
- a communicator's creation and its end are met by all, and the end waits for its kernels;
- a host has a queue: with so much in it that has not ended it blocks before the next launch (CUDA's own holds 1,024 launches
  and more, the launch ring OPUS_RING_SLOTS).
"""
from workload_text import Workload

PAIRWISE = {"all_to_all", "gather", "scatter"}
RING = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}
CALLS = PAIRWISE | RING | {"send", "recv"}


def is_played(step: dict, iteration: int) -> bool:
    return iteration == 0 if step.get("first_only") else (iteration + 1) % step.get("every", 1) == 0


def stuck(w: Workload, queue: int = 0) -> list[str]:
    """What can never happen; empty: the workload ends. `queue`: slots, of which a launch takes one, and one more for each two of its
    calls; 0: it has no end."""
    return _Graph(w, False, queue).stuck() or _Graph(w, True, queue).stuck()


def transfers(step: dict, members: list[int], rank: int) -> list[tuple[int, int]]:
    """(source, target) of what a rank sends and receives in a call, as ranks of the communicator."""
    me, do = members.index(rank), step["do"]
    others = [r for r in range(len(members)) if r != me]
    if do == "send" or do == "recv":
        pair = (me, step["peer"]) if do == "send" else (step["peer"], me)
        return [pair] if step["peer"] != me else []
    root = step.get("root", 0)
    if do == "all_to_all":
        return [(me, r) for r in others] + [(r, me) for r in others]
    if do == "gather":
        return [(r, me) for r in others] if me == root else [(me, root)]
    return [(me, r) for r in others] if me == root else [(root, me)]


class _Rank:
    def __init__(self, host: int):
        self.host, self.tails, self.events = host, {}, {}
        self.last: dict[str, int] = {}       # of a communicator: its last kernel's end
        self.lives: dict[str, int] = {}      # how often it was created
        self.ends: dict[str, int] = {}
        self.known: set = set()              # connections
        self.taken = 0                       # slots of the queue, in all
        self.numbers: dict = {}


class _Graph:
    def __init__(self, w: Workload, backwards: bool, queue: int):
        self.w, self.backwards, self.queue = w, backwards, queue
        self.gives: dict[int, tuple] = {}      # the end of a launch -> its rank, slots
        self.full: list[list] = []             # of a rank: slots that must have been given back, and who waits for it; in order
        self.follow: list[list[int]] = []
        self.waits: list[int] = []
        self.meetings: dict[tuple, list] = {}  # what meets -> its node, how many are still to come
        self.parents = {c["comm"]: c.get("parent", "") for c in w.comms}
        self.groups = {(c["comm"], r): g for c in w.comms for g in c["groups"] for r in g}
        for rank, program in enumerate(w.programs):
            self.rank, self.state = rank, _Rank(self.node())
            self.full.append([])
            self.run(program)

    # --- the graph -------------------------------------------------------------------------------

    def node(self, *after: int | None) -> int:
        self.follow.append([])
        self.waits.append(0)
        for a in after:
            if a is not None:
                self.edge(a, len(self.waits) - 1)
        return len(self.waits) - 1

    def edge(self, a: int, b: int) -> None:
        self.follow[a].append(b)
        self.waits[b] += 1

    def meet(self, what: tuple, size: int, comes: int, goes: int) -> None:
        """`comes` is this rank's arrival, `goes` what waits for everybody's."""
        if what not in self.meetings:
            self.meetings[what] = [self.node(), size]
        meeting = self.meetings[what]
        meeting[1] -= 1
        self.edge(comes, meeting[0])
        self.edge(meeting[0], goes)

    def stuck(self) -> list[str]:
        absent = {m[0]: what for what, m in self.meetings.items() if m[1] != 0}
        ready = [n for n, waits in enumerate(self.waits) if waits == 0 and n not in absent]
        waits, done = list(self.waits), 0
        given = [0] * len(self.full)
        full = [list(reversed(f)) for f in self.full]

        def arrive(n: int) -> None:
            waits[n] -= 1
            if waits[n] == 0 and n not in absent:
                ready.append(n)

        while ready:
            done += 1
            at = ready.pop()
            if at in self.gives:
                rank, slots = self.gives[at]
                given[rank] += slots
                while full[rank] and full[rank][-1][0] <= given[rank]:
                    arrive(full[rank].pop()[1])
            for n in self.follow[at]:
                arrive(n)
        if done == len(waits):
            return []
        return [str(what) for what, m in self.meetings.items() if waits[m[0]] > 0 or m[0] in absent] or ["a full queue"]

    # --- a rank's program ------------------------------------------------------------------------

    def run(self, program: list[dict]) -> None:
        s, group = self.state, None
        for iteration in range(self.w.head["iterations"]):
            for step in program:
                if not is_played(step, min(iteration, 1) if self.w.captured else iteration):
                    continue
                do, stream = step["do"], step.get("stream")
                if do == "group_begin":
                    group = []
                elif do == "group_end":
                    self.launch(group)
                    group = None
                elif do in CALLS:
                    self.launch([step]) if group is None else group.append(step)
                elif do == "compute":
                    s.tails[stream] = self.node(s.host, s.tails.get(stream))
                elif do == "record":
                    s.tails[stream] = s.events[step["event"]] = self.node(s.host, s.tails.get(stream))
                elif do == "wait":
                    s.tails[stream] = self.node(s.host, s.tails.get(stream), s.events.get(step["event"]))
                elif do == "sync":
                    self.sync([stream] if stream else list(s.tails))
                elif do == "create" or do == "destroy":
                    self.life(do, step["comm"])
            self.sync(list(s.tails))

    def sync(self, streams: list[str]) -> None:
        s = self.state
        s.host = self.node(s.host, *(s.tails.get(stream) for stream in streams))

    def life(self, do: str, comm: str) -> None:
        s, members = self.state, self.groups.get((comm, self.rank), [])
        parent = self.parents[comm]
        asked = members if do == "destroy" or not parent else self.groups[parent, self.rank]
        times = s.lives if do == "create" else s.ends
        times[comm] = times.get(comm, 0) + 1
        reached = self.node(s.host, s.last.pop(comm, None) if do == "destroy" else None)
        s.host = self.node(reached)
        self.meet((do, comm, min(asked), times[comm]), len(asked), reached, s.host)
        s.known = {k for k in s.known if k[1] != comm}
        s.numbers = {k: n for k, n in s.numbers.items() if k[1] != comm}

    def launch(self, calls: list[dict]) -> None:
        s = self.state
        comms = sorted({c["comm"] for c in calls}, reverse=self.backwards)
        of = {comm: [c for c in calls if c["comm"] == comm] for comm in comms}
        slots = {comm: 1 + len(of[comm]) // 2 for comm in comms}
        self.take(sum(slots.values()))
        for kind in ("pair", "ring"):
            self.connect(kind, of)
        for comm in comms:
            streams = list({c["stream"]: None for c in of[comm]})
            start = self.node(s.host, s.last.get(comm), *(s.tails.get(stream) for stream in streams))
            rings_done, end = self.node(start), self.node()
            self.edge(rings_done, end)
            for call in of[comm]:
                self.move(call, start, rings_done, end)
            s.last[comm] = end
            self.gives[end] = (self.rank, slots[comm])
            s.tails.update(dict.fromkeys(streams, end))

    def take(self, slots: int) -> None:
        s = self.state
        s.taken += slots
        if self.queue and s.taken > self.queue:
            s.host = self.node(s.host)
            self.waits[s.host] += 1
            self.full[self.rank].append((s.taken - self.queue, s.host))

    def connect(self, kind: str, of: dict[str, list[dict]]) -> None:
        s = self.state
        reached, s.host = s.host, self.node(s.host)
        for comm, calls in of.items():
            members = self.groups[comm, self.rank]
            for call in calls:
                ring = call["do"] in RING
                pairs = [()] if ring else transfers(call, members, self.rank)
                for pair in pairs if ring == (kind == "ring") and len(members) > 1 and self.moves(call) else []:
                    what = (kind, comm, *pair)
                    if what not in s.known:
                        s.known.add(what)
                        self.meet((*what, min(members), s.lives.get(comm, 0)), 2 if pair else len(members), reached, s.host)

    def move(self, call: dict, start: int, rings_done: int, end: int) -> None:
        members, comm = self.groups[call["comm"], self.rank], call["comm"]
        if len(members) == 1 or not self.moves(call):
            return
        if call["do"] in RING:
            self.meet(self.number(("ring", comm), members), len(members), start, rings_done)
            return
        for pair in transfers(call, members, self.rank):
            self.meet(self.number(("pair", comm, *pair), members), 2, rings_done, end)

    @staticmethod
    def moves(call: dict) -> bool:
        """Empty collectives are dropped; empty transfers are not."""
        return call["bytes"] > 0 or call["do"] in ("send", "recv")

    def number(self, sequence: tuple, members: list[int]) -> tuple:
        s = self.state
        n = s.numbers[sequence] = s.numbers.get(sequence, 0) + 1
        return (*sequence, "n", n, min(members), s.lives.get(sequence[1], 0))
