// What this process's job is called, the same in all its ranks on all nodes: the controller knows the ranks of a job
// by it.
#pragma once

#include <cstddef>

#include "opus/types.h"
#include "shim/settings.h"

namespace opus::shim {

// In this order: OPUS_JOB; the scheduler's job (Slurm, PBS, LSF, Flux); torchrun's run, where it has an id; the launch
// of Open MPI, or of whoever speaks PMIx; where torch.distributed's ranks meet, as Kubeflow and torchrun without an id
// tell them (by the host's name, where that is on loopback). Whoever is told nothing of the kind (by MPICH's own
// launcher, ssh, a shell) is of the job of those that it meets in its first communicator: `meeting`, from the unique id.
// Zero where that is not known before NCCL makes it (ncclCommInitAll): a job of its own. Cut off at `size`, ends with a NUL.
void job_name(const Settings& settings, const CommId& meeting, char* name, std::size_t size);

}  // namespace opus::shim
