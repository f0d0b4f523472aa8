"""Figures of others. Each list says where it is from. What tools/sweep has is not repeated here."""
from cluster.variants import DEMAND, PROVISIONED
from sweep.reference import ARTIFACT, ARTIFACT_NONE_S

V1 = "'Photonic Rails in ML Datacenters', arXiv 2507.08119"
V2 = "'Photonic Rails in ML Datacenters with Opus', arXiv 2602.12521, and its artifact (opusfabric/Opus, MIT)"

# v1, table 3: (technology, GPUs of a scale-up domain): GPUs of a fabric.
FABRIC_GPUS = {("piezo", 72): 20_736, ("piezo", 8): 2_304}

# v2: H200, 256 to 2,048 GPUs against a fat tree, and 4,096 against rails; v1: DGX H200, 400 Gbit/s.
TREE_COST, TREE_POWER = (4.18, 4.54), (23.3, 25.5)
TREE_SERVERS, RAIL_SERVERS = (32, 64, 128, 256), 512
RAIL_COST_SAVED, RAIL_POWER_SAVED = 0.767, 0.9584
RAIL_ONLY_COST, RAIL_ONLY_POWER = 1.22, 5.5
V1_COST_SAVED, V1_POWER_SAVED = 0.705, 0.9584

# v1, figure 4: of Llama3-8B on 16 GPUs.
WINDOWS_OVER_1_MS, SCATTER_WINDOW_MS = 0.75, 1000
# v1: windows of an iteration of Llama3.1-405B, of about 20 s, on a thousand H100.
WINDOWS_405B, ITERATION_405B_S = 127, 20

# v2: its simulator, 8 GPUs, seconds on packet switches, and milliseconds that a dark time adds.
SIMULATED_S = 62.2416
SIMULATED_MS = {1: (2.0, -0.1), 10: (20.0, 8.9), 50: (100.0, 48.9)}

# v2: measured on Perlmutter with an emulated switch, average seconds of an iteration by dark time in ms; first without any controller.
PERLMUTTER = {
    "Llama3-8B, 16 GPUs": (ARTIFACT_NONE_S, ARTIFACT),
    "Llama3-8B, 64 GPUs": (14.498, {
        DEMAND: {0: 14.709, 10: 14.703, 50: 14.933, 100: 14.991, 250: 15.766, 500: 17.235, 750: 18.332, 1000: 19.551},
        PROVISIONED: {0: 13.973, 10: 13.986, 50: 14.093, 100: 14.308, 250: 15.027, 500: 16.173, 750: 17.593, 1000: 18.721},
    }),
    "DeepSeek-V3 16B, 16 GPUs": (13.460, {
        DEMAND: {0: 13.838, 10: 13.592, 50: 14.125, 100: 14.575, 250: 14.851, 500: 15.878, 750: 17.319, 1000: 18.684},
        PROVISIONED: {0: 16.094, 10: 15.839, 50: 16.063, 100: 16.261, 250: 17.396, 500: 18.619, 750: 19.687, 1000: 20.781},
    }),
}
