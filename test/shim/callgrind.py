"""Instructions inside measured(), counted by callgrind: in all, and by function and by library."""
import collections
import dataclasses
import os
import re
import subprocess
import sys
import tempfile


@dataclasses.dataclass
class Count:
    total: int
    functions: dict[str, int]
    objects: dict[str, int]  # by the last part of its path

    def of(self, function: str) -> int:
        """Instructions of the functions whose name begins so, themselves."""
        return sum(cost for name, cost in self.functions.items() if name.startswith(function))


def count(command: list[str], environment: dict[str, str] | None = None) -> Count:
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=measured*", f"--callgrind-out-file={folder}/out", *command],
                             capture_output=True, text=True, env={**os.environ, **(environment or {})})
        found = re.search(r"Collected : (\d+)", run.stderr)
        if run.returncode != 0 or not found:
            sys.exit(f"{' '.join(command)} failed:\n{run.stderr}")
        return Count(int(found.group(1)), *own_costs(f"{folder}/out"))


def own_costs(path: str) -> tuple[dict[str, int], dict[str, int]]:
    """From callgrind's file: a function's cost lines follow its ob= and fn= lines; a line after calls= is its callee's."""
    names: dict[str, dict[str, str]] = {"fn": {}, "ob": {}}
    functions: dict[str, int] = collections.Counter()
    objects: dict[str, int] = collections.Counter()
    now = {"fn": "", "ob": ""}
    callee = False
    with open(path) as file:
        for line in file:
            if found := re.match(r"(c?)(fn|ob)=(\(\d+\))(?: (.*))?", line):
                what, number, name = found[2], found[3], found[4]
                if name:  # written once, wherever it comes first
                    names[what][number] = name
                if not found[1]:
                    now[what] = names[what].get(number, "")
            elif line.startswith("calls="):
                callee = True
            elif re.match(r"[+\-*\d]", line):
                if not callee:
                    cost = int(line.split()[1])
                    functions[now["fn"]] += cost
                    objects[os.path.basename(now["ob"])] += cost
                callee = False
    return functions, objects
