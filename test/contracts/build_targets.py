#!/usr/bin/env python3
"""What `make demo` and `make install` compile, in a folder that is configured for it and never built.

    build_targets.py SOURCE_ROOT BUILD_ROOT

Read from what make would call and from what ninja would run; compiles nothing, but has the compiler look over libraries
that are one unit each, unless BUILD_ROOT was itself compiled so.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
BUILT = pathlib.Path(sys.argv[2]).resolve()
sys.path.insert(0, str(SOURCE / "tools"))
from cluster import Build  # noqa: E402

# Of make, when this runs under it; options of the compiler come from the build files alone.
ENV = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CI", "WERROR", "BUILD")}


def said(*command: object, ok: bool = True) -> str:
    done = subprocess.run([str(part) for part in command], cwd=SOURCE, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ok and done.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def options_of(folder: pathlib.Path) -> dict[str, object]:
    return {o["name"]: o["value"] for o in json.loads(said("meson", "introspect", "--buildoptions", folder))}


class Folder:
    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def make_calls(self, target: str, program: str) -> list[list[str]]:
        """What `make target` would call of a program."""
        lines = said("make", "--dry-run", target, f"BUILD={self.folder}").splitlines()
        return [shlex.split(line.lstrip("@")) for line in lines if re.match(rf"@?\S*\b{re.escape(program)} ", line)]

    def configure_for(self, target: str) -> str:
        (call,) = self.make_calls(target, "configure.sh")
        return said(*call)

    def outputs(self, target: str) -> set[str]:
        """Every file that the ninja of `make target` makes, relative to the folder."""
        (call,) = self.make_calls(target, "ninja")
        wanted = []
        rest = iter(call[1:])
        for word in rest:
            if word in ("-C", "-j"):
                next(rest)
            else:
                wanted.append(word)
        # Inputs of inputs; what an alias names itself is told by query alone.
        lines = said("ninja", "-C", self.folder, "-t", "inputs", *(wanted or ["all"])).splitlines()
        for target_of_ninja in wanted or ["all"]:
            asked = said("ninja", "-C", self.folder, "-t", "query", target_of_ninja)
            lines += asked.partition("  outputs:")[0].splitlines()
        return {line.strip(" |") for line in lines}

    def relative(self, path: pathlib.Path | str) -> str:
        return os.path.relpath(path, self.folder)


def of_tests(outputs: set[str]) -> list[str]:
    """Objects of tests and benchmarks."""
    return sorted(o for o in outputs if o.endswith(".o") and o.startswith("test/"))


def demo_compiles_no_test(f: Folder) -> None:
    found = of_tests(f.outputs("demo"))
    assert not found, f"{len(found)} objects of tests, {found[0]} among them"


def demo_has_what_it_runs(f: Folder) -> None:
    lacking = {f.relative(p) for p in Build(f.folder).wanted()} - f.outputs("demo")
    assert not lacking, f"not built: {sorted(lacking)}"


def install_compiles_no_test(f: Folder) -> None:
    found = of_tests(f.outputs("install"))
    assert not found, f"{len(found)} objects of tests, {found[0]} among them"


def install_has_what_it_installs(f: Folder) -> None:
    targets = json.loads(said("meson", "introspect", "--targets", f.folder))
    files = {f.relative(name) for t in targets if t["installed"] for name in t["filename"]}
    assert files, "nothing is installed"
    lacking = files - f.outputs("install")
    assert not lacking, f"not built: {sorted(lacking)}"


def install_does_not_build_the_rest(f: Folder) -> None:
    (call,) = [c for c in f.make_calls("install", "meson") if c[1] == "install"]
    assert "--no-rebuild" in call, f"{shlex.join(call)} builds everything first"


def bundle_has_what_it_copies(f: Folder) -> None:
    script = (SOURCE / "tools" / "gpu-bundle").read_text()
    files = set(re.findall(r'"\$build/([^"]+)"', script))
    assert len(files) >= 4, f"what tools/gpu-bundle takes of a build is not found: {files}"
    lacking = files - f.outputs("gpu-bundle")
    assert not lacking, f"not built: {sorted(lacking)}"


def libraries_of_one_unit_compile(f: Folder) -> None:
    """Two sources of a library may not give one name to two things, even where no other file sees it."""
    commands = json.loads(said("ninja", "-C", f.folder, "-t", "compdb"))
    units = [c for c in commands if c["output"].endswith(".o") and "-unity" in c["output"]]
    assert units, "no library is one unit"
    if options_of(BUILT)["unity_libs"]:
        return  # they have been compiled
    for c in units:
        words = [w for w in shlex.split(c["command"]) if w != "ccache"]
        for option in ("-o", "-MF", "-MQ"):
            at = words.index(option)
            del words[at:at + 2]
        done = subprocess.run([*(w for w in words if w != "-MD"), "-fsyntax-only", "-O0"], cwd=c["directory"], capture_output=True, text=True)
        assert done.returncode == 0, f"{c['output']}:\n{done.stderr[-4000:]}"


def configured_again_when_options_change(f: Folder) -> None:
    file = f.folder / "build.ninja"
    options = [w for w in f.make_calls("demo", "configure.sh")[0][2:]]
    before = file.stat().st_mtime_ns
    f.configure_for("demo")
    assert file.stat().st_mtime_ns == before, "configured again for the same options"
    said(SOURCE / "tools" / "configure.sh", f.folder, *options, "-Dwerror=true")
    values = options_of(f.folder)
    assert values["werror"] is True, "an option was asked for, and not taken"
    assert values["unity_libs"] is True, "an option of the folder was lost"


CASES = [demo_compiles_no_test, demo_has_what_it_runs, install_compiles_no_test, install_has_what_it_installs,
         install_does_not_build_the_rest, bundle_has_what_it_copies, libraries_of_one_unit_compile, configured_again_when_options_change]


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory(prefix="opus-targets-") as folder:
        f = Folder(pathlib.Path(folder).resolve() / "build")
        f.configure_for("demo")
        for case in CASES:
            try:
                case(f)
            except (AssertionError, ValueError, KeyError, AttributeError) as error:
                print(f"FAIL {case.__name__.replace('_', ' ')}: {error!r}" if not str(error) else f"FAIL {case.__name__.replace('_', ' ')}: {error}")
                failed += 1
    print(f"{len(CASES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
