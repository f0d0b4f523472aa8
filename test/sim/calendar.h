// What may happen in a schedule.
#pragma once

#include <cstdint>

#include "tools/virtual_time/calendar.h"

namespace opus::sim {

using virtual_time::kMs, virtual_time::kSecond, virtual_time::kUs;

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
    Kind kind{};
    std::uint32_t who = 0;
    std::uint64_t what = 0;
};

using Calendar = virtual_time::Calendar<Entry>;

}  // namespace opus::sim
