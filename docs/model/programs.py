"""The scenarios of docs/protocol.md, and random programs, for scenarios.py.

A program is, per rank, a list of streams; a stream a list of launches; a launch a name, the keys it brings, and launches
of the rank that its gate waits for (an event, or the order of its communicator: `after`). A key is met by every launch
that names it. `light`: the circuits that a key needs; a circuit is a pair of ports, 'rank.port'.
`data`: the keys at which the bytes really meet, where the rule taken away asks under others. `turn`: launches behind which NCCL puts it although its gate does not wait for them; host=True: called by the host, in no stream.
`runs`: what all the members of a key expect to follow it; `never`: keys that are expected and do not come.
`rounds`: keys that come again and again; `quick`: also in make test; `must`: launches that have to end, if not all; `switches`: the circuits of each.
`without`: for a rule of the shim, the program as it would ask without the rule.
"""
import random


def L(name, keys, after=(), turn=(), host=False, data=None):
    return {"name": name, "keys": keys.split(), "data": (data or keys).split(), "after": list(after), "turn": list(turn), "host": host}


def union(masks):
    out = 0
    for m in masks:
        out |= m
    return out


PAIRS = {"01": ("0.0", "1.0"), "02": ("0.0", "2.0"), "12": ("1.0", "2.0")}

SCENARIOS = {
    "A1": dict(ranks={0: [[L("xy", "x y")]], 1: [[L("x1", "x"), L("y1", "y")]]},
               light={"x": ["01"], "y": ["01"]}, breaks=["UNION_OF_KEYS"]),
    # Suspension would end it too, with two moves more: so it is looked at without.
    "A2": dict(ranks={0: [[L("ab", "a b")]],
                      1: [[L("g1", "g")]],
                      2: [[L("a2", "a"), L("b2", "b")], [L("g2", "g")]]},
               light={"a": ["02"], "b": ["02"], "g": ["12"]}, base=["NO_SUSPENSION", "NO_LAGGARDS"], breaks=["NO_JOINERS"]),
    "A3": dict(quick=True, ranks={0: [[L("X0", "X")]],
                      1: [[L("a1", "a"), L("X1", "X"), L("b1", "b")]],
                      2: [[L("ab", "a b")]]},
               light={"a": ["12"], "b": ["12"], "X": ["01"]}, breaks=["NO_SUSPENSION"]),
    # Receives first on both sides. Pairs numbered without direction would meet the two receives, and the two sends.
    "F": dict(ranks={0: [[L("r0", "q"), L("s0", "p")]],
                     1: [[L("r1", "p")], [L("s1", "q")]]},
              light={"p": ["01"], "q": ["01"]},
              without={"UNDIRECTED_PAIRS": {0: [[L("r0", "first", data="q"), L("s0", "second", data="p")]],
                                            1: [[L("r1", "first", data="p")], [L("s1", "second", data="q")]]}},
              breaks=["UNDIRECTED_PAIRS"]),
    # L on another communicator. A first use is called by the host, which then goes on; held until its kernel ends, it does not.
    "G1": dict(ranks={0: [[L("L0", "L"), L("C0", "C", after=["conn0"])], [L("conn0", "conn", host=True)]],
                      1: [[L("L1", "L", after=["conn1"])], [L("conn1", "conn", host=True)], [L("C1", "C", after=["conn1"])]]},
               light={"L": ["01"], "C": ["01"], "conn": ["01"]},
               without={"NO_CONNECT_KEY": {0: [[L("L0", "L"), L("C0", "C")]],
                                           1: [[L("L1", "L", after=["C1"])], [L("C1", "C")]]}},
               breaks=["NO_CONNECT_KEY"]),
    # R and X on one communicator: an early receive, then a first use of another peer; what lets the receive end comes after that call.
    "G1b": dict(quick=True, ranks={0: [[L("R0", "R")], [L("conn0", "conn", host=True)], [L("D0", "D", after=["conn0"])], [L("X0", "X", after=["conn0", "R0"])]],
                       1: [[L("D1", "D"), L("R1", "R")]],
                       2: [[L("conn2", "conn", host=True)], [L("X2", "X", after=["conn2"])]]},
                light={"R": ["01"], "D": ["01"], "X": ["02"], "conn": ["02"]},
                without={"CONNECT_IN_TURN": {0: [[L("R0", "R")], [L("conn0", "conn", host=True, after=["R0"])], [L("D0", "D", after=["conn0"])],
                                                 [L("X0", "X", after=["conn0", "R0"])]],
                                             1: [[L("D1", "D"), L("R1", "R")]],
                                             2: [[L("conn2", "conn", host=True)], [L("X2", "X", after=["conn2"])]]}},
                breaks=["CONNECT_IN_TURN"]),
    # a, b on one communicator, two streams; NCCL runs b behind a.
    "G2": dict(ranks={0: [[L("D0", "D"), L("a0", "a")], [L("b0", "b", after=["a0"], turn=["a0"])]],
                      1: [[L("a1", "a")], [L("b1", "b", after=["a1"], turn=["a1"])]],
                      2: [[L("D2", "D")]]},
               light={"a": ["01"], "b": ["01"], "D": ["02"]},
               without={"OUT_OF_ORDER": {0: [[L("D0", "D"), L("a0", "a")], [L("b0", "b", turn=["a0"])]],
                                         1: [[L("a1", "a")], [L("b1", "b", turn=["a1"])]],
                                         2: [[L("D2", "D")]]}},
               breaks=["OUT_OF_ORDER"]),
    "K": dict(ranks={0: [[L("p0", "p"), L("P0", "P")]],
                     1: [[L("p1", "p"), L("P1", "P")], [L("q1", "q"), L("Q1", "Q")]],
                     2: [[L("q2", "q"), L("Q2", "Q")]]},
              light={"p": ["01"], "P": ["01"], "q": ["12"], "Q": ["12"]}),
    # Receives posted early on their own stream, the sender comes after a collective on the same ports.
    "early_receive": dict(ranks={0: [[L("r0", "r")], [L("X0", "X")]],
                                 1: [[L("X1", "X")]],
                                 2: [[L("r2", "r")]]},
                          light={"r": ["02"], "X": ["01"]}),
    # Two communicators over the same ports reached in different stream orders.
    "crossed": dict(ranks={0: [[L("u0", "u")], [L("v0", "v")]],
                           1: [[L("v1", "v"), L("t1", "t")], [L("u1", "u")]],
                           2: [[L("t2", "t")]]},
                    light={"u": ["01"], "v": ["01"], "t": ["12"]}),
    # A ring of three over two ports a rank, and a pair that takes one of the ports away.
    "ring_and_pair": dict(ranks={0: [[L("R0", "R"), L("P0", "P")]],
                                 1: [[L("R1", "R")], [L("P1", "P")]],
                                 2: [[L("R2", "R"), L("S2", "S")]],
                                 3: [[L("S3", "S")]]},
                          circuits={"01": ("0.1", "1.0"), "12": ("1.1", "2.0"), "20": ("2.1", "0.0"), "01b": ("0.0", "1.1"), "23": ("2.1", "3.0")},
                          light={"R": ["01", "12", "20"], "P": ["01b"], "S": ["23"]}),
    # A run of three that holds, against a foreign gang.
    "run": dict(quick=True, ranks={0: [[L("p0", "p"), L("q0", "q"), L("s0", "s")]],
                       1: [[L("p1", "p"), L("q1", "q"), L("s1", "s")], [L("g1", "g")]],
                       2: [[L("g2", "g")]]},
                light={"p": ["01"], "q": ["01"], "s": ["01"], "g": ["12"]}, runs={"p": "q s", "q": "s"}, base=["RUNS"],
                breaks=["MOVE_WITHOUT_ANSWER"]),
    # Early release (docs/protocol.md): a run of two, the same of three, B1 and H.
    "ahead": dict(quick=True, ranks={0: [[L("p0", "p"), L("q0", "q")]],
                        1: [[L("p1", "p"), L("q1", "q")], [L("g1", "g")]],
                        2: [[L("g2", "g")]]},
                  light={"p": ["01"], "q": ["01"], "g": ["12"]}, runs={"p": "q"}, base=["RUNS", "AHEAD"],
                  breaks=["UNFENCED", "WITHDRAW_NOTHING"]),
    "ahead_run": dict(ranks={0: [[L("p0", "p"), L("q0", "q"), L("s0", "s")]],
                             1: [[L("p1", "p"), L("q1", "q"), L("s1", "s")], [L("g1", "g")]],
                             2: [[L("g2", "g")]]},
                      light={"p": ["01"], "q": ["01"], "s": ["01"], "g": ["12"]}, runs={"p": "q s", "q": "s"}, base=["RUNS", "AHEAD"]),
    "ahead_B1": dict(ranks={0: [[L("p0", "p"), L("q0", "q")]],
                            1: [[L("p1", "p"), L("q1", "q", after=["g1"])], [L("g1", "g")]],
                            2: [[L("g2", "g")]]},
                     light={"p": ["01"], "q": ["01"], "g": ["12"]}, runs={"p": "q"}, base=["RUNS", "AHEAD"]),
    "ahead_H": dict(ranks={0: [[L("p0", "p"), L("q0", "q")]], 1: [[L("p1", "p"), L("q1", "q")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
                    light={"p": ["01"], "q": ["01"], "g": ["12"]}, runs={"p": "q"}, base=["RUNS", "CRASH", "AHEAD"]),
    "run_too_long": dict(ranks={0: [[L("p0", "p"), L("q0", "q")]],
                                1: [[L("p1", "p"), L("q1", "q")], [L("g1", "g")]],
                                2: [[L("g2", "g")]]},
                         light={"p": ["01"], "q": ["01"], "g": ["12"]}, never={"n": ["01"]}, runs={"p": "q n"}, base=["RUNS"]),
    "B1": dict(quick=True, ranks={0: [[L("p0", "p"), L("q0", "q")]],
                      1: [[L("p1", "p"), L("q1", "q", after=["g1"])], [L("g1", "g")]],
                      2: [[L("g2", "g")]]},
               light={"p": ["01"], "q": ["01"], "g": ["12"]}, runs={"p": "q"}, base=["RUNS"], breaks=["NO_SUSPENSION"]),
    "B3": dict(ranks={0: [[L("m0", "m")], [L("p0", "p", after=["m0"])], [L("q0", "q", after=["m0"])]],
                      1: [[L("m1", "m"), L("q1", "q"), L("p1", "p")], [L("g1", "g")]],
                      2: [[L("g2", "g")]]},
               light={"m": ["01"], "p": ["01"], "q": ["01"], "g": ["12"]}, runs={"m": "p q"}, base=["RUNS", "NO_SUSPENSION"], breaks=["NO_LAGGARDS"]),
    # A fused launch over two sequences; the run grants one of them, the other's circuit is dark.
    "D1": dict(ranks={0: [[L("p0", "p"), L("qd", "q d")]],
                      1: [[L("p1", "p"), L("q1", "q")]],
                      2: [[L("d2", "d")]]},
               circuits={"01": ("0.0", "1.0"), "02": ("0.1", "2.0")},
               light={"p": ["01"], "q": ["01"], "d": ["02"]}, runs={"p": "q"}, base=["RUNS"], breaks=["ANY_KEY_COVERS"]),
    # The same, and who holds the token needs the other key afterwards: it has started, unseen.
    "D2": dict(quick=True, ranks={0: [[L("p0", "p"), L("qd", "q d")]],
                      1: [[L("p1", "p"), L("q1", "q"), L("d1", "d")]]},
               light={"p": ["01"], "q": ["01"], "d": ["01"]}, runs={"p": "q"}, base=["RUNS"], breaks=["TOKEN_IS_NOT_PRESENCE"]),
    # Rail A: ports r.0, rail B: ports r.1. The switch of B fails with half of W's circuits moved, for good; g needs A alone.
    "I": dict(quick=True, ranks={0: [[L("W0", "W")]], 1: [[L("W1", "W")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
              circuits={"A01": ("0.0", "1.0"), "A12": ("1.0", "2.0"), "B01": ("0.1", "1.1")}, switches=[["A01", "A12"], ["B01"]],
              light={"W": ["A01", "B01"], "g": ["A12"]}, fallible=[1], must=["g1", "g2"], base=["FAULTS=1", "FAILS_FOR_EVER"], breaks=["KEEP_RESERVATIONS"]),
    "I_mended": dict(ranks={0: [[L("W0", "W"), L("V0", "V")]], 1: [[L("W1", "W"), L("V1", "V")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
                     circuits={"A01": ("0.0", "1.0"), "A12": ("1.0", "2.0"), "B01": ("0.1", "1.1")}, switches=[["A01", "A12"], ["B01"]],
                     light={"W": ["A01", "B01"], "V": ["A01", "B01"], "g": ["A12"]}, runs={"W": "V"}, base=["RUNS", "FAULTS=2"]),
    # Gangs that come again and again, and one that comes once and needs ports of two of them.
    "K_wide": dict(ranks={0: [[L("W0", "W")], [L("p0", "p")]], 1: [[L("W1", "W")]], 2: [[L("W2", "W")], [L("q2", "q")]], 3: [[L("p3", "p")], [L("q3", "q")]]},
                   circuits={"01": ("0.0", "1.0"), "12": ("1.1", "2.0"), "03": ("0.0", "3.0"), "23": ("2.0", "3.1")},
                   light={"W": ["01", "12"], "p": ["03"], "q": ["23"]}, rounds="p q", must=["W0", "W1", "W2"], breaks=["NO_RESERVATIONS"]),
    # Two keys of one pair, again and again, each expecting the other; g comes once.
    "K_run": dict(ranks={0: [[L("p0", "p")], [L("P0", "P")]], 1: [[L("p1", "p")], [L("P1", "P")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
                  light={"p": ["01"], "P": ["01"], "g": ["12"]}, runs={"p": "P", "P": "p"}, rounds="p P", must=["g1", "g2"], base=["RUNS"]),
    # r0 has started p; r1 gets to it only after g. P of the same ports comes again and again.
    "K2": dict(ranks={0: [[L("m0", "m"), L("p0", "p")], [L("P0", "P")]], 1: [[L("m1", "m"), L("p1", "p", after=["g1"])], [L("P1", "P")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
                      light={"m": ["01"], "p": ["01"], "P": ["01"], "g": ["12"]}, runs={"m": "p"}, rounds="P", must=["g1", "g2"], base=["RUNS"],
                      breaks=["LAGGARDS_FOR_EVER"]),
    "K_quantum": dict(ranks={0: [[L("p0", "p")], [L("P0", "P")]], 1: [[L("p1", "p")], [L("P1", "P")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
                      light={"p": ["01"], "P": ["01"], "g": ["12"]}, rounds="p P", must=["g1", "g2"], base=["QUANTUM"], breaks=["QUANTUM_FOR_EVER"]),
    # Two keys of one pair, again and again, always lit; g, which is to turn their ports, comes once.
    "K_lit": dict(quick=True, ranks={0: [[L("p0", "p")], [L("P0", "P")]], 1: [[L("p1", "p")], [L("P1", "P")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
                  light={"p": ["01"], "P": ["01"], "g": ["12"]}, rounds="p P", must=["g1", "g2"], breaks=["LIT_PASSES_FOR_EVER"]),
    # Speculation without tokens: any of these keys at any moment, one of which never comes.
    "C0": dict(ranks={0: [[L("p0", "p")], [L("X0", "X")]], 1: [[L("p1", "p"), L("q1", "q")]], 2: [[L("q2", "q"), L("X2", "X")]]},
               light={"p": ["01"], "q": ["12"], "X": ["02"]}, never={"n": ["02"]}, base=["SPECULATE"], breaks=["SPECULATION_EVICTS"]),
    "C0_starve": dict(ranks={0: [[L("p0", "p")], [L("W0", "W")]], 1: [[L("p1", "p")], [L("W1", "W")]], 2: [[L("W2", "W")]]},
                      circuits={"01": ("0.0", "1.0"), "01b": ("0.0", "1.1"), "12": ("1.0", "2.0"), "02": ("0.1", "2.0")},
                      light={"p": ["01"], "W": ["01b", "12"]}, never={"n": ["02"], "m": ["01"]}, rounds="p", must=["W0", "W1", "W2"], guesses=3,
                      base=["SPECULATE"], breaks=[]),
    # Members start at once under a speculation of which all were sure; a real gang wants its ports.
    "C1": dict(quick=True, ranks={0: [[L("p0", "p")]], 1: [[L("p1", "p")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
               light={"p": ["01"], "g": ["12"]}, guesses=2, base=["SPECULATE", "TRUST", "RUNS"], breaks=["MOVE_WITHOUT_ANSWER"]),
    # The hold time runs out on members of a gang that waits for its ports.
    "J": dict(ranks={0: [[L("p0", "p")]], 1: [[L("p1", "p")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
              light={"p": ["01"], "g": ["12"]}, base=["HOLD"], breaks=["WITHDRAW"]),
    # The controller dies: with launches in flight, tokens out, circuits on their way, a grant half delivered.
    "H": dict(ranks={0: [[L("p0", "p"), L("q0", "q")]], 1: [[L("p1", "p"), L("q1", "q")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
              light={"p": ["01"], "q": ["01"], "g": ["12"]}, runs={"p": "q"}, base=["RUNS", "CRASH"],
              breaks=["SNAPSHOT_WITHOUT_TOKENS", "SNAPSHOT_WITHOUT_FLIGHT", "NO_DEADLINE", "NO_FENCING", "MOVE_BEFORE_REPORT"]),
    "H_hold": dict(ranks={0: [[L("p0", "p")]], 1: [[L("p1", "p")], [L("g1", "g")]], 2: [[L("g2", "g")]]},
                   light={"p": ["01"], "g": ["12"]}, base=["HOLD", "CRASH"]),
}


# What happens where a rule is taken away.
RULES = {
    "UNION_OF_KEYS": "a gang is complete only when all keys of its launches are",
    "NO_JOINERS": "strict first come first served, joiners too",
    "NO_SUSPENSION": "no launch in flight is ever suspended",
    "UNDIRECTED_PAIRS": "transfers of a pair are numbered without direction",
    "NO_CONNECT_KEY": "a first use is held until its kernel ends",
    "CONNECT_IN_TURN": "a first use waits for earlier launches of its communicator",
    "OUT_OF_ORDER": "asked for when the gate is reached, whatever is before it on its communicator",
    "MOVE_WITHOUT_ANSWER": "circuits move when the revocation was sent, not when all have answered",
    "NO_LAGGARDS": "a laggard's other launches wait behind the gang in line (and no suspension)",
    "LAGGARDS_FOR_EVER": "a laggard's other launches pass the gang in line without end",
    "UNFENCED": "a gate looks at go before others see its ready",
    "WITHDRAW_NOTHING": "a run is returned, and gates that were released early stay open",
    "ANY_KEY_COVERS": "a launch may start when one of its keys lies under a token",
    "TOKEN_IS_NOT_PRESENCE": "who holds a soft token does not count as present",
    "KEEP_RESERVATIONS": "a gang whose switch has failed keeps its reservations on the other rails",
    "NO_RESERVATIONS": "a waiting gang reserves nothing",
    "LIT_PASSES_FOR_EVER": "a gang whose circuits are lit passes those in line, however long they have waited",
    "QUANTUM_FOR_EVER": "a quantum does not end",
    "SPECULATION_EVICTS": "speculation takes ports that are held",
    "WITHDRAW": "a member whose hold time is over goes to another network alone",
    "SNAPSHOT_WITHOUT_TOKENS": "snapshots do not tell soft tokens",
    "SNAPSHOT_WITHOUT_FLIGHT": "snapshots do not tell launches in flight",
    "NO_DEADLINE": "the new controller does not wait out the command deadline",
    "NO_FENCING": "messages of the old controller's sessions are obeyed",
    "MOVE_BEFORE_REPORT": "ports of a node without a snapshot are not busy",
}


RAILS = {rail + pair: (f"{pair[0]}.{rail}", f"{pair[1]}.{rail}") for rail in "AB" for pair in ("01", "02", "12")}


# Two ports a rank, any to any on one switch; two or four, each on a switch of its own.
TWO_PORTS = {f"{a}{p}-{b}{q}": (f"{a}.{p}", f"{b}.{q}") for a, b in ("01", "02", "12") for p in "01" for q in "01"}
PLANES = {n: {f"{a}{p}-{b}{p}": (f"{a}.{p}", f"{b}.{p}") for p in "0123"[:n] for a, b in ("01", "02", "12")} for n in (2, 4)}


def any_of(circuits, switches):
    """Topology in which each of a pair's circuits will do."""
    pairs = {pair: [c for c, (p, q) in circuits.items() if p[0] + q[0] == pair] for pair in ("01", "02", "12")}
    return {"circuits": circuits, "pairs": pairs, "switches": switches}


def random_program(seed):
    """Three ranks, two streams each, pairs over one port a rank, two rails, two or four ports. May not end even without Opus (then left out)."""
    draw = random.Random(seed)
    launches = {r: [[], []] for r in range(3)}
    kind = draw.choice(["", "rails", "two ports", "two planes", "four planes"])
    rails = kind == "rails"
    topology = {"": {}, "rails": {"circuits": RAILS, "switches": [list(RAILS)[:3], list(RAILS)[3:]]}, "two ports": any_of(TWO_PORTS, [list(TWO_PORTS)]),
                "two planes": any_of(PLANES[2], [list(PLANES[2])[:3], list(PLANES[2])[3:]]),
                "four planes": any_of(PLANES[4], [list(PLANES[4])[:6], list(PLANES[4])[6:]])}[kind]
    light = {}
    for n in range(draw.randint(3, 4)):
        a, b = sorted(draw.sample(range(3), 2))
        key, pair = f"k{n}", f"{a}{b}"
        light[key] = [rail + pair for rail in draw.choice(["A", "B", "AB"])] if rails else [pair]
        for r in draw.sample((a, b), 2):
            stream = draw.choice(launches[r])
            if stream and draw.random() < 0.35 and all(c[-2:] == pair for k in stream[-1]["keys"] for c in light[k]):
                stream[-1]["keys"].append(key)       # group { ... }; to another peer it could not be routed
                stream[-1]["data"].append(key)
            else:
                stream.append(L(f"{key}r{r}", key))
    for r in range(3):                                # an event between the streams
        if all(launches[r]) and draw.random() < 0.4:
            draw.choice(launches[r][1])["after"].append(draw.choice(launches[r][0])["name"])
    return dict(ranks=launches, light=light, **topology)


def random_features(seed, program):
    """The same program under any expectation, right or wrong, and what may fail."""
    draw = random.Random(seed)
    light = program["light"]
    base = []
    if draw.random() < 0.7:
        base += ["RUNS"] + draw.choice([[], [], ["QUANTUM"]])
        program["never"] = {"never": draw.choice(list(light.values()))} if draw.random() < 0.3 else {}
        both = {**light, **program["never"]}
        program["runs"] = {k: " ".join(n for n in both if n != k and set(both[n]) <= set(light[k]) and draw.random() < 0.7) for k in light}
    base += draw.choice([["SPECULATE"], ["SPECULATE", "TRUST"], ["CRASH"], ["CRASH"], ["FAULTS=1"], ["HOLD"], ["SPECULATE", "FAULTS=1"]])
    return dict(program, base=base)
