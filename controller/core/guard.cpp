#include "controller/core/guard.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace opus::controller {

void Guard::Spread::add(double x) {
    ++count;
    sum += x;
    squares += x * x;
    least = std::min(least, x);
}

double Guard::Spread::mean() const { return sum / count; }

double Guard::Spread::deviation() const { return std::sqrt(std::max(0.0, (squares - sum * sum / count) / (count - 1))); }

Guard::Guard(std::vector<Rule> levels, std::uint32_t first_away)
    : levels_(std::move(levels)), level_(levels_.empty() ? 0 : levels_.size() - 1), first_away_(first_away), away_laps_(first_away) {}

Guard::Guard(bool provision, bool runs, std::uint32_t first_away)
    : Guard(provision && runs    ? std::vector<Rule>{{true, false}, {true, true}}
            : provision != runs ? std::vector<Rule>{{provision, runs}}
                                : std::vector<Rule>{},
            first_away) {}

Guard::Rule Guard::rule() const { return is_on_demand() || levels_.empty() ? Rule{} : levels_[level_]; }

bool Guard::start_over() { return enter(Stage::measuring); }

bool Guard::enter(Stage stage) {
    const Rule before = rule();
    stage_ = stage;
    laps_ = slow_laps_ = 0;
    if (stage == Stage::trying) saved_ = {};
    away_sum_ = 0;
    return rule() != before;
}

bool Guard::hear(const wire::RankPace& news) {
    if (levels_.empty()) return false;
    const auto took = static_cast<double>(news.took_ns), lap = static_cast<double>(news.lap_ns);
    if (news.kind == wire::PaceKind::ready && news.lap_ns > lap_ns_ + lap_ns_ / 2) start_again(lap);
    if (news.lap_ns > 0) lap_ns_ = news.lap_ns;
    switch (news.kind) {
        case wire::PaceKind::ready:
            if (stage_ != Stage::measuring) return false;
            enter(owed_laps_ > 0 ? Stage::away : Stage::trying);
            return true;  // also where it goes on on demand: what is told makes a yardstick of what was timed
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
            lost_ += (took - static_cast<double>(news.yardstick_ns)) / lap;
            return fall_back(took / lap);
    }
    return false;
}

// What was timed was part of a lap: nothing is known of the whole, but what is owed.
void Guard::start_again(double lap_ns) {
    const double owed = owed_laps_ * static_cast<double>(lap_ns_) / lap_ns;
    *this = Guard(levels_, first_away_);
    owed_laps_ = static_cast<std::uint32_t>(std::ceil(owed));
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
    const bool slow = ratio > 1 + kWorse, proven = stage_ == Stage::provisioned;
    slow_laps_ = slow ? slow_laps_ + 1 : 0;
    // One lap alone never ends what is proven: who knows what else it met.
    lost_ = std::max(0.0, lost_ + (proven ? std::min(ratio - 1, 0.9 * kFarWorse) : ratio - 1));
    if (slow && (slow_laps_ == 2 || lost_ > kFarWorse || (again_ && !proven))) return fall_back(ratio);
    if (!proven) saved_.add(1 - ratio);
    if (slow) return false;
    if (!proven && laps_ >= kProven) {
        again_ = false;
        away_laps_ = std::max(first_away_, away_laps_ / 2);
        // Laps that differ because each is better than the one before are no reason for doubt.
        const bool sure = saved_.mean() > std::max(kLittle, kSure * saved_.deviation()) || saved_.least > kFarWorse;
        if (look_after_ == 0) look_after_ = sure ? kFirstLookWhereMuch : kFirstLook;
        return enter(sure ? Stage::provisioned : Stage::looking);
    }
    if (proven && laps_ >= look_after_) return enter(Stage::looking);
    return false;
}

// Then without what was the most daring of it, and that another time.
bool Guard::fall_back(double ratio) {
    ++fallbacks_;
    ratio_ = slow_ratio_ = ratio;
    away_laps_ = again_ ? std::min(2 * away_laps_, kLongestAway) : away_laps_;
    owed_laps_ = std::min(std::max(away_laps_, static_cast<std::uint32_t>(std::ceil(std::min(lost_ / kMostLost, 1e6)))), kLongestAway);
    again_ = true;
    level_ = (level_ + levels_.size() - 1) % levels_.size();
    lost_ = 0;
    return enter(Stage::away);
}

bool Guard::away_lap(double ratio) {
    if (laps_ > 1) away_sum_ += ratio;  // the first may still suffer from what was done ahead before it
    if (owed_laps_ > 0) --owed_laps_;
    // The job itself has become slower: it was not for being provisioned.
    if (laps_ == 1 + kLookLaps && slow_ratio_ < away_sum_ / kLookLaps) {
        away_laps_ = std::max(first_away_, away_laps_ / 2);
        level_ = (level_ + 1) % levels_.size();
        owed_laps_ = 0;
    }
    return owed_laps_ == 0 && enter(Stage::trying);
}

std::string Guard::text() const {
    const auto tenths = static_cast<std::int64_t>(std::lround(1000 * (slow_ratio_ - 1)));
    switch (stage_) {
        case Stage::measuring: return "on demand: its laps are being timed";
        case Stage::trying: return again_ ? "provisioned, on trial again" : "provisioned, on trial";
        case Stage::provisioned: return rule().runs || levels_.back() == rule() ? "provisioned" : "provisioned, without runs";
        case Stage::looking: return "on demand for two laps, to be timed anew";
        case Stage::away:
            return "on demand: provisioned, a lap took " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
                   " % longer; tried again in " + std::to_string(owed_laps_) + " laps";
    }
    return "";
}

}  // namespace opus::controller
