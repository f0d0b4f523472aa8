// What happens to wide launches now and then, each over all nodes of a WideWorld. growth_test.py counts the
// instructions of each, bench_core_scaling measures its CPU time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "test/controller/core/wide_world.h"

namespace opus::controller::test {

struct WideScenario {
    const char* name;
    const char* what;
    void (*play)(WideWorld& world);  // watches what is to be measured; throws where it does not go as it says
    bool runs = false;               // its grants are runs without end
};

const std::vector<WideScenario>& wide_scenarios();

// Two wide launches: the one in flight, the other complete and waiting for its ports; of a third one member is missing.
void wait_for_ports(WideWorld& world);

}  // namespace opus::controller::test
