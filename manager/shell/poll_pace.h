// How long to sleep between two looks at words that only a GPU writes, so that it cannot ring for them.
//
// Short after an event, because the next often follows; long when nothing has come for long; and, once an
// event is a few milliseconds old, not so short that looking takes more than a twentieth of a core, whatever
// a look costs on this machine (two microseconds where timers are cheap, ten in some virtual machines). An
// application whose launches follow each other faster than that is worth more. Pure: the caller measures.
#pragma once

#include <algorithm>

#include "opus/types.h"

namespace opus::manager {

class PollPace {
public:
    static constexpr TimeNs kShare = 20;  // one part in so many of a core

    // `quiet`: since the last event.
    TimeNs interval(TimeNs quiet) const {
        const TimeNs eager = std::clamp(quiet / 8, kShortest, kLevel);
        const TimeNs patient = std::min(quiet / 100, kLongest);
        const TimeNs affordable = quiet < kEager || allowance_ > 0 ? 0 : std::min(cost_ * kShare, kLongest);
        return std::max({eager, patient, affordable});
    }

    // `passed`: since the look before, this look included.
    void looked(TimeNs passed) {
        allowance_ = std::clamp(allowance_ + passed / kShare - cost_, -kMostAllowance, kMostAllowance);
    }

    // CPU time of one sleep and one look that found nothing.
    void measured(TimeNs cpu) { cost_ += (std::clamp(cpu, kLeastCost, kLongest) - cost_) / 8; }

    TimeNs cost() const { return cost_; }

private:
    static constexpr TimeNs kUs = 1'000;
    static constexpr TimeNs kShortest = 10 * kUs;
    static constexpr TimeNs kLevel = 48 * kUs;  // most gaps of an iteration end here: level finds more than growing
    static constexpr TimeNs kLongest = 500 * kUs;
    static constexpr TimeNs kEager = 3'000 * kUs;  // an event buys so much
    static constexpr TimeNs kMostAllowance = 200 * kUs;  // of CPU: a burst of fifty looks or so
    static constexpr TimeNs kLeastCost = kUs / 2;

    TimeNs cost_ = 3 * kUs;
    TimeNs allowance_ = kMostAllowance;
};

}  // namespace opus::manager
