#!/usr/bin/env python3
"""Assembles the stream gates for the GPUs it must run on.  usage: ptx_test.py PRINTER [PTXAS]"""
import subprocess
import sys
import tempfile

ENTRIES = ("opus_gate", "opus_gate_strict", "opus_gate_replayed", "opus_gate_replayed_strict", "opus_replay_ended")
printer, ptxas = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
if not ptxas:
    print("SKIP the gate kernel assembles: no ptxas (meson option ptxas)")
    sys.exit(77)
ptx = subprocess.run([printer], capture_output=True, text=True, check=True).stdout
failed = False
with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
    file.write(ptx)
    file.flush()
    for target in ("sm_70", "sm_80", "sm_90"):
        result = subprocess.run([ptxas, f"-arch={target}", "-v", file.name, "-o", "/dev/null"], capture_output=True, text=True)
        entries = [name for name in ENTRIES if f"'{name}'" in result.stderr]
        ok = result.returncode == 0 and len(entries) == len(ENTRIES)
        failed = failed or not ok
        print(f"{'ok  ' if ok else 'FAIL'} {target}: " + (", ".join(ENTRIES) if ok else result.stderr.strip()))
sys.exit(1 if failed else 0)
