#include "test/sim/campaign.h"

#include <chrono>

namespace opus::sim {

Outcome Campaign::play(std::uint64_t seed, FaultClass fault_class, Mutation mutation, std::uint32_t check_every,
                       Runs runs, const std::vector<std::uint32_t>& left_out, std::vector<std::string>* log) {
    played_ = {seed, fault_class, mutation, runs};
    Scenario scenario = make_scenario(seed, fault_class, mutation);
    for (const std::uint32_t fault : left_out)
        if (fault < scenario.faults.size()) scenario.faults[fault].left_out = true;
    WorldOptions options;
    options.log = log != nullptr;
    options.check_every = check_every;
    options.runs = runs == Runs::on || (runs == Runs::mixed && seed % 2 == 1);
    options.wire = seed % 16 < 2;
    World world(scenario, memory_, options);
    Outcome outcome = world.run();
    // Where nothing goes wrong nothing is opened without its circuits.
    const bool calm = fault_class == FaultClass::calm || fault_class == FaultClass::windows ||
                      ((fault_class == FaultClass::early || fault_class == FaultClass::wide) && scenario.faults.empty());
    if (outcome.failure.empty() && calm && outcome.passes > 0 &&
        outcome.unroutable + outcome.crowded + outcome.filled_rings == 0)
        outcome.failure = "a launch passed without circuits, and nothing had gone wrong";
    if (log != nullptr) *log = world.journal.lines();
    return outcome;
}

CampaignResult Campaign::run(FaultClass fault_class, const CampaignOptions& options) {
    CampaignResult result;
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < options.seeds && result.failures.size() < options.most_failures; ++i) {
        const std::uint64_t seed = options.first_seed + i;
        const Outcome o = play(seed, fault_class, options.mutation, options.check_every, options.runs, {}, nullptr);
        ++result.schedules;
        result.events += o.events;
        result.launches += o.launches;
        result.grants += o.grants;
        result.suspensions += o.suspensions;
        result.moves += o.moves;
        result.runs += o.runs;
        result.run_launches += o.run_launches;
        result.released_early += o.released_early;
        result.retracted += o.retracted;
        result.raced += o.raced;
        result.ahead += o.ahead;
        result.unroutable += o.unroutable > 0;
        result.passed_launches += o.passes;
        result.speculations += o.speculations;
        result.used += o.used;
        result.wrong += o.wrong;
        result.full_rings += o.full_rings;
        if (!o.failure.empty()) result.failures.emplace_back(seed, o.failure);
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
}

}  // namespace opus::sim
