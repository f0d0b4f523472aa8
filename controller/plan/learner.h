// What a job does again and again, learned from what its launches have done, and which plan it is to follow.
//
//     measured on demand -> a plan is sought -> followed -> slower than on demand: on demand until that is paid for (guard.h)
//                                                        -> a launch that is not in the lap: an interlude that is known, or another lap
//
// One a job; pure, no clock, time comes with the launches. Not thread-safe. A launch costs a search for its key; now and then one costs
// a look through the log.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/plan/course.h"
#include "controller/plan/guard.h"
#include "controller/plan/kind.h"
#include "controller/plan/numbers.h"

namespace opus::controller::plan {

// Who follows the plans of a job. Called by its Learner, from within its members.
class Follower {
public:
    virtual ~Follower() = default;

    virtual std::vector<Pair> pairs_of(const SeenKey& key) const = 0;
    virtual TimeNs longest_dark(const Order& order) const = 0;
    // For how long its light is as it is; 0: not all of it is up.
    virtual TimeNs unmoved_ns(const Lap& lap) const = 0;
    // The plan that is followed; nullptr: the job goes by demand.
    virtual const Course* course() const = 0;
    virtual void follow(Lap lap, const Order& order) = 0;
    virtual void drop() = 0;                            // the plan
    virtual void end_runs(const std::string& why, bool endless = false) = 0;  // that it had foretold; and those without end
    // An order is to be found (find_order), beside everything else. Answered by Learner::found.
    virtual std::shared_ptr<const Task> think(Task task) = 0;
    virtual void look_soon() = 0;  // Learner::look, at the end of the step
    virtual void log(bool warn, const std::string& text) = 0;
};

class Learner {
public:
    struct Options {
        bool provision = true, guard = true;
    };

    Learner(Options options, Follower& follower) : options_(options), follower_(follower) {}

    // A launch is over.
    void ended(const RankName& rank, Seen launch);
    // A launch is asked for.
    void asked(const RankName& rank, std::uint64_t seq, std::uint64_t signature) {
        compare(rank, numbers_[rank].of(seq), signature);
    }
    // At the end of a step in which it was to look.
    void look();
    // The order that it asked for.
    void found(const Order& found);
    // Ports can be had that could not, or the other way round.
    void ports_changed();
    void rank_left(const RankName& rank) {
        log_.drop(rank);
        numbers_.erase(rank);
        guard_.drop(rank);
    }

    const Log& log() const { return log_; }
    const Guard& guard() const { return guard_; }
    const Kind* kind() const { return kind_; }                                      // of the laps that it does now; nullptr: of none
    TimeNs lap_ns() const { return kind_ != nullptr ? kind_->yardstick_ns() : 0; }  // on demand; 0: not known
    // Light that has not been up for so long is not at rest; 0: it is not known how long.
    TimeNs rest_ns() const;
    std::string state() const;                                                      // for people

private:
    struct Strange {
        RankName rank;
        std::uint64_t number = 0, signature = 0;
    };
    struct Left {
        Kind* kind = nullptr;
        Lap lap;  // counted from the one that was left
    };
    struct Aside {
        Interlude interlude;
        Lap from;               // counted from the lap instead of which it comes
        std::set<RankName> in;  // who has more of it to come
    };

    void compare(const RankName& rank, std::uint64_t number, std::uint64_t signature);
    void learn();
    void learn_later();
    Kind& remember(Lap lap);
    void take_up(const Task& task, const Order& order);
    void come_to_known();
    void come_to(Kind& kind);
    void leave_lap(const std::vector<Strange>& strange);
    void forget_kinds(const std::function<bool(const Kind&)>& which);
    void remember_interludes(Kind& kind);
    bool turn_aside(const std::vector<Strange>& strange);
    bool fits_aside(const RankName& rank, std::uint64_t number, std::uint64_t signature);
    void note_aside(const RankName& rank, std::uint64_t number);
    void come_back();
    void time_laps();
    void heed_guard();
    void follow_rule();
    void think(Lap lap, const Order& from);
    void follow(Lap lap, const Order& order);
    void stop_plan();
    bool may_plan() const;
    bool may_begin() const;
    bool is_worth_a_plan() const;
    TimeNs begin_costs(const Order& order) const;
    std::optional<std::int64_t> pays_from(const Order& order, TimeNs usual_ns, TimeNs debt_ns) const;
    void begin(const Order& order, std::int64_t pays_from);

    Options options_;
    Follower& follower_;
    std::map<RankName, Numbers> numbers_;
    Log log_;
    Guard guard_;
    std::vector<std::unique_ptr<Kind>> kinds_;  // that are remembered
    Kind* kind_ = nullptr;                      // the one that it is in
    std::optional<Aside> aside_;                // the interlude that it is in
    std::optional<Left> left_;                  // the lap that it did not do to its end, where it is in none
    std::vector<Strange> strange_;              // launches that are not in its lap
    std::shared_ptr<const Task> task_;          // an order is being found; nullptr: none
    std::uint64_t learn_at_ = 16;               // launches; then laps are looked for
    std::uint64_t again_at_ = 0;                // launches; then, where it is in none, known ones are
    std::uint64_t left_at_ = 0;                 // launches, when it left the last one
    std::uint64_t time_at_ = 0;                 // uses begun; then another plan is made of them
    TimeNs debt_ns_ = 0;  // what plans' begins have cost that no laps have saved
    TimeNs now_ns_ = 0;   // by the launches that are over
};

}  // namespace opus::controller::plan
