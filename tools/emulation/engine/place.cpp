// A rank's place on the emulated nodes, where one launcher on one machine starts all of them (STANDIN_PLACES): the
// launcher numbers ranks, and thinks that they are all on one node. What says so in the environment is set right before
// main, and before a shim that was preloaded in front of this library looks at it.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

// As launchers name the number of a rank among all: torchrun and whoever follows it, Open MPI, MPICH, Slurm.
constexpr std::array kRankNames = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};

std::string text_of(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

// What launchers tell their ranks about a node, where they did.
void set_local(int node, int gpu, int gpus) {
    const struct {
        const char* name;
        int value;
    } known[] = {{"LOCAL_RANK", gpu},
                 {"LOCAL_WORLD_SIZE", gpus},
                 {"GROUP_RANK", node},
                 {"NODE_RANK", node},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", gpu},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", gpus},
                 {"OMPI_COMM_WORLD_NODE_RANK", gpu},
                 {"MPI_LOCALRANKID", gpu},
                 {"MPI_LOCALNRANKS", gpus},
                 {"SLURM_LOCALID", gpu},
                 {"SLURM_NODEID", node}};
    for (const auto& variable : known)
        if (std::getenv(variable.name)) set(variable.name, std::to_string(variable.value));
}

__attribute__((constructor)) void take_place() {
    int nodes = 0, gpus = 0;
    const std::string places = text_of("STANDIN_PLACES");
    if (places.empty()) return;
    if (std::sscanf(places.c_str(), "%dx%d", &nodes, &gpus) != 2 || nodes < 1 || gpus < 1) {
        std::fprintf(stderr, "opus stand-in: STANDIN_PLACES=%s: not NODESxGPUS\n", places.c_str());
        _exit(2);
    }
    const char* number = nullptr;
    for (const char* name : kRankNames)
        if (!number) number = std::getenv(name);
    if (!number) return;  // the launcher itself, or no rank at all
    const int rank = std::atoi(number);
    if (rank < 0 || rank >= nodes * gpus) {
        std::fprintf(stderr, "opus stand-in: rank %d has no place on %d nodes of %d emulated GPUs\n", rank, nodes, gpus);
        _exit(2);
    }
    const int node = rank / gpus, gpu = rank % gpus;
    set("STANDIN_NODE", std::to_string(node));
    set("STANDIN_GPUS", std::to_string(gpus));
    set_local(node, gpu, gpus);
    const std::string cluster = text_of("STANDIN_CLUSTER");
    if (cluster.empty()) return;
    set("STANDIN_STATS", cluster + "/job/rank" + std::to_string(rank) + ".transport");
    const std::string runtime = cluster + "/n" + std::to_string(node);
    if (::access(runtime.c_str(), F_OK) != 0) return;  // no manager: a run without Opus
    set("OPUS_RUNTIME_DIR", runtime);
    if (!std::getenv("STANDIN_STEERING")) set("STANDIN_STEERING", runtime + "/steering");
}

}  // namespace
