"""SIGINT to this very process at a chosen line of what starts a cluster."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import cluster

# What starts, not what waits: how often a loop looks depends on the computer.
FILES = {str(f) for f in pathlib.Path(cluster.__file__).parent.glob("*.py")} | {subprocess.__file__, tempfile.__file__}
LOOPS = {"wait_ready", "output", "running", "poll", "_internal_poll", "_try_wait", "close"}


class Interruption:
    """Context manager: counts lines, and interrupts at the one of number `at` (0: at none)."""

    def __init__(self, at: int = 0):
        self.at, self.lines, self.place = at, 0, ""

    def __enter__(self) -> "Interruption":
        self._pid, self._before = os.getpid(), signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(self._call)
        return self

    def over(self) -> None:
        """What comes now is neither counted nor interrupted."""
        sys.settrace(None)

    def __exit__(self, kind, *_) -> bool:
        self.over()
        signal.signal(signal.SIGINT, self._before)
        return kind is KeyboardInterrupt

    def _call(self, frame, _event, _argument):
        code = frame.f_code
        return self._line if code.co_filename in FILES and code.co_name not in LOOPS else None

    def _line(self, frame, event, _argument):
        if event == "line" and os.getpid() == self._pid:
            self.lines += 1
            if self.lines == self.at:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.over()
                os.kill(self._pid, signal.SIGINT)
        return self._line
