#!/usr/bin/env python3
"""Holds each folder to the includes that docs/design.md, section 3, allows it, the pure cores to orders that are the same twice, and
each class to one home.

usage: include_rules.py SOURCE_ROOT

First it plants a violation of each rule in a scratch tree and requires that it is found, so that a scan
that has gone blind fails too.
"""
import os
import pathlib
import re
import sys
import tempfile

SOURCES = (".h", ".hpp", ".c", ".cpp", ".cc", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)

# Ordered by where memory happens to lie: a core would not decide the same twice. (A set may have an order of its own.)
BY_ADDRESS = re.compile(r"std::(?:set<[^<>,]*\*>|map<[^<>,]*\*,)")

# Two classes of one name in one namespace are one to the linker, which keeps the functions of either.
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)
CLASS = re.compile(r"^(?:class|struct|union) (\w+)(?: final)?(?: :[^;{]*)? ?\{", re.M)

# Parts of libstdc++ that would leave symbols or exceptions in other people's processes.
LIBSTDCXX = {"string", "string_view", "vector", "map", "set", "unordered_map", "unordered_set", "list", "deque", "iostream",
             "sstream", "fstream", "ostream", "istream", "thread", "mutex", "condition_variable", "future", "memory", "regex",
             "stdexcept", "exception", "variant", "any", "format", "filesystem", "random", "chrono", "locale"}
# What a pure core must not know: clocks, threads, sockets, files, chance.
IMPURE = {"thread", "mutex", "shared_mutex", "condition_variable", "future", "chrono", "ctime", "time.h", "random", "fstream",
          "iostream", "filesystem", "cstdio", "stdio.h", "unistd.h", "fcntl.h", "poll.h", "pthread.h", "zmq.h", "zmq.hpp"}
IMPURE_PREFIXES = ("sys/", "spdlog/", "netinet/", "arpa/", "linux/")

LIBRARIES = {  # third-party header -> its library
    "zmq": "zmq", "zmq_addon": "zmq", "spdlog": "spdlog", "msgpack": "msgpack", "nlohmann": "json", "toml++": "toml",
    "CLI": "cli11", "boost": "boost", "doctest": "doctest", "nccl": "nccl", "nccl_device": "nccl", "cuda": "cuda",
    "cuda_runtime": "cuda", "cuda_runtime_api": "cuda", "cuda_fp16": "cuda", "cuda_bf16": "cuda", "cuda_fp8": "cuda",
}

# room: (rooms it may include besides itself, libraries it may use)
RULES = {
    "include/opus": ([], []),
    "include/impl": (["include/opus"], ["msgpack"]),
    "shim": (["include/opus"], ["nccl", "cuda"]),
    "manager/core": (["include/opus"], []),
    "manager/shell": (["include/opus", "manager/core"], ["zmq", "spdlog", "cli11", "json", "boost"]),
    "manager/observer": (["include/opus", "manager/core", "manager/shell", "controller/recording"], ["cli11", "json"]),
    "controller/plan": (["include/opus"], []),
    "controller/core": (["include/opus", "controller/plan"], []),
    "controller/fabric": (["include/opus"], ["toml"]),
    "controller/recording": (["include/opus"], ["json"]),
    "controller/shell": (["include/opus", "controller/plan", "controller/core", "controller/fabric", "controller/recording", "drivers"], ["zmq", "spdlog", "cli11", "json"]),
    "drivers": (["include/opus"], ["spdlog"]),
    "tools/gpu": (["shim"], ["nccl", "cuda"]),  # the gate that it measures is the shim's own
    "tools/virtual_time": ([], []),
    "tools": (["include/opus", "drivers", "controller/plan", "controller/core", "controller/fabric", "controller/recording", "manager/core", "tools/virtual_time"],
              ["zmq", "spdlog", "cli11", "json", "toml", "nccl", "cuda"]),
}
PURE = ("manager/core", "controller/plan", "controller/core")


def room_of(path):
    """The most exact room that holds a path relative to the root, or None."""
    found = [room for room in RULES if path == room or path.startswith(room + "/")]
    return max(found, key=len) if found else None


def resolve(root, file, name):
    """Where an include leads inside the tree, relative to the root, or None."""
    for base in (file.parent, root, root / "include"):
        candidate = pathlib.Path(os.path.normpath(base / name))
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root).as_posix()
    return None


def library_of(name):
    first = name.split("/")[0]
    return LIBRARIES.get(first) or LIBRARIES.get(first.rsplit(".", 1)[0])


def judge(root, file, room, quote, name):
    """What is wrong with one include, or None."""
    rooms, libraries = RULES[room]
    inside = resolve(root, file, name)
    if inside:
        other = room_of(inside)
        if other is None:
            return f"{inside} belongs to no room that others may include"
        return None if other == room or other in rooms else f"{room} may not include {other}"
    library = library_of(name)
    if library:
        return None if library in libraries else f"{room} may not use {library}"
    if quote == '"':
        return None  # generated at build time
    if room == "shim" and name in LIBSTDCXX:
        return "the shim links nothing of libstdc++"
    if room in PURE and (name in IMPURE or name.startswith(IMPURE_PREFIXES)):
        return f"{room} is pure: no clock, thread, socket, file or chance"
    return None


def scan(root):
    root = pathlib.Path(root).resolve()
    problems, files, homes = [], 0, {}
    for top in sorted({room.split("/")[0] for room in RULES}):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SOURCES or not file.is_file():
                continue
            relative = file.relative_to(root).as_posix()
            room = room_of(relative)
            if room is None:
                problems.append(f"{relative}: in no room of docs/design.md")
                continue
            files += 1
            text = file.read_text(errors="replace")
            for match in INCLUDE.finditer(text):
                wrong = judge(root, file, room, match.group(1), match.group(2))
                if wrong:
                    line = text.count("\n", 0, match.start()) + 1
                    problems.append(f"{relative}:{line}: #include {match.group(2)}: {wrong}")
            for match in CLASS.finditer(text) if file.suffix == ".h" else ():
                before = [m.group(1) for m in NAMESPACE.finditer(text, 0, match.start())]
                name = "::".join(before[-1:] + [match.group(1)])
                if homes.setdefault(name, relative) != relative and before:
                    line = text.count("\n", 0, match.start()) + 1
                    problems.append(f"{relative}:{line}: {name} is another class in {homes[name]}")
            for match in BY_ADDRESS.finditer(text) if room in PURE else ():
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f"{relative}:{line}: {match.group()}: ordered by address, which is another one the next time")
    return problems, files


VIOLATIONS = {
    "include/opus/a.h": "#include <zmq.h>",
    "include/impl/a.cpp": "#include <spdlog/spdlog.h>",
    "shim/a.cpp": "#include <string>",
    "shim/b.cpp": '#include "manager/core/x.h"',
    "manager/core/a.cpp": "#include <chrono>",
    "manager/core/b.cpp": "  #  include <sys/socket.h>",
    "manager/shell/a.cpp": '#include "controller/core/x.h"',
    "controller/core/a.cpp": "#include <thread>",
    "controller/core/b.cpp": "std::set<Comm*> all;",
    "controller/plan/a.cpp": "std::map<const Gang*, std::vector<int>> all;",
    "controller/fabric/a.cpp": '#include "drivers/x.h"',
    "controller/shell/a.cpp": "#include <msgpack.hpp>",
    "drivers/a.cpp": '#include "../controller/core/x.h"',
    "tools/ctl/a.cpp": '#include "manager/shell/x.h"',
    "tools/ctl/b.cpp": '#include "test/x.h"',
    "tools/virtual_time/a.cpp": '#include "opus/x.h"',
}


def self_test():
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for room in list(RULES) + ["test"]:
            (root / room).mkdir(parents=True, exist_ok=True)
            (root / room / "x.h").write_text("#include <cstdint>\n")
        if scan(root)[0]:
            sys.exit(f"include rules: an innocent tree is refused: {scan(root)[0]}")
        for name, line in VIOLATIONS.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(f"// x\n{line}\n")
            problems, _ = scan(root)
            if len(problems) != 1 or not problems[0].startswith(f"{name}:2:"):
                sys.exit(f"include rules: the planted '{line}' in {name} gave {problems}")
            (root / name).unlink()
        for name in ("controller/core/one.h", "controller/shell/other.h"):
            (root / name).write_text("namespace opus::controller {\nclass Planted {\n};\n}\n")
        problems, _ = scan(root)
        if problems != ["controller/shell/other.h:2: opus::controller::Planted is another class in controller/core/one.h"]:
            sys.exit(f"include rules: the planted second class gave {problems}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    self_test()
    problems, files = scan(sys.argv[1])
    if not files:
        sys.exit(f"include rules: no source under {sys.argv[1]}")
    for problem in problems:
        print(problem)
    print(f"include rules: {files} files, {len(problems)} problems, {len(VIOLATIONS) + 1} planted ones found")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
