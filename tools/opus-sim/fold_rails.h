// A job whose GPUs of one node all do the same, each on a rail of its own: one rail stands for all.
#pragma once

#include <optional>

#include "tools/replay/dry_run.h"

namespace opus::job {

// The job of one GPU a node; what stays on a node is computation as long as it lasts by `times`. None where the GPUs of
// a node differ, or where a communicator joins GPUs of different rails between nodes.
std::optional<replay::Workload> one_rail(const replay::Workload& workload, const replay::DryRunOptions& times);

}  // namespace opus::job
