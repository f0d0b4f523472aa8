// What ranks say of the rest of their phases, drawn at random: right, too short, too long, or
// of other phases. Managers say nothing of it: this is how runs are made where there is no plan.
#pragma once

#include <vector>

#include "opus/wire.h"
#include "test/sim/launch_run.h"
#include "test/sim/random.h"

namespace opus::sim {

class World;

std::vector<wire::KeyRange> foretell(const World& world, LaunchIndex first, Random& random);

}  // namespace opus::sim
