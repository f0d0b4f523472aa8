"""Ranks by ctypes, started by torchrun, Open MPI, MPICH and Slurm: each is in its place, all are of one job, and their launches wait
for circuits."""
import pathlib
import socket
import sys
import tempfile

from cases import MARK, ROOT, SANITIZED, SLOW, Skip, case, expect, nothing_in_the_dark, run, wait_for
from cluster import Shape
from cluster.program import Program, ProgramFailed, program_env
from launchers import Slurm, found, mpich, open_mpi

RANK = ROOT / "test" / "process" / "ctypes_rank.py"
# The job that a recorded rank is of: what this variable says, or this word. None: only by its first communicator.
NAMED_BY = {"torchrun-1.13.1": f"{socket.gethostname()}:29500", "openmpi-4.1.4": "PMIX_NAMESPACE", "mpich-4.0.2": None, "slurm-22.05.8": "SLURM_JOB_ID", "slurm-22.05.8-pmi2": "SLURM_JOB_ID", "slurm-22.05.8-het": "SLURM_JOB_ID",
            "slurm-22.05.8-openmpi-4.1.4": "SLURM_JOB_ID", "slurm-22.05.8-mpich-4.0.2": "SLURM_JOB_ID"}
LAUNCHERS = ("SLURM_", "OMPI_", "PMI", "MPI", "HYDI_", "TORCHELASTIC_", "MASTER_")


class Ranks:
    """Programs on a cluster: one that starts all ranks, or the ranks themselves."""

    def __init__(self, context, cluster, name: str):
        self.context, self.cluster, self.programs = context, cluster, []
        self.folder = cluster.folder / name
        self.folder.mkdir()
        if SANITIZED:
            raise Skip("ranks are Python's here, which sanitizers judge, too")
        env = program_env(cluster, shim=True, gpu="h100", scale_time=0, times=None, job="", more={"TMPDIR": str(self.folder), MARK: context.mark})
        self.env = {k: v for k, v in env.items() if not k.startswith(LAUNCHERS)}

    def start(self, *command: object, env: dict[str, str] | None = None) -> None:
        log = self.folder / f"log{len(self.programs)}"
        self.programs.append(Program(self.cluster, [str(c) for c in command], {**self.env, **(env or {})}, log, quiet=True))

    def rank(self, *options: str) -> list[object]:
        return [sys.executable, RANK, self.folder, *options]

    def logs(self) -> str:
        return "".join(p.log.read_text(errors="replace") for p in self.programs)

    def judge(self, count: int) -> str:
        """Their job, once all have played; and their end."""
        def played() -> bool:
            for p in self.programs:
                if p.process.poll() is not None:
                    p.wait(1, 3600)
                    raise AssertionError("ended too soon")
            return len(list(self.folder.glob("rank*"))) == count
        try:
            wait_for(played, f"{count} ranks", seconds=60)
            jobs = self.cluster.ctl("jobs")["jobs"]
            expect([j["ranks"] for j in jobs] == [count], f"{jobs}")
            expect(len(jobs[0]["nodes"]) == self.cluster.shape.nodes, f"{jobs}")
            (self.folder / "go").touch()
            for p in self.programs:
                p.wait(60 * SLOW, 120 * SLOW)
        except (AssertionError, ProgramFailed) as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None
        finally:
            for p in self.programs:
                p.stop()
        expect(self.cluster.counters()["grants"] > 0, "no circuit was granted")
        nothing_in_the_dark(self.cluster)
        return jobs[0]["job"]


def start_each(ranks: Ranks, told: list[dict[str, str]], *options: str) -> None:
    """Each the leader of a session of its own."""
    for env in told:
        ranks.start(*ranks.rank(*options), env=env)


@case("what launchers were found to tell their ranks puts each in its place, and all into one job")
def recorded(context) -> None:
    with context.cluster(Shape(nodes=2, gpus=1, ports=2, dark_ms=2)) as cluster:
        for launcher, name in NAMED_BY.items():
            told = found(launcher)
            ranks = Ranks(context, cluster, launcher)
            start_each(ranks, told)
            job = ranks.judge(len(told))
            expect(job == told[0].get(name, name) if name else job.startswith("nccl-"), f"{launcher}: {job}")


@case("ranks that nobody launched are one job, by the communicator in which they meet")
def alone(context) -> None:
    """As vLLM's workers: NCCL by its path, and aborted in the end."""
    nccl = str(context.build.standins / "libnccl.so.2")
    with context.cluster(Shape(nodes=2, gpus=2, ports=2, dark_ms=2)) as cluster:
        ranks = Ranks(context, cluster, "alone")
        start_each(ranks, [{"RANK": str(r), "WORLD_SIZE": "4", "LOCAL_RANK": "0", "VLLM_NCCL_SO_PATH": nccl} for r in range(4)], "--end", "abort")
        expect(ranks.judge(4).startswith("nccl-"), "another job")


def launched(context, launch, *options: str, under_each: bool = False) -> str:
    """By `launch`, of the folder: 4 ranks on 2 nodes. Under opus-run as a whole, or each rank."""
    with context.cluster(Shape(nodes=2, gpus=2, ports=2, dark_ms=2)) as cluster:
        ranks = Ranks(context, cluster, "launched")
        opus_run = [context.build.folder / "tools" / "run" / "opus-run", "--"]
        command = launch(ranks)
        ranks.env["LD_PRELOAD"] = ranks.env["LD_PRELOAD"].replace(str(context.build.shim) + ":", "")
        ranks.start(*([*command, *opus_run] if under_each else [*opus_run, *command]), *ranks.rank(*options))
        job = ranks.judge(4)
        reached = [line for line in ranks.logs().splitlines() if "opus-run: " in line and "reached NCCL" in line]
        expect(len(reached) == (4 if under_each else 1) and all("wait for circuits" in line for line in reached), f"{ranks.logs()}")
        return job


@case("Open MPI's ranks")
def by_open_mpi(context) -> None:
    def launch(ranks: Ranks) -> list[str]:
        return open_mpi(4, ranks.folder)
    job = launched(context, launch, "--mpi", "openmpi")
    expect(not job.startswith("nccl-"), job)
    launched(context, launch, "--mpi", "openmpi", "--end", "abort", under_each=True)


@case("MPICH's ranks")
def by_mpich(context) -> None:
    for under_each in (False, True):
        launched(context, lambda ranks: mpich(2, 2, ranks.folder), "--mpi", "mpich", under_each=under_each)


@case("Slurm's ranks")
def by_slurm(context) -> None:
    with tempfile.TemporaryDirectory() as folder, Slurm(2, 2, pathlib.Path(folder)) as slurm:
        for options, under_each in ((), False), ((), True), (("--mpi=pmi2",), False), (("--gpus-per-task=1",), False):
            def launch(ranks: Ranks) -> list[str]:
                ranks.env["SLURM_CONF"] = slurm.env["SLURM_CONF"]
                return slurm.launch(2, *options)
            expect(launched(context, launch, under_each=under_each).isdigit(), "not the number of a job")


if __name__ == "__main__":
    sys.exit(run())
