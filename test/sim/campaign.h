// Many schedules: by class, by seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "test/sim/world.h"

namespace opus::sim {

enum class Runs : std::uint8_t { off, on, mixed };  // mixed: by the seed

struct CampaignOptions {
    std::uint64_t first_seed = 1, seeds = 100;
    Mutation mutation = Mutation::none;
    std::uint32_t check_every = 1;
    std::uint32_t most_failures = 5;  // then it stops
    Runs runs = Runs::mixed;
};

struct CampaignResult {
    std::uint64_t schedules = 0, events = 0, launches = 0, grants = 0, suspensions = 0, moves = 0, runs = 0,
                  run_launches = 0, released_early = 0, retracted = 0, raced = 0, ahead = 0;
    std::uint64_t unroutable = 0;  // schedules in which a gang could not be routed
    std::uint64_t passed_launches = 0;
    std::uint64_t speculations = 0, used = 0, wrong = 0, full_rings = 0;
    double seconds = 0;
    std::vector<std::pair<std::uint64_t, std::string>> failures;  // seed, what
};

struct Played {
    std::uint64_t seed = 0;
    FaultClass fault_class{};
    Mutation mutation = Mutation::none;
    Runs runs = Runs::mixed;
};

class Campaign {
public:
    CampaignResult run(FaultClass fault_class, const CampaignOptions& options);
    // One schedule; what a campaign runs for this seed.
    Outcome play(std::uint64_t seed, FaultClass fault_class, Mutation mutation, std::uint32_t check_every, Runs runs,
                 const std::vector<std::uint32_t>& left_out, std::vector<std::string>* log);

    const Played& played() const { return played_; }  // the schedule that is being played, or was last

private:
    Played played_;
    RingMemory memory_;
};

}  // namespace opus::sim
