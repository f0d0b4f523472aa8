// What the shim's kernels do on a GPU, done by the engine's poller: the gate (PTX `opus_gate`), the gate of a captured launch
// (`opus_gate_replayed`) and what says that one has ended (`opus_replay_ended`). The order of the parameters is the kernels'.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace opus::standin {

struct GateParameters {
    std::uint64_t* ready;
    std::uint64_t* go;
    std::uint64_t value;
    std::uint64_t* heartbeat;
    std::uint32_t* open_segment;
    std::uint32_t* open_comm;
    std::uint64_t hold_ns;
    std::uint64_t* gave_up;  // and dead_beat behind it
};

enum class GateRole : std::uint8_t { gate, replayed, ended };

const char* name_of(GateRole role);
OpRef launch_of_gates(Stream* stream, GateRole role, void** kernel_params);

}  // namespace opus::standin
