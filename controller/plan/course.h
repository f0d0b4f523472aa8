// A job on its way through its plan. Each port has its part of the plan: which peer it is to be joined to, for which
// use, one after the other. A port and its peer are turned for a use when both have come to it: what they were joined
// for before has begun, and is over or waits for somebody. So a use may have its light long before its members are
// ready, and takes no other's that is in use.
//
// Pure, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "controller/plan/lap.h"
#include "controller/plan/search.h"

namespace opus::controller::plan {

struct Instance {  // of a use
    std::uint64_t lap = 0;
    std::uint32_t use = 0;
    auto operator<=>(const Instance&) const = default;
};

class Course {
public:
    struct Turn {  // what a port comes to next
        Instance instance;
        PortId peer = kNone;
    };
    struct Planned {  // a turn of a port in each lap, for people
        PortId peer = kNone;
        bool moves = false;                 // its light was another before
        Key key;                            // the first that is used so
        TimeNs begin_ns = 0, lasts_ns = 0;  // of the use: from the begin of the lap on
        TimeNs slack_ns = 0;  // its light is there for so long before that, if it turns as soon as it may; below 0: it waits
        std::uint64_t left =
            0;  // times that this use began, since the plan is followed, without all of the light that it was to have
        bool left_last = false;  // the last time, too
    };
    struct Range {  // of a sequence's keys
        std::uint64_t begin = 0, end = 0;
        bool mesh = false;
    };

    // `reached`: of a sequence, the number behind the last of its keys that have begun.
    Course(Lap lap, Order order, const std::function<std::uint64_t(const Key& sequence)>& reached);

    const Lap& lap() const { return lap_; }
    std::optional<Instance> find(const Key& key) const;
    TimeNs wait_of(const Instance& i) const { return order_.wait[i.use]; }
    std::uint32_t circuits_of(const Instance& i) const {
        return i.use < order_.circuits.size() ? order_.circuits[i.use] : 1;
    }  // of each of its pairs
    bool is_before(const Instance& x, const Instance& y) const {
        return std::pair{x.lap, order_.place[x.use]} < std::pair{y.lap, order_.place[y.use]};
    }
    bool share_port(const Instance& x, const Instance& y) const;
    bool has_begun(const Instance& i) const;
    bool has(PortId port) const { return lines_.contains(port); }
    std::vector<PortId> ports() const;
    const std::vector<PortId>& ports_of(std::uint32_t use) const { return ports_[use]; }  // sorted

    std::optional<Turn> next(PortId port) const;
    // For uses that have not begun it keeps its light.
    std::size_t kept_for(PortId port) const;
    std::vector<Instance> kept_by(PortId port) const;  // in their order
    // By sequence: what comes next for which these ports keep their light, with no turn in between. Nothing that the
    // plan has after the last use for which one of them keeps it; where one keeps it for nothing, nothing from its next
    // turn on. Launches that go on with another use are none of it, nor are uses whose members are ready further apart.
    std::map<Key, Range> kept_keys(const std::vector<PortId>& ports, TimeNs most_apart) const;
    // The first key of the sequence that has not begun; 0 where the laps have none of it.
    std::uint64_t reached(const Key& sequence) const;
    // The next turn of the port and of its peer: the light is there, or is on its way.
    void serve(PortId port);
    // Its light has gone to others. What it was for is its next turn again.
    void lose(PortId port);
    // A key has begun, and with it its use and whatever its sequence has before it.
    void begin(const Key& key);

    std::uint64_t begun() const { return begun_count_; }              // uses, since it is followed
    std::vector<Planned> plan_of(PortId port, TimeNs dark_ns) const;  // in turn
    std::size_t next_turn(PortId port) const;                         // of these

private:
    struct Line {
        std::vector<std::pair<std::uint32_t, PortId>> turns;  // use, peer
        std::uint64_t lap = 0;                                // of the next turn
        std::size_t at = 0;
        std::set<std::pair<std::uint64_t, std::size_t>> kept;  // served, and not begun

        std::pair<std::uint64_t, std::size_t> place() const { return {lap, at}; }
        void step() {
            if (++at == turns.size()) at = 0, ++lap;
        }
    };

    void begin(const Instance& i);
    bool is_first_of_use(const Key& key, std::uint32_t use) const;
    bool is_kept(const Instance& i) const;  // by all of its ports
    bool passed(const Instance& i) const;  // by all of its lines
    void skip_begun(Line& line);

    Lap lap_;
    Order order_;
    std::map<PortId, Line> lines_;
    std::vector<std::vector<PortId>> ports_;                       // by use
    std::vector<std::vector<std::pair<PortId, std::size_t>>> on_;  // by use: ports, and where in the line of each
    std::vector<std::vector<std::pair<Key, std::size_t>>> keys_;  // by use: sequences, and where in the lap of each
    std::vector<bool> goes_on_;                                   // by use: a launch of it has keys of another one
    std::set<Instance> begun_;                                     // of them, those that not all lines have passed
    std::map<Key, std::uint64_t> reached_;
    std::uint64_t begun_count_ = 0;
    struct Left {
        std::uint64_t times = 0;
        bool last = false;
    };
    std::vector<Left> left_;  // by use: it began without the light that the plan had for it
};

}  // namespace opus::controller::plan
