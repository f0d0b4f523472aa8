"""Overhead over dark time, both logarithmic."""
import pathlib

from cluster.variants import DEMAND, PROVISIONED
from .reference import ARTIFACT, PAPER, PAPER_DARK_MS, artifact
from .results import Results

LOWEST = 0.05  # percent: what is less, or nothing, is drawn there, hollow
COLOUR = {DEMAND: "tab:orange", PROVISIONED: "tab:blue"}


def can_plot() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def plot(results: Results, dark_ms: list[float], path: pathlib.Path) -> None:
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "opus"  # the same figures, the same file
    from matplotlib import pyplot, ticker
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for variant in (DEMAND, PROVISIONED):
        name, colour = variant.replace("-", " "), COLOUR[variant]
        ours = [(d, o) for d in dark_ms if (o := results.overhead(variant, d)) is not None]
        axes.plot([d for d, _ in ours], [max(o, LOWEST) for _, o in ours], "-", color=colour, label=f"Opus, {name}")
        for low in (False, True):
            some = [(d, max(o, LOWEST)) for d, o in ours if (o < LOWEST) == low]
            axes.plot([d for d, _ in some], [o for _, o in some], "o", color=colour, fillstyle="none" if low else "full")
        theirs = [(d, artifact(variant, d)) for d in ARTIFACT[variant] if d > 0]
        axes.plot([d for d, _ in theirs], [o for _, o in theirs], "s--", color=colour, alpha=0.5, fillstyle="none", label=f"artifact, {name}")
        axes.plot([PAPER_DARK_MS], [PAPER[variant]], "*", color=colour, alpha=0.6, markersize=12, label=f"paper, {name}")
    axes.set(xscale="log", yscale="log", xlabel="dark time of the switches, ms", ylabel="iteration time over no dark time, %",
             title="Llama3-8B, 16 GPUs on 4 nodes")
    axes.set_xticks(dark_ms)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.set_minor_formatter(ticker.NullFormatter())
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
