"""The gates of a node's ranks, read from their launch rings (include/opus/launch_ring.h) as its manager would."""
import mmap
import pathlib
import struct

HEADER_SLOTS, HEADER_HEAD, SLOT, COMMS = 16, 128, 64, 4096 + 256 * 192
READY, DONE, GO = range(3)


class Ring:
    def __init__(self, path: pathlib.Path):
        with open(path, "rb") as file:
            self._segment = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.slots, = struct.unpack_from("=I", self._segment, HEADER_SLOTS)

    def head(self) -> int:
        return struct.unpack_from("=Q", self._segment, HEADER_HEAD)[0]

    def words(self, kind: int) -> list[int]:
        """By slot."""
        begin = COMMS + (1 + kind) * self.slots * SLOT
        return [value for value, in struct.iter_unpack("=Q56x", self._segment[begin:begin + self.slots * SLOT])]


def rings(cluster, node: int) -> list[Ring]:
    """Those that are laid out: a segment is there a moment before it has a size, and then its header."""
    laid_out = [Ring(path) for path in cluster.runtime(node).glob("rank-*.seg") if path.stat().st_size > 0]
    return [ring for ring in laid_out if ring.slots > 0]
