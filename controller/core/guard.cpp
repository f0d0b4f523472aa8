#include "controller/core/guard.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace opus::controller {

Guard::Guard(std::vector<Rule> levels) : levels_(std::move(levels)), level_(levels_.empty() ? 0 : levels_.size() - 1) {}

Guard::Guard(bool provision, bool runs)
    : Guard(provision && runs    ? std::vector<Rule>{{true, false}, {true, true}}
            : provision != runs ? std::vector<Rule>{{provision, runs}}
                                : std::vector<Rule>{}) {}

Guard::Rule Guard::rule() const { return is_on_demand() || levels_.empty() ? Rule{} : levels_[level_]; }

bool Guard::start_over() { return enter(Stage::measuring); }

bool Guard::enter(Stage stage) {
    const Rule before = rule();
    stage_ = stage;
    laps_ = slow_laps_ = 0;
    away_sum_ = 0;
    return rule() != before;
}

bool Guard::hear(const wire::RankPace& news) {
    if (levels_.empty()) return false;
    if (news.kind == wire::PaceKind::ready && news.lap_ns > lap_ns_ + lap_ns_ / 2) *this = Guard(levels_);  // what was timed was part of a lap
    if (news.lap_ns > 0) lap_ns_ = news.lap_ns;
    const auto took = static_cast<double>(news.took_ns), lap = static_cast<double>(news.lap_ns);
    switch (news.kind) {
        case wire::PaceKind::ready: return stage_ == Stage::measuring && enter(Stage::trying);
        case wire::PaceKind::longer:  // what is proven stays: a longer lap holds an evaluation, say
            if (stage_ == Stage::provisioned || stage_ == Stage::measuring) return false;
            enter(Stage::measuring);
            return true;
        case wire::PaceKind::lost: return stage_ != Stage::measuring && enter(Stage::measuring);
        case wire::PaceKind::lap:
            if (news.yardstick_ns <= 0) return false;
            return lap_over(static_cast<double>(news.took_ns) / static_cast<double>(news.yardstick_ns));
        case wire::PaceKind::excess:
            if (is_on_demand() || lap <= 0 || (stage_ == Stage::provisioned && took < 2 * lap)) return false;
            return fall_back(took / lap);
    }
    return false;
}

bool Guard::lap_over(double ratio) {
    ++laps_;
    switch (stage_) {
        case Stage::measuring: return false;
        case Stage::trying:
        case Stage::provisioned: return provisioned_lap(ratio);
        case Stage::looking:
            if (laps_ < kLookLaps) return false;
            look_after_ = std::min(2 * look_after_, kLongestLook);
            if (level_ + 1 < levels_.size()) {  // what was slower before may not be any more
                level_ = levels_.size() - 1;
                again_ = true;
                return enter(Stage::trying);
            }
            return enter(Stage::provisioned);
        case Stage::away: return away_lap(ratio);
    }
    return false;
}

bool Guard::provisioned_lap(double ratio) {
    ratio_ = ratio;
    const bool slow = ratio > 1 + kWorse;
    slow_laps_ = slow ? slow_laps_ + 1 : 0;
    const bool at_once = stage_ == Stage::trying && (again_ || ratio > 1 + kFarWorse);
    if (slow_laps_ == 2 || (slow && at_once)) return fall_back(ratio);
    if (slow) return false;
    saved_sum_ += 1 - ratio;
    if (stage_ == Stage::trying && laps_ >= kProven) {
        again_ = false;
        away_laps_ = std::max(kFirstAway, away_laps_ / 2);
        if (look_after_ == 0)
            look_after_ = saved_sum_ / laps_ < kLittle ? kFirstLook : kFirstLookWhereMuch;
        return enter(Stage::provisioned);
    }
    if (stage_ == Stage::provisioned && laps_ >= look_after_) return enter(Stage::looking);
    return false;
}

// For a time that doubles. Then without what was the most daring of it, and that another time.
bool Guard::fall_back(double ratio) {
    ++fallbacks_;
    ratio_ = slow_ratio_ = ratio;
    away_laps_ = again_ ? std::min(2 * away_laps_, kLongestAway) : away_laps_;
    again_ = true;
    level_ = (level_ + levels_.size() - 1) % levels_.size();
    saved_sum_ = 0;
    return enter(Stage::away);
}

bool Guard::away_lap(double ratio) {
    if (laps_ > 1) away_sum_ += ratio;  // the first may still suffer from what was done ahead before it
    // The job itself has become slower: it was not for being provisioned.
    if (laps_ == 1 + kLookLaps && slow_ratio_ < away_sum_ / kLookLaps) {
        away_laps_ = std::max(kFirstAway, away_laps_ / 2);
        level_ = (level_ + 1) % levels_.size();
        return enter(Stage::trying);
    }
    return laps_ >= away_laps_ && enter(Stage::trying);
}

std::string Guard::text() const {
    const auto tenths = static_cast<std::int64_t>(std::lround(1000 * (slow_ratio_ - 1)));
    const std::uint32_t left = away_laps_ > laps_ ? away_laps_ - laps_ : 0;
    switch (stage_) {
        case Stage::measuring: return "on demand: its laps are being timed";
        case Stage::trying: return again_ ? "provisioned, on trial again" : "provisioned, on trial";
        case Stage::provisioned: return rule().runs || levels_.back() == rule() ? "provisioned" : "provisioned, without runs";
        case Stage::looking: return "on demand for two laps, to be timed anew";
        case Stage::away:
            return "on demand: provisioned, a lap took " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
                   " % longer; tried again in " + std::to_string(left) + " laps";
    }
    return "";
}

}  // namespace opus::controller
