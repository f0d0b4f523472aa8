// What NCCL has been told, against what circuits can serve (opus/nccl_settings.h). Each thing that does not fit is one
// line, which names it, its value and the remedy.
#pragma once

#include <nccl.h>

#include <cstdint>

namespace opus::shim {

// Of this process; when it attaches. False: something is refused.
bool nccl_settings_fit();

// Whether NCCL connects rings and trees when they are used first, as far as its version and the driver decide that
// (init.cc: runtimeConn): before 2.22, and where the GPU's memory cannot be mapped (cuMem), it does so while the
// communicator is made. Its first use is what a circuit can be had for.
bool nccl_connects_late();

// By which NICs it sends, and what its nodes are, as far as settings decide that (ring::kWays*).
std::uint32_t nccl_ways();

// Of one communicator, or null. False: something is refused.
bool nccl_config_fits(const ncclConfig_t* config);

// A switch of a communicator: as the environment or nccl.conf says, else as it was configured.
bool nccl_says(const char* name, bool configured);

}  // namespace opus::shim
