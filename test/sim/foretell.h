// What ranks say of the rest of their phases, and of what comes next, drawn at random: right, too short, too long, or
// of other phases. Managers foretell nothing.
#pragma once

#include <vector>

#include "opus/wire.h"
#include "test/sim/launch_run.h"
#include "test/sim/random.h"

namespace opus::sim {

class World;

// What a rank says that it wants next (scenario numbers): one of those that have not started, the next one most often;
// when it is due is anything. For Scenario::drawn_words.
wire::Expectation draw_word(const World& world, std::uint32_t rank, Random& random);

std::vector<wire::KeyRange> foretell(const World& world, LaunchIndex first, Random& random);

}  // namespace opus::sim
