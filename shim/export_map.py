#!/usr/bin/env python3
"""Writes the linker's version script: exactly the hooks of hook_table.h (as ncclX and pncclX), the loader's calls of
loader_entry.cpp and the opus_* calls of opus.h.

usage: export_map.py OUTPUT SOURCE_ROOT COMPILER [ARG...]
The table is read by the compiler itself, so its version guards mean what they mean everywhere.
"""
import re
import subprocess
import sys

output, root, *compiler = sys.argv[1:]
probe = '#include <nccl.h>\n#define OPUS_HOOK(name, params, args) OPUS_EXPORTED(name)\n#include "shim/hook_table.h"\n'
text = subprocess.run([*compiler, f"-I{root}", "-E", "-P", "-x", "c++", "-"], input=probe, capture_output=True, text=True, check=True).stdout
hooks = re.findall(r"OPUS_EXPORTED\((\w+)\)", text)
with open(f"{root}/include/opus/opus.h") as header:
    calls = re.findall(r"^[\w *]*?\b(opus_\w+)\(", header.read(), re.M)
with open(f"{root}/shim/loader_entry.cpp") as source:
    loader = re.findall(r"^opus_entry (\w+)$", source.read().partition("#elif")[0], re.M)
if not hooks or not calls or not loader:
    sys.exit("export_map.py: no hooks, no opus_* calls, or no calls of the loader, found")
hooks += ["p" + name for name in hooks] + loader
with open(output, "w") as script:
    script.write("{ global:\n" + "".join(f"  {name};\n" for name in [*hooks, *calls]) + "local: *; };\n")
