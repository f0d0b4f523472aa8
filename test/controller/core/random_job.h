// Random programs: communicators, collectives, transfers, groups, overlapping streams, receives posted
// early, events. Only those that end without Opus, and whose launches each fit the ports.
#pragma once

#include <cstdint>
#include <random>

#include "test/controller/core/harness.h"

namespace opus::controller::test {

struct RandomJob {
    Shape shape;
    Job job;
};

RandomJob random_job(std::uint64_t seed);
std::string text_of(const RandomJob& random);

}  // namespace opus::controller::test
