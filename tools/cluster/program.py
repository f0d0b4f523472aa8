"""Any program on an emulated cluster: one launcher starts all ranks, the stand-ins place them (STANDIN_PLACES)."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

from .cluster import Cluster
from .play import read_stats
from .process import _before_exec, deaf, undisturbed

# A line of output that ends a step of training, as most scripts print one: "step 7", "[default0]: iteration 12/100".
STEP = re.compile(r"^(?:\[[^\]]*\]:?\s*)?(?:step|iter(?:ation)?)\b\D{0,4}\d+", re.I)
# What programs that have a DT_RPATH need preloaded, in this order; others find them by LD_LIBRARY_PATH.
PRELOADED = ("libcuda.so.1", "cuda13/libcudart.so.13", "libnccl.so.2", "cuda13/libcublasLt.so.13", "cuda13/libcublas.so.13")

LOOK_S = 2  # between looks at whether a program still does something


class ProgramFailed(Exception):
    """The program did not end, or not well. `code`: what the caller should end with."""

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code


class Program:
    """A command that starts ranks. Its output goes to ours and to `log`; each step that it prints is timed."""

    def __init__(self, cluster: Cluster, command: list[str], env: dict[str, str], log: pathlib.Path, quiet: bool = False):
        self.cluster, self.log, self.quiet = cluster, log, quiet
        self.steps: list[float] = []
        self.lines = 0
        self.began = time.monotonic()
        me = os.getpid()
        with undisturbed():
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                            env=env, start_new_session=True, preexec_fn=lambda: _before_exec(me))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with open(self.log, "wb") as log:
            for line in self.process.stdout:
                now = time.monotonic()
                self.lines += 1
                log.write(line)
                log.flush()
                if STEP.match(line.decode(errors="replace")):
                    self.steps.append(now)
                if not self.quiet:
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()

    def wait(self, patience_s: float, limit_s: float) -> None:
        """Until it has ended well. Nobody has patience for a program that neither says nor sends anything for so long; time in
        which it waits for a processor does not count, nor, until its first byte, time in which it computes: importing PyTorch
        on a busy machine takes its time."""
        seen, quiet_s, last, queued = None, 0.0, time.monotonic(), 0.0
        while (code := self.process.poll()) is None:
            time.sleep(0.1)
            now = time.monotonic()
            if now - self.began > limit_s:
                raise ProgramFailed(f"not ended after {limit_s:g} s{self._waiting()}", 124)
            if now - last < LOOK_S:
                continue
            sent, (ran, waited) = self.cluster.light().delivered_bytes, self.cpu_seconds()
            sign = (self.lines, sent, 0 if sent else int(ran))
            if sign != seen:
                quiet_s = 0
            elif waited - queued < (now - last) / 4:
                quiet_s += now - last
            seen, last, queued = sign, now, waited
            if quiet_s > patience_s:
                raise ProgramFailed(f"nothing was said and no byte moved for {patience_s:g} s{self._waiting()}", 124)
        self._reader.join(timeout=10)
        if code != 0:
            raise ProgramFailed(f"the program ended with {code if code > 0 else f'signal {-code}'}", code if code > 0 else 128 - code)

    def _waiting(self) -> str:
        """What Opus knows of launches that wait."""
        if not self.cluster.opus:
            return ""
        done = subprocess.run([str(self.cluster.build.ctl), "--controller", self.cluster.address, "why"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=20, env=self.cluster.env)
        return "\nopus-ctl why:\n" + "\n".join(done.stdout.splitlines()[:20])

    def stop(self, grace_s: float = 5) -> None:
        """Ends it and whatever it started, in whatever session that is; a second Ctrl-C meanwhile leaves nothing behind either."""
        with deaf():
            self._stop(grace_s)

    def _stop(self, grace_s: float) -> None:
        if self.process.poll() is None:
            _signal_group(self.process.pid, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        until = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < until:
            for pid in left:
                _signal(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.process.wait(10)

    def processes(self) -> list[int]:
        """Living ones that were started for this cluster, the launcher's workers among them."""
        wanted, found = f"STANDIN_CLUSTER={self.cluster.folder}".encode(), []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass  # ended, or not ours
        return found

    def cpu_seconds(self) -> tuple[float, float]:
        """For how long its threads ran, and for how long they could have and did not get to, so far."""
        ran = waited = 0
        for pid in self.processes():
            for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
                try:
                    a, b, _ = thread.read_text().split()
                except (OSError, ValueError):
                    continue  # it has ended meanwhile
                ran, waited = ran + int(a), waited + int(b)
        return ran / 1e9, waited / 1e9

    def transport(self) -> dict[str, int]:
        """What the stand-ins counted, over all ranks that ended."""
        total: dict[str, int] = {}
        for file in sorted((self.cluster.folder / "job").glob("rank*.transport")):
            for key, value in read_stats(file).items():
                total[key] = total.get(key, 0) + value
        return total


def program_env(cluster: Cluster, *, shim: bool, gpu: str, scale_time: float, times: pathlib.Path | None, job: str,
                more: dict[str, str] | None = None) -> dict[str, str]:
    """For a launcher and its ranks. What the user set for NCCL and PyTorch stays."""
    shape, standins = cluster.shape, cluster.build.standins
    (cluster.folder / "job").mkdir(exist_ok=True)
    keep = {k: v for k, v in os.environ.items() if not k.startswith("STANDIN_") and k not in ("CUDA_VISIBLE_DEVICES", "OPUS_RUNTIME_DIR", "OPUS_SOCKET")}
    preload = [str(cluster.build.shim)] if shim else []
    preload += [str(standins / name) for name in PRELOADED] + [p for p in keep.get("LD_PRELOAD", "").split(":") if p]
    path = [str(standins), str(standins / "cuda13"), *(p for p in keep.get("LD_LIBRARY_PATH", "").split(":") if p)]
    env = {**keep, "LD_PRELOAD": ":".join(preload), "LD_LIBRARY_PATH": ":".join(path), "PYTHONUNBUFFERED": "1",
           "STANDIN_ANNOUNCED": "1", "STANDIN_CLUSTER": str(cluster.folder), "STANDIN_PLACES": f"{shape.nodes}x{shape.gpus}", "STANDIN_PORTS": str(cluster.folder / "ports"),
           "STANDIN_GPU_MODEL": gpu, "STANDIN_TIME_SCALE": f"{scale_time:g}", "STANDIN_DOMAIN": str(shape.domain)}
    env.setdefault("OMP_NUM_THREADS", "1")
    if times:
        env["STANDIN_TIME"] = str(times)
    if shim:
        env |= {"OPUS_JOB": job}
        env.setdefault("OPUS_REQUIRE", "1")
    return {**env, **(more or {})}


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass
