// What NCCL has been told, against what circuits can serve (opus/nccl_settings.h). Each thing that does not fit is one
// line, which names it, its value and the remedy.
#pragma once

#include <nccl.h>

namespace opus::shim {

// Of this process; when it attaches. False: something is refused.
bool nccl_settings_fit();

// Of one communicator, or null. False: something is refused.
bool nccl_config_fits(const ncclConfig_t* config);

}  // namespace opus::shim
