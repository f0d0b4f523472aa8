"""The tables of docs/results/paper.md: published, ours, the difference, and why."""
import dataclasses
import json
import subprocess

from cluster.variants import DEMAND, PROVISIONED, TITLE

from . import jobs, published
from .jobs import Jobs
from .played import PERLMUTTER, Network, Player, fitted

HEADER = ("figure", "published", "ours", "difference")


@dataclasses.dataclass
class Section:
    title: str
    says: str                     # whose figure, and what is played
    rows: list[tuple]
    header: tuple = HEADER
    why: tuple = ()               # where ours differ

    def markdown(self) -> str:
        table = [self.header, tuple("---" for _ in self.header), *self.rows]
        lines = [f"## {self.title}\n", self.says + "\n", *("| " + " | ".join(row) + " |" for row in table)]
        return "\n".join(lines + ["", *(f"- {line}" for line in self.why)]).rstrip() + "\n"


def percent(part: float, digits: int = 2) -> str:
    return f"{100 * part:.{digits}f} %"


def points(ours: float, theirs: float, digits: int = 2) -> str:
    return f"{100 * (ours - theirs):+.{digits}f} points"


def relative(ours: float, theirs: float) -> str:
    return f"{100 * (ours / theirs - 1):+.2f} %"


def waited(seconds: dict) -> str:
    return f"{(seconds[1000] - seconds[500]) / 0.5:.1f}"


class Sections:
    def __init__(self, jobs_: Jobs, player: Player):
        self.jobs, self.player = jobs_, player

    def _cost(self, *arguments) -> dict:
        done = subprocess.run([str(self.player.program), "cost", "--json", *map(str, arguments)], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def table3(self) -> Section:
        rows = []
        by_domain = {gpus: self._cost("--gpus", gpus)["fabrics"] for gpus in (72, 8)}
        for at, fabric in enumerate(by_domain[72]):
            for gpus, fabrics in by_domain.items():
                ours, theirs = fabrics[at]["gpus_by_levels"][0], published.FABRIC_GPUS.get((fabric["technology"], gpus))
                rows.append((f"{fabric['technology']}, {fabric['ports']} ports, domains of {gpus}", f"{theirs:,}" if theirs else "",
                             f"{ours:,}", f"{ours - theirs:+,}" if theirs else ""))
        return Section("GPUs of one fabric", f"Table 3 of {published.V1}: GPUs of a scale-up domain times half the ports of a switch (two-port NICs, "
                       "bidirectional transceivers). `opus-sim cost --gpus 72`, `--gpus 8`.", rows,
                       why=("Rows without a published figure: the same rule; their published values are not kept here.",))

    def cost(self) -> Section:
        trees = self._cost("--servers", ",".join(map(str, published.TREE_SERVERS)), "--baseline", "fat-tree")["sizes"]
        tree = {what: sorted(s["ratios"][0][what] for s in trees) for what in ("cost", "power")}
        big = {r["packet"]: r for r in self._cost("--servers", published.RAIL_SERVERS)["sizes"][0]["ratios"]}
        two = {r["packet"]: r for r in self._cost("--servers", published.TREE_SERVERS[-1])["sizes"][0]["ratios"]}
        reach = [1 - 1 / s["ratios"][0]["cost"] for s in self._cost("--servers", ",".join(map(str, range(4, 2049, 4))), "--baseline", "rail")["sizes"]]
        rows = []
        for what, theirs, digits in (("cost", published.TREE_COST, 2), ("power", published.TREE_POWER, 1)):
            for end, at, name in ((0, 0, "least"), (1, -1, "most")):
                rows.append((f"{what}, 256 to 2,048 GPUs, fat tree over circuits, {name}", f"{theirs[end]}x", f"{tree[what][at]:.{digits}f}x",
                             relative(tree[what][at], theirs[end])))
        saved = {b: {w: 1 - 1 / r[w] for w in ("cost", "power")} for b, r in big.items()}
        for what, theirs in (("cost", published.RAIL_COST_SAVED), ("power", published.RAIL_POWER_SAVED)):
            rows.append((f"{what} saved, 4,096 GPUs, over rails", percent(theirs), percent(saved["rail"][what]), points(saved["rail"][what], theirs)))
        for what, theirs in (("cost", published.RAIL_ONLY_COST), ("power", published.RAIL_ONLY_POWER)):
            rows.append((f"{what}, rail-only over circuits", f"{theirs}x", f"{big['rail-only'][what]:.2f}x", relative(big["rail-only"][what], theirs)))
        for what, theirs in (("cost", published.V1_COST_SAVED), ("power", published.V1_POWER_SAVED)):
            rows.append((f"{what} saved, DGX H200, 400 Gbit/s (v1, figure 7)", percent(theirs), percent(saved["rail"][what]),
                         points(saved["rail"][what], theirs)))
        for what in ("cost", "power"):
            rows.append((f"{what}, 2,048 GPUs, two tiers of whole switches over circuits", "", f"{two['leaf-spine'][what]:.2f}x", ""))
        return Section("Cost and power", f"{published.V2}, and figure 7 of v1. H200 of 8 GPUs, 400 Gbit/s, published prices. `opus-sim cost`.", rows, why=(
            f"**Not reproduced**: v1's {percent(published.V1_COST_SAVED, 1)} of the cost. With the published method and prices, rails of 32 to 16,384 GPUs give "
            f"{percent(min(reach), 1)} to {percent(max(reach), 1)}; the size at which the published power comes out gives {percent(saved['rail']['cost'], 1)}. "
            "v1 may have had other prices.",
            "The papers' fat tree has three tiers, five ports a GPU. Switches of 64 ports serve 2,048 GPUs in two tiers, three ports a GPU "
            "(last rows): the gain is smaller, and still large.",
            "4,096 GPUs need 1,024 ports a rail; the largest piezo switch has 576. The published count takes one level all the same."))

    def windows(self) -> Section:
        said = f"Figure 4 of {published.V1}: Llama3-8B, TP 4, FSDP 2, PP 2, 16 A100. The job in the order of the authors' profile, on electrical rails."
        w = self.player.play(self.jobs.recorded(), PERLMUTTER, [0], "--iterations", "4").windows
        if w is None:
            return Section("Windows", said, [], why=("Not counted: this opus-sim prints no windows.",))
        over = sum(ms > 1 for ms in w["cdf_ms"][1:]) / 100
        scatter = [t for t in w["transitions"] if t["to"].startswith("reduce_scatter")]
        widest = max(w["transitions"], key=lambda t: t["most_ms"])
        count = sum(t["per_iteration"] for t in scatter)
        mean = sum(t["mean_ms"] * t["per_iteration"] for t in scatter) / count
        overlapped = w["all"]["overlapped_per_iteration"] / (w["all"]["per_iteration"] + w["all"]["overlapped_per_iteration"])
        return Section("Windows", said, [
            ("windows over 1 ms", f"more than {percent(published.WINDOWS_OVER_1_MS, 0)}",
             f"{percent(over, 0)}; {percent(over * (1 - overlapped), 0)} of all changes of phase", ""),
            ("largest mean window before an operation", f"reduce-scatter, {published.SCATTER_WINDOW_MS} ms",
             f"reduce-scatter: {mean:.0f} ms; {widest['to']}: up to {widest['most_ms']:.0f} ms", relative(mean, published.SCATTER_WINDOW_MS)),
        ], why=(
            f"A window is the time between two phases of a GPU in which none of its launches between nodes is under way. Phases that follow each other without "
            f"such a time, {percent(overlapped, 0)} of all, have no window and are not counted.",
            "Windows before the stages' transfers are as wide as those before reduce-scatter here. They hold what a stage waits for the other one, "
            "which the paper's figure may count otherwise."))

    def figure8(self) -> Section:
        theirs = {DEMAND: 0.065, PROVISIONED: 0.035}
        dark = 100
        rows, gives = [], {}
        for name, job in (("recorded order", self.jobs.recorded()), ("generated, 61 TFLOP/s", self.jobs.generated("llama-8b", (*jobs.LLAMA_8B, "--data", 2), 61))):
            played = self.player.play(job, PERLMUTTER, [dark])
            gives[name] = played.of(DEMAND, dark, "reconfigurations")
            for variant, published_over in theirs.items():
                over = played.over(variant, dark)
                rows.append((f"{name}: {TITLE[variant]}", f"+{percent(published_over, 1)}", f"{100 * over:+.2f} %", points(over, published_over)))
        moves = ", ".join(f"{name} {count / 4:.0f}" for name, count in gives.items())
        return Section("Iteration time at 100 ms of dark time", f"Figure 8 of {published.V1}: the same job, over the iteration on electrical rails; one port a GPU.",
                       rows, why=(
            f"Reconfigurations of a rail and iteration, on demand: {moves}. The generator gathers a layer ahead, beside the stages' transfers, "
            "so that circuits go to and fro between both; in the authors' profile a pass gathers all its layers in a row.",
            "The paper's figures are of real GPUs and include their controller's own time; its provisioning begins at the end of a phase. "
            "Ours turns each port as soon as that port is free.",
        ))

    def windows_405b(self) -> Section:
        said = (f"{published.V1}: windows of an iteration of Llama3.1-405B, about {published.ITERATION_405B_S} s, on a thousand H100. Ours: 1,024 GPUs, TP 8, PP 8, FSDP 16, "
                "10 micro-batches of 8,192 tokens, 400 Gbit/s and 400 TFLOP/s a GPU, on electrical rails.")
        job = self.jobs.generated("llama-405b", jobs.LLAMA_405B, 400, norm=False)
        played = self.player.play(job, Network(400, 450, 2), [0], "--iterations", "2", "--fold")
        rows = [("iteration", f"about {published.ITERATION_405B_S} s", f"{played.lit_ms / 1e3:.1f} s", relative(played.lit_ms / 1e3, published.ITERATION_405B_S))]
        why = ["How the paper's job used its GPUs is not known: degrees, micro-batches and order decide how many windows there are."]
        if (w := played.windows) is None:
            why.append("Windows are not counted: this opus-sim prints none.")
        else:
            each = w["all"]["per_iteration"] / w["gpus"]
            rows.append(("windows of a GPU, mean", str(published.WINDOWS_405B), f"{each:.0f}", relative(each, published.WINDOWS_405B)))
            phases = (w["all"]["per_iteration"] + w["all"]["overlapped_per_iteration"]) / w["gpus"]
            rows.append(("changes of phase of a GPU, mean", "", f"{phases:.0f}", ""))
            rail = w["rails"][0]
            rows.append(("windows of a rail, all its GPUs together", "", f"{rail['per_iteration']:.0f}", ""))
            rows.append(("changes of phase of a rail", "", f"{rail['per_iteration'] + rail['overlapped_per_iteration']:.0f}", ""))
            why.append("The generator gathers a layer ahead: phases of gathers and transfers overlap, and leave no window between. The norm before the optimizer is left "
                       "out, so that one rail can be played for all.")
        return Section("Windows of Llama3.1-405B", said, rows, why=tuple(why))

    def simulated(self) -> Section:
        dark = [0, *published.SIMULATED_MS]
        job = self.jobs.generated("simulated", jobs.SIMULATED, 989, norm=False)
        network = Network(400, 450, 2)
        played = self.player.play(job, network, dark)
        free = self.player.play(job, network, dark, "--no-guard")
        rows = [("iteration on packet switches", f"{published.SIMULATED_S} s", f"{played.lit_ms / 1e3:.4f} s", relative(played.lit_ms / 1e3, published.SIMULATED_S))]
        for at, (demand, ahead) in published.SIMULATED_MS.items():
            for variant, run, theirs, name in ((DEMAND, played, demand, ""), (PROVISIONED, played, ahead, ""), (PROVISIONED, free, ahead, ", --no-guard")):
                added = run.ms(variant, at) - played.ms(DEMAND, 0)
                rows.append((f"{TITLE[variant]}{name}, {at} ms", f"{theirs:+.1f} ms", f"{added:+.1f} ms", f"{added - theirs:+.1f} ms"))
        zero = played.ms(DEMAND, 0) - played.lit_ms

        def waits(run):
            return (run.ms(PROVISIONED, 50) - run.ms(PROVISIONED, 10)) / 40
        return Section("The simulation of 8 GPUs", f"{published.V2}, its README: DP 2, PP 2, TP 2, 50 and 450 GB/s, 96 layers, sequence 4096, batch 256. Milliseconds are over "
                       "circuits that move in no time, on demand: that is what it calls EPS.", rows, why=(
            "Iteration: two FLOP a multiply-add here. Its generator's operations are taken at the same 989 TFLOP/s, and come to half the time and less: "
            "its trace of 128 GPUs computes for 2.11 s a GPU, where 6 x parameters x tokens are 4.1 s. What dark time adds does not depend on it.",
            f"Ours on electrical rails, where transfers and gradients share a GPU's bandwidth in every moment, is {zero:.0f} ms shorter than with circuits at no dark time: "
            "a circuit belongs to one communicator at a time.",
            f"Of each further millisecond of dark time provisioned waits for {waits(played):.1f}, and `--no-guard`, which plans whatever it may cost, for {waits(free):.1f}; the paper's "
            "simulator waits for 1.0. That the guard lets it save so little is not looked into."))

    def perlmutter(self) -> Section:
        rows, fits = [], []
        dark = sorted(published.PERLMUTTER["Llama3-8B, 16 GPUs"][1][DEMAND])
        for name, (native_s, variants) in published.PERLMUTTER.items():
            models = list(self._fits(name, native_s, dark))
            fits += [f"{name}, {model}: computation takes {x:.3f} times as long as first assumed; {network.ports} port{'s' if network.ports > 1 else ''} a GPU"
                     for model, network, _, x in models]
            for variant, theirs in variants.items():
                rows.append((f"{name}, {TITLE[variant]}", "published", *(f"{theirs[d]:.3f}" for d in dark), waited(theirs)))
                for model, _, played, _ in models:
                    ours = {d: played.ms(variant, d) / 1e3 for d in dark}
                    rows.append(("", model, *(f"{ours[d]:.3f} ({relative(ours[d], theirs[d])})" for d in dark), waited(ours)))
        return Section("The runs on Perlmutter", f"{published.V2}: average seconds of an iteration over the dark time, TP 4, PP 2, FSDP 2 or 8. One number of each model, how long computation "
                       "takes, is fitted to the run without a controller; nothing is fitted to the others. Waited for: by how many dark times an iteration is longer, from 500 to 1,000 ms.", rows,
                       ("job", "", *(f"{d} ms" for d in dark), "waited for"), tuple(fits) + (
            "Published runs at no dark time are up to 2.8 % slower than without a controller, on demand (its own control plane), and 3.6 % faster (64 GPUs, provisioned), which no dark time explains. "
            "Ours have no host and no noise.",
            "The recorded order comes near on demand. Provisioned, the published runs wait for as many dark times as on demand once these are long: the artifact asks for the next phase when the one before "
            "has ended, on all ports of a rail at once. Ours turns each port as soon as that port is free.",
            "Generated jobs gather a layer ahead, beside the stages' transfers, and so wait for more than twice as many dark times as those that were measured: each transfer finds its ports with the gathers, and "
            "each gather after it with the transfers. TorchTitan's passes gather all their layers in a row.",
            "64 GPUs: eight replicas are a ring, which needs two ports a GPU here. The artifact counts a ring as one setting of a rail.",
            "DeepSeek-V3: a dense model of as many layers and parameters stands for it, since `opus-sim generate` has none of 16B; the settings published beside the runs name TorchTitan's debug model. Provisioned, it was 20 % slower at no dark time already: "
            "that is the artifact's controller, and nothing of it is in the model."))

    def _fits(self, name: str, native_s: float, dark: list):
        """The models of a measured job, fitted to its electrical run."""
        network = dataclasses.replace(PERLMUTTER, ports=2) if "64" in name else PERLMUTTER
        models = []
        if name == "Llama3-8B, 16 GPUs":
            models.append(("recorded order", lambda x: self.jobs.recorded(x)))
        arguments = jobs.DEEPSEEK_16B if name.startswith("DeepSeek") else (*jobs.LLAMA_8B, "--data", 8 if "64" in name else 2)
        models.append(("generated", lambda x: self.jobs.generated("fitted", arguments, 61 / x)))
        for model, job in models:
            x = fitted(lambda scale: self.player.electrical_ms(job(scale), network), native_s * 1e3, 1.0)
            yield model, network, self.player.play(job(x), network, dark), x
