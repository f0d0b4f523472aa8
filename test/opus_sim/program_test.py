#!/usr/bin/env python3
"""opus-sim as people run it, and every real file of the shared folder, where that is at hand.

    program_test.py BUILD [SUBSTRING...]

The files of others are counted here a second time, by other means, and figures must be equal. OPUS_SHARED_DATA names the folder.
"""
import collections
import csv
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "process"))
import cases  # noqa: E402
from cases import ROOT, Skip, case, expect  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]) / "tools/opus-sim/opus-sim"
SHARED = pathlib.Path(os.environ.get("OPUS_SHARED_DATA", ROOT.parent / "shared/data"))
RECORDED = ROOT / "test/data/pytorch"
JOBS = ROOT / "test/data/jobs"


def run(*arguments, code=0) -> str:
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, timeout=500)
    expect(done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout if code == 0 else done.stderr


def read(*arguments) -> dict:
    return json.loads(run("read", "--json", *arguments))


def totals(figures: dict) -> dict:
    """(operation, size of the group): (calls, bytes)"""
    return {(o["operation"], o["group_size"]): (o["calls"], o["bytes"]) for o in figures["operations"]}


def shared(name: str) -> pathlib.Path:
    path = SHARED / name
    if not path.exists():
        raise Skip(f"{path} is not there")
    return path


def unpacked(name: str, into: str) -> pathlib.Path:
    archive = shared(name)
    tool = {".xz": "xz", ".zst": "zstd", ".gz": "gzip", ".zip": "python3"}[archive.suffix]
    if not shutil.which(tool):
        raise Skip(f"{tool} is not there, which {archive.name} needs")
    command = {
        ".zst": f"zstd -dc --long=30 '{archive}' | tar x -C '{into}'",
        ".zip": f"python3 -m zipfile -e '{archive}' '{into}'",
    }.get(archive.suffix, f"tar xf '{archive}' -C '{into}'")
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)
    return pathlib.Path(into)


@case("a model's job is generated, read and played, the same each time")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        job = f"{folder}/job.jsonl"
        arguments = ["llama3-8b", "--layers", 4, "--tensor", 2, "--gpus-per-node", 2, "--pipeline", 2, "--data", 2, "--micro-batches", 4]
        run("generate", *arguments, "--out", job)
        expect(pathlib.Path(job).read_text() == run("generate", *arguments), "a file differs from standard output")
        figures = read(job)
        expect((figures["ranks"], figures["world"]) == (8, 8), f"{figures}")
        options = ["run", job, "--dark-ms", "1,50", "--ports", 1, "--iterations", 6, "--trials", 10, "--json"]
        first, second = run(*options), run(*options)
        expect(first == second, "the same run gave other figures")
        played = json.loads(first)
        expect(played["rails_alike"] == 1 and len(played["points"]) == 2, first)
        text = run(*options[:-1])
        for word in ("8 ranks on 4 nodes", "on demand", "provisioned", "best found", "bound", "50 ms"):
            expect(word in text, f"{word} is not in:\n{text}")


@case("recordings and workload files are played as traces are")
def _(context):
    for path in (RECORDED / "pipeline-fsdp.jsonl", JOBS / "moe-ddp-2x2.jsonl"):
        played = json.loads(run("run", path, "--dark-ms", "25", "--ports", 1, "--iterations", 4, "--trials", 10, "--json"))
        point = played["points"][0]
        expect(played["electrical_ms"] > 0, f"{played}")
        for variant in ("on_demand", "provisioned"):
            expect(point["best_found_ms"] <= point[variant]["iteration_ms"], f"{point}")
            expect(point[variant]["unroutable"] == 0, f"{point}")


@case("cost and power: each term adds up, JSON says what the tables do, prices are one's own")
def _(context):
    told = json.loads(run("cost", "--servers", "32,512", "--json"))
    expect([s["gpus"] for s in told["sizes"]] == [256, 4096], f"{told}")
    for size in told["sizes"]:
        expect([n["name"] for n in size["packet"]] == ["fat-tree", "rail", "rail-only", "leaf-spine"], f"{size}")
        for network in size["packet"] + size["circuits"]:
            for what in ("usd", "watts"):
                total = sum(t["count"] * t[what + "_each"] for t in network["terms"])
                expect(abs(network[what] - total) < 1e-6 * total, f"{network}")
    rail = next(r for r in told["sizes"][1]["ratios"] if r["packet"] == "rail")
    expect((round(1 - 1 / rail["cost"], 3), round(1 - 1 / rail["power"], 4)) == (0.767, 0.9584), f"{rail}")
    expect(any("needs 1024 ports" in n for n in told["sizes"][1]["circuits"][0]["notes"]), f"{told['sizes'][1]}")
    text = run("cost", "--servers", 512)
    for word in ("4,096 GPUs", "95.84 %", "4.30x", "2,304", "needs 1024 ports", "37,299 USD"):
        expect(word in text, f"{word} is not in:\n{text}")
    expect("20,736" in run("cost", "--generation", "gb200"), "domains of 72")
    with tempfile.TemporaryDirectory() as folder:
        prices = pathlib.Path(folder) / "prices.toml"
        prices.write_text("[optical_switch.mems]\nports = 320\nusd = 32000\n")
        own = json.loads(run("cost", "--technology", "mems", "--servers", 32, "--prices", prices, "--json"))
        expect(own["sizes"][0]["circuits"][0]["terms"][0]["usd_each"] == 100, f"{own}")
        prices.write_text("[optical_switch.mems]\nport = 320\n")
        expect(f"{prices}: line 2: optical_switch.mems: unknown key 'port'; did you mean 'ports'?" in run("cost", "--prices", prices, code=2), "a key")
    expect("servers: 0 is not between" in run("cost", "--servers", 0, code=2), "no servers")
    expect("cannot be read" in run("cost", "--prices", "/nowhere", code=2), "a file that is not there")


SQUARES = """{"workload":1,"name":"squares","iterations":6,"places":[[0,0],[1,0],[2,0],[3,0]]}
{"comm":"row","groups":[[0,1],[2,3]]}
{"comm":"column","groups":[[0,2],[1,3]]}
{"role":"all","ranks":[0,1,2,3]}
{"role":"all","do":"all_reduce","comm":"row","stream":"s","bytes":50000000,"dtype":"bfloat16"}
{"role":"all","do":"compute","stream":"s","us":10000}
{"role":"all","do":"all_reduce","comm":"column","stream":"s","bytes":500000,"dtype":"bfloat16"}
{"role":"all","do":"compute","stream":"s","us":5000}
"""


@case("a trace for Perfetto: every launch, and where circuits lead, none while it is dark")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        job, trace = pathlib.Path(folder, "squares.jsonl"), pathlib.Path(folder, "trace.json")
        job.write_text(SQUARES)
        options = ["run", job, "--dark-ms", 8, "--ports", 1, "--iterations", 6, "--trials", 5, "--trace", trace]
        run(*options)
        first = trace.read_bytes()
        run(*options)
        expect(trace.read_bytes() == first, "the same run gave another trace")
        events = json.loads(first)["traceEvents"]
        processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
        expect(list(processes) == ["electrical: ranks", "on demand: ranks", "on demand: circuits", "provisioned: ranks", "provisioned: circuits"], f"{processes}")
        spans = collections.defaultdict(list)
        for e in events:
            if e["ph"] == "X":
                spans[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"], e["name"]))
        for name, process in processes.items():
            for row in range(1, 5):
                of_row = sorted(spans[process, row])
                expect(all(a[1] <= b[0] + 1e-6 for a, b in zip(of_row, of_row[1:])), f"{name}, row {row}: spans overlap")
                if name.endswith("ranks"):
                    expect(sum("all_reduce" in s[2] for s in of_row) == 2 * 6, f"{name}, row {row}: {of_row}")
        # On demand each sum needs other circuits: every port is dark before each.
        dark = [s for s in spans[processes["on demand: circuits"], 1] if s[2] == "dark"]
        expect(len(dark) == 12 and all(abs(s[1] - s[0] - 8000) < 1 for s in dark), f"{dark}")
        for begin, end, name in spans[processes["on demand: ranks"], 1]:
            if "all_reduce" in name:
                expect(not any(b < end - 1 and e > begin + 1 for b, e, _ in dark), f"{name} at {begin} runs in the dark")
        expect("/nowhere/trace.json" in run(*options[:-1], "/nowhere/trace.json", code=2), "a trace that cannot be written")


@case("a slow rank and several seeds, with the spread shown")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder, "squares.jsonl")
        job.write_text(SQUARES)
        options = ["run", job, "--dark-ms", 8, "--ports", 1, "--iterations", 6, "--no-best"]
        even, slow = (json.loads(run(*options, "--json", *more))["electrical_ms"] for more in ([], ["--slow-rank", "2=1.2"]))
        expect(abs(slow - even - 3) < 1e-3, f"{even} ms, with a slow rank {slow} ms")
        noisy = ["--jitter", 0.2, "--seeds", 3]
        spread = json.loads(run(*options, "--json", *noisy))["points"][0]["provisioned"]["spread"]
        expect(spread["least"] <= spread["mean"] <= spread["most"] and spread["least"] < spread["most"], f"{spread}")
        expect("3 seeds" in run(*options, *noisy), "the spread is not shown")
        expect("3=1.1" in run(*options, "--slow-rank", "much", code=2), "a slow rank that is none")


@case("what is wrong with arguments and files is said, and ends with code 2")
def _(context):
    expect("FILE" in run("run", code=2), "no file was asked for")
    expect("cannot be read" in run("read", "/nowhere", code=2), "a file that is not there")
    expect("MODEL" in run("generate", "gpt9", code=2), "a model that is not there")
    expect("has no experts" in run("generate", "llama3-8b", "--expert", 2, code=2), "experts that are not there")
    with tempfile.TemporaryDirectory() as folder:
        bad = pathlib.Path(folder) / "job.jsonl"
        lines = (JOBS / "moe-ddp-2x2.jsonl").read_text().splitlines()
        bad.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][: len(lines[-1]) // 2])
        expect(f"{bad}: line {len(lines)}" in run("read", bad, code=2), "a workload that was cut short")


def kineto_rank(rank: int) -> str:
    """A gradient's sum behind 2 ms of computing, on one of two ranks."""
    kernels = [("gemm", 7, 1000, 2000, {}),
               ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, 3000, 500,
                {"Collective name": "allreduce", "In msg nelems": 4096, "dtype": "BFloat16", "Process Group Name": "0"})]
    events = [{"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": {"stream": tid, **args}}
              for name, tid, ts, dur, args in kernels]
    info = {"backend": "nccl", "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events})


@case("archives are read as folders are, in every packing, and bad ones are refused")
def _(context):
    with tempfile.TemporaryDirectory() as root:
        traces = pathlib.Path(root, "traces")
        traces.mkdir()
        for rank in range(2):
            (traces / f"rank{rank}.json").write_text(kineto_rank(rank))
        wanted = read(traces)
        expect(totals(wanted) == {("all_reduce", 2): (2, 2 * 8192)}, f"{wanted}")
        (traces / ".hidden").write_text("no trace")
        archives = []
        for mode in ("w", "w:gz", "w:xz", "w:bz2"):
            archives.append(pathlib.Path(root, "traces.tar" + mode[1:].replace(":", ".")))
            with tarfile.open(archives[-1], mode) as tar:
                tar.add(traces, "traces")
        archives.append(pathlib.Path(root, "traces.zip"))
        with zipfile.ZipFile(archives[-1], "w", zipfile.ZIP_DEFLATED) as z:
            for path in sorted(traces.iterdir()):
                z.write(path, f"traces/{path.name}")
        if shutil.which("zstd"):
            archives.append(pathlib.Path(root, "traces.tar.zst"))
            subprocess.run(["zstd", "-q", "-o", archives[-1], archives[0]], check=True)
        # Each rank's trace packed by itself, as the profiler does, and then all in one archive.
        archives.append(pathlib.Path(root, "twice.tar"))
        with tarfile.open(archives[-1], "w") as tar:
            for rank in range(2):
                part = pathlib.Path(root, f"rank{rank}.json.gz")
                part.write_bytes(gzip.compress(kineto_rank(rank).encode()))
                tar.add(part, f"traces/{part.name}")
        for archive in archives:
            expect(read(archive) == wanted, f"{archive.name} is read otherwise than its folder")
        for archive in archives[1:4]:
            cut = pathlib.Path(root, "cut" + archive.name)
            cut.write_bytes(archive.read_bytes()[:-60])
            said = run("read", cut, code=2)
            expect(str(cut) in said and ("cut short" in said or "damaged" in said), said)
        second = pathlib.Path(root, "second.tar")
        with tarfile.open(second, "w") as tar:
            tar.add(traces / "rank0.json", "a/rank0.json")
            tar.add(traces / ".hidden", "a/notes.txt")
        expect(f"{second}/a/notes.txt: its format is not known" in run("read", second, code=2), "a file in an archive")


@case("zstd's long windows are refused, with what to do")
def _(context):
    if not shutil.which("zstd"):
        raise Skip("zstd is not there")
    with tempfile.TemporaryDirectory() as root:
        packed = pathlib.Path(root, "rank0.json.zst")
        with open(packed, "wb") as out:
            subprocess.run(["zstd", "-q", "--long=30", "-c"], input=kineto_rank(0).encode(), stdout=out, check=True)
        said = run("read", packed, code=2)
        expect(f"zstd -d --long=31 '{packed}'" in said, said)


@case("files that are no job are named, with what to give in their place")
def _(context):
    others = {"it is a list of launches": "1,0,5,0,DP,_allgather_base,5,0\n1,1,1,0,PP,send,11,0\n",
              "it is a list of phases": "PP start_backend: 1 start_idx: 0 end_backend: 1 end_idx: 1 len: 2, start_time: 1.5, end_time: 2.5\n",
              "description of a network": "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\n",
              "settings of a system": '{\n "scheduling-policy": "FIFO"\n}',
              "a list of topologies": "BW 0\n0 1\n1 0\nEND\n",
              "a schedule for the reconfigurable": "mapping:\n  1: 0\n",
              "a table of results": "case,gpus,mode,ocs_ms,min_s\njob,16,native,,1\n",
              "PyTorch's execution graph": '{"schema": "1.0.1", "pid": 1, "nodes": []}',
              "a Chakra trace written as JSON": '{"workload_graph": [{"Id": 1}]}',
              "a Chrome trace, and not": '[{"name": "forward", "ph": "X", "ts": 1, "dur": 2, "rank": 0}]',
              "a file of communicators": '{"1": [0, 1]}'}
    with tempfile.TemporaryDirectory() as root:
        for what, text in others.items():
            path = pathlib.Path(root, "file")
            path.write_text(text)
            said = run("read", path, code=2)
            expect(said.startswith(f"opus-sim: {path}: ") and what in said, f"{what}: {said}")
            expect(len(said.splitlines()) == 1 and ("give" in said or "record" in said), f"{what}: {said}")


@case("the 128 ranks of a Chakra job, DP4 PP4 TP8")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        unpacked("stg_dp4_pp4_tp8_128/traces.tar.zst", folder)
        figures = read(folder + "/d4p4t8")
    expect((figures["files"], figures["ranks"], figures["entries"]) == (128, 128, 1_333_504), f"{figures}")
    expect(figures["groups_by_size"] == {"8": 16, "4": 32}, f"{figures['groups_by_size']}")
    counted = totals(figures)
    # Of rank 0: 1536 gathers of 12,884,901,888 bytes and 1024 reduce-scatters of 68,719,476,736 within its 8; alike on all.
    expect(counted["all_gather", 8] == (128 * 1536, 128 * 12_884_901_888), f"{counted}")
    expect(counted["reduce_scatter", 8] == (128 * 1024, 128 * 68_719_476_736), f"{counted}")
    # 32 micro-batches over three boundaries, forth and back, 32 GPUs each.
    expect(counted["send", 2][0] == counted["recv", 2][0] == 32 * 3 * 2 * 32, f"{counted}")


@case("the 4 ranks of the reconfigurable simulator's Chakra job, DP2 TP2")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        unpacked("opus_stg/reconfigure.zip", folder)
        groups = shared("opus_stg/workload.json")
        figures = read(folder + "/reconfigure", groups)
        expect((figures["ranks"], figures["entries"], figures["groups_by_size"]) == (4, 4 * 3376, {"2": 4}), f"{figures}")
        counted = totals(figures)
        expect(counted["all_gather", 2] == (4 * 480, 4 * 64_424_509_440), f"{counted}")
        expect(counted["reduce_scatter", 2] == (4 * 320, 4 * 85_899_345_920), f"{counted}")
        expect(counted["all_reduce", 2] == (4 * 84, 4 * (30_052_188_160 + 524_288_000)), f"{counted}")
        expect("missing" in run("read", folder + "/reconfigure", shared("opus_stg/titan_perlmutter_comm_group.json"), code=2), "another job's groups")
        whole = pathlib.Path(folder, "reconfigure/workload.3.et")
        whole.write_bytes(whole.read_bytes()[:-100])
        said = run("read", folder + "/reconfigure", groups, code=2)
        expect("workload.3.et: byte" in said and "cut short" in said, said)
        whole.unlink()
        expect("3 of 4" in run("read", folder + "/reconfigure", groups, code=2), "a rank whose file is missing")


def gpu_events(path: pathlib.Path) -> list:
    opened = gzip.open(path) if path.suffix == ".gz" else open(path)
    with opened as text:
        events = json.load(text)["traceEvents"]
    return [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]


def check_kineto(paths: list, figures: dict, nccl_calls: int) -> None:
    per_rank = [gpu_events(path) for path in paths]
    nccl = [e for events in per_rank for e in events if e["name"].startswith("nccl")]
    expect(len(nccl) == nccl_calls, f"{len(nccl)} NCCL kernels")
    expect(sum(o["calls"] for o in figures["operations"]) == nccl_calls, f"{figures}")
    recorded = sum(o["recorded_ms"] for o in figures["operations"])
    expect(abs(recorded - sum(e["dur"] for e in nccl) / 1e3) < 0.1, f"{recorded}")
    spans = [max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events) for events in per_rank]
    expect(abs(figures["span_ms"] - max(spans) / 1e3) < 0.1, f"{figures['span_ms']} of {spans}")


@case("four ranks of Megatron, tensor parallel over eight, by the profiler")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        unpacked("megatron_tp8/megatron_kineto_ranks0-3.tar.xz", folder)
        paths = sorted(pathlib.Path(folder).rglob("megatron_kineto_*.json"))
        expect("4, 5, 6, 7 of 8" in run("read", *paths, code=2), "ranks that are missing")
        figures = read("--fill", *paths)
        check_kineto(paths, figures, 4 * 84)
        expect((figures["ranks"], figures["world"]) == (4, 8), f"{figures}")
        # 81 of 4 x 2048 x 4096 halves, 3 of 4 x 2048 floats.
        expect(totals(figures)["all_reduce", 8][1] == 4 * (81 * 4 * 2048 * 4096 * 2 + 3 * 4 * 2048 * 4), f"{totals(figures)}")
        played = json.loads(run("run", "--fill", "--dark-ms", 10, "--no-best", "--iterations", 2, "--json", *paths))
        expect(0.5 < played["electrical_ms"] / 595 < 1.5, f"{played['electrical_ms']} ms, and 595 ms were recorded")


@case("a profiler's trace with all of NCCL's fields")
def _(context):
    path = shared("hta/nccl_data.json.gz")
    figures = read("--fill", path)
    check_kineto([path], figures, 21)
    nccl = [e["args"] for e in gpu_events(path) if e["name"].startswith("nccl")]
    sums = collections.Counter()
    for args in nccl:
        sums[args["Collective name"]] += args["In msg nelems"] * {"Float": 4, "Long": 8}[args["dtype"]]
    counted = totals(figures)
    expect(counted["all_reduce", 2] == (15, sums["allreduce"]), f"{counted} {sums}")
    expect(counted["broadcast", 2] == (6, sums["broadcast"]), f"{counted} {sums}")


@case("eight ranks of DLRM, by the profiler")
def _(context):
    with tempfile.TemporaryDirectory() as folder:
        unpacked("param/dlrm_kineto.tar.gz", folder)
        figures = read(folder + "/dlrm_kineto")
        check_kineto(sorted(pathlib.Path(folder, "dlrm_kineto").iterdir()), figures, 8 * 8)
        counted = totals(figures)
        expect(counted["all_reduce", 8][0] == 8 * 3 and counted["all_to_all", 8][0] == 8 * 5, f"{counted}")


def aicb_rows(path: pathlib.Path) -> list:
    with open(path) as text:
        return [row for row in csv.reader(text) if row and row[0].startswith("CommType.") and row[0] != "CommType.epoch_end"]


@case("AICB's tables of Llama-65B and 7B")
def _(context):
    for name in ("L65B-D1-C07_Llama65B_zero3_mbs1.csv", "L7B-D1-C02_Llama7B_zero3_mbs1.csv"):
        path = shared("aicb/" + name)
        rows, figures = aicb_rows(path), read(path)
        expect((figures["ranks"], sum(o["calls"] for o in figures["operations"])) == (128, 128 * len(rows)), f"{name}: {figures}")
        gathered = sum(int(r[3]) // 128 for r in rows if r[0].endswith("all_gather"))
        expect(totals(figures)["all_gather", 128][1] == 128 * gathered, f"{name}: {figures}")
    path = shared("aicb/L65B-M1-C05_Llama65B_megatron_tp2_pp8_mbs1.csv")
    rows, figures = aicb_rows(path), read(path)
    counted = totals(figures)
    expect(figures["ranks"] == 128, f"{figures}")
    expect(counted["send", 2] == counted["recv", 2] == (16 * 112, 16 * 112 * 33554432), f"{counted}")
    tensor = [r for r in rows if r[1].endswith("tp_group") and r[0].endswith("all_reduce")]
    expect(counted["all_reduce", 2][0] == 16 * len(tensor) + 2 * 32, f"{counted}")  # embeddings: two on both sides
    expect(counted["broadcast", 2][0] == 16 * sum(r[0].endswith("broadcast") for r in rows), f"{counted}")


@case("SimAI's workloads, of 9,216 GPUs and small ones")
def _(context):
    path = shared("simai/workload_analytical.txt")
    layers = [line.split() for line in path.read_text().splitlines()[2:]]
    figures = read(path)
    expect((figures["ranks"], figures["entries"]) == (9216, len(layers)), f"{figures}")
    wanted = collections.Counter()
    names = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all"}
    for layer in layers:
        for at in (3, 6, 9):
            operation, size = layer[at], int(layer[at + 1])
            if operation != "NONE" and size:
                members = 24 if operation.endswith("_DP_EP") else 16 if operation.endswith("_EP") else 384 if at == 9 else 2
                wanted[names[operation.removesuffix("_EP").removesuffix("_DP")], members] += 9216
    expect({k: v[0] for k, v in totals(figures).items()} == dict(wanted), f"{totals(figures)} {wanted}")
    compute = 9216 * sum(int(layer[at]) for layer in layers for at in (2, 5, 8)) / 1e6
    expect(abs(figures["compute_ms"] / compute - 1) < 1e-3, f"{figures['compute_ms']} {compute}")
    small = read(shared("simai/microAllReduce.txt"))
    expect(totals(small)["all_reduce", 8] == (16, 8 * (16777216 + 67108864)), f"{small}")
    told = read(shared("simai/L65B-M1-C05_Llama65B_megatron_tp8_pp1_mbs1_A100.txt"))
    expect(any("839 layers" in line for line in told["assumed"]), f"{told['assumed']}")


@case("the project's own training jobs")
def _(context):
    for name, ranks in (("moe-zero1-2x2", 4), ("moe-ddp-2x2", 4), ("moe-zero1-gpipe-3x4", 12)):
        figures = read(shared(f"jobs/{name}.jsonl"))
        expect(figures["ranks"] == ranks and figures["format"] == "opus-replay workload", f"{figures}")


if __name__ == "__main__":
    sys.exit(cases.run(programs=False))
