// Jobs in which one thing happens again and again that drawing at large seldom meets: what each is for is said there.
#pragma once

#include "test/sim/random.h"
#include "test/sim/scenario.h"

namespace opus::sim {

// Of a job whose shape is not `any`.
void write_special(Scenario& scenario, std::uint32_t job, Random random);

}  // namespace opus::sim
