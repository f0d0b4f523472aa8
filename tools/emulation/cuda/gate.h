// What the shim's gate kernel (PTX `opus_gate`) does on a GPU, done by the engine's poller. The order of
// the parameters is the kernel's.
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

GateParameters gate_parameters(void** kernel_params);
OpRef launch_gate(Stream* stream, const GateParameters& parameters);

}  // namespace opus::standin
