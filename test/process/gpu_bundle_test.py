"""The bundle for a machine with a GPU: it is whole, runs wherever it is put, and says what is missing."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from cases import ROOT, SANITIZED, Skip, case, expect, run

GPU = any(pathlib.Path("/dev").glob("nvidia[0-9]*")) or pathlib.Path("/dev/dxg").exists()


def said(command: list, timeout_s: float = 60, **more: str) -> tuple[int, str]:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("OPUS_", "NCCL_", "CUDA_", "LD_"))}
    mark = {k: v for k, v in os.environ.items() if k.startswith("OPUS_TEST")}
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout_s, env={**keep, **mark, **more})
    return done.returncode, done.stdout


def bundled(context, into: pathlib.Path) -> tuple[int, str]:
    return said([ROOT / "tools" / "gpu-bundle", context.build.folder, into], 120)


_made = tempfile.TemporaryDirectory(prefix="gpu-bundle-")  # of this process: made once, and copied by each case


@contextlib.contextmanager
def moved_bundle(context):
    """A bundle at another place than where it was made."""
    if SANITIZED:
        raise Skip("a sanitizer's runtime is not bundled")
    made = pathlib.Path(_made.name) / "made"
    if not made.exists():
        code, text = bundled(context, made)
        expect(code == 0, f"not made:\n{text}")
        made.rename(made.with_name("away"))
        made.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(shutil.copytree(made.with_name("away"), pathlib.Path(folder) / "moved"))


@case("a bundle runs where it was moved to, on libraries of its own")
def runs(context) -> None:
    with moved_bundle(context) as bundle:
        # These are linked to NCCL and CUDA's runtime, which are the machine's.
        programs = [p for p in sorted((bundle / "bin").iterdir()) if p.suffix != ".so" and p.name not in ("call_cost", "call_waits")]
        expect(len(programs) >= 6, f"few programs: {programs}")
        for program in programs:
            code, text = said([program, "--help"])
            expect(code == 0 and "sage" in text, f"{program.name} --help ended with {code}:\n{text}")
            if program.name.startswith("opus-"):
                code, text = said([program, "--version"])
                expect(code == 0 and re.search(r"\d+\.\d+\.\d+", text), f"{program.name} --version ended with {code}:\n{text}")
            _, linked = said(["ldd", program])
            for name, at in re.findall(r"^\s*(\S+) => (\S+)", linked, re.M):
                ours = at.startswith(str(bundle)) or re.match(r"(libc|libm|libpthread|libdl|librt|libresolv|libutil)\.so", name)
                expect(bool(ours), f"{program.name} takes {name} from {at}")
        code, text = said([bundle / "gpu-check.sh", "--help"])
        expect(code == 0 and "--libs" in text, f"gpu-check.sh --help ended with {code}:\n{text}")
        for parts in ("", "cost wait"):
            code, text = said([bundle / "gpu-check.sh", "--only", parts])
            expect(code == 2 and "--only" in text, f"gpu-check.sh --only '{parts}' ended with {code}:\n{text}")


@case("a bundle replaces a bundle, and nothing else")
def replaces(context) -> None:
    with moved_bundle(context) as bundle:
        (bundle / "old").write_text("")
        code, text = bundled(context, bundle)
        expect(code == 0 and not (bundle / "old").exists(), f"not replaced:\n{text}")
        (bundle / "MANIFEST").unlink()
        code, text = bundled(context, bundle)
        expect(code == 1 and (bundle / "bin").exists(), f"a folder that is no bundle was touched ({code}):\n{text}")


@case("without a GPU the check says what is missing, and is skipped")
def honest(context) -> None:
    if GPU:
        raise Skip("here is a GPU")
    with moved_bundle(context) as bundle:
        code, text = said([bundle / "gpu-check.sh"])
        expect(code == 77, f"it ended with {code}:\n{text}")
        for word in ("missing libcuda.so.1", "no GPU", "not run"):
            expect(word in text, f"it does not say '{word}':\n{text}")
        expect("s/iter" not in text, f"a table without a GPU:\n{text}")


@case("the check runs its rows on the test doubles, and says that they are doubles")
def doubles(context) -> None:
    if GPU:
        raise Skip("here is a GPU")
    with moved_bundle(context) as bundle:
        code, text = said([bundle / "gpu-check.sh", "--stand-ins", context.build.standins, "--iterations", "2",
                           "--drawn", "3", "--torch", "none", "--seconds", "60"], 400)
        expect(code == 0, f"it ended with {code}:\n{text}")
        expect("STAND-INS, not a GPU" in text, f"it does not say what it ran on:\n{text}")
        rows = re.findall(r"^(?:enforce, |graph, |cost a call, ).*\bok$", text, re.M)
        expect(len(rows) == 7, f"rows:\n{text}")
        expect(len(re.findall(r"^random jobs, .* 3 of 3 right$", text, re.M)) == 2, f"random jobs:\n{text}")
        expect(len(re.findall(r"^(?:a manager dies|another controller|no controller any more), .*\bok$", text, re.M)) == 3, f"faults:\n{text}")
        expect(text.index("a gate, and a kernel behind it") < text.index("s/iter"), f"the queues are not looked at first:\n{text}")
        expect("from go to done" in text, f"the gate was not timed:\n{text}")


@case("the check says of each row what went wrong, and fails")
def fails(context) -> None:
    if GPU:
        raise Skip("here is a GPU")
    with moved_bundle(context) as bundle:
        (bundle / "lib" / "libopus_shim.so").unlink()  # a preload that is not there is only a warning
        logs = bundle / "logs"
        code, text = said([bundle / "gpu-check.sh", "--stand-ins", context.build.standins, "--iterations", "2", "--drawn", "0", "--torch", "none",
                           "--seconds", "4", "--logs", logs], 200)
        expect(code == 1 and "some row is not" in text, f"it ended with {code}:\n{text}")
        expect(not re.search(r"^enforce, .*\bok$", text, re.M), f"a row without the shim is ok:\n{text}")


if __name__ == "__main__":
    sys.exit(run())
