// core_growth SCENARIO NODES: plays it. What is watched runs inside functions that callgrind counts (growth_test.py).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "test/controller/core/wide_scenarios.h"

extern "C" __attribute__((noinline)) std::size_t measured_ports(const opus::controller::Core& core) {
    return core.ports().size();
}
extern "C" __attribute__((noinline)) std::size_t measured_why(const opus::controller::Core& core, opus::TimeNs now) {
    return core.why(now).size();
}

namespace {

using namespace opus::controller;
using namespace opus::controller::test;

int play(const char* name, std::uint32_t nodes) {
    CoreOptions options;
    for (const WideScenario& scenario : wide_scenarios())
        if (std::strcmp(name, scenario.name) == 0) {
            if (scenario.runs) options.rest_ns = 0;
            WideWorld world(nodes, options);
            return scenario.play(world), 0;
        }
    WideWorld world(nodes, options);
    wait_for_ports(world);
    if (std::strcmp(name, "ports") == 0) return measured_ports(world.core()) == 2 * world.nodes() ? 0 : 1;
    if (std::strcmp(name, "why") == 0) return measured_why(world.core(), world.now()) == 2 * world.nodes() - 1 ? 0 : 1;
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    try {
        return play(argv[1], std::uint32_t(std::atoi(argv[2])));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "core_growth: %s\n", e.what());
        return 1;
    }
}
