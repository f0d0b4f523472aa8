#!/usr/bin/env python3
"""Runs every libFuzzer target of a build folder:  test/fuzz/campaign.py BUILD

FUZZ_SECONDS each (default 60). Corpora are kept in BUILD/corpus/, findings in BUILD/findings/.
"""
import json
import os
import pathlib
import subprocess
import sys


def main() -> int:
    build = pathlib.Path(sys.argv[1]).resolve()
    seconds = os.environ.get("FUZZ_SECONDS", "60")
    targets = json.loads(subprocess.check_output(["meson", "introspect", "--targets", str(build)]))
    targets = [t for t in targets if t["type"] == "executable" and "/test/fuzz/" in t["defined_in"]]
    if not targets:
        print("no fuzz target was found: was the folder configured with -Dfuzz=true?")
        return 1
    subprocess.check_call(["ninja", "-C", str(build), *[os.path.relpath(t["filename"][0], build) for t in targets]])
    failed = 0
    for target in targets:
        corpus = build / "corpus" / target["name"]
        findings = build / "findings" / target["name"]
        corpus.mkdir(parents=True, exist_ok=True)
        findings.mkdir(parents=True, exist_ok=True)
        log = build / "findings" / (target["name"] + ".log")
        with open(log, "wb") as out:
            code = subprocess.call([target["filename"][0], f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048",
                                    f"-artifact_prefix={findings}/", str(corpus)], stdout=out, stderr=subprocess.STDOUT)
        last = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("#")][-1:]
        print(f"{'ok  ' if code == 0 else 'FAIL'} {target['name']}: {last[0] if last else ''}"
              + ("" if code == 0 else f" (see {log})"), flush=True)
        failed += code != 0
    print(f"{len(targets) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
