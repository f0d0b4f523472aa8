#include "controller/plan/guard.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace opus::controller::plan {

void Guard::Spread::add(double x) {
    ++count;
    sum += x;
    squares += x * x;
    least = std::min(least, x);
}

double Guard::Spread::mean() const { return sum / count; }

double Guard::Spread::deviation() const { return std::sqrt(std::max(0.0, (squares - sum * sum / count) / (count - 1))); }

bool Guard::enter(Stage stage) {
    const bool before = provisions();
    stage_ = stage;
    laps_ = slow_laps_ = 0;
    if (stage == Stage::trying) saved_ = {};
    away_sum_ = 0;
    if (provisions() && !before) suspicion_ = {};
    return provisions() != before;
}

bool Guard::begin() { return stage_ == Stage::measuring && enter(Stage::trying); }

bool Guard::lasts_too_long(double ratio) {
    if (!provisions() || (stage_ == Stage::provisioned && ratio < 2)) return false;
    lost_ += ratio - 1;
    return fall_back(ratio);
}

bool Guard::lap_over(double ratio, double in_all) {
    ++laps_;
    switch (stage_) {
        case Stage::measuring: return false;
        case Stage::trying:
        case Stage::provisioned: return provisioned_lap(ratio, in_all);
        case Stage::asking: return asked_lap(in_all);
        case Stage::looking:
            if (laps_ < kLookLaps) return false;
            look_after_ = std::min(2 * look_after_, kLongestLook);
            return enter(Stage::provisioned);
        case Stage::away: return away_lap(ratio);
    }
    return false;
}

bool Guard::is_suspect(double in_all) {
    ++unasked_;
    if (in_all <= 1 + kWorse) {
        suspicion_ = {};
        return false;
    }
    Suspicion& s = suspicion_;
    s.least = s.laps == 0 ? in_all : std::min(s.least, in_all);
    s.most = std::max(s.most, in_all);
    s.sum += in_all;
    ++s.laps;
    const std::uint32_t enough = again_ && stage_ == Stage::trying ? 1 : kSuspectLaps;
    const bool alike = s.laps >= enough && s.most - s.least < s.least - 1;
    return unasked_ >= trusted_ && (alike || s.laps >= kSurelySuspectLaps);
}

// The first may still suffer from what was done ahead before it.
bool Guard::asked_lap(double in_all) {
    if (laps_ > 1) away_sum_ += in_all;
    if (laps_ < 1 + kLookLaps) return false;
    const double on_demand = away_sum_ / kLookLaps, longer = suspicion_.mean() / on_demand;
    unasked_ = 0;
    if (longer > 1 + kWorse) {
        lost_ += suspicion_.laps * (longer - 1);
        trusted_ = 1;
        return fall_back(longer);
    }
    trusted_ = std::min(2 * trusted_, kMostTrusted);
    return enter(before_asking_);
}

bool Guard::provisioned_lap(double ratio, double in_all) {
    ratio_ = ratio;
    const bool slow = ratio > 1 + kWorse, proven = stage_ == Stage::provisioned;
    slow_laps_ = slow ? slow_laps_ + 1 : 0;
    // One lap alone never ends what is proven: who knows what else it met.
    lost_ = std::max(0.0, lost_ + (proven ? std::min(ratio - 1, 0.9 * kFarWorse) : ratio - 1));
    if (slow && (slow_laps_ == 2 || lost_ > kFarWorse || (again_ && !proven))) return fall_back(ratio);
    if (!proven) saved_.add(1 - ratio);
    if (is_suspect(in_all)) {
        before_asking_ = stage_;
        return enter(Stage::asking);
    }
    if (slow) return false;
    if (!proven && laps_ >= kProven) {
        again_ = false;
        away_laps_ = std::max(kFirstAway, away_laps_ / 2);
        // Laps that differ because each is better than the one before are no reason for doubt.
        const bool sure = saved_.mean() > std::max(kLittle, kSure * saved_.deviation()) || saved_.least > kFarWorse;
        if (look_after_ == 0) look_after_ = sure ? kFirstLookWhereMuch : kFirstLook;
        return enter(sure ? Stage::provisioned : Stage::looking);
    }
    if (proven && laps_ >= look_after_) return enter(Stage::looking);
    return false;
}

bool Guard::fall_back(double ratio) {
    ++fallbacks_;
    ratio_ = slow_ratio_ = ratio;
    away_laps_ = again_ ? std::min(2 * away_laps_, kLongestAway) : away_laps_;
    owed_laps_ = std::min(std::max(away_laps_, static_cast<std::uint32_t>(std::ceil(std::min(lost_ / kMostLost, 1e6)))), kLongestAway);
    again_ = true;
    lost_ = 0;
    return enter(Stage::away);
}

bool Guard::away_lap(double ratio) {
    if (laps_ > 1) away_sum_ += ratio;  // the first may still suffer from what was done ahead before it
    if (owed_laps_ > 0) --owed_laps_;
    // The job itself has become slower: it was not for being provisioned.
    if (laps_ == 1 + kLookLaps && slow_ratio_ < away_sum_ / kLookLaps) {
        away_laps_ = std::max(kFirstAway, away_laps_ / 2);
        owed_laps_ = 0;
    }
    return owed_laps_ == 0 && enter(Stage::trying);
}

std::string Guard::text() const {
    const auto tenths = static_cast<std::int64_t>(std::lround(1000 * (slow_ratio_ - 1)));
    switch (stage_) {
        case Stage::measuring: return "on demand: its laps are being timed";
        case Stage::trying: return again_ ? "provisioned, on trial again" : "provisioned, on trial";
        case Stage::provisioned: return "provisioned";
        case Stage::looking: return "on demand for two laps, to be timed anew";
        case Stage::asking: return "on demand for three laps: provisioned laps were longer, though not for light";
        case Stage::away:
            return "on demand: provisioned, a lap took " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
                   " % longer; tried again in " + std::to_string(owed_laps_) + " laps";
    }
    return "";
}

}  // namespace opus::controller::plan
