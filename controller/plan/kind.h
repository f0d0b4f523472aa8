// One lap that a job does again and again: how long it takes on demand, and the plan that was followed for it last.
//
// Pure, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "controller/plan/interlude.h"
#include "controller/plan/lap.h"
#include "controller/plan/search.h"
#include "controller/plan/watch.h"

namespace opus::controller::plan {

struct Kind {
    explicit Kind(Lap l) : lap(std::move(l)) {}

    Lap lap;
    std::uint64_t plans = 0;            // made of it
    Order order;                        // that was followed last; no ports: none
    std::vector<Interlude> interludes;  // what comes between its laps now and then
    std::int64_t since = 0;             // laps of the watch before this one were in part on demand and in part planned
    std::int64_t again = 0;             // from this lap on it is worth its while to look for a plan
    TimeNs saved_ns = 0;                // by laps by plan that were timed, until it is taken

    // The job comes to it, anew: its laps are timed from here on, this one being the first.
    void watch_anew(std::int64_t from = 0) { watch_ = Watch(lap), since = from; }
    void ended(const RankName& rank, const Seen& launch);
    // The first lap that no rank has begun.
    std::int64_t unbegun() const { return watch_.unbegun(); }
    // Laps that are over since the last question. True: there were any.
    bool time_laps(bool planned);
    // So long a lap took without a plan of its own.
    void note_lap(TimeNs ns);
    // It was found anew. Orders were of uses that may have other numbers now.
    void take_lap(Lap l);
    // Other ports can be had than when its orders were found. These are no measure for the next one, and unless one is
    // followed none is any more. There may be one now where there was none.
    void ports_changed(bool is_followed);
    // From here on this one is followed. `goes_on`: until now it was the present one, and it may be the same.
    void take_order(Order o, bool goes_on);
    // So many uses have begun by the present order, since it was taken last.
    void time_order(std::uint64_t begun, TimeNs now);
    // Of the orders that were followed, the one with the shortest laps, if those by the present one are longer.
    const Order* shorter() const;
    // Of this one, which was found, and the shortest that was followed, the one with the shorter laps. What was
    // followed promises what it has taken.
    Order shortest(const Order& found);
    // If laps by the present order have been timed, it may be that one.
    void note_order();
    // No plan was found: one is looked for ever more seldom.
    void look_later();
    // The one that was found pays from this lap on: until then another one is looked for after twice as many laps each time.
    void look_until(std::int64_t pays);
    void found_plan() { in_vain_ = 0; }

    // A lap on demand, of the last ones the mean; 0: none has been timed.
    TimeNs yardstick_ns() const;

private:
    void forget_best();

    static constexpr std::size_t kMostTimed = 3;  // laps on demand: those that a plan is made by (play.h)
    Watch watch_;                  // since the job came to it
    std::deque<TimeNs> on_demand_;  // how long the last laps on demand took
    std::uint32_t in_vain_ = 0;    // looks that led to no plan
    std::int64_t begun_ = 0;       // uses by the present order since it was taken last
    // Of them so many before it is timed: those of its first lap, which begins with what came before. Below 0: it is
    // timed since before it was taken last.
    std::int64_t from_ = 0;
    TimeNs from_ns_ = 0;           // when these had begun; 0: they have not
    std::int64_t timed_ = 0;       // laps since
    TimeNs timed_ns_ = 0;          // one of them, in the mean
    bool is_old_ = false;          // the present order is for other ports than there are
    Order best_;  // that was followed
    TimeNs best_ns_ = 0;
    bool is_best_ = false;  // the present one
};

}  // namespace opus::controller::plan
