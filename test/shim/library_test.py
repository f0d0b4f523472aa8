#!/usr/bin/env python3
"""What libopus_shim.so may need and show.  usage: library_test.py LIBRARY EXPORT_MAP NCCL_HEADER

It lives in other people's processes and containers: it needs libc alone, no symbol newer than glibc
2.28, exports its hooks and the opus_* calls and nothing else, and takes less than 64 bytes of static TLS.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "abi"))
from tables import Passed  # noqa: E402

library, export_map, nccl_header = sys.argv[1:4]
failures = []


def tool(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def hold(what, condition, found):
    print(f"{'ok  ' if condition else 'FAIL'} {what}" + ("" if condition else f": {found}"))
    if not condition:
        failures.append(what)


needed = re.findall(r"NEEDED.*\[(.*)\]", tool("readelf", "-dW", library))
hold("needs libc alone", needed == ["libc.so.6"], needed)

symbols = [line.split() for line in tool("nm", "-D", library).splitlines()]
undefined = [fields[-1] for fields in symbols if fields[-2] in "Uw" and len(fields) == 2]
versions = [(name, tuple(map(int, found.group(1).split(".")))) for name in undefined if (found := re.search(r"@GLIBC_([\d.]+)$", name))]
hold("has glibc symbols to judge", len(versions) > 10, undefined)
hold("no symbol newer than glibc 2.28", all(v <= (2, 28) for _, v in versions), [n for n, v in versions if v > (2, 28)])
other = [n for n in undefined if "@" not in n and n not in ("_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__")]
hold("no symbol of another library", not other and not [n for n in undefined if "@" in n and "@GLIBC_" not in n], other)

exported = {fields[-1].split("@")[0] for fields in symbols if len(fields) == 3}
with open(export_map) as script:
    listed = set(re.findall(r"^\s+(\w+);", script.read(), re.M))
hold("exports what its table lists, and nothing else", exported == listed, exported ^ listed)
hold("exports the public calls", {"opus_version", "opus_state", "opus_stats"} <= exported, exported)

with open(nccl_header) as header:
    api = set(re.findall(r"^\s*ncclResult_t\s+(nccl\w+)\s*\(", header.read(), re.M))
api |= set(re.findall(r"^ncclResult_t (nccl\w+)\(", (ROOT / "shim" / "device_api.h").read_text(), re.M))
passed = Passed(ROOT)
missing = {name for name in api if passed.kind(name) is None} - exported
hold("hooks every function of this NCCL, or has the reason in shim/passed_table.h", not missing, missing)
unknown = {name for name in exported if name.startswith("nccl")} - api
hold("hooks nothing that NCCL has not", not unknown, unknown)

both = {name for name in exported & api if not passed.kind(name)}
hold("passes nothing that it hooks", both == exported & api, (exported & api) - both)
hold("hooks pncclX with each ncclX", {"p" + name for name in exported & api} <= exported, "a name without its twin")

tls = re.search(r"^\s*TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)", tool("readelf", "-lW", library), re.M)
hold("less than 64 bytes of TLS", tls is not None and int(tls.group(1), 16) < 64, tls and tls.group(1))
hold("binds at once", "BIND_NOW" in tool("readelf", "-dW", library), "no BIND_NOW")

sys.exit(1 if failures else 0)
