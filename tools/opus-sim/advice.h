// Would photonic rails work for a job, with which technology, and what is to be changed: computed from what was played, never assumed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "opus/technology.h"
#include "tools/opus-sim/run_job.h"

namespace opus::job {

struct TechnologyFit {
    const Technology* technology = nullptr;
    double dark_ms = 0;
    std::uint32_t rail_ports = 0;  // of a switch that holds a whole rail
    bool fits = false;             // one switch of it does; false where it is no switch of its own
    const Point* point = nullptr;  // null: not played
};

struct Conclusion {
    enum class Answer : std::uint8_t { yes, with_changes, no };
    Answer answer = Answer::no;
    std::string sentence;          // in one sentence
    const Point* point = nullptr;  // at the longest dark time that will do; else at the shortest
    std::vector<TechnologyFit> technologies;
    std::vector<std::string> changes;  // what to change, each with its figures
};

// `accept`: what an iteration may be longer than on electrical rails, as a part of it. Points into `run`.
Conclusion conclusion_of(const Run& run, const RunOptions& options, double accept);

inline constexpr double kWorthIt = 0.005;  // of an iteration: less is not spoken of

// What a job loses whose circuits move: as the controller does by default, or on demand where that is better.
struct Moved {
    std::optional<double> loss;
    bool demand = false;
    std::string how() const { return demand ? "on demand" : "provisioned"; }
};
Moved moved_of(double demand_ms, double provisioned_ms, const Run& run);

// Over electrical rails, as a part of it; nothing where it did not end.
std::optional<double> loss_of(double iteration_ms, const Run& run);
std::string percent_text(double part);  // "1.1 %"
std::string dark_text(double ms);       // "25 ms", "7 us"
std::string split_list(const StaticSplit& split);
// The technologies' dark times that are worth playing, with those of `dark_ms`; sorted.
std::vector<double> with_technologies(std::vector<double> dark_ms);

}  // namespace opus::job
