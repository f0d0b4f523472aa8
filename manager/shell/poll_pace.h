// How long to sleep between two looks at words that only a GPU writes, so that it cannot ring for them.
//
// Where a word is expected (arrivals.h): until it is due, and then not at all, as long as a twentieth of a core pays
// for it. A sleep may end much later than asked for (50 us in some virtual machines), so it is asked to end earlier
// by what sleeps were late of late. What never came before is looked for often shortly after an event, because the
// next often follows; seldom when nothing has come for long; and, once an event is a few milliseconds old, not so
// often that looking takes more than a twentieth of a core, whatever a look costs on this machine. Launches that
// follow each other faster than that are worth more.
//
// Where a look has to wait for a core, somebody is kept from one by looking: perhaps the very rank whose word is
// looked for. Then everything is looked for as many times more seldom as there are waits (rest_ / kOnce times), and
// nothing is watched. Pure: the caller measures.
#pragma once

#include <algorithm>

#include "manager/shell/arrivals.h"
#include "opus/types.h"

namespace opus::manager {

class PollPace {
public:
    static constexpr TimeNs kShare = 20;  // one part in so many of a core

    // 0: look again at once.
    TimeNs interval(const PollHint& hint, TimeNs now) const {
        if (now < hint.watch_until && allowance_ > 0 && rest_ < kCrowded) return 0;
        TimeNs sleep = hint.due != 0 ? interval(now - hint.due) : hint.rests && hint.next == 0 ? kAtRest : kDoze;
        if (hint.unawaited && !hint.rests)
            sleep = std::min(sleep, hint.quiet < kFlurry && rest_ < kCrowded ? kLevel : kSomeTime * rest_ / kOnce);
        return hint.next == 0 ? sleep : std::clamp<TimeNs>(hint.next - now - late_, 0, sleep);
    }

    // `quiet`: since the last event, or since the next was due.
    TimeNs interval(TimeNs quiet) const {
        const TimeNs eager = std::clamp(quiet / 8, kShortest, kLevel);
        const TimeNs patient = std::min(quiet / 100, kLongest);
        const TimeNs affordable = quiet < kEager || allowance_ > 0 ? 0 : std::min(cost_ * kShare, kLongest);
        return std::min(std::max({eager, patient, affordable}) * rest_ / kOnce, kLongestCrowded);
    }

    // `passed`: since the look before, this look included. `slept`: of that, as it was asked for.
    void looked(TimeNs passed, TimeNs slept) {
        const TimeNs cost = slept == 0 ? passed : cost_;
        allowance_ = std::clamp(allowance_ + passed / kShare - cost, -kMostAllowance, kMostAllowance);
    }

    // A sleep ended so much later than it was asked to.
    void overslept(TimeNs by) { late_ += (std::clamp<TimeNs>(by, 0, kMostLate) - late_) / 8; }

    // CPU time of one sleep and one look that found nothing.
    void measured(TimeNs cpu) { cost_ += (std::clamp(cpu, kLeastCost, kLongest) - cost_) / 8; }

    // Of late, `cpu` was used and `waited` for a core to use it on.
    void waited(TimeNs cpu, TimeNs waited) {
        const TimeNs waits = kOnce * std::clamp<TimeNs>(waited, 0, cpu) / std::max<TimeNs>(cpu, 1);
        rest_ += (kOnce + kWaitWeighs * waits - rest_) / 8;
    }

private:
    static constexpr TimeNs kUs = 1'000;
    static constexpr TimeNs kShortest = 10 * kUs;
    static constexpr TimeNs kLevel = 48 * kUs;  // most gaps of an iteration end here: level finds more than growing
    static constexpr TimeNs kLongest = 500 * kUs;
    static constexpr TimeNs kDoze = 4'000 * kUs;           // what is expected late may come early
    static constexpr TimeNs kAtRest = 16'000 * kUs;        // what goes without us, and it does not matter when
    static constexpr TimeNs kSomeTime = 1'000 * kUs;       // what nobody waits for
    static constexpr TimeNs kFlurry = 200 * kUs;           // the next record may follow so soon; later ones ring
    static constexpr TimeNs kEager = 3'000 * kUs;          // an event buys so much
    static constexpr TimeNs kMostAllowance = 5'000 * kUs;  // of CPU, saved for what is rare and strays
    static constexpr TimeNs kMostLate = 100 * kUs;
    static constexpr TimeNs kLeastCost = kUs / 2;

    static constexpr TimeNs kLongestCrowded = 1'000 * kUs;
    static constexpr TimeNs kOnce = 1024;
    static constexpr TimeNs kWaitWeighs = 8;
    static constexpr TimeNs kCrowded = 2 * kOnce;

    TimeNs cost_ = 3 * kUs;
    TimeNs allowance_ = kMostAllowance;
    TimeNs late_ = 0;
    TimeNs rest_ = kOnce;
};

}  // namespace opus::manager
