// What becomes of the launches of one rank that are read: their words `ready` and `done`, and those of the replays of
// captured ones, as events of the core. A GPU writes them and rings no doorbell: when they are due is learned.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "manager/core/core.h"
#include "manager/shell/arrivals.h"
#include "opus/launch_ring.h"

namespace opus::manager {

class RingWords {
public:
    RingWords(ring::View view, RankId rank) : view_(view), rank_(rank) {}

    // A look begins. `now`: of the monotonic clock; 0: when words come is not to be learned.
    void begin(TimeNs now) { now_ = now; }
    void follow(const Recorded& record);
    // Of a launch that is captured into a graph. Returns how many of its replays an earlier manager has reported.
    std::uint64_t follow_replays(const Recorded& record, bool recovered);

    // Slots are free: the counts of what was captured into them are nothing again, before anything else can be.
    void retired(const Retired& a, const std::function<bool(std::uint64_t seq)>& is_occupied);

    // Appends events.
    void watch(bool broken, std::vector<Event>& events);
    // Adds what can change that only looking shows. `is_awaited`: whether somebody waits for the end of a launch.
    using Awaited = std::function<bool(std::uint64_t seq)>;
    void await(PollHint& hint, TimeNs now, const Awaited& is_awaited);

    // Was it let go? Not what a manager before this one released early, unless its gate was reached in time. `comm`:
    // the entry whose go word its gate looks at, which is stored again then.
    bool stays_gone(std::uint64_t seq, std::uint16_t flags, std::uint32_t comm) const;
    // Takes the go words of all communicators back, before that is asked.
    void take_comm_gos();
    void forget_comm_gos() { gos_.clear(); }
    // What was released early and is not reached waits again: for the manager that comes next.
    void take_back();
    static std::uint32_t go_comm(const Recorded& record);

private:
    struct Tracked {
        std::uint64_t seq = 0;
        std::uint16_t flags = 0;
        ring::Gate gate{};
        bool ready = false;
        std::uint32_t comm = kNone;  // whose go word its gate looks at
        std::uint64_t kind = 0;      // of launch, as far as it tells when its words come
    };
    // What is looked for next: of a launch that was released early nobody need know when it was ready.
    enum class Word : std::uint8_t { ready = 1, done = 2, done_ahead = 3 };
    // Launches that become ready and done in order: those of one stream and one kind of gate.
    struct StreamQueue {
        std::deque<Tracked> launches;              // not done
        std::size_t ready = 0;                     // so many of them are known to be ready
        std::uint64_t last = 0, last_but_one = 0;  // kinds of those that ended
        TimeNs since = 0;                          // the cause of the next word: a record, a go, an end
        Word next = Word::ready;
    };
    using StreamQueueKey = std::pair<std::uint64_t, std::uint64_t>;
    // A launch that is captured into a graph, until that is gone. Its replays are reported one after another: the next
    // one is recorded as soon as the one before it is done, so that it may be let go before its gate is reached.
    struct Captured {
        Recorded record;
        std::uint64_t recorded = 0, ready = 0, done = 0;  // replays reported
        TimeNs since = 0;                                 // the last of that
        TimeNs pause = 0;                                 // before the last was ready, after the end of the one before
    };
    static constexpr TimeNs kSeldom = 4 * PollHint::kSoon;
    static constexpr std::uint64_t kMostPassed = 64;  // replays between two looks that are reported one by one

    void watch_queues(std::vector<Event>& events);
    void watch_queue(StreamQueue& queue, std::vector<Event>& events);
    void watch_replays(bool broken, std::vector<Event>& events);
    void watch_replays(Captured& captured, std::vector<Event>& events);
    bool goes_by_itself(const Captured& captured, const Awaited& is_awaited) const;
    void end_replay(Captured& captured, std::vector<Event>& events);
    void take_back_replays(std::uint64_t slot) const;
    static Recorded replay_of(const Captured& captured, std::uint64_t number, std::uint64_t slot, bool go);
    static std::uint64_t arrival_of(const StreamQueue& queue);
    void learn(StreamQueue& queue);
    bool reached(std::uint64_t seq) const;
    bool ended(std::uint64_t seq) const;
    bool went(std::uint64_t seq, std::uint32_t comm) const;

    ring::View view_;
    RankId rank_;
    std::map<StreamQueueKey, StreamQueue> queues_;
    std::map<std::uint64_t, Captured> captured_;  // by seq
    std::vector<std::uint64_t> counted_;          // those whose graph is gone, until their slots are free
    std::vector<std::uint64_t> gos_;              // by entry: go words, as take_comm_gos found them
    Arrivals arrivals_;
    TimeNs now_ = 0, last_look_ = 0;
};

}  // namespace opus::manager
