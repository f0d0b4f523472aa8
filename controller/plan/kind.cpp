#include "controller/plan/kind.h"

#include <algorithm>

namespace opus::controller::plan {

void Kind::watch_anew() { watch_ = Watch(lap); }

void Kind::ended(const RankName& rank, const Seen& launch) { watch_.ended(rank, launch.seq, launch.done_ns); }

void Kind::look_later() { again = watch_.unbegun() + (1ll << std::min<std::uint32_t>(in_vain_++, 16)); }

TimeNs Kind::yardstick_ns() const {
    TimeNs sum = 0;
    for (const TimeNs ns : on_demand_) sum += ns;
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
        note_lap(took->ns);
    }
    return over;
}

void Kind::note_lap(TimeNs ns) {
    on_demand_.push_back(ns);
    if (on_demand_.size() > kMostTimed) on_demand_.pop_front();
}

}  // namespace opus::controller::plan
