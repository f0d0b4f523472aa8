// One job on electrical and on photonic rails, at several dark times: what `opus-sim run` plays. Deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/opus-sim/answers.h"
#include "tools/opus-sim/job_file.h"
#include "tools/opus-sim/noise.h"
#include "tools/opus-sim/static_split.h"

namespace opus::job {

struct RunOptions {
    std::vector<double> dark_ms{1, 10, 25, 100};
    std::uint32_t ports = 2;         // of a GPU
    double out_gbits = 400;          // of a GPU, between nodes, all its ports together
    // Of a GPU on a packet network beside the circuits. It carries what no circuits can serve, and what a static split gives
    // none. Without it: what no circuits can serve has `out_gbits`, and a static split has a circuit for each pair.
    std::optional<double> packet_gbits;
    double node_gbytes = 450;        // of a GPU within its node, a second
    double out_us = 5, node_us = 2;  // of each step of an operation
    std::uint32_t iterations = 8;    // that are played; the second half counts
    bool best = true;                // the best-found schedule and the bound, too
    std::uint32_t trials = 0;        // schedules that are tried; 0: by the size of the job,
    std::uint32_t trials_most = 600;  // up to this
    unsigned at_once = 2;            // dark times
    double jitter = 0;               // computation lasts up to so much longer, as a part of it
    double late_us = 0;              // launches are seen to be reached up to so much later
    std::uint64_t seed = 1;          // of both
    bool split = true;               // seek the best split of ports that never moves, too
    // Where the GPUs of a node all do the same, one rail is played for all; by default where there are many.
    std::optional<bool> fold;
    bool guard = true;               // who is slower for being provisioned goes back
    bool log = false;                // Point::log
    bool answers = true;             // look closely at each variant, too
    std::vector<std::uint32_t> try_ports;  // of a GPU, that are played as well; empty: as many as seem worth it, {0}: none
    bool technologies = false;             // play the dark times of the technologies that there are, too
    std::uint32_t seeds = 1;               // from `seed` on; the first one's figures, and the spread of all
    std::vector<SlowRank> slow;
};

struct VariantFigures {
    bool ended = false;
    double iteration_ms = 0;
    double held_ms = 0;            // of an iteration: operations that all were ready for, until they began, summed
    double reconfigurations = 0;   // of an iteration, all rails
    double hidden = 0;             // the part of the dark time of moves that nobody waited for, of the whole run
    std::uint64_t crowded = 0;     // gangs that the ports could serve only launch by launch
    std::uint64_t unroutable = 0;  // gangs that no ports can serve: they passed, unheld
    double messages = 0;           // of an iteration, managers to controller
    std::string fault;             // what the cores' own check found; empty: nothing
};

struct Point {
    double dark_ms = 0;
    VariantFigures demand, provisioned;
    double best_ms = 0, bound_ms = 0;  // 0: not sought, or none is known
    Answers demand_answers, provisioned_answers;
    std::string log;  // what was asked for and what switches were told, on demand and provisioned
};

// Operations that need more neighbours at a time than a GPU has ports.
struct Unserved {
    std::vector<std::string> names;  // as JobLaunches calls them
    double share = 0;                // of the bytes that an iteration sends between nodes
    bool carried = false;            // by a packet network whose bandwidth was given: what they take there was played
    static constexpr double kFew = 0.01;
    bool matters() const { return share >= kFew && !carried; }  // fewer are carried by any packet network
};

// The same job with other ports, which share the same bandwidth.
struct Alternative {
    struct At {
        double dark_ms = 0, demand_ms = 0, provisioned_ms = 0;  // 0: it did not end
    };
    std::uint32_t ports = 0;
    StaticSplit split;
    Unserved unserved;
    std::vector<At> points;
};

struct Run {
    std::uint32_t iterations = 0, counted = 0;
    std::uint32_t rails = 1;  // that the one that was played stands for; figures are of all
    VariantFigures electrical;
    StaticSplit split;
    std::vector<Point> points;  // by dark time
    std::uint32_t nodes = 0;
    std::vector<std::string> labels;  // of operations, in what follows
    Unserved unserved;
    Windows windows;
    Answers lit_answers;
    std::vector<Alternative> alternatives;
    std::vector<SeedTimes> seeds;  // with more than one
};

// How a variant of it is played; dark times are set besides.
sim::VariantOptions variant_options_of(const JobFile& job, const RunOptions& options);
Run run_job(const JobFile& job, const RunOptions& options);

}  // namespace opus::job
