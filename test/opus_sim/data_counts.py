"""What the files of a job hold, counted by other means than opus-sim's: by json, csv and a walk through protobuf.

Each count has the names that `opus-sim read --json` has: ranks, groups by their size, operations by name and size of the group
(calls and bytes over all ranks), and times in milliseconds.
"""
import collections
import csv
import dataclasses
import gzip
import json
import math
import multiprocessing
import pathlib
import re

import chakra_walk


@dataclasses.dataclass
class Count:
    ranks: int = 0
    entries: int = 0
    groups: dict = dataclasses.field(default_factory=dict)      # size: how many
    operations: dict = dataclasses.field(default_factory=dict)  # (name, size of the group): [calls, bytes]
    recorded_ms: float | None = None  # operations, over all ranks
    compute_ms: float | None = None   # over all ranks
    span_ms: float | None = None      # the longest rank
    notes: list = dataclasses.field(default_factory=list)  # why ours may differ, and by what was taken into account here

    def add(self, name: str, size: int, calls: int, carried: int) -> None:
        entry = self.operations.setdefault((name, size), [0, 0])
        entry[0] += calls
        entry[1] += carried


TERAFLOPS, MEMORY_GBYTES = 400, 3000  # opus-sim's defaults


def chakra_file(arguments: tuple) -> tuple:
    path, groups, world = arguments
    count = chakra_walk.Count(groups, world)
    count.add(pathlib.Path(path).read_bytes())
    return count


def chakra(paths: list, groups: dict) -> Count:
    """`groups`: of the file of communicators."""
    out = Count(ranks=len(paths))
    used = set()
    with multiprocessing.Pool(2) as pool:
        for one in pool.imap_unordered(chakra_file, [(p, groups, len(paths)) for p in paths]):
            out.entries += one.nodes
            used |= one.used
            out.compute_ms = (out.compute_ms or 0) + one.compute_us(TERAFLOPS, MEMORY_GBYTES) / 1e3
            for (name, size), (calls, carried) in one.operations.items():
                out.add(name, size, calls, carried)
    out.groups = dict(collections.Counter(len(groups[g]) if g else len(paths) for g in used))
    return out


SIZES = {"float": 4, "c10::half": 2, "c10::bfloat16": 2, "bfloat16": 2, "half": 2, "long": 8, "long int": 8, "int": 4, "double": 8, "unsigned char": 1, "signed char": 1}
KINETO = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
          "broadcast": "broadcast", "reduce": "reduce", "send": "send", "recv": "recv"}


def kind_of(name: str) -> str:
    small = re.sub("[^a-z]", "", name.lower())
    return next(kind for begins, kind in KINETO.items() if small.startswith(begins))


def of_tensors(args: dict) -> int:
    """Elements of the inputs, by the first one's type."""
    if "Input Dims" not in args:
        return 0
    return sum(math.prod(d) for d in args["Input Dims"] if isinstance(d, list) and d) * SIZES[args["Input type"][0].lower()]


def kineto(paths: list) -> Count:
    out = Count(ranks=len(paths), recorded_ms=0, span_ms=0)
    groups = set()
    for path in paths:
        with (gzip.open(path) if path.suffix == ".gz" else open(path)) as text:
            trace = json.load(text)
        events, world = trace["traceEvents"], trace.get("distributedInfo", {}).get("world_size")
        out.entries += len(events)
        gpu = [e for e in events if e.get("cat", "").lower() in ("kernel", "gpu_memcpy", "gpu_memset")]
        times = [float(e["ts"]) for e in gpu]
        out.span_ms = max(out.span_ms, max(t + float(e["dur"]) for t, e in zip(times, gpu)) / 1e3 - min(times) / 1e3)
        calls = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("nccl:")]
        launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime" and "Launch" in e["name"]}
        for kernel in (e for e in gpu if e["name"].startswith("nccl")):
            args = kernel["args"]
            out.recorded_ms += kernel["dur"] / 1e3
            if "Collective name" in args:
                kind, carried = kind_of(args["Collective name"]), args["In msg nelems"] * SIZES[args["dtype"].lower()]
                size, group = args["Group size"], (args["Process Group Name"], args["Process Group Ranks"])
            else:
                launch = launches[args["correlation"]]
                call = next(c for c in calls if c["tid"] == launch["tid"] and c["ts"] <= launch["ts"] <= c["ts"] + c["dur"])
                kind, carried, size, group = kind_of(call["name"].removeprefix("nccl:")), of_tensors(call["args"]), world, "all"
            out.add(kind, size, 1, carried)
            groups.add((group, size))
    out.groups = dict(collections.Counter(size for _, size in groups))
    return out


BARRIER_BYTES = 4  # a barrier is an all-reduce of so much
AICB_NAMES = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter", "isend": "send", "irecv": "recv"}


def aicb(path: pathlib.Path) -> Count:
    out, ranks, sections = Count(), 0, []
    sizes = collections.defaultdict(int)
    last_stage: list = []
    barriers = 0
    for line in path.read_text().splitlines():
        if line.startswith("["):
            numbers = [int(n) for n in re.findall(r"rank(\d+)", line)]
            ranks = numbers[-1] - numbers[0] + 1
            sections.append(ranks)
            last_stage = []
            continue
        row = next(csv.reader([line]))
        if not row or not row[0].startswith("CommType."):
            continue
        out.entries += 1
        kind, group = row[0].removeprefix("CommType."), row[1].removeprefix("CommGroup.")
        if kind == "epoch_end":
            continue
        transfer = kind.endswith(("send", "recv"))
        size = 2 if transfer or group == "embedding_group" else sum(sections) if group == "all" else int(row[2])
        if size < 2:
            continue
        kind = AICB_NAMES.get(kind, kind)
        carried = int(row[3]) // size if kind == "all_gather" else int(row[3])
        if kind == "barrier":
            kind, carried, barriers = "all_reduce", BARRIER_BYTES, barriers + 1
        out.add(kind, size, ranks, ranks * carried)
        if not transfer:
            sizes[group] = max(sizes[group], size)
        if group == "embedding_group":
            last_stage.append((kind, ranks, ranks * carried))
    out.ranks = sum(sections)
    if barriers:
        out.notes.append(f"{barriers} barriers count as sums of {BARRIER_BYTES} bytes, on both sides")
    if last_stage:
        for kind, calls, carried in last_stage:
            out.add(kind, 2, calls, carried)
        out.notes.append(f"the table has {len(last_stage)} operations of embedding_group in the last stage only: the first joins them, or they would "
                         "hang; counted twice on both sides")
    groups: collections.Counter = collections.Counter()
    for group, size in sizes.items():
        groups[size] += sections[0] if group == "embedding_group" else out.ranks // size
    if len(sections) > 1:
        groups[2] += 2 * (len(sections) - 1) * sections[0]
        out.notes.append("neighbouring stages have a group of two each way")
    out.groups = dict(groups)
    return out


SIMAI = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all", "BROADCAST": "broadcast"}


def simai(path: pathlib.Path) -> Count:
    lines = path.read_text().splitlines()
    degrees = {k: int(v) for k, v in re.findall(r"(\w+): (\d+)", lines[0])}
    layers = [line.split() for line in lines[2:] if line.strip()]
    tensor, expert, stages = degrees["model_parallel_NPU_group"], degrees.get("ep", 1), degrees.get("pp", 1)
    world = degrees.get("all_gpus", tensor * expert * stages)
    data = world // tensor // stages
    out = Count(ranks=world, entries=len(layers))
    sizes = set()
    for layer in layers:
        for at in (3, 6, 9):
            operation, carried = layer[at], int(layer[at + 1])
            which = ("expert-data", data // expert) if operation.endswith("_DP_EP") else ("expert", expert) if operation.endswith("_EP") \
                else ("data", data) if at == 9 else ("tensor", tensor)
            if operation == "NONE" or carried == 0 or which[1] < 2:
                continue
            name = SIMAI[operation.removesuffix("_EP").removesuffix("_DP")]
            out.add(name, which[1], world, world * (carried // which[1] if name == "all_gather" else carried))
            sizes.add(which)
    out.groups = dict(sum((collections.Counter({size: world // size}) for _, size in sizes), collections.Counter()))
    out.compute_ms = world * sum(int(layer[at]) for layer in layers for at in (2, 5, 8)) / 1e6
    if int(lines[1]) != len(layers):
        out.notes.append(f"its second line announces {int(lines[1])} layers, and {len(layers)} follow, as published")
    return out


def workload(path: pathlib.Path) -> Count:
    out, comms, roles, used = Count(compute_ms=0), {}, {}, set()
    for line in path.read_text().splitlines():
        d = json.loads(line)
        out.entries += 1
        if "places" in d:
            out.ranks = len(d["places"])
        elif "groups" in d:
            comms[d["comm"]] = d["groups"]
        elif "do" not in d:
            roles[d["role"]] = d["ranks"]
        elif d["do"] == "compute":
            out.compute_ms += d["us"] * len(roles[d["role"]]) / 1e3
        elif "comm" in d:
            ranks = roles[d["role"]]
            size = 2 if d["do"] in ("send", "recv") else next(len(g) for g in comms[d["comm"]] if ranks[0] in g)
            out.add(d["do"], size, len(ranks), len(ranks) * d["bytes"])
            used.add(d["comm"])
    out.groups = dict(collections.Counter(len(g) for c in used for g in comms[c]))
    return out
