"""What starts and ends processes for all other tests (tools/cluster/process.py)."""
import pathlib
import subprocess
import sys
import tempfile
import time

from cases import case, expect, run
from cluster import Child


def child(folder: str, command: str) -> Child:
    return Child("child", ["/bin/sh", "-c", command], pathlib.Path(folder) / "log")


def ended(process: subprocess.Popen, within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


@case("a child that has ended takes nobody with it who has its number now")
def number_used_again(_) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gone = child(folder, "exit 0")
        expect(gone.wait(10) == 0, "it did not end")
        other = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
        try:
            gone.process.pid = other.pid  # as when the kernel has gone round
            gone.kill()
            expect(not ended(other, 0.5), "another process was killed in its stead")
        finally:
            other.kill()
            other.wait(10)


@case("what a child started goes with it, whether it has ended or not")
def offspring(_) -> None:
    for command in ("sleep 60 & echo $!; wait", "sleep 60 & echo $!"):
        with tempfile.TemporaryDirectory() as folder:
            parent = child(folder, command)
            until = time.monotonic() + 10
            while not parent.output().strip() and time.monotonic() < until:
                time.sleep(0.02)
            if command.endswith("$!"):
                expect(parent.wait(10) == 0, "it did not end")
            parent.kill()
            started = pathlib.Path(f"/proc/{parent.output().strip()}/stat")
            while started.exists() and started.read_text().split()[2] != "Z" and time.monotonic() < until:
                time.sleep(0.02)
            expect(not started.exists() or started.read_text().split()[2] == "Z", f"{command}: the sleep lives")


if __name__ == "__main__":
    sys.exit(run(programs=False))
