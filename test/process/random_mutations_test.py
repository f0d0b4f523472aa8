"""Random jobs notice it when one rule is taken out of the shim (shim/mutation.h).

The jobs are those that random_test.py plays under stream gates in `make test`, in the same order. A job that hangs or loses
something with the mistake must be right without it.
"""
import copy
import sys

from cases import Context, case, expect, run
from random_campaign import Campaign

SEEDS = range(1, 36)  # as many as in `make test`
PATIENCE_S = 8        # without progress


def campaign(context, seeds) -> Campaign:
    return Campaign(context, "under stream gates", "stream", True, seeds, patience_s=PATIENCE_S)


def notice(context, mutation: str) -> None:
    build = copy.copy(context.build)
    build.shim = build.folder / "test" / "process" / f"libopus_shim_{mutation}.so"
    expect(build.shim.exists(), f"not built: {build.shim}")
    with_mistake = Context(build, context.mark)
    for n, seed in enumerate(SEEDS):
        try:
            campaign(with_mistake, [seed]).run()
        except AssertionError as noticed:
            print(f"  {mutation}: noticed by the {n + 1}. job (seed {seed}): {str(noticed).splitlines()[0][-120:]}")
            campaign(context, [seed]).run()
            return
    expect(False, f"{len(SEEDS)} jobs did not notice {mutation}")


@case("a call that goes the straight way before what it uses is connected is noticed")
def straight(context) -> None:
    notice(context, "go_straight_unconnected")


@case("first uses without a connect key are noticed")
def connect(context) -> None:
    notice(context, "connect_unasked")


@case("empty transfers without a key are noticed")
def empty(context) -> None:
    notice(context, "forget_empty_transfers")


@case("replays of a graph that are not held are noticed")
def replays(context) -> None:
    notice(context, "let_replays_pass")


if __name__ == "__main__":
    sys.exit(run())
