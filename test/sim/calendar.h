// What is to happen in virtual time, in order; equal times in the order in which they were entered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "opus/types.h"

namespace opus::sim {

inline constexpr TimeNs kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;

enum class Kind : std::uint8_t {
    job_start,          // who: job
    host,               // who: rank. Its host thread goes on
    stream,             // who: rank, what: stream. Its head is over
    gate_look,          // who: launch. The gate, just reached, looks whether it was released early
    gate_open,          // who: launch. The gate sees go
    gave_up,            // who: launch, what: life of the manager that stood still
    verdict_gave_up,    // who: rank, what: number of its wait
    part_done,          // who: launch, what: its kernel, kNone: connections. One more of its keys is through for it
    flow,               // who: flow, what: version. Its bytes have arrived
    rank_killed,        // who: rank
    rank_noticed,       // who: rank. Its manager sees that the process is gone
    look,               // who: node, what: life. Its manager looks at rings
    manager_tick,       // who: node, what: number of its WakeAt
    retracted,          // who: node, what: its manager's life. It looks which of the gates it took back were reached
    connect,            // who: node, what: number of the attempt
    frame_up,           // who: connection, what: frame
    frame_down,         // who: connection, what: frame
    resume,             // who: node. Its partition is over
    broken_below,       // who: connection. The manager sees it end
    broken_above,       // who: connection. The controller sees it end
    controller_tick,    // what: number of its WakeAt
    controller_second,  // what: life
    thought,            // what: number of the thought
    driver_up,          // who: switch, what: generation of the driver's session
    command,            // who: command. The switch executes it
    settled,            // who: command. Its light is there
    answer,             // who: switch, what: driver event
    fault,              // who: fault
    heal,               // who: fault
    inspect,            // a look at the whole while nothing moves
};

struct Entry {
    TimeNs at = 0;
    std::uint64_t order = 0;
    Kind kind{};
    std::uint32_t who = 0;
    std::uint64_t what = 0;
};

class Calendar {
public:
    void add(TimeNs at, Kind kind, std::uint32_t who, std::uint64_t what = 0) {
        heap_.push_back({at, next_++, kind, who, what});
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    bool empty() const { return heap_.empty(); }
    Entry take() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        const Entry entry = heap_.back();
        heap_.pop_back();
        return entry;
    }

private:
    static bool later(const Entry& x, const Entry& y) { return x.at != y.at ? x.at > y.at : x.order > y.order; }
    std::vector<Entry> heap_;
    std::uint64_t next_ = 0;
};

}  // namespace opus::sim
