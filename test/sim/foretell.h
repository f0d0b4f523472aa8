// What ranks say of the rest of their phases, drawn at random: right, too short, too long, or of other phases.
// The managers' own forecast needs programs that repeat themselves; these do not.
#pragma once

#include <vector>

#include "opus/wire.h"
#include "test/sim/launch_run.h"
#include "test/sim/random.h"

namespace opus::sim {

class World;

std::vector<wire::KeyRange> foretell(const World& world, LaunchIndex first, Random& random);

}  // namespace opus::sim
