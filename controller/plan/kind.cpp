#include "controller/plan/kind.h"

#include <algorithm>
#include <utility>

namespace opus::controller::plan {
namespace {

constexpr TimeNs kLeastCompared = 250'000'000;  // of laps that are compared: in less there is too much chance

}  // namespace

void Kind::watch_anew() {
    watch_ = Watch(lap);
    loss_ = {};
}

void Kind::ended(const RankName& rank, const Seen& launch) {
    watch_.ended(rank, launch.seq, launch.done_ns);
    loss_.ended(lap, rank, launch);
}

void Kind::look_later() { again = watch_.unbegun() + (1ll << std::min<std::uint32_t>(in_vain_++, 16)); }

void Kind::forget_long() {
    if (const auto lap = std::exchange(found_long_, std::nullopt)) guard = lap->before;
}

Kind::Took Kind::yardstick() const {
    Took sum;
    if (on_demand_.empty()) return sum;
    for (const Took& took : on_demand_) sum.ns += took.ns, sum.lost_ns += took.lost_ns;
    const auto laps = static_cast<TimeNs>(on_demand_.size());
    return {sum.ns / laps, sum.lost_ns / laps};
}

// By how much laps are longer than on demand because of their light. They may differ in what is computed in them, and what light has
// cost is known by estimate only: as far as both agree.
TimeNs Kind::longer_ns(const Took& took, const Took& should) {
    const TimeNs longer = took.ns - should.ns, lost = took.lost_ns - should.lost_ns;
    return longer > 0 ? std::max<TimeNs>(0, std::min(longer, lost)) : longer;
}

// Where what it has lost is not known: all that it is longer.
Kind::Took Kind::took_of(const Watch::Took& took) {
    const Took should = yardstick();
    return {took.ns, loss_.lost_ns(lap, took.lap).value_or(on_demand_.empty() ? 0 : should.lost_ns + took.ns - should.ns)};
}

// A planned lap is looked at before it is over where it is much longer than on demand, and then where it is as much longer again.
bool Kind::lasts_too_long() {
    const Took should = yardstick();
    const auto so_far = watch_.since_lap_before();
    if (should.ns < kLeastCompared || so_far.lap < since) return false;
    const TimeNs looked = so_far.lap == seen_long_.lap ? seen_long_.ns : 0;
    if (so_far.ns <= std::max(should.ns, looked) / 8 * 9) return false;
    seen_long_ = so_far;
    const TimeNs longer = longer_ns(took_of(so_far), should);
    if (longer <= should.ns / 8) return false;
    found_long_ = {so_far.lap, guard};
    return guard.lasts_too_long(1 + static_cast<double>(longer) / static_cast<double>(should.ns));
}

bool Kind::time_laps(bool planned) {
    bool changed = false;
    over_ = false;
    while (const auto took = watch_.next()) {
        over_ = true;
        if (found_long_ && took->lap >= found_long_->lap) found_long_.reset();
        if (took->lap < since || changed) continue;
        const Took timed = took_of(*took);
        if (!planned) {
            on_demand_.push_back(timed);
            if (on_demand_.size() > kMostTimed) on_demand_.pop_front();
        }
        if (guard.stage() == Guard::Stage::measuring) {
            owed_ns -= std::min(owed_ns, took->ns);
            if (owed_ns == 0) changed = guard.begin();
            continue;
        }
        if (planned != guard.provisions()) continue;
        const Took should = yardstick();
        if (planned) saved_ns += should.ns - timed.ns;
        took_ = {took_.ns + timed.ns, took_.lost_ns + timed.lost_ns};
        should_ = {should_.ns + should.ns, should_.lost_ns + should.lost_ns};
        if (should_.ns < kLeastCompared) continue;
        const auto of_should = static_cast<double>(should_.ns);
        const double for_light = static_cast<double>(longer_ns(took_, should_)) / of_should,
                     in_all = static_cast<double>(took_.ns) / of_should;
        compare_anew();
        const bool asked = guard.stage() == Guard::Stage::asking;
        changed = guard.lap_over(1 + for_light, in_all);
        // It does not take longer for its plan: what it took before is no measure any more.
        if (asked && guard.provisions())
            while (on_demand_.size() > Guard::kLookLaps) on_demand_.pop_front();
    }
    return changed || (planned && lasts_too_long());
}

}  // namespace opus::controller::plan
