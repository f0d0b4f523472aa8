// The argument by which a benchmark is told of which kinds of workload (opus-replay generate).
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "tools/replay/generate.h"

namespace opus::bench {

// Fills `kinds` when the command line is parsed: those named, or each once for "all".
inline void add_kinds(CLI::App& app, std::vector<std::string>& kinds) {
    std::vector<std::string> names{"all"};
    for (const auto& generator : replay::generators())
        if (!generator.drawn) names.emplace_back(generator.name);
    app.add_option("kind", kinds, "kinds of opus-replay generate, or 'all'")->capture_default_str()->check(CLI::IsMember(names));
    app.parse_complete_callback([names, &kinds] {
        if (std::find(kinds.begin(), kinds.end(), "all") != kinds.end()) kinds.assign(names.begin() + 1, names.end());
    });
}

}  // namespace opus::bench
