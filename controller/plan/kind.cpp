#include "controller/plan/kind.h"

#include <algorithm>
#include <utility>

namespace opus::controller::plan {
namespace {

constexpr std::uint64_t kLeastTimed = 2;  // laps by the best order, before what they take is believed again
constexpr TimeNs kLongerParts = 40;       // of a lap: laps differ by one of them anyway

}  // namespace

void Kind::watch_anew() { watch_ = Watch(lap); }

void Kind::ended(const RankName& rank, const Seen& launch) { watch_.ended(rank, launch.seq, launch.done_ns); }

void Kind::look_later() { again = watch_.unbegun() + (1ll << std::min<std::uint32_t>(in_vain_++, 16)); }

void Kind::look_until(std::int64_t pays) { again = std::min(pays, 2 * std::max<std::int64_t>(1, watch_.unbegun())); }

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

void Kind::take_lap(Lap l) {
    lap = std::move(l);
    order = {};
    forget_best();
}

void Kind::ports_changed(bool is_followed) {
    is_old_ = true;
    if (!is_followed) order = {};
    again = in_vain_ = 0;
}

void Kind::forget_best() {
    best_ = {};
    best_ns_ = timed_ = 0;
    is_best_ = false;
}

void Kind::take_order(Order o, TimeNs now) {
    note_order();
    if (std::exchange(is_old_, false)) forget_best();
    order = std::move(o);
    is_best_ = best_ns_ > 0 && order.place == best_.place && order.ports == best_.ports;
    from_ = timed_ = 0;
    from_ns_ = now;
}

void Kind::time_order(std::uint64_t begun, TimeNs now) {
    if (begun < from_) return;
    if (from_ns_ == 0) from_ns_ = now;
    const std::uint64_t uses = begun - from_;
    if (uses / lap.uses.size() <= timed_) return;
    timed_ = uses / lap.uses.size();
    const double laps = static_cast<double>(uses) / static_cast<double>(lap.uses.size());
    timed_ns_ = static_cast<TimeNs>(static_cast<double>(now - from_ns_) / laps);
}

const Order* Kind::shorter() const {
    const bool longer = !is_old_ && timed_ > 0 && best_ns_ > 0 && timed_ns_ > best_ns_ + best_ns_ / kLongerParts;
    return longer && !is_best_ ? &best_ : nullptr;
}

void Kind::note_order() {
    if (timed_ < (is_best_ ? kLeastTimed : 1) || (best_ns_ > 0 && timed_ns_ > best_ns_ && !is_best_)) return;
    best_ = order;
    best_ns_ = timed_ns_;  // the best, timed anew, may take longer than before
    is_best_ = true;
}

void Kind::note_lap(TimeNs ns) {
    on_demand_.push_back(ns);
    if (on_demand_.size() > kMostTimed) on_demand_.pop_front();
}

}  // namespace opus::controller::plan
