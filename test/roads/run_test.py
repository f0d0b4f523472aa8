#!/usr/bin/env python3
"""opus-run: a program under it is as without it, and afterwards its road to NCCL is named.

    run_test.py BUILD FILE...     what test/roads, test/shim and tools/run built, found by name
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from roads_test import CTYPES, FILES, LIMIT_S, NCCL, SHIM, Manager, case, expect, main

OPUS_RUN = FILES["opus-run"]
OPEN, LINKED = FILES["road_open"], FILES["road_linked"]


def environment(manager: Manager | None = None) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPUS_", "NCCL_", "LD_", "CUDA_"))}
    return kept | {"LD_LIBRARY_PATH": str(NCCL.parent), "OPUS_SOCKET": manager.socket if manager else "/nonexistent/socket"}


def run(*words: object, manager: Manager | None = None, program: pathlib.Path = OPUS_RUN, env: dict | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([str(program), *map(str, words)], env=environment(manager) | (env or {}), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT_S)


def said(done: subprocess.CompletedProcess, *parts: str) -> None:
    lines = [line for line in done.stderr.splitlines() if all(part in line for part in ("opus-run: ", *parts))]
    expect(len(lines) == 1, f"{parts}: {done.stderr}")


@case("exit code, output and input are the command's own")
def transparent(_: Manager) -> None:
    done = run("--quiet", "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 41")
    expect((done.returncode, done.stdout, done.stderr) == (41, "out\n", "err\n"), done)
    echoed = subprocess.run([OPUS_RUN, "--quiet", "cat"], input="told\n", env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
    expect((echoed.returncode, echoed.stdout, echoed.stderr) == (0, "told\n", ""), echoed)


@case("the command's words are its own, with and without --")
def words(_: Manager) -> None:
    script = "import sys; print(sys.argv[1:])"
    for command in (["--"], []):
        done = run("--quiet", *command, sys.executable, "-c", script, "--quiet", "--", "--mode", "x")
        expect(done.stdout == "['--quiet', '--', '--mode', 'x']\n", f"{command}: {done.stdout}{done.stderr}")


@case("a signal that ends the command ends opus-run")
def ended(_: Manager) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        done = run("--quiet", "--", "/bin/sh", "-c", f"kill -{int(number)} $$")
        expect(done.returncode == -number, f"{number}: {done.returncode}")


@case("a signal that is sent to opus-run reaches the command")
def sent_on(_: Manager) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        # Blocked, and waited for: a handler may run between the word and a pause(), which then lasts for ever.
        script = (f"import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}]); print('ready', flush=True); "
                  f"signal.sigwait([{int(number)}]); sys.exit(9)")
        with subprocess.Popen([OPUS_RUN, "--quiet", "--", sys.executable, "-c", script], env=environment(), stdout=subprocess.PIPE, text=True) as child:
            try:
                expect(child.stdout.readline() == "ready\n", "it did not start")
                child.send_signal(number)
                expect(child.wait(LIMIT_S) == 9, f"{number}: {child.returncode}")
            finally:
                child.kill()


@case("what cannot be run ends as in a shell")
def not_there(_: Manager) -> None:
    done = run("--", "/nonexistent/program")
    expect(done.returncode == 127, done.returncode)
    said(done, "/nonexistent/program", "No such file")
    expect(run("--", "/etc").returncode == 126, "a folder")
    expect(run().returncode == 2, "no command at all")


@case("each setting of the shim is an option")
def settings(_: Manager) -> None:
    done = run("--quiet", "--mode", "observe", "--hold-ms", 5, "--nccl-library", "/x", "--", "env", env={"OPUS_JOB": "kept"})
    for line in ("OPUS_MODE=observe", "OPUS_HOLD_MS=5", "OPUS_NCCL_LIBRARY=/x", "OPUS_JOB=kept"):
        expect(line in done.stdout.splitlines(), f"{line}: {done.stdout}")
    expect("OPUS_ROADS" not in done.stdout, "quiet: no file for nobody")


@case("what circuits need of NCCL is set where nobody has, and said")
def nccl(_: Manager) -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("NCCL_IB_MERGE_NICS=1\n")
        file.flush()
        done = run("--", "env", env={"NCCL_ALGO": "Tree", "NCCL_CONF_FILE": file.name})
    own = [line for line in done.stdout.splitlines() if line.startswith("NCCL_")]
    expected = ["NCCL_ALGO=Tree", f"NCCL_CONF_FILE={file.name}", "NCCL_CROSS_NIC=0", "NCCL_IB_TIMEOUT=22", "NCCL_SET_STACK_SIZE=1"]
    expect(sorted(own) == expected, own)
    said(done, "sets NCCL_CROSS_NIC=0", "--keep-nccl")
    for kept in (["--mode", "observe"], ["--keep-nccl"]):
        done = run(*kept, "--", "env")
        expect("NCCL_" not in done.stdout and "sets" not in done.stderr, f"{kept}: {done.stdout}{done.stderr}")


@case("what is preloaded already stays first")
def preloaded(_: Manager) -> None:
    # A sanitized opus-run would have its own runtime first.
    sanitizer = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    done = run("--quiet", "--", "env", env={"LD_PRELOAD": "libm.so.6", **sanitizer})
    expect(f"LD_PRELOAD=libm.so.6:{SHIM}" in done.stdout.splitlines(), f"{done.stdout}{done.stderr}")


@case("the road of each process is named, and what became of it")
def roads(manager: Manager) -> None:
    said(run("--", LINKED, "linked", manager=manager), "road_linked", "linked", NCCL.name, "wait for circuits")
    said(run("--mode", "observe", "--", LINKED, "linked", manager=manager), "recorded, not held")
    said(run("--mode", "off", "--", LINKED, "linked", manager=manager), "OPUS_MODE=off")
    said(run("--", LINKED, "linked"), "without Opus", "no manager answers")
    said(run("--", sys.executable, "-c", CTYPES, NCCL, manager=manager), "dlsym by", "ctypes")
    said(run("--", OPEN, "plugin", FILES["libroad_plugin"], "deepbind", manager=manager), "RTLD_DEEPBIND")
    # A sanitized opus-run would have its own runtime first.
    sanitizer = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    preloaded = run("--", LINKED, "linked", manager=manager, env={"LD_PRELOAD": str(NCCL), **sanitizer})
    said(preloaded, "road_linked", "preloaded before the shim", "wait for circuits")
    twice = run("--", "/bin/sh", "-c", f"{LINKED} linked; {LINKED} linked", manager=manager)
    said(twice, "2 processes", "linked")


@case("a process that maps NCCL and does not come to the hooks is named")
def unbound(_: Manager) -> None:
    said(run("--", OPEN, "load", NCCL), "road_open", "never called it")
    said(run("--", OPEN, "load", FILES["libroad_at_once"], "deepbind"), "past Opus", "libroad_at_once.so")


@case("that no NCCL was seen is said, and so is what cannot be reached")
def nothing(_: Manager) -> None:
    said(run("--", "/bin/sh", "-c", "/bin/true; /bin/true"), "no NCCL was seen in 3 processes")
    if (static := FILES.get("road_static")) is not None:
        done = run("--", static)
        expect(done.returncode == 0, done)
        said(done, "linked statically")
    said(run("--", "env", "-u", "LD_PRELOAD", "env", "LD_PRELOAD=", "/bin/true", env={"LD_PRELOAD": ""}, program=OPUS_RUN), "no NCCL was seen")


@case("the notes are kept where they are asked for, and no file is left behind")
def notes(_: Manager) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder) / "kept"
        done = run("--quiet", "--roads", kept, "--", LINKED, "linked", env={"TMPDIR": folder})
        expect(not done.stderr and "\tcalled\t" in kept.read_text(), done.stderr)
        run("--", LINKED, "linked", env={"TMPDIR": folder})
        expect([p.name for p in pathlib.Path(folder).iterdir()] == ["kept"], os.listdir(folder))


@case("an installed opus-run finds the shim in ../lib, and the emulation below it")
def installed(_: Manager) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        emulation = root / "lib" / "opus" / "emulation"
        (root / "bin").mkdir()
        emulation.mkdir(parents=True)
        program = pathlib.Path(shutil.copy2(OPUS_RUN, root / "bin"))
        shim = pathlib.Path(shutil.copy2(SHIM, root / "lib")).resolve()
        done = run("--quiet", "--", "env", program=program)
        expect(f"LD_PRELOAD={shim}" in done.stdout.splitlines(), done.stdout + done.stderr)
        lacking = run("--emulate", "4x4", "--", "true", program=program)
        expect(lacking.returncode == 2 and "opus-emulate" in lacking.stderr, lacking)
        (emulation / "opus-emulate").write_text('#!/bin/sh\necho "$@"\nexit 5\n')
        (emulation / "opus-emulate").chmod(0o755)
        done = run("--emulate", "4x4", "--ports", 2, "--", "torchrun", "--emulate", program=program)
        expect((done.returncode, done.stdout) == (5, "4x4 --ports 2 -- torchrun --emulate\n"), done)
        expect(run("--emulate=2x2", "--", "x", program=program).stdout == "2x2 -- x\n", "--emulate=")
        expect(run("--mode", "off", "--emulate", "2x2", "--", "x", program=program).returncode == 2, "--emulate behind others")


if __name__ == "__main__":
    sys.exit(main(__name__))
