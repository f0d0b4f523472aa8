"""Transfers between different local indices go where NCCL sends them: circuits are made there, or it is said that none can be."""
import itertools
import sys

from cases import SLOW, case, expect, nothing_in_the_dark, run
from cluster import Play, Shape
from workload_text import Workload, grid

SHAPE = Shape(nodes=2, gpus=2, ports=2, dark_ms=2)
NO_PXN = {"NCCL_PXN_DISABLE": "1"}
SIZE = 40_000
ACROSS = "between n0.g0 on rail r0 and n1.g1 on rail r1, which no switch joins"


def crossing(name: str, members: list[int], *calls) -> Workload:
    """Ranks 0 and 1 are on n0, 2 and 3 on n1."""
    w = Workload(name, grid(2, 2), 3)
    w.comm("c", [members])
    for call in calls:
        call(w)
    return w


def exchange(w: Workload) -> None:
    members = w.comms[0]["groups"][0]
    for source, target in itertools.permutations(members, 2):
        w.send("c", source, target, SIZE)


def all_to_all(w: Workload) -> None:
    members = w.comms[0]["groups"][0]
    w.collective("all_to_all", "c", members, size=SIZE)


def from_first_to_last(w: Workload) -> None:
    w.send("c", 0, 3, SIZE)


@case("what NCCL sends through a local rank, or directly, crosses on the receiver's rail, with nothing in the dark")
def served(context) -> None:
    whole = crossing("whole", [0, 1, 2, 3], exchange, all_to_all)
    through = crossing("through", [0, 1, 3], from_first_to_last)
    for workload, env in ((whole, {}), (through, {}), (whole, {**NO_PXN, "NCCL_CROSS_NIC": "0"})):
        with context.cluster(SHAPE) as cluster:
            path = workload.write(cluster.folder / "job.jsonl")
            result = cluster.run_job(Play(path, timeout_s=60 * SLOW, env={"OPUS_REQUIRE": "1", **env}), 90 * SLOW)
            expect(result.total("checked_bytes") > 0, "nothing was checked")
            nothing_in_the_dark(cluster, *cluster.jobs)


@case("what leaves by a rail that does not lead to its receiver is named at once, and ends by the policy")
def refused(context) -> None:
    pair = crossing("pair", [0, 3], from_first_to_last)
    whole = crossing("whole", [0, 1, 2, 3], from_first_to_last)
    mesh = crossing("mesh", [0, 3], all_to_all)
    for workload, env in ((pair, {}), (whole, NO_PXN), (mesh, {})):
        with context.cluster(SHAPE) as cluster:
            path = workload.write(cluster.folder / "job.jsonl")
            job = cluster.start_job(Play(path, timeout_s=60 * SLOW,
                                         env={"OPUS_REQUIRE": "1", "OPUS_POLICY": "abort", **env}))
            job.wait(60 * SLOW, expect_failure=True)
            codes = job.poll()
            expect(codes[0] and codes[3], f"nobody is told: {codes}")
            expect(ACROSS in cluster.controller.output(), f"not named: {cluster.controller.tail()}")
            expect(cluster.counters()["unroutable"] > 0 and cluster.light().reconfigurations == 0, f"{cluster.counters()}")


DOMAINS = Shape(nodes=4, gpus=2, ports=2, dark_ms=2, domain=2)
HOSTS_JOINED = {"NCCL_MNNVL_ENABLE": "0"}


def over_domains() -> Workload:
    """World ranks 0 to 3 are on n0 and n1, one NVLink domain, 4 to 7 on the other."""
    w = Workload("domains", grid(4, 2), 3)
    comms = {"world": list(range(8)), "inside": [0, 1, 2, 3], "hosts": [0, 2, 4, 6], "two": [3, 7]}
    for name, members in comms.items():
        w.comm(name, [members])
        for do in ("all_reduce", "all_gather"):
            w.collective(do, name, members, size=SIZE)
    for name in ("inside", "hosts"):
        w.collective("all_to_all", name, comms[name], size=SIZE)
    w.send("world", 0, 3, SIZE)
    w.send("world", 1, 4, SIZE)
    w.send("inside", 0, 2, SIZE)
    return w


@case("in NVLink domains of several hosts circuits join domains, not the hosts of one, with nothing in the dark")
def domains(context) -> None:
    for gate in ("stream", "host"):
        with context.cluster(DOMAINS) as cluster:
            path = over_domains().write(cluster.folder / "job.jsonl")
            job = cluster.start_job(Play(path, timeout_s=60 * SLOW, env={"OPUS_REQUIRE": "1", "OPUS_GATE": gate}))
            joined = set()

            def look() -> None:
                joined.update(frozenset((c["a"][:2], c["b"][:2])) for c in cluster.ctl("circuits")["circuits"])
            result = job.wait(90 * SLOW, look)
            expect(result.total("checked_bytes") > 0, "nothing was checked")
            nothing_in_the_dark(cluster, job)
            look()
            expect(joined and not joined & {frozenset(("n0", "n1")), frozenset(("n2", "n3"))}, f"joined: {joined}")


@case("where NCCL is told not to join hosts, circuits join them in domains, too")
def joined_by_circuits(context) -> None:
    w = Workload("hosts", grid(4, 2), 3)
    w.comm("world", [list(range(8))])
    w.collective("all_reduce", "world", range(8), size=SIZE)
    with context.cluster(DOMAINS) as cluster:
        path = w.write(cluster.folder / "job.jsonl")
        cluster.run_job(Play(path, timeout_s=60 * SLOW, env={"OPUS_REQUIRE": "1", **HOSTS_JOINED}), 90 * SLOW)
        nothing_in_the_dark(cluster, *cluster.jobs)
        pairs = {frozenset((c["a"][:2], c["b"][:2])) for c in cluster.ctl("circuits")["circuits"]}
        expect(frozenset(("n0", "n1")) in pairs, f"joined: {pairs}")


if __name__ == "__main__":
    sys.exit(run())
