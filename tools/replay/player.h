// Plays one rank of a workload with NCCL. The player is a module of its own (opus_replay_player.so), so
// that everything else of opus-replay runs on machines without NCCL; its calls go by dynamic symbol,
// as those of any program do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace opus::replay {

inline constexpr int kExitOk = 0;
inline constexpr int kExitMismatch = 1;  // a result was not as it must be
inline constexpr int kExitUsage = 2;     // arguments, workload file
inline constexpr int kExitNccl = 3;      // NCCL or CUDA said no
inline constexpr int kExitTimeout = 4;   // no progress for --timeout

struct PlayError : std::runtime_error {
    PlayError(int code, const std::string& text) : std::runtime_error(text), exit_code(code) {}
    int exit_code;
};

struct PlayOptions {
    std::string workload;
    std::uint32_t rank = 0;
    std::uint32_t world = 0;  // 0: the workload's; else it must be equal
    std::string rendezvous;
    std::uint32_t iterations = 0;  // 0: the workload's
    double scale_bytes = 1;
    double scale_time = 1;
    std::uint64_t seed = 1;  // of jitter
    bool check = true;
    bool progress = false;
    bool graph = false;  // the second iteration is captured into a CUDA graph, and is what all later ones are
    double timeout_s = 300;
    int device = -1;  // the CUDA ordinal; -1: the workload's place, as far as there are devices
    std::string out;    // JSON
    std::string trace;  // Chrome trace events
};

using PlayFunction = int(const PlayOptions*);

}  // namespace opus::replay

extern "C" int opus_replay_play(const opus::replay::PlayOptions* options);
