"""One child process that cannot outlive us, with its output in a file.

Children are leaders of sessions of their own (a Ctrl-C on the terminal reaches us, and we end them in
order), and the kernel kills them when this thread dies, however it dies: start them from the main thread.
"""
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
POLL_S = 0.01
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_libc = ctypes.CDLL(None, use_errno=True)
READY = re.compile(r"^\S+: ready\b(.*)$", re.M)


class ChildFailed(Exception):
    """A child ended, or did not get ready, against what was expected. Names its log."""


def die_on_signals() -> None:
    """SIGTERM and SIGHUP as exceptions, so that `with` blocks clean up."""
    def stop(number, _frame):
        raise SystemExit(128 + number)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)


@contextlib.contextmanager
def undisturbed():
    """A signal that would end us comes when this is over: what was made inside is then known to whom removes it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def deaf():
    """A signal that would end us is not heard: we are ending."""
    before = {s: signal.signal(s, signal.SIG_IGN) for s in ENDING}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _before_exec(parent: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(125)


class Child:
    def __init__(self, name: str, command: list[str], log: pathlib.Path, env: dict[str, str] | None = None,
                 cwd: pathlib.Path | None = None):
        self.name, self.log, self.command = name, log, [str(part) for part in command]
        me = os.getpid()
        with open(log, "ab") as out:
            self._start = out.tell()
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env,
                                            cwd=cwd, start_new_session=True, preexec_fn=lambda: _before_exec(me))

    @property
    def pid(self) -> int:
        return self.process.pid

    def running(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        with open(self.log, "rb") as log:
            log.seek(self._start)
            return log.read().decode(errors="replace")

    def tail(self, lines: int = 8) -> str:
        return "\n".join("    " + line for line in self.output().splitlines()[-lines:])

    def wait_ready(self, timeout_s: float = 20) -> dict[str, str]:
        """The words of its ready line: {'scpi': '127.0.0.1:4711', ...}."""
        until = time.monotonic() + timeout_s
        while True:
            ended = not self.running()
            if found := READY.search(self.output()):
                return dict(word.split("=", 1) for word in found[1].split() if "=" in word)
            if ended or time.monotonic() > until:
                what = f"ended with {self.process.returncode}" if ended else f"was not ready after {timeout_s:g} s"
                raise ChildFailed(f"{self.name} {what}; log {self.log}:\n{self.tail()}")
            time.sleep(POLL_S)

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, or None when it still runs."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: int) -> None:
        if self.running():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """kill -9, of it and of whatever it started. Once it has ended its number may be another's, and that one's group is not ours."""
        if self.running() or not pathlib.Path(f"/proc/{self.pid}").exists():
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


def stop_all(children: list[Child], grace_s: float = 5) -> list[str]:
    """SIGTERM, then kill -9. Returns what did not end cleanly by itself: 'name: why'."""
    living = [c for c in children if c.running()]
    for child in living:
        child.signal(signal.SIGTERM)
    until = time.monotonic() + grace_s
    wrong = []
    for child in living:
        code = child.wait(max(0.01, until - time.monotonic()))
        if code is None:
            wrong.append(f"{child.name}: did not end {grace_s:g} s after SIGTERM (log {child.log})")
        elif code != 0:
            wrong.append(f"{child.name}: ended with {code} after SIGTERM (log {child.log})")
    for child in children:
        child.kill()
    return wrong
