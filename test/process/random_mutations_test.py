"""Jobs notice it when one rule is taken out of the shim (shim/mutation.h).

The jobs are those that random_test.py plays under stream gates in `make test`, in the same order. A job that hangs or loses
something with the mistake must be right without it. One mistake hangs too few random jobs for that; graph_test.py's job meets it.
"""
import copy
import sys

from apart import apart
from cases import SLOW, Context, case, expect, nothing_in_the_dark, run
from cluster import JobFailed, Play, Shape
import first_uses  # cases says where clusters are
from random_campaign import Campaign

SEEDS = range(1, 36)  # as many as in `make test`
PATIENCE_S = 8        # without progress
TRIES = 16            # which of two communicators is launched first depends on a hash; half of the jobs hang


def campaign(context, seeds) -> Campaign:
    return Campaign(context, "under stream gates", "stream", True, seeds, patience_s=PATIENCE_S)


def mistaken(context, mutation: str) -> Context:
    build = copy.copy(context.build)
    build.shim = build.folder / "test" / "process" / f"libopus_shim_{mutation}.so"
    expect(build.shim.exists(), f"not built: {build.shim}")
    return Context(build, context.mark)


def notice(context, mutation: str) -> None:
    with_mistake = mistaken(context, mutation)
    for n, seed in enumerate(SEEDS):
        try:
            campaign(with_mistake, [seed]).run()
        except AssertionError as noticed:
            print(f"  {mutation}: noticed by the {n + 1}. job (seed {seed}): {str(noticed).splitlines()[0][-120:]}")
            campaign(context, [seed]).run()
            return
    expect(False, f"{len(SEEDS)} jobs did not notice {mutation}")


@case("a call that takes the fast path before what it uses is connected is noticed")
def fast_path(context) -> None:
    notice(context, "fast_path_unconnected")


@case("first uses without a connect key are noticed")
def connect(context) -> None:
    notice(context, "connect_unasked")


@case("empty transfers without a key are noticed")
def empty(context) -> None:
    notice(context, "forget_empty_transfers")


@case("replays of a graph that are not held are noticed")
def replays(context) -> None:
    notice(context, "let_replays_pass")


@case("pairs that an all-to-all connects without a connect key are noticed")
def pairs(context) -> None:
    """One random job in 125: the call's own launch brings their circuits, too, but only when its turn comes."""
    with mistaken(context, "forget_mesh_pairs").cluster(first_uses.SHAPE) as cluster:
        for order in (order for order in first_uses.ORDERS if "t" in order):
            path = first_uses.workload(order, early=True).write(cluster.folder / "first.jsonl")
            job = cluster.start_job(Play(path, timeout_s=PATIENCE_S * SLOW, env=first_uses.ENV | {"OPUS_GATE": "stream"}), f"order {order}")
            try:
                job.wait(2 * PATIENCE_S * SLOW)
                nothing_in_the_dark(cluster, job)
            except (AssertionError, JobFailed) as noticed:
                print(f"  forget_mesh_pairs: noticed by order {order}: {str(noticed).splitlines()[0][-120:]}")
                return
    expect(False, "no order of first uses noticed it")


@case("a captured group of several communicators that ends as one is noticed")
def groups(context) -> None:
    with mistaken(context, "end_groups_as_one").cluster(Shape(nodes=2, gpus=1, ports=2, dark_ms=2)) as cluster:
        path = apart(4).write(cluster.folder / "apart.jsonl")
        play = Play(path, graph=True, timeout_s=PATIENCE_S * SLOW,
                    env={"OPUS_GATE": "stream", "OPUS_REQUIRE": "enforce", "CUDA_DEVICE_MAX_CONNECTIONS": "32"})
        for n in range(TRIES):
            try:
                cluster.run_job(play, 3 * PATIENCE_S * SLOW, f"job{n}")
            except JobFailed as noticed:
                expect("no progress" in str(noticed), f"{noticed}")
                return
    expect(False, f"{TRIES} jobs did not notice it")


@case("children that are complete only after their call are noticed when nobody knows them")
def late_children(context) -> None:
    notice(context, "forget_late_children")


if __name__ == "__main__":
    sys.exit(run())
