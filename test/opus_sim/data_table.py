#!/usr/bin/env python3
"""Every file of the shared folder, as opus-sim reads it, beside what is known of it: a table, and a test.

    data_table.py BUILD [--page FILE] [SUBSTRING...]

Known is what data_counts.py counts, by other means, and what the files' authors publish. Where ours differs and no reason is known,
the case fails. OPUS_SHARED_DATA names the folder; without it cases are skipped. --page writes the table, as docs/results has it.
"""
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "process"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import data_counts  # noqa: E402
from cluster.machine import machine  # noqa: E402
from data_counts import Count  # noqa: E402

PAGE = sys.argv.pop(sys.argv.index("--page") + 1) if "--page" in sys.argv else None
if PAGE:
    sys.argv.remove("--page")
import cases  # noqa: E402
from cases import ROOT, Skip, case, expect  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]) / "tools/opus-sim/opus-sim"
SHARED = pathlib.Path(os.environ.get("OPUS_SHARED_DATA", ROOT.parent / "shared/data"))
ROWS: list = []       # of the table of jobs: texts
REFUSED: list = []    # (file, what is known, what opus-sim says)
PUBLISHED: list = []  # (file, whose figure, published, ours, equal)
NOTES: list = []
SEEN: set = set()     # files of the folder that a case has looked at


def shared(name: str) -> pathlib.Path:
    path = SHARED / name
    if not path.is_file():
        raise Skip(f"{path} is not there")
    SEEN.add(name)
    return path


def read(*arguments) -> dict:
    done = subprocess.run([str(PROGRAM), "read", "--json", *map(str, arguments)], capture_output=True, text=True, timeout=500)
    expect(done.returncode == 0, f"{arguments}: {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def unpacked(archive: pathlib.Path, into: str) -> list[pathlib.Path]:
    """By the tools of their formats, so that what is counted is not unpacked by opus-sim."""
    tool = {".xz": "xz", ".zst": "zstd", ".gz": "gzip", ".zip": "python3"}[archive.suffix]
    if not shutil.which(tool):
        raise Skip(f"{tool} is not there, which {archive.name} needs")
    command = {".zst": f"zstd -dc --long=30 '{archive}' | tar x -C '{into}'", ".zip": f"python3 -m zipfile -e '{archive}' '{into}'"}
    subprocess.run(["bash", "-o", "pipefail", "-c", command.get(archive.suffix, f"tar xf '{archive}' -C '{into}'")], check=True)
    return sorted(p for p in pathlib.Path(into).rglob("*") if p.is_file() and not p.name.startswith(".") and "__MACOSX" not in p.parts)


def ours_of(figures: dict) -> Count:
    operations = {(o["operation"], o["group_size"]): [o["calls"], o["bytes"]] for o in figures["operations"]}
    return Count(figures["ranks"], figures["entries"], {int(k): v for k, v in figures["groups_by_size"].items()}, operations,
                 sum(o["recorded_ms"] for o in figures["operations"]), figures["compute_ms"], figures["span_ms"])


def near(ours: float, known: float | None) -> bool:
    return known is None or abs(ours - known) <= max(1e-3 * known, 0.01)


def groups_text(count: Count) -> str:
    return ", ".join(f"{n} of {size}" for size, n in sorted(count.groups.items())) or "none"


def calls_text(count: Count) -> str:
    return f"{sum(c for c, _ in count.operations.values()):,}"


def bytes_text(count: Count) -> str:
    return f"{sum(b for _, b in count.operations.values()):,}"


def time_text(ours: Count, known: Count) -> tuple[str, str]:
    """Those times that the files hold."""
    parts: tuple[list, list] = ([], [])
    for name, key in (("operations", "recorded_ms"), ("computation", "compute_ms"), ("first to last", "span_ms")):
        if getattr(known, key) is not None:
            for part, count in zip(parts, (ours, known)):
                part.append(f"{name} {getattr(count, key):,.1f} ms")
    return tuple("; ".join(p) or "none in it" for p in parts)  # type: ignore[return-value]


def compare(name: str, figures: dict, known: Count) -> Count:
    ours = ours_of(figures)
    pairs = [(str(ours.ranks), str(known.ranks)), (f"{ours.entries:,}", f"{known.entries:,}"), (groups_text(ours), groups_text(known)),
             (calls_text(ours), calls_text(known)), (bytes_text(ours), bytes_text(known)), time_text(ours, known)]
    ROWS.append([name, figures["format"]] + [a if a == b else f"{a} (known: {b})" for a, b in pairs])
    NOTES.extend(f"{name}: {note}." for note in known.notes)
    for what in ("ranks", "entries", "groups"):
        expect(getattr(ours, what) == getattr(known, what), f"{name}: {what}: ours {getattr(ours, what)}, known {getattr(known, what)}")
    for key in ours.operations.keys() | known.operations.keys():
        expect(ours.operations.get(key) == known.operations.get(key), f"{name}: {key}: ours {ours.operations.get(key)}, known {known.operations.get(key)}")
    for what in ("recorded_ms", "compute_ms", "span_ms"):
        expect(near(getattr(ours, what), getattr(known, what)), f"{name}: {what}: ours {getattr(ours, what)}, known {getattr(known, what)}")
    return ours


def published(name: str, what: str, theirs: str, ours: str) -> None:
    PUBLISHED.append([name, what, theirs, ours])
    expect(ours == theirs, f"{name}: {what}: published {theirs}, ours {ours}")


def refused(name: str, words: str, known: str, *more) -> None:
    path = shared(name)
    done = subprocess.run([str(PROGRAM), "read", str(path), *map(str, more)], capture_output=True, text=True)
    said = done.stderr.strip().removeprefix("opus-sim: ").replace(str(SHARED) + "/", "")
    expect(done.returncode == 2 and words in said and "\n" not in said, f"{name}: {done.returncode}: {said}")
    REFUSED.append([name, known, said.removeprefix(f"{name}: ")])


@case("the 128 ranks of a Chakra job, DP4 PP4 TP8")
def _(context):
    name = "stg_dp4_pp4_tp8_128/traces.tar.zst"
    archive, groups = shared(name), json.loads(shared("stg_dp4_pp4_tp8_128/comm_group.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        files = [p for p in unpacked(archive, folder) if p.suffix == ".et"]
        ours = compare(name, read(*files, SHARED / "stg_dp4_pp4_tp8_128/comm_group.json"), data_counts.chakra(files, groups))
        published(name, "ranks (README)", "128", str(ours.ranks))
        first = next(p for p in files if p.name.endswith(".0.et"))
        nodes = sum(1 for _ in data_counts.chakra_walk.nodes(first.read_bytes()))
        published(name, "nodes on rank 0 (README), by the walk", "10,420", f"{nodes:,}")
    NOTES.append(f"{name}: opus-sim reads other zstd archives itself; this one's window is larger than 128 MiB, and it says what to type. Its sizes are "
                 "those that the generator wrote; times are by --gpu-tflops and --gpu-memory-gbytes, since it has none.")


@case("the 4 ranks of the reconfigurable simulator's Chakra job, DP2 TP2")
def _(context):
    name = "opus_stg/reconfigure.zip"
    archive, groups = shared(name), shared("opus_stg/workload.json")
    with tempfile.TemporaryDirectory() as folder:
        files = [p for p in unpacked(archive, folder) if p.suffix == ".et"]
        ours = compare(name + " and workload.json", read(archive, groups), data_counts.chakra(files, json.loads(groups.read_text())))
    published(name, "ranks (README)", "4", str(ours.ranks))


@case("four ranks of Megatron, tensor parallel over eight, by the profiler")
def _(context):
    name = "megatron_tp8/megatron_kineto_ranks0-3.tar.xz"
    archive = shared(name)
    with tempfile.TemporaryDirectory() as folder:
        files = unpacked(archive, folder)
        ours = compare(name, read("--fill", archive), data_counts.kineto(files))
        first = ours_of(read("--fill", files[0]))
    published(name, "NCCL all-reduces of a rank (README)", "84", f"{sum(c for (o, _), (c, _) in ours.operations.items() if o == 'all_reduce') // ours.ranks}")
    published(name, "ms from first to last on rank 0 (README)", "595", f"{first.span_ms:.0f}")


@case("a profiler's trace with all of NCCL's fields")
def _(context):
    path = shared("hta/nccl_data.json.gz")
    figures = read("--fill", path)
    compare("hta/nccl_data.json.gz", figures, data_counts.kineto([path]))
    published("hta/nccl_data.json.gz", "ranks of the job (README)", "2", str(figures["world"]))
    NOTES.append("hta/nccl_data.json.gz: rank 1 of 2 is not in it; --fill lets it do what rank 0 does.")


@case("eight ranks of DLRM, by the profiler")
def _(context):
    archive = shared("param/dlrm_kineto.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        ours = compare("param/dlrm_kineto.tar.gz", read(archive), data_counts.kineto(unpacked(archive, folder)))
    published("param/dlrm_kineto.tar.gz", "ranks (README)", "8", str(ours.ranks))


@case("AICB's tables of Llama-65B and 7B")
def _(context):
    for name in ("L65B-D1-C07_Llama65B_zero3_mbs1.csv", "L7B-D1-C02_Llama7B_zero3_mbs1.csv", "L65B-M1-C05_Llama65B_megatron_tp2_pp8_mbs1.csv"):
        path = shared("aicb/" + name)
        ours = compare("aicb/" + name, read(path), data_counts.aicb(path))
        if "megatron" in name:
            published("aicb/" + name, "ranks (README)", "128", str(ours.ranks))


@case("SimAI's workloads, of 9,216 GPUs and small ones")
def _(context):
    for name in ("workload_analytical.txt", "microAllReduce.txt", "L65B-M1-C05_Llama65B_megatron_tp8_pp1_mbs1_A100.txt"):
        path = shared("simai/" + name)
        ours = compare("simai/" + name, read(path), data_counts.simai(path))
        if name == "workload_analytical.txt":
            published("simai/" + name, "GPUs (README)", "9,216", f"{ours.ranks:,}")


@case("the project's own training jobs")
def _(context):
    for name, nodes in (("moe-zero1-2x2", 4), ("moe-ddp-2x2", 4), ("moe-zero1-gpipe-3x4", 12)):
        path = shared(f"jobs/{name}.jsonl")
        ours = compare(f"jobs/{name}.jsonl", read(path), data_counts.workload(path))
        published(f"jobs/{name}.jsonl", "nodes of one GPU (README)", str(nodes), str(ours.ranks))


@case("files that hold too little to be played, or something else, are named")
def _(context):
    for rank in ("events_node1_rank0.csv", "events_node2_rank1.csv"):
        name = f"llama3_8b_16gpu_events/{rank}"
        lines = shared(name).read_text().splitlines()
        transfers = sum(",PP," in line for line in lines)
        refused(name, "a list of launches", f"{len(lines)} launches: {transfers} of PP, {len(lines) - transfers} of DP; no sizes, no times")
    name = "opus_artifact/llama3_3d16_pp0_timed_phases_head.txt"
    spans = re.findall(r"start_time: ([\d.]+), end_time: ([\d.]+)", shared(name).read_text())
    first, last = min(float(a) for a, _ in spans), max(float(b) for _, b in spans)
    refused(name, "a list of phases", f"{len(spans)} phases in {(last - first) / 1e3:.1f} s, {sum(float(b) < float(a) for a, b in spans)} of which end before they begin; no operations, no sizes")
    refused("megatron_tp8/megatron_et_ranks0-3.tar.xz", "execution graph", "4 ranks' execution graphs; their Kineto traces are read, above")
    for name in ("perlmutter_iteration_latency.csv", "sim_iteration_ns.csv"):
        lines = shared("opus_artifact/" + name).read_text().splitlines()
        refused("opus_artifact/" + name, "a table of results", f"{len(lines) - 1} results")
    refused("opus_stg/network.yml", "description of a network", "a network of 4 GPUs")
    refused("opus_stg/system.json", "settings of a system", "settings")
    refused("opus_stg/schedules.txt", "a list of topologies", f"{shared('opus_stg/schedules.txt').read_text().count('BW ')} topologies")
    refused("opus_stg/pg-2-schedule.yml", "a schedule for", "which topology serves which communicator")
    for name, where in (("opus_stg/workload.json", "read above, with its traces"), ("stg_dp4_pp4_tp8_128/comm_group.json", "read above, with its traces"),
                        ("opus_stg/titan_perlmutter_comm_group.json", "of a job on 16 GPUs whose traces are not here")):
        groups = len(re.findall(r"\[", shared(name).read_text()))
        refused(name, "a file of communicators", f"{groups} communicators, {where}")


@case("no file of the shared folder is left out")
def _(context):
    if not SHARED.is_dir():
        raise Skip(f"{SHARED} is not there")
    if len(sys.argv) > 2:
        raise Skip("only some cases were asked for")
    every = {str(p.relative_to(SHARED)) for p in SHARED.rglob("*") if p.is_file()} - {"README.md"}
    expect(every == SEEN, f"not looked at: {sorted(every - SEEN)}; not there: {sorted(SEEN - every)}")


def table(head: list, rows: list) -> str:
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]) + "\n"


def page() -> str:
    return "\n".join([
        "# Files of others, read by opus-sim\n",
        f"Written by `test/opus_sim/data_table.py build --page docs/results/opus-sim-data.md` on {datetime.date.today()}; {machine()}. "
        "The folder's README says whose the files are.\n",
        "- A cell has opus-sim's figure. The known one stands behind it where the two differ.",
        "- Known figures are an independent count (`data_counts.py`): json, csv, a walk through protobuf.",
        "- Whole numbers are equal, times within 0.1 %: opus-sim plays whole microseconds, and rounds Chakra's nodes down to nanoseconds.",
        "- All figures are over all ranks. The time from first to last is the longest rank's.\n",
        table(["file", "read as", "ranks", "entries", "groups", "operations", "bytes", "time"], ROWS),
        "\n".join(f"- {n}" for n in NOTES) + "\n",
        "## What is published of them\n", table(["file", "figure", "published", "ours"], PUBLISHED),
        "## Read as no job\n",
        "These hold too little to be played, or something else. opus-sim ends with code 2, and says:\n", table(["file", "what is in it", "opus-sim says"], REFUSED)])


if __name__ == "__main__":
    code = cases.run(programs=False)
    if PAGE and code == 0:
        pathlib.Path(PAGE).write_text(page())
    sys.exit(code)
