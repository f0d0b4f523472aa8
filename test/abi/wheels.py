#!/usr/bin/env python3
"""`make abi`: the shim against the NCCL of public wheels, old and new.

    wheels.py SOURCE_ROOT LIBRARY

Each host function that a wheel exports is hooked, passed on purpose (shim/passed_table.h), or reported; each hook has the
type that the wheel's own header declares. Wheels come from PyPI by pip, once: what is looked at stays in .deps/abi/. Exit
code 1 where something is reported, 77 where no wheel can be had.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tables import Passed  # noqa: E402

PACKAGE = "nvidia-nccl-cu12"
WANTED = ["2.18", "2.21", "2.23", "2.26", "2.27", "2.28", "2.30"]  # the newest of each, and the newest of all
LIMIT_S = 900
TYPES = r'''
#include <nccl.h>
#include <type_traits>
#include "shim/device_api.h"
#define OPUS_HOOK(name, params, args) static_assert(std::is_same_v<decltype(&::name), ncclResult_t(*) params>, #name);
#include "shim/hook_table.h"
'''


def said(*command: object) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout


def newest() -> str:
    return re.search(r"\(([\d.]+)\)", said(sys.executable, "-m", "pip", "index", "versions", PACKAGE)).group(1)


class Wheel:
    """What is kept of one: exported names, the header, the version."""

    def __init__(self, cache: pathlib.Path, wanted: str, exact: bool):
        self.folder = cache / wanted
        if not (self.folder / "version").exists():
            self.fetch(f"{PACKAGE}=={wanted}" + ("" if exact else ".*"))
        self.version = (self.folder / "version").read_text().strip()
        self.names = set((self.folder / "names").read_text().split())

    def fetch(self, what: str) -> None:
        print(f"abi: fetching {what}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            said(sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-cache-dir", "--no-deps",
                 "--only-binary=:all:", "-d", scratch, what)
            (file,) = pathlib.Path(scratch).glob("*.whl")
            with zipfile.ZipFile(file) as wheel:
                library = wheel.extract("nvidia/nccl/lib/libnccl.so.2", scratch)
                header = wheel.read("nvidia/nccl/include/nccl.h")
            names = [line.split()[-1] for line in said("nm", "-D", "--defined-only", library).splitlines()]
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "nccl.h").write_bytes(header)
            (self.folder / "names").write_text("\n".join(name for name in names if re.match("p?nccl", name)) + "\n")
            (self.folder / "version").write_text(file.name.split("-")[1] + "\n")


def wrong_types(root: pathlib.Path, wheel: Wheel) -> list[str]:
    """Hooks that the wheel's header declares otherwise."""
    cuda = [*(root / ".deps" / "nvidia").glob("cuda_*/include"), pathlib.Path("/usr/local/cuda/include")]
    options = [word for folder in cuda for word in ("-isystem", str(folder))]
    done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-w", f"-I{root}", "-isystem", wheel.folder, *options, "-x", "c++", "-"],
                          input=TYPES, capture_output=True, text=True, timeout=LIMIT_S)
    return [line for line in done.stderr.splitlines() if "error:" in line]


def main() -> int:
    root, library = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    passed = Passed(root)
    exported = {line.split()[-1] for line in said("nm", "-D", "--defined-only", library).splitlines()}
    cache = root / ".deps" / "abi"
    rows, problems, seen = [], [], set()
    try:
        wheels = [Wheel(cache, wanted, False) for wanted in WANTED] + [Wheel(cache, newest(), True)]
    except (subprocess.SubprocessError, AttributeError) as error:
        print(f"SKIP abi: no wheel of {PACKAGE} can be had: {getattr(error, 'stderr', None) or error}")
        return 77
    for wheel in wheels:
        names = {name for name in wheel.names if name.startswith("nccl")}
        seen |= names
        hooked = names & exported
        kinds = {name: passed.kind(name) for name in names - hooked}
        reported = sorted(name for name, kind in kinds.items() if kind is None)
        lacking = sorted(name for name in hooked if "p" + name in wheel.names and "p" + name not in exported)
        problems += [f"{wheel.version}: {name} is neither hooked nor in shim/passed_table.h" for name in reported]
        problems += [f"{wheel.version}: p{name} is not hooked" for name in lacking]
        problems += [f"{wheel.version}: {line}" for line in wrong_types(root, wheel)]
        count = list(kinds.values()).count
        rows.append((wheel.version, len(names), len(hooked), count("PASSED"), count("UNHELD"), len(reported)))
    problems += [f"shim/passed_table.h: {name} is in none of these versions" for name in passed.unused(seen)]
    print("| NCCL | host functions | hooked | passed on purpose | not held yet | reported |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
