"""Figures of others, on real GPUs: Llama3-8B, 16 GPUs on 4 nodes, tensor parallel 4, FSDP 2, pipeline 2."""
from cluster.variants import DEMAND, PROVISIONED

# 'Photonic Rails in ML Datacenters', first version: percent over no dark time, at 100 ms.
PAPER_DARK_MS = 100
PAPER = {DEMAND: 6.5, PROVISIONED: 3.5}

# Its authors' public artifact (opusfabric/Opus, second version, MIT), on Perlmutter with an emulated switch: average
# seconds of an iteration by dark time in ms, and without any controller.
ARTIFACT_NONE_S = 10.178
ARTIFACT = {
    DEMAND: {0: 10.442, 10: 10.461, 50: 10.682, 100: 10.904, 250: 11.884, 500: 13.108, 750: 14.157, 1000: 15.401},
    PROVISIONED: {0: 10.222, 10: 10.371, 50: 10.320, 100: 10.614, 250: 11.269, 500: 12.557, 750: 13.954, 1000: 15.122},
}


def artifact(variant: str, dark_ms: float) -> float | None:
    """Percent over no controller."""
    theirs = ARTIFACT[variant].get(dark_ms)
    return 100 * (theirs / ARTIFACT_NONE_S - 1) if theirs else None
