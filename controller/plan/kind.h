// One lap that a job does again and again: how long it takes on demand and by plan, and whether it is the better for its plan.
//
// Pure, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "controller/plan/guard.h"
#include "controller/plan/interlude.h"
#include "controller/plan/lap.h"
#include "controller/plan/loss.h"
#include "controller/plan/search.h"
#include "controller/plan/watch.h"

namespace opus::controller::plan {

struct Kind {
    explicit Kind(Lap l) : lap(std::move(l)) {}

    struct Took {
        TimeNs ns = 0, lost_ns = 0;  // lost: for light (loss.h)
    };

    Lap lap;
    Guard guard;
    std::uint64_t plans = 0;            // made of it
    Order order;                        // that was followed last; no ports: none
    std::vector<Interlude> interludes;  // what comes between its laps now and then
    std::int64_t since = 0;             // laps of the watch before this one were in part on demand and in part planned
    std::int64_t again = 0;             // from this lap on it is worth its while to look for a plan
    bool may_be_part = false;           // of an iteration: it leaves out communicators
    TimeNs saved_ns = 0;                // by laps by plan that were timed, until it is taken
    TimeNs owed_ns = 0;                 // on demand before it is tried: what plans of parts of it have lost

    // The job comes to it, anew: its laps are timed from here on.
    void watch_anew();
    void ended(const RankName& rank, const Seen& launch);
    // The first lap that no rank has begun.
    std::int64_t unbegun() const { return watch_.unbegun(); }
    // Of what has ended since the last question. True: the guard says something else than before.
    bool time_laps(bool planned);
    // How long laps are compared for is counted anew.
    void compare_anew() { took_ = should_ = {}; }
    // The lap that is under way is none.
    void forget_long();
    // No plan was found: it is looked for ever more seldom.
    void look_later();
    void found_plan() { in_vain_ = 0; }

    Took yardstick() const;  // a lap on demand; 0: none
    TimeNs yardstick_ns() const { return yardstick().ns; }
    // A lap on demand has been timed, or is being timed: whether any lap was over at the last question.
    bool any_over() const { return over_; }

private:
    static constexpr std::size_t kMostTimed = 8;  // laps on demand
    struct Long {
        std::int64_t lap = 0;
        Guard before;
    };

    Took took_of(const Watch::Took& took);
    static TimeNs longer_ns(const Took& took, const Took& should);
    bool lasts_too_long();

    Watch watch_;                  // since the job came to it
    Loss loss_;                    // likewise
    std::deque<Took> on_demand_;   // the last laps on demand
    std::uint32_t in_vain_ = 0;    // looks that led to no plan
    Took took_, should_;           // of laps so short that several are compared at a time
    Watch::Took seen_long_;        // a lap so long, of which it was seen what it had lost
    std::optional<Long> found_long_;  // a lap that is not over
    bool over_ = false;
};

}  // namespace opus::controller::plan
