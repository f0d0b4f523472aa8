"""Real daemons on loopback, each where it is told to run: what the rows of the table are measured on.

A Stage starts emulators, the controller and managers, reads their ready lines, and ends them all with it.
"""
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

READY = re.compile(r"ready\s+(.*)$")
START_LIMIT_S = 20
BUNDLE = "gpu-bundle"  # `make gpu-bundle`: programs of when it was made


class NotBuilt(Exception):
    """A program that a row needs is not in the build folder."""


def program(build: pathlib.Path, name: str) -> str:
    for found in sorted(build.rglob(name)):
        if found.is_file() and os.access(found, os.X_OK) and BUNDLE not in found.parts:
            return str(found)
    raise NotBuilt(name)


def pinned(core: int | None, command: list[str]) -> list[str]:
    return command if core is None else ["taskset", "-c", str(core), *command]


class Stage:
    def __init__(self, build: pathlib.Path):
        self.build = build
        self.children: list[subprocess.Popen] = []
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="opus-bench-"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        limit = time.monotonic() + 5
        for child in self.children:
            try:
                child.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name: str, arguments: list[str], core: int | None = None, env: dict | None = None):
        """Starts a program and waits for its ready line; returns (process, {what: address})."""
        log = open(self.directory / f"{name}-{len(self.children)}.log", "wb")
        child = subprocess.Popen(pinned(core, [program(self.build, name), *arguments]), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=log, env=dict(os.environ, **(env or {})))
        log.close()
        self.children.append(child)
        limit = time.monotonic() + START_LIMIT_S
        text = ""
        while time.monotonic() < limit:
            if not select.select([child.stdout], [], [], 0.2)[0]:
                continue
            chunk = os.read(child.stdout.fileno(), 4096).decode()
            text += chunk
            for line in text.splitlines():
                if found := READY.search(line):
                    return child, dict(pair.split("=", 1) for pair in found[1].split() if "=" in pair)
            if not chunk:
                break
        said = (self.directory / f"{name}-{len(self.children) - 1}.log").read_text(errors="replace")
        raise RuntimeError(f"{name} did not get ready: {text}{said}")

    def fabric(self, nodes: int, gpus: int, ports: int, dark_ms: float = 1, core: int | None = None) -> pathlib.Path:
        """One rail and one emulated switch a local index; starts the emulators and writes the description."""
        text = ['version = 1', 'name = "bench"']
        self.emulators = []
        for g in range(gpus):
            size = max(2, nodes * ports)
            child, at = self.start("opus-ocs-emu", ["--size", str(size), "--scpi", "127.0.0.1:0", "--data",
                                                    "127.0.0.1:0", "--dark-ms", str(dark_ms)], core)
            self.emulators.append(child)
            text += ['[[switch]]', f'name = "ocs-r{g}"', 'driver = "polatis-scpi"', f'address = "{at["scpi"]}"',
                     f'size = {size}', 'technology = "piezo"', f'dark_ms = {dark_ms}',
                     '[[rail]]', f'name = "r{g}"', f'switches = ["ocs-r{g}"]']
        for n in range(nodes):
            text += ['[[node]]', f'name = "n{n}"']
            for g in range(gpus):
                cables = ", ".join(f'"ocs-r{g}:{n * ports + p + 1}"' for p in range(ports))
                text += ['[[node.gpu]]', f'rail = "r{g}"', f'ports = [{cables}]']
        path = self.directory / "fabric.toml"
        path.write_text("\n".join(text) + "\n")
        return path

    def controller(self, fabric: pathlib.Path, core: int | None = None) -> tuple[subprocess.Popen, str]:
        """Without runs: each launch is asked for, and retired as soon as it is done (inside a run the controller is
        told of many at once, a second later at most, and a player that waits for that would measure it)."""
        child, at = self.start("opus-controller", ["--fabric", str(fabric), "--bind", "tcp://127.0.0.1:0", "--first",
                                                   "--runs", "off"], core)
        address = next(a for a in at.values() if a.startswith("tcp://"))
        return child, address

    def manager(self, node: str, controller: str, core: int | None = None) -> tuple[subprocess.Popen, pathlib.Path]:
        """Returns the process and its socket."""
        directory = self.directory / node
        directory.mkdir(mode=0o700)
        child, _ = self.start("opus-manager", ["--node", node, "--controller", controller, "--runtime-dir",
                                               str(directory)], core)
        return child, directory / "manager.sock"
