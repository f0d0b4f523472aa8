"""What a run left behind: processes that carry our mark in their environment, files, shared memory."""
import os
import pathlib
import tempfile
import time

MARK = "OPUS_CLUSTER_MARK"


def marked_processes(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            pass  # ended, or not ours
    return found


def shared_files() -> set[str]:
    """Shared memory that looks like ours, and all temporary files (give each run a TMPDIR), of this user."""
    found = set()
    for folder, pattern in (("/dev/shm", "opus*"), ("/dev/shm", "standin*"), (tempfile.gettempdir(), "*")):
        for path in pathlib.Path(folder).glob(pattern):
            try:
                # ThreadSanitizer's own, of a program that was killed in its first moments; what tools/gpu-check.sh makes beside us.
                if path.name.startswith(("tsan.rodata.", "opus-gpu-check.")):
                    continue
                if path.stat().st_uid == os.getuid():
                    found.add(str(path))
            except OSError:
                pass
    return found


class Leftovers:
    """Made before a run; `found()` afterwards says what is there that was not."""

    def __init__(self, mark: str):
        self.mark = mark
        self.before = shared_files()

    def found(self, patience_s: float = 3, ignore: str | None = None) -> list[str]:
        until = time.monotonic() + patience_s
        while True:
            left = [f"process {pid}" for pid in marked_processes(self.mark)]
            left += sorted(f for f in shared_files() - self.before if not (ignore and f.startswith(ignore)))
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.05)
