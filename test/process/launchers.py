"""Who starts ranks: Open MPI, MPICH and Slurm where they are installed, and their ranks' environment as it was found."""
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import time

from cases import ROOT, SLOW, Skip
from cluster import Child, ChildFailed
from cluster.process import stop_all

FOUND = ROOT / "test" / "data" / "launchers"


def found(launcher: str) -> list[dict[str, str]]:
    """What each rank was told (test/data/launchers/README.md)."""
    ranks: list[dict[str, str]] = [{}, {}]
    for line in (FOUND / f"{launcher}.env").read_text().splitlines():
        rank, separator, rest = line.partition(": ")
        only = separator and rank.isdigit()
        name, value = (rest if only else line).split("=", 1)
        for r in [int(rank)] if only else range(len(ranks)):
            ranks[r][name] = value
    return ranks


def installed(*programs: str) -> str:
    """The first of these that is there."""
    for program in programs:
        if at := shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            return at
    raise Skip(f"{programs[0]} is not installed")


def open_mpi(ranks: int, folder: pathlib.Path) -> list[str]:
    """All on this host: daemons of several Open MPI hosts that are one now and then do not find each other. Its files stay in the folder."""
    mpirun = installed("mpirun.openmpi", "orterun", "prterun")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    local = {"btl": "self,vader", "oob_tcp_if_include": "lo", "orte_tmpdir_base": str(folder)}
    return [mpirun, *root, "--oversubscribe", *(word for name, value in local.items() for word in ("--mca", name, value)), "-n", str(ranks)]


def mpich(nodes: int, ranks: int, folder: pathlib.Path) -> list[str]:
    """`ranks` on each of `nodes` hosts, as far as MPICH knows."""
    hosts = ",".join(f"n{n}" for n in range(nodes))
    return [installed("mpirun.mpich", "mpiexec.hydra"), "-launcher", "ssh", "-launcher-exec", _agent(folder), "-iface", "lo",
            "-hosts", hosts, "-ppn", str(ranks), "-n", str(nodes * ranks)]


def _agent(folder: pathlib.Path) -> str:
    """What a launcher takes for ssh: all hosts are this one."""
    agent = folder / "agent"
    agent.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\nexec sh -c "$*"\n')
    agent.chmod(0o755)
    return str(agent)


class Slurm:
    """A Slurm on loopback: munged, slurmctld and a slurmd for each node, which end with it."""

    def __init__(self, nodes: int, gpus: int, folder: pathlib.Path):
        self.nodes, self.gpus, self.folder, self.children = nodes, gpus, folder, []
        self.programs = [installed(name) for name in ("munged", "slurmctld", "slurmd")]
        self.srun = installed("srun")
        if os.geteuid() != 0:
            raise Skip("slurmd is started as root only")
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> "Slurm":
        for part in ("state", *(f"spool-n{n}" for n in range(self.nodes))):
            (self.folder / part).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (self.folder / "slurm.conf").write_text(self._configuration())
        devices = [self.folder / f"gpu{g}" for g in range(self.gpus)]  # it wants device files, and does nothing to them
        try:
            for device in devices:
                os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # another /dev/null
        except PermissionError:
            raise Skip("no device files can be made here, as Slurm wants them for GPUs") from None
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={device}\n" for device in devices))
        munged, slurmctld, slurmd = self.programs
        files = [f"--{option}={self.folder}/munge.{end}" for option, end in
                 (("socket", "socket"), ("key-file", "key"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
        try:
            self._start("munged", munged, "--foreground", "--force", *files)
            self._await(lambda: (self.folder / "munge.socket").exists())
            self._start("slurmctld", slurmctld, "-D", "-c")
            for n in range(self.nodes):
                self._start(f"slurmd-n{n}", slurmd, "-D", "-N", f"n{n}")
            self._await(lambda: self._said(installed("sinfo"), "-h", "-o", "%T %D").strip() == f"idle {self.nodes}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        stop_all(self.children[::-1])

    def launch(self, ranks: int, *options: str) -> list[str]:
        """`ranks` on each node."""
        return [self.srun, "-N", str(self.nodes), f"--ntasks-per-node={ranks}", *options]

    def _start(self, name: str, *command: str) -> None:
        self.children.append(Child(name, list(command), self.folder / f"{name}.out", self.env))

    def _said(self, *command: str) -> str:
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=20).stdout

    def _await(self, true) -> None:
        until = time.monotonic() + 30 * SLOW
        while not true():
            ended = [c for c in self.children if not c.running()]
            if ended or time.monotonic() > until:
                raise ChildFailed("Slurm does not come up:\n" + "\n".join(f"{c.name}:\n{c.tail()}" for c in self.children))
            time.sleep(0.05)

    def _configuration(self) -> str:
        host, ports = socket.gethostname().split(".")[0], _free_ports(self.nodes + 1)
        nodes = "\n".join(f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[n + 1]} CPUs=16 Gres=gpu:{self.gpus} State=UNKNOWN"
                          for n in range(self.nodes))
        return f"""ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={self.folder}/munge.socket
SlurmctldPort={ports[0]}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in listeners]
    for one in listeners:
        one.close()
    return ports
