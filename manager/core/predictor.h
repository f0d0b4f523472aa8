// What comes next on a rank's ports, learned from the order in which circuits were really used.
//
// A launch is a signature (communicator, operation, size class, peers) and the circuits it needs. A phase is
// a run of launches that need the same circuits. The predictor keeps the recent launches and a place in them,
// `at_`, such that what led to now is what led to there for as far back as can be seen; what followed there
// is expected to follow now. So one iteration is enough to learn from, nested loops need no model of their
// own, and what no longer holds is outlived by what does.
//
// Launches of several streams that come at one moment come in another order now and then: where what was expected is
// posted, and came at one moment with what is seen the last time as well, the place is kept, and it is expected next.
//
// An interlude (evaluation, a checkpoint) breaks the match; the place where it broke is kept, and is where the
// search begins once the interlude is over.
//
// Fixed memory (kBytes), no allocation after construction, bounded work a launch. Not thread-safe.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>

namespace opus::manager {

class Predictor {
public:
    static constexpr std::uint32_t kHistory = 8192;    // launches remembered
    static constexpr std::uint32_t kSignatures = 512;  // distinct ones at a time
    static constexpr std::uint32_t kMaxRun = 4096;     // longest remaining run that is foretold
    static constexpr std::uint32_t kRound = 100;       // launches: a layer, or a micro-batch, is no whole round

    struct Launch {
        std::uint64_t signature = 0;  // hash of communicator, operation, size class, peers
        std::uint64_t needs = 0;      // hash of the circuits; equal needs, equal circuits
    };

    struct Forecast {
        bool known = false;           // there is something to go by
        bool sure = false;            // worth acting on
        std::uint32_t remaining = 0;  // launches still to come in the phase of the last launch
        Launch next;                  // first launch of the phase after it
    };

    struct Accuracy {
        std::uint64_t transitions = 0;  // phase changes seen
        std::uint64_t foretold = 0;     // right, and sure
        std::uint64_t wrong = 0;        // sure, and wrong
        std::uint64_t silent = 0;       // not sure
    };

    struct Knowledge {
        std::uint32_t launches = 0, phases = 0;  // distinct ones remembered
    };

    // Of a receive posted early, which others may go before.
    enum class Patience : std::uint8_t {
        none,       // not known
        regretted,  // it had none, but what came after it waited for its circuits to come back, not for what it brought
        shown,      // it was let wait, and that did no harm
        needed      // it was to be let wait, and the rank could not do without
    };
    struct Start {
        bool contested = false;  // it was ready when the one that went before it began, of another phase
        bool late = false;       // its peers were: it had long been ready
        Patience patience = Patience::none;
        std::uint64_t after_ns = 0;  // the one before it had begun it was ready; within a factor of five, as remembered
        bool first_anyway = false;  // the next one was said to go before it, in vain; as long as these two follow each other
    };

    // Is one of this signature posted, and has not started? Then it will come.
    using Posted = std::function<bool(std::uint64_t signature)>;

    Predictor();
    void observe(const Launch& launch, Start how, const Posted& posted);
    void observe(const Launch& launch) { observe(launch, Start{}, nullptr); }
    Forecast forecast() const { return forecast_; }
    // The launch expected after `i` others; needs 0: nothing is.
    Launch expected(std::uint32_t i) const { return foresees(i) ? launch_at(place(i)) : Launch{}; }
    // It has come so before, and what led to it there has, for a whole round back and at least as far as kRound.
    bool repeats() const { return at_ != kNowhere && matched_ >= kRound && matched_ >= count_ - at_; }
    // How that one began the last time.
    Start began(std::uint32_t i) const {
        if (!foresees(i)) return {};
        const Symbol s = entry(place(i));
        return {(s & kContested) != 0, (s & kLate) != 0, patience_of(s), duration_of(s), first_anyway(place(i))};
    }
    // The last one should have come later: the next time it is passed over here.
    void regret();
    // The launch expected next of those that nobody would rather have had later.
    Launch due() const { return expected(passed_over()); }
    std::uint64_t due_after_ns() const;  // the last launch had begun, the last time
    // When the next one of this signature comes, as far as can be seen.
    enum class Turn : std::uint8_t { now, after_others, passed_over };  // now: also when that is not known
    Turn turn_of(std::uint64_t signature) const;
    void never_let_wait(std::uint64_t signature);
    bool knows(std::uint64_t signature) const { return find(signature) != kSignatures; }
    // Of the last launch: it was ready so long after the one before it, of its phase, had ended.
    void note_gap(std::uint64_t ns);
    // The shortest that has been seen of a launch; somewhat less, at most an eighth. 0: none.
    std::uint64_t least_gap_ns(std::uint64_t signature) const;
    // Launches of the past that have been gone over in search of the end of a phase: about two for each observed.
    std::uint64_t looked() const { return looked_; }
    const Accuracy& accuracy() const { return accuracy_; }
    Knowledge knowledge() const;  // walks the table: for people, now and then

private:
    using Symbol = std::uint16_t;
    static constexpr std::array<std::uint32_t, 3> kContexts = {32, 8, 2};  // longest first
    static constexpr std::uint32_t kIndexSlots = 512;
    static constexpr std::uint32_t kProbes = 8;  // places of the table where a signature may be
    static constexpr std::uint32_t kResume = 4;
    static constexpr std::uint64_t kNowhere = ~0ull;
    static constexpr std::uint32_t kMaxAhead = 512;    // launches looked at for the next one of a signature
    static constexpr std::uint32_t kMaxOwed = 4;       // passed over and not seen since
    static constexpr std::uint32_t kMaxOvertaken = 4;  // and not seen since
    static constexpr std::uint32_t kSoon = 4;          // launches within which what was overtaken is expected
    // Beside the number, in the history.
    static constexpr Symbol kContested = 0x8000, kLate = 0x4000, kPatience = 0x3000, kOnePatience = 0x1000,
                            kAfter = 0x0e00, kOneAfter = 0x0200;
    static_assert(kSignatures <= kOneAfter);
    static constexpr std::uint8_t kNoGap = 0xff;

    struct Known {
        std::uint64_t signature = 0;
        std::uint64_t needs = 0;
        std::uint32_t last_seen = 0;
        std::uint8_t doubt = 0;  // grows when the phase change after this launch was foretold wrongly
        bool urgent = false;     // a receive that is never let wait
        bool used = false;
        std::uint8_t least_gap = kNoGap;
    };

    struct State {
        std::array<Symbol, kHistory> history{};
        std::bitset<kHistory> first_anyway{};  // of each in the history
        std::array<Known, kSignatures> known{};
        std::array<std::array<std::uint32_t, kIndexSlots>, kContexts.size()> index{};  // position + 1, modulo 2^32
    };

public:
    static constexpr std::size_t kBytes = sizeof(State);

private:
    std::uint32_t find(std::uint64_t signature) const;
    Symbol intern(const Launch& launch);
    Symbol entry(std::uint64_t position) const { return state_->history[position % kHistory]; }
    Symbol symbol(std::uint64_t position) const { return static_cast<Symbol>(entry(position) & (kOneAfter - 1)); }
    std::uint32_t passed_over() const {
        std::uint32_t i = 0;
        while (i < kMaxOwed && foresees(i) && is_regretted(place(i))) ++i;
        return i;
    }
    static Patience patience_of(Symbol s) { return static_cast<Patience>((s & kPatience) / kOnePatience); }
    static Symbol with(Symbol s, Patience p) {
        return static_cast<Symbol>((s & ~kPatience) | static_cast<unsigned>(p) * kOnePatience);
    }
    bool is_regretted(std::uint64_t position) const { return patience_of(entry(position)) == Patience::regretted; }
    bool first_anyway(std::uint64_t position) const { return state_->first_anyway[position % kHistory]; }
    static Symbol class_of(std::uint64_t ns);
    static std::uint64_t duration_of(Symbol s);  // the longest of its class
    static std::uint8_t gap_of(std::uint64_t ns);
    bool remembered(std::uint64_t position) const { return position < count_ && position + kHistory > count_; }
    Launch launch_at(std::uint64_t position) const {
        const Known& known = state_->known[symbol(position)];
        return {known.signature, known.needs};
    }
    std::uint64_t needs(std::uint64_t position) const { return launch_at(position).needs; }
    // Of the launch expected after `i` others: what was overtaken just now comes first.
    std::uint64_t place(std::uint32_t i) const {
        const std::uint32_t soon = overtaken_soon();
        return i < soon ? overtaken_[overtakes_ - soon + i].place : at_ + (i - soon);
    }
    bool foresees(std::uint32_t i) const { return at_ != kNowhere && remembered(place(i)); }
    std::uint32_t context_slot(std::size_t which) const;
    std::uint32_t match_length(std::uint64_t position, std::uint32_t limit) const;
    Patience follow(Symbol seen, const Posted& posted);
    bool pass_over_to(Symbol seen);
    std::uint32_t overtaken(Symbol s) const;
    std::uint32_t overtaken_soon() const;
    bool came_together(std::uint64_t position) const;
    bool overtake_to(Symbol seen, const Posted& posted);
    void drop_overtaken(std::uint32_t i);
    bool is_owed(Symbol s) const;
    void search();
    void remember_contexts();
    void score(const Launch& seen);
    bool is_sure() const;
    void foretell();

    std::unique_ptr<State> state_;
    std::uint64_t count_ = 0;      // launches observed
    std::uint64_t at_ = kNowhere;  // position in history expected to come next
    std::uint32_t matched_ = 0;    // launches before at_ known to agree with the latest ones
    std::uint32_t horizon_ = 0;    // launches for which foretell() need not look again
    std::uint64_t looked_ = 0;
    std::array<std::uint64_t, kResume> resume_{};  // places where a long match broke, newest first
    std::uint32_t resumes_ = 0;
    std::array<Symbol, kMaxOwed> owed_{};  // passed over since at_ was found, and not seen yet
    std::uint32_t owes_ = 0;
    struct Overtaken {
        std::uint64_t place = 0, since = 0;  // in the history; launches observed by then
    };
    std::array<Overtaken, kMaxOvertaken> overtaken_{};  // oldest first
    std::uint32_t overtakes_ = 0;
    Forecast forecast_;
    std::uint64_t current_needs_ = 0;
    Symbol last_ = 0;
    Accuracy accuracy_;
};

}  // namespace opus::manager
