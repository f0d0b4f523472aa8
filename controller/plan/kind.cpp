#include "controller/plan/kind.h"

#include <algorithm>

namespace opus::controller::plan {

void Kind::watch_anew() {
    watch_ = Watch(lap);
    loss_ = {};
}

void Kind::ended(const RankName& rank, const Seen& launch) {
    watch_.ended(rank, launch.seq, launch.done_ns);
    loss_.ended(lap, rank, launch);
}

void Kind::look_later() { again = watch_.unbegun() + (1ll << std::min<std::uint32_t>(in_vain_++, 16)); }

TimeNs Kind::mean(TimeNs Took::*part) const {
    TimeNs sum = 0;
    for (const Took& took : on_demand_) sum += took.*part;
    return on_demand_.empty() ? 0 : sum / static_cast<TimeNs>(on_demand_.size());
}

bool Kind::time_laps(bool planned) {
    bool over = false;
    while (const auto took = watch_.next()) {
        over = true;
        if (took->lap < since) continue;
        if (planned) {
            saved_ns += yardstick_ns() - took->ns;
            continue;
        }
        // Where what it has lost is not known: as much as others did, and all that it is longer.
        const TimeNs unlike = on_demand_.empty() ? 0 : lost_ns() + took->ns - yardstick_ns();
        on_demand_.push_back({took->ns, loss_.lost_ns(lap, took->lap).value_or(unlike)});
        if (on_demand_.size() > kMostTimed) on_demand_.pop_front();
    }
    return over;
}

}  // namespace opus::controller::plan
