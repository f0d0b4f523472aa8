"""The daemons of an emulated cluster, and the jobs that run on it."""
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

from .fabric import Shape, fabric_toml, port_list
from .leftovers import MARK
from .play import Job, Play
from .process import Child, ChildFailed, deaf, stop_all, undisturbed

HOST = "127.0.0.1"


class Build:
    """Where the programs lie: in a build folder, or where they were installed."""

    def __init__(self, folder: pathlib.Path | str):
        self.folder = pathlib.Path(folder).resolve()
        self.controller = self._find("controller/shell/opus-controller")
        self.manager = self._find("manager/shell/opus-manager")
        self.observer = self._find("manager/observer/opus-observer")
        self.emulator = self._find("tools/emulator/opus-ocs-emu")
        self.ctl = self._find("tools/ctl/opus-ctl")
        self.replay = self._find("tools/replay/opus-replay")
        self.player = self._find("tools/replay/opus_replay_player.so")
        self.shim = self._find("shim/libopus_shim.so")
        installed = self.folder / "lib" / "opus" / "emulation"
        self.standins = installed if installed.exists() else self.folder / "tools" / "emulation"

    def _find(self, usual: str) -> pathlib.Path:
        path = self.folder / usual
        for place in (path, self.folder / "bin" / path.name, self.folder / "lib" / path.name, self.folder / "lib" / "opus" / path.name):
            if place.exists():
                return place
        return next((p for p in sorted(self.folder.rglob(path.name)) if p.is_file()), path)

    def wanted(self) -> list[pathlib.Path]:
        """Everything that a cluster and its jobs run."""
        return [*self.daemons(), self.replay, self.player, self.shim, *self.emulation()]

    def daemons(self) -> list[pathlib.Path]:
        return [self.controller, self.manager, self.observer, self.emulator, self.ctl]

    def emulation(self) -> list[pathlib.Path]:
        names = ("libnccl.so.2", "libcudart.so.12", "libcuda.so.1", "cuda13/libcudart.so.13", "cuda13/libcublas.so.13", "cuda13/libcublasLt.so.13")
        return [self.standins / name for name in names]

    def missing(self) -> list[str]:
        return [str(p) for p in self.wanted() if not p.exists()]

    def fingerprint(self) -> str:
        """Of the programs: figures and campaigns of different ones are not put together."""
        found = hashlib.sha256()
        for path in self.wanted():
            found.update(path.read_bytes())
        return found.hexdigest()[:16]

    def sanitizer_runtime(self) -> str:
        """The sanitizer's library must come first in LD_PRELOAD; empty for ordinary builds."""
        linked = subprocess.run(["ldd", str(self.replay)], capture_output=True, text=True, timeout=20).stdout
        found = re.search(r"lib[at]san\.so\S* => (\S+)", linked)
        return found[1] if found else ""


@dataclasses.dataclass
class Light:
    """What all emulated switches counted, from the optical plane's point of view."""
    delivered_frames: int = 0
    delivered_bytes: int = 0
    lost_frames: int = 0
    lost_bytes: int = 0
    misdelivered_frames: int = 0
    misdelivered_bytes: int = 0
    reconfigurations: int = 0

    def __add__(self, other: "Light") -> "Light":
        return Light(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    def __sub__(self, other: "Light") -> "Light":
        return Light(*(a - b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))


HEAD_BYTES, ENDPOINT_NODE_SHIFT = 64, 48  # tools/emulation/nccl: head.h, and how endpoints are made (transport.cpp)


@dataclasses.dataclass
class Loss:
    """A frame that did not arrive where it was meant to."""
    realtime_ns: int
    what: str       # lost, misdelivered
    node: str       # of the port that it left by
    rail: int
    bytes: int
    again: bool     # what it says has arrived already, or was lost before: a sender that got no answer in time repeats it
    to: str         # node that it was meant for

    @staticmethod
    def read(line: str, rail: int, shape: Shape) -> "Loss":
        realtime_ns, what, port, _, to, payload, *again = line.split()
        return Loss(int(realtime_ns), what, f"n{(int(port) - 1) // shape.ports}", rail, int(payload), bool(again), f"n{int(to) >> ENDPOINT_NODE_SHIFT}")

    def is_answer_to(self, nodes: list[str]) -> bool:
        """A head and nothing more, for one of them."""
        return self.bytes == HEAD_BYTES and self.to in nodes


class Cluster:
    """Context manager. `logs`: a folder for logs, kept; without it they go with everything else. `observe`, without Opus: a folder
    for recordings, one a node, of what jobs under the shim do (OPUS_MODE=observe)."""

    def __init__(self, build: Build, shape: Shape, *, opus: bool = True, logs: pathlib.Path | None = None,
                 mark: str = "", trace: pathlib.Path | None = None, env: dict[str, str] | None = None,
                 emulator_options: list[str] | None = None, controller_options: list[str] | None = None, observe: pathlib.Path | None = None):
        self.build, self.shape, self.opus, self.trace = build, shape, opus, trace
        self.emulator_options, self.controller_options = emulator_options or [], controller_options or []
        self.folder: pathlib.Path | None = None  # while it stands
        self.logs = logs
        keep = {k: v for k, v in os.environ.items()
                if not k.startswith(("OPUS_", "STANDIN_", "NCCL_", "CUDA_")) and k not in ("LD_PRELOAD", "XDG_RUNTIME_DIR")}
        self.mark = mark or os.environ.get(MARK, f"{os.getpid()}")
        self.env = {**keep, MARK: self.mark, **(env or {})}
        self.emulators: list[Child] = []
        self.managers: list[Child] = []
        self.observe, self.observers = observe, []
        self.controller: Child | None = None
        self.jobs: list[Job] = []
        self.unclean: list[str] = []

    def __enter__(self) -> "Cluster":
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # --- daemons ---------------------------------------------------------------------------------

    def _start(self) -> None:
        with undisturbed():
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="opus-"))
        self.logs = self.logs or self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        for r in range(self.shape.gpus):
            with undisturbed():
                self.emulators.append(self._emulator(r, f"{HOST}:0", f"{HOST}:0"))
        ready = [e.wait_ready() for e in self.emulators]
        self.scpi, self.data = [w["scpi"] for w in ready], [w["data"] for w in ready]
        (self.folder / "ports").write_text(port_list(self.shape, self.data))
        self.fabric = self.folder / "fabric.toml"
        self.fabric.write_text(fabric_toml(self.shape, self.scpi))
        if not self.opus:
            if self.observe:
                self._start_observers()
            return
        self.start_controller(f"tcp://{HOST}:0", ["--first"])
        for n in range(self.shape.nodes):
            self.runtime(n).mkdir(mode=0o700)
            with undisturbed():
                self.managers.append(self._manager(n))
        for m in self.managers:
            m.wait_ready()

    def _start_observers(self) -> None:
        for n in range(self.shape.nodes):
            self.runtime(n).mkdir(mode=0o700)
            with undisturbed():
                self.observers.append(Child(f"observer of n{n}", [self.build.observer, "--until-signal", "--node", f"n{n}", "--out", self.observe,
                                                                  "--runtime-dir", self.runtime(n)], self.logs / f"observer{n}.log", self.env))
        for o in self.observers:
            o.wait_ready()

    def _emulator(self, rail: int, scpi: str, data: str) -> Child:
        options = list(self.emulator_options) if self.opus else ["--always-lit"]
        return Child(f"emulator of rail {rail}", [
            self.build.emulator, "--size", str(self.shape.switch_size), "--scpi", scpi, "--data", data, "--dark-ms",
            f"{self.shape.dark_ms:g}", "--stats", self.folder / f"emulator{rail}.json", "--loss-log",
            self._loss_log(rail), *options],
            self.logs / f"emulator{rail}.log", self.env)

    def _loss_log(self, rail: int) -> pathlib.Path:
        return self.logs / f"emulator{rail}.losses"

    def start_controller(self, bind: str, more: list[str] | None = None) -> None:
        trace = ["--trace", self.trace] if self.trace else []
        with undisturbed():
            self.controller = Child("controller", [self.build.controller, "--fabric", self.fabric, "--bind", bind, *trace,
                                                   *self.controller_options, *(more or [])],
                                    self.logs / "controller.log", self.env)
        words = self.controller.wait_ready()
        self.address = next(a for a in words.values() if a.startswith("tcp://"))

    def runtime(self, node: int) -> pathlib.Path:
        return self.folder / f"n{node}"

    def _manager(self, node: int) -> Child:
        return Child(f"manager of n{node}", [self.build.manager, "--node", f"n{node}", "--controller", self.address,
                                             "--runtime-dir", self.runtime(node)],
                     self.logs / f"manager{node}.log", {**self.env, "OPUS_RUNTIME_DIR": str(self.runtime(node))})

    def restart_manager(self, node: int) -> None:
        self.managers[node].kill()
        with undisturbed():
            self.managers[node] = self._manager(node)
        self.managers[node].wait_ready()

    def restart_controller(self) -> None:
        self.controller.kill()
        self.start_controller(self.address)

    def restart_emulator(self, rail: int) -> None:
        self.emulators[rail].kill()
        with undisturbed():
            self.emulators[rail] = self._emulator(rail, self.scpi[rail], self.data[rail])
        self.emulators[rail].wait_ready()

    # --- jobs ------------------------------------------------------------------------------------

    def start_job(self, play: Play, name: str = "job") -> Job:
        folder = self.folder / name
        folder.mkdir()
        preload = [p for p in (self.build.sanitizer_runtime(), str(self.build.shim)) if p] if play.shim else []
        job = Job(name, [], folder)
        self.jobs.append(job)
        for rank, (node, gpu) in enumerate(play.read_places()):
            env = {**self.env, "LD_LIBRARY_PATH": str(self.build.standins), "STANDIN_ANNOUNCED": "1", "STANDIN_NODE": str(node),
                   "STANDIN_GPU": str(gpu), "STANDIN_PORTS": str(self.folder / "ports"),
                   "STANDIN_STATS": str(folder / f"rank{rank}.transport")}
            if self.shape.domain:
                env["STANDIN_DOMAIN"] = str(self.shape.domain)
            if self.opus and play.steered:
                env["STANDIN_STEERING"] = str(self.runtime(node) / "steering")
            if preload and rank not in play.without_shim:
                env["LD_PRELOAD"] = ":".join(preload)
                env |= {"OPUS_RUNTIME_DIR": str(self.runtime(node)), "OPUS_GPU": str(gpu), "OPUS_JOB": name}
            command = [self.build.replay, "play", play.workload, "--rank", rank, "--rendezvous", f"file:{folder}/ids",
                       "--iterations", play.iterations, "--scale-bytes", play.scale_bytes, "--scale-time",
                       play.scale_time, "--seed", play.seed, "--timeout", play.timeout_s, "--progress",
                       "--out", folder / f"rank{rank}.json", "--check" if play.check else "--no-check"]
            if play.graph:
                command.append("--graph")
            if play.devices:
                command += ["--device", play.devices[rank]]
            if play.trace:
                command += ["--trace", folder / f"rank{rank}.trace"]
            if rank in play.late:
                # The shell itself is none of the shim's: a sanitized one cannot be loaded into it.
                command = ["/bin/sh", "-c", 'kill -STOP $$; exec env LD_PRELOAD="$0" "$@"', env.pop("LD_PRELOAD", ""), *command]
            with undisturbed():
                job.ranks.append(Child(f"rank {rank}", command, self.logs / f"{name}-rank{rank}.log",
                                       {**env, **play.env, **(play.rank_env[rank] if play.rank_env else {})}))
        return job

    def run_job(self, play: Play, timeout_s: float, name: str = "job", each=None):
        return self.start_job(play, name).wait(timeout_s, each)

    # --- looking ---------------------------------------------------------------------------------

    def light(self) -> Light:
        total = Light()
        for rail in range(self.shape.gpus):
            numbers = re.findall(r"-?\d+", self.scpi_line(rail, ":emulator:count?"))
            total += Light(*(int(n) for n in numbers[:7]))
        return total

    def losses(self) -> list[Loss]:
        return [Loss.read(line, rail, self.shape) for rail in range(self.shape.gpus)
                for line in self._loss_log(rail).read_text().splitlines()]

    def suspended_nodes(self) -> list[str]:
        """By the controller's log: a node for each launch that it suspended."""
        return re.findall(r"suspended (n\d+)\.", self.controller.output())

    def scpi_line(self, rail: int, line: str) -> str:
        """Another client of a switch: the answer, or "" where there is none. A command is over when this returns."""
        host, port = self.scpi[rail].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=20) as s, s.makefile("rw", newline="\n") as talk:
            talk.write(line + ("\n" if line.endswith("?") else ";*opc?\n"))
            talk.flush()
            return talk.readline().strip()

    def ctl(self, *arguments: str) -> dict:
        """opus-ctl ... --json."""
        done = subprocess.run([str(self.build.ctl), "--controller", self.address, "--json", *arguments],
                              capture_output=True, text=True, timeout=20, env=self.env)
        if done.returncode != 0:
            raise ChildFailed(f"opus-ctl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return json.loads(done.stdout)

    def waiting(self) -> list[dict]:
        """Launches that wait, and for what."""
        return self.ctl("why")["waiting"]

    def counters(self) -> dict[str, int]:
        """The controller's own, by the names of controller::Counters."""
        return self.ctl("status")["counters"]

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends everything, whatever happens meanwhile; `unclean` then says which daemons did not end well."""
        with deaf():
            try:
                for job in self.jobs:
                    for rank in job.ranks:
                        rank.kill()
                daemons = [*self.observers, *self.managers, *([self.controller] if self.controller else [])]
                self.unclean += stop_all(daemons)
                self.unclean += stop_all(self.emulators)
            finally:
                if self.folder:
                    shutil.rmtree(self.folder, ignore_errors=True)
