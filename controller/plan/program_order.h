// Launches of a rank as its program has made them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "controller/plan/lap.h"

namespace opus::controller::plan {

using Launches = std::vector<const Seen*>;

// The last so many.
inline Launches in_order(const std::deque<Seen>& seen, std::size_t last = Log::kMostOfARank) {
    Launches launches;
    launches.reserve(std::min(seen.size(), last));
    for (auto s = seen.end() - static_cast<std::ptrdiff_t>(std::min(seen.size(), last)); s != seen.end(); ++s)
        launches.push_back(&*s);
    return launches;
}

// Without what was posted behind the first of its last launches that is not over. False: there is none such.
inline bool cut_at_open(Launches& launches) {
    const std::size_t from = launches.size() - std::min(launches.size(), kMostAhead);
    for (std::size_t i = from + 1; i < launches.size(); ++i)
        if (launches[i]->seq != launches[i - 1]->seq + 1) {
            launches.resize(i);
            return true;
        }
    return false;
}

}  // namespace opus::controller::plan
