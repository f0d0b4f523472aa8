// One job four ways: always lit, circuits on demand, circuits ahead of demand, and by the best schedule that somebody
// who knows the future has found.
#pragma once

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "tools/replay/dry_run.h"
#include "tools/sim/best_found.h"
#include "tools/sim/switched_rails.h"

namespace opus::sim {

struct VariantOptions {
    std::uint32_t ports = 2;  // of a GPU
    TimeNs dark_ns = 25'000'000;
    std::uint32_t learned = 2;  // iterations that do not count
    replay::DryRunOptions dry_run;
    RailsOptions rails;
    double packet_share = 1;  // of a GPU's bandwidth, for operations that no circuits can serve
    SearchOptions search;     // its `learned` is that of above
};

struct PlayedVariant {
    bool ended = false;
    double iteration_ms = 0;  // mean of those that count
    double held_ms = 0;       // of an iteration: operations all of whose members were there, until they began, summed
    double total_ms = 0;      // of all iterations
    double frames_up = 0, phases = 0;     // of all iterations together
    double frames_down = 0, decided = 0;  // likewise: messages of the controller, events that it decided about
    std::vector<Turn> turns;              // with RailsOptions::keep_turns
    controller::Counters counters;
    std::string fault;
    std::vector<replay::HeldOperation> held;  // those that count
    std::vector<std::string> names;           // of each
    replay::DryRun run;                       // without its steps
};

enum class Rails : std::uint8_t { lit, on_demand, provisioned };

PlayedVariant play(const replay::Workload& workload, Rails rails, const VariantOptions& options);

struct Known {
    FoundSchedule best;   // found, beginning with the orders of the variants
    double least_ms = 0;  // no iteration is shorter; 0 where they are not alike, or it was not asked for
};
// `bound`: least_ms, too, which takes time and memory as the square of an iteration's operations. `last`: one more
// variant, which may be played meanwhile.
Known play_known(const replay::Workload& workload, const std::vector<const PlayedVariant*>& variants,
                 const VariantOptions& options, bool bound = true, const std::shared_future<PlayedVariant>& last = {});

// The part of the dark that was hidden, of what can be: 1 where nothing can.
double hidden_share(const PlayedVariant& on_demand, const PlayedVariant& ahead, double best_ms);

}  // namespace opus::sim
