// Whether a job is no slower for its plans than it is on demand, whatever laps they are made of, and however these are
// cut short. The yardstick is the job itself, launch by launch: a launch is recognised by what it is and by those
// before it in its rank's program, and from the end of the one before to its own end it takes a time that is learned on
// demand. What the same launches take while plans are followed, and until the job has come to rest after one, over what
// they take on demand, is what plans have cost. The job pays for it with kMostLost of its time; until it has, or is
// forgiven, no plan begins. A plan that costs more than it may is dropped. What the job's periods differ by anyway is
// no cost (chance.h): some batches are longer than others.
//
// Pure, no clock: time comes with the launches. Not thread-safe. A launch costs a search by hash, and another one on
// demand.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "controller/plan/chance.h"
#include "controller/plan/lap.h"

namespace opus::controller::plan {

class Guard {
public:
    static constexpr double kMostLost = 0.0025;  // of its time, for plans that do not keep what they promise
    static constexpr double kFarWorse = 0.05;    // of a period: what may be lost at most before a plan is dropped
    // Of one that is not over, besides: plans do some things later and others sooner.
    static constexpr double kMidway = 1.0 / 8;

    // A launch is over. `planned`: a plan is followed.
    void ended(const RankName& rank, const Seen& launch, bool planned);
    // A plan of such laps begins. It costs so much, and is to have saved as much after so long.
    void begin(TimeNs costs_ns, TimeNs pays_ns, TimeNs lap_ns);
    // Plans cost more than they may; said until they are stopped.
    bool loses() const;
    void stop();
    std::uint32_t stops() const { return stops_; }
    // What planned launches have taken of what they take on demand, lately; 0: not known.
    double ratio() const;
    // It is known what it takes on demand, and next to nothing is left to be paid of what plans have cost.
    bool may_begin() const {
        return is_known() && static_cast<double>(lost_ns()) <= kMostLost * static_cast<double>(period_ns());
    }
    // Most of what it does on demand it has done before.
    bool is_known() const { return in_phase_ || (known_ns_ > kLeastKnown * lately_ns_ && period_ns() > 0); }
    // What is left to be paid, and when it will have been if nothing more is lost.
    TimeNs lost_ns() const;
    TimeNs owed_ns() const { return static_cast<TimeNs>(static_cast<double>(lost_ns()) / kMostLost); }
    // How long nearly all that it does takes to come again, at most.
    TimeNs period_ns() const;
    void drop(const RankName& rank);  // it has left

private:
    static constexpr std::size_t kContext = 8;  // launches by which one is recognised, itself included
    static constexpr std::size_t kMostKnown = 1u << 13, kMostBehind = 64, kMostRanks = 64;
    static constexpr double kLeastKnown = 0.5;  // of what it does on demand, before a plan begins
    // Times as much may be lost: once it was slower, or had become it itself.
    static constexpr double kBurnt = 0.5, kMostTrusted = 64;

    struct Known {                         // on demand
        double sum_ns = 0, count = 0;      // in this epoch
        double before_ns = 0, weight = 0;  // the mean before it, and how many times it counts
        TimeNs last_ns = 0, after_ns = 0;  // when it was seen last, and after how long again
        TimeNs most_ns = 0;  // that it took: what has never been that long counts for less in the period, for it may be a pause
        std::uint32_t epoch = 0;
    };
    // Of its time, how much comes again after how long.
    class Recurrence {
    public:
        void add(TimeNs took, TimeNs after);
        TimeNs most_ns() const { return most_ns_; }

    private:
        static constexpr double kMost = 0.95;
        std::array<double, 64> time_{};  // by the square roots of two of a microsecond
        double all_ = 0;
        TimeNs most_ns_ = 0;
    };
    struct Span {  // of launches; of those that are known from on demand, how long they took and should have
        double all = 0, took = 0, should = 0;
        double ratio() const { return should > 0 ? took / should : 1; }
        double lost() const { return took > 0 ? all * (1 - should / took) : 0; }  // what is not known, as what is
        void add(const Span& s) { all += s.all, took += s.took, should += s.should; }
    };
    struct Over {
        std::uint64_t number = 0, signature = 0;
        TimeNs done_ns = 0;
        std::uint64_t phase = 0;  // under plans, or coming to rest after one; 0: it was on demand
    };
    struct Rank {
        std::vector<Over> over;    // its last launches by number, until those before them are over, too
        std::size_t behind = 2;    // so many may be over before one of an earlier number
        std::uint64_t number = 0;  // of the last that was looked at
        TimeNs done_ns = 0;        // when it was over; 0: there was none
        std::array<std::uint64_t, kContext> last{};
        std::unordered_map<std::uint64_t, Known> known;
        Span open;  // since its context was last `anchor`
        std::uint64_t anchor = 0;
        TimeNs anchored_ns = 0;  // where there is no anchor: since when none has been found
        bool is_counted = false;

        void seek_anchor() { anchor = 0, anchored_ns = done_ns; }
    };
    std::optional<double> mean_ns(const Known& known) const;
    void look(Rank& rank, const Over& launch);
    void learn(Known& known, std::optional<double> mean, TimeNs took);
    void pass_period(Rank& rank, std::uint64_t context, const Known* known, const Span& span);
    TimeNs scale_ns() const;
    Span under_plans() const;  // what was done and what is being done, in this phase
    double open_lost() const;
    void close(Rank& rank);
    double of_a_rank(double ns) const;  // of all ranks in this phase: the mean
    double by_chance() const;
    void settle();
    void pass_time();
    void judge_stopped();

    std::map<RankName, Rank> ranks_;
    std::uint32_t epoch_ = 1, first_epoch_ = 0;  // what was learned counts half in the next; not at all from before the first
    TimeNs born_ns_ = -1, now_ns_ = 0, paid_until_ns_ = 0, planned_ns_ = 0;
    Recurrence recurrence_;
    double lately_ns_ = 0, known_ns_ = 0;  // on demand, of all ranks: what was done lately, and of it what had been before
    std::uint64_t phase_ = 0;              // counted
    bool in_phase_ = false;                // under plans, or coming to rest after one
    Span whole_, open_;                    // of all ranks in it: what they have done to its end, and what they are in
    std::size_t counted_ = 0;    // ranks of it
    bool stopped_ = false;       // the plans: since then the job comes to rest
    std::optional<Span> again_;  // on demand, since it has come to rest after plans that were stopped
    TimeNs again_ns_ = 0;
    double lost_ = 0, before_ratio_ = 0, stopped_ratio_ = 1, trusted_ = 1;
    double unpaid_ns_ = 0;  // in which was lost what is not paid for
    Chance chance_;
    std::uint32_t stops_ = 0;
    TimeNs costs_ns_ = 0, begun_ns_ = 0, pays_ns_ = 0, lap_ns_ = 0;
};

}  // namespace opus::controller::plan
