#include "controller/plan/kind.h"

#include <algorithm>
#include <utility>

namespace opus::controller::plan {
namespace {

constexpr TimeNs kLongerParts = 40;  // of a lap: laps differ by one of them anyway

}  // namespace

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

void Kind::take_order(Order o, bool goes_on) {
    note_order();
    const bool was_old = std::exchange(is_old_, false);
    if (was_old) forget_best();
    const bool is_same = goes_on && !was_old && o.does_as(order);
    order = std::move(o);
    is_best_ = best_ns_ > 0 && order.does_as(best_);
    from_ = is_same ? from_ - begun_ : static_cast<std::int64_t>(lap.uses.size());
    begun_ = 0;
    if (!is_same) timed_ = from_ns_ = 0;
}

void Kind::time_order(std::uint64_t begun, TimeNs now) {
    begun_ = static_cast<std::int64_t>(begun);
    if (begun_ < from_) return;
    if (from_ns_ == 0) from_ = begun_, from_ns_ = now;
    const auto size = static_cast<std::int64_t>(lap.uses.size()), uses = begun_ - from_;
    if (uses / size <= timed_) return;
    timed_ = uses / size;
    timed_ns_ =
        static_cast<TimeNs>(static_cast<double>(now - from_ns_) * static_cast<double>(size) / static_cast<double>(uses));
}

const Order* Kind::shorter() const {
    const bool longer = !is_old_ && timed_ > 0 && best_ns_ > 0 && timed_ns_ > best_ns_ + best_ns_ / kLongerParts;
    return longer && !is_best_ ? &best_ : nullptr;
}

Order Kind::shortest(const Order& found) {
    note_order();
    if (is_old_ || best_ns_ == 0 || (best_ns_ >= found.lap_ns && !found.does_as(best_))) return found;
    Order followed = best_;
    followed.lap_ns = best_ns_;
    return followed;
}

void Kind::note_order() {
    if (timed_ == 0 || (best_ns_ > 0 && timed_ns_ > best_ns_ && !is_best_)) return;
    best_ = order;
    best_ns_ = timed_ns_;  // the best, timed anew, may take longer than before
    is_best_ = true;
}

void Kind::note_lap(TimeNs ns) {
    on_demand_.push_back(ns);
    if (on_demand_.size() > kMostTimed) on_demand_.pop_front();
}

}  // namespace opus::controller::plan
