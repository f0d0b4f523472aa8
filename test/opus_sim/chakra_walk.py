"""A Chakra execution trace, counted by a walk through protobuf's wire format that shares nothing with opus-sim's reader.

Field numbers are those that et_def.proto publishes: of a node 1 id, 2 name, 3 type, 6 start, 7 duration, 10 attributes; of an
attribute 1 its name, and its value under a number that says the kind.
"""
import functools

SEND, RECV, COLLECTIVE = 5, 6, 7
COLLECTIVES = ["all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter", "reduce_scatter", "all_reduce"]


def varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data: bytes, at: int, end: int):
    """(number, value) of each field; what has a length is (begin, end)."""
    while at < end:
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = (at, at + size), at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = data[at:at + size], at + size
        yield key >> 3, value


@functools.lru_cache(maxsize=1 << 17)  # ranks of a job have most records in common
def node(data: bytes) -> tuple[int, str, int, dict]:
    """Type, name, duration in us, {attribute: value}."""
    kind, name, duration, attributes = 0, "", 0, {}
    for number, value in fields(data, 0, len(data)):
        if number == 3:
            kind = value
        elif number == 2:
            name = data[slice(*value)].decode()
        elif number == 7:
            duration = value
        elif number == 10:
            inner = dict(fields(data, *value))
            key = data[slice(*inner.pop(1))].decode()
            other = next(iter(inner.values()), None)
            attributes[key] = data[slice(*other)].decode(errors="replace") if isinstance(other, tuple) else other
    return kind, name, duration, attributes


def nodes(data: bytes):
    """Each node; the first record is the metadata."""
    at, first = 0, True
    while at < len(data):
        size, at = varint(data, at)
        begin, at = at, at + size
        if not first:
            yield node(data[begin:at])
        first = False


class Count:
    """Of the files of a job: nodes, and of each operation calls and bytes by (name, ranks of its group)."""

    def __init__(self, groups: dict[str, list[int]], world: int):
        self.groups, self.world = groups, world
        self.nodes = 0
        self.computations: list = []  # (duration in us, num_ops, tensor_size)
        self.operations: dict = {}
        self.used: set = set()

    def add(self, data: bytes) -> None:
        for kind, _, duration, attributes in nodes(data):
            self.nodes += 1
            if kind not in (SEND, RECV, COLLECTIVE):
                self.computations.append((duration, attributes.get("num_ops", 0), attributes.get("tensor_size", 0)))
            if kind in (SEND, RECV):
                what = ("send" if kind == SEND else "recv", 2)
            elif kind == COLLECTIVE:
                group = attributes.get("pg_name", "")
                size = len(self.groups[group]) if group else self.world
                if size < 2:
                    continue
                self.used.add(group)
                what = (COLLECTIVES[attributes["comm_type"]], size)
            else:
                continue
            entry = self.operations.setdefault(what, [0, 0])
            entry[0] += 1
            entry[1] += attributes.get("comm_size", 0)

    def compute_us(self, teraflops: float, memory_gbytes: float) -> float:
        """What has no duration takes what its operations and its memory take, whichever is longer."""
        return sum(d or (max(ops / teraflops / 1e6, size / memory_gbytes / 1e3) if ops else 0) for d, ops, size in self.computations)
