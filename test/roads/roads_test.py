#!/usr/bin/env python3
"""Every road by which a program reaches NCCL, under the shim: are its launches recorded?

    roads_test.py BUILD FILE...     what test/roads and test/shim built, found by name
"""
import os
import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(sys.argv[1])
FILES = {pathlib.Path(name).name.split(".so")[0]: pathlib.Path(name).resolve() for name in sys.argv[2:]}
NCCL, OLD, SHIM = FILES["libnccl"], FILES["libnccl_old"], FILES["libopus_shim"]
FOLDER = BUILD / "test" / "roads"
LIMIT_S = 30
LAUNCHES = 3  # of use.h

CTYPES = """
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
id, comm, buffer = Id(), ctypes.c_void_p(), (ctypes.c_char * 64)()
assert nccl.ncclGetUniqueId(ctypes.byref(id)) == 0
assert nccl.ncclCommInitRank(ctypes.byref(comm), 2, id, 0) == 0
for _ in range(3):
    assert nccl.ncclAllReduce(buffer, buffer, ctypes.c_size_t(4), 7, 0, comm, None) == 0
assert nccl.ncclCommDestroy(comm) == 0
assert not hasattr(nccl, "ncclNoSuchCall")
"""
EXTENSION = "import road_extension; assert road_extension.run() == 0"
# Python has no way of its own to ask: the public call of the shim.
COUNT = """
import ctypes
class Stats(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint64), ("recorded", ctypes.c_uint64), ("rest", ctypes.c_uint64 * 8)]
stats = Stats(struct_bytes=ctypes.sizeof(Stats))
ask = getattr(ctypes.CDLL(None), "opus_stats", None)
if ask: ask(ctypes.byref(stats))
print(f"recorded={stats.recorded}")
"""

CASES = []


def case(what: str):
    def note(function):
        CASES.append((what, function))
        return function
    return note


def expect(condition: bool, found: object) -> None:
    if not condition:
        raise AssertionError(str(found))


class Manager:
    """A mini manager, which judges every communicator held and keeps each gate open."""

    def __enter__(self):
        self.child = subprocess.Popen([FILES["mini_manager"], "1", "open"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.socket = self.child.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        try:
            self.child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def run(manager: Manager, *command: object, shim: bool = True, **environment: object) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPUS_", "NCCL_", "LD_", "CUDA_"))}
    kept |= {"OPUS_SOCKET": manager.socket, "LD_LIBRARY_PATH": str(NCCL.parent), "PYTHONPATH": str(FOLDER)}
    if shim:
        kept["LD_PRELOAD"] = str(SHIM)
    kept |= {name: str(value) for name, value in environment.items()}
    return subprocess.run([str(part) for part in command], env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)


def seen(done: subprocess.CompletedProcess) -> None:
    found = f"{done.args[-2:]} ended with {done.returncode}: {done.stdout}{done.stderr}"
    expect(done.returncode == 0, found)
    expect(f"recorded={LAUNCHES}" in done.stdout, found)
    expect(not done.stderr, found)


def road(what: str, *command: object, **environment: object) -> None:
    """One more case: the launches of this command are seen, and without the shim it runs as well."""
    def of(manager: Manager) -> None:
        bare = run(manager, *command, shim=False, **environment)
        expect(bare.returncode == 0, f"without the shim: {bare.stdout}{bare.stderr}")
        seen(run(manager, *command, **environment))
    CASES.append((what, of))


OPEN, LINKED = FILES["road_open"], FILES["road_linked"]
PLUGIN, LAZY, PROFILING = FILES["libroad_plugin"], FILES["libroad_lazy_plugin"], FILES["libroad_profiling"]
SONAME = "libnccl.so.2"

road("linked", LINKED, "linked")
road("a dependency of an RTLD_LOCAL dlopen", OPEN, "plugin", PLUGIN)
road("a dependency of an RTLD_LOCAL dlopen, bound at the first call", OPEN, "plugin", LAZY, "", "lazy")
road("dlopen by soname and dlsym on the handle", OPEN, "handle", SONAME)
road("dlopen by absolute path and dlsym on the handle", OPEN, "handle", NCCL)
road("dlsym on RTLD_DEFAULT", OPEN, "default", NCCL)
road("dlsym on dlopen(NULL)", OPEN, "self", NCCL)
road("dlsym of pncclX on a handle", OPEN, "handle", NCCL, "p")
road("dlsym on the handle of a library that needs NCCL", OPEN, "handle", PLUGIN)
road("linked by the names pncclX", OPEN, "plugin", PROFILING)
road("RTLD_DEEPBIND", OPEN, "plugin", PLUGIN, "deepbind")
road("RTLD_DEEPBIND, bound at the first call", OPEN, "plugin", LAZY, "deepbind", "lazy")
road("Python: ctypes by soname", sys.executable, "-c", CTYPES + COUNT, SONAME)
road("Python: ctypes by absolute path", sys.executable, "-c", CTYPES + COUNT, NCCL)
road("Python: an extension module", sys.executable, "-c", EXTENSION + COUNT)


@case("an NCCL that is preloaded before the shim")
def preloaded(manager: Manager) -> None:
    for command in ([LINKED, "linked"], [OPEN, "plugin", PLUGIN], [OPEN, "plugin", LAZY, "", "lazy"], [OPEN, "default", NCCL], [OPEN, "self", NCCL],
                    [OPEN, "handle", SONAME], [sys.executable, "-c", EXTENSION + COUNT]):
        seen(run(manager, *command, LD_PRELOAD=f"{NCCL}:{SHIM}"))


@case("what the real library lacks is not found, by handle or by scope")
def lacks(manager: Manager) -> None:
    for library, there in ((OLD, "no"), (NCCL, "yes")):
        for name in ("ncclCommShrink", "pncclCommShrink"):
            done = run(manager, OPEN, "lookup", library, name, OPUS_NCCL_LIBRARY=library)
            expect(done.stdout == f"handle={there} default={there}\n", f"{library.name} {name}: {done.stdout}{done.stderr}")
    done = run(manager, OPEN, "lookup", OLD, "ncclCommShrink")
    expect(done.stdout == "handle=no default=no\n", f"without OPUS_NCCL_LIBRARY: {done.stdout}{done.stderr}")


@case("where no NCCL is loaded, no scope has its functions")
def absent(manager: Manager) -> None:
    done = run(manager, OPEN, "absent", "ncclAllReduce")
    expect(done.stdout == "handle=no default=no\n", done.stdout + done.stderr)


@case("a reference to what the real library lacks is refused by name, in one line")
def refused(manager: Manager) -> None:
    done = run(manager, FILES["road_old"], "weak", OPUS_NCCL_LIBRARY=OLD)
    expect(done.returncode == 0 and f"recorded={LAUNCHES}" in done.stdout, done.stdout + done.stderr)
    if "shrink=no" in done.stdout:
        return
    expect(re.fullmatch(r"opus: [^\n]*ncclCommShrink[^\n]*libnccl_old\.so[^\n]*\n", done.stderr) is not None, done.stderr)


@case("a library that calls NCCL past Opus is named in one line")
def past(manager: Manager) -> None:
    done = run(manager, OPEN, "load", FILES["libroad_at_once"], "deepbind")
    lines = done.stderr.splitlines()
    expect(done.returncode == 0 and len(lines) == 1 and "libroad_at_once.so" in lines[0] and "RTLD_DEEPBIND" in lines[0], lines)
    done = run(manager, OPEN, "load", PLUGIN)
    expect(done.returncode == 0 and not done.stderr, f"nobody called NCCL: {done.stderr}")


@case("a second NCCL in a process is told of, and works")
def second(manager: Manager) -> None:
    program = CTYPES + "sys.argv[1] = sys.argv[2]\n" + CTYPES.replace("import ctypes, sys", "") + COUNT
    done = run(manager, sys.executable, "-c", program, NCCL, OLD)
    expect(done.returncode == 0 and f"recorded={LAUNCHES}" in done.stdout, done.stdout + done.stderr)
    lines = done.stderr.splitlines()
    expect(len(lines) == 1 and "libnccl_old.so" in lines[0], lines)


def main(module: str) -> int:
    """Plays the cases of a module."""
    failed = 0
    cases = [(what, of) for what, of in CASES if of.__module__ == module]
    with Manager() as manager:
        for what, of in cases:
            try:
                of(manager)
                print(f"ok   {what}")
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAIL {what}: {error}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(__name__))
