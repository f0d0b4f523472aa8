// What this process's job is called, the same in all its ranks on all nodes: the controller knows the ranks of a job
// by it. From the launcher's environment, which is all that ranks share before they meet.
#pragma once

#include <cstddef>

#include "shim/settings.h"

namespace opus::shim {

// In this order: OPUS_JOB; the scheduler's job (Slurm, PBS, LSF, Flux); torchrun's run, where it has an id; the launch
// of Open MPI, or of whoever speaks PMIx; where torch.distributed's ranks meet, as Kubeflow and torchrun without an id
// tell them; the session's pid. Cut off at `size`, ends with a NUL.
void job_name(const Settings& settings, char* name, std::size_t size);

}  // namespace opus::shim
