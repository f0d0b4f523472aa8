// A room of the manager's core: it owns some of its state, which no other room sees, and does to it what its public
// functions say. It reads and changes the world, says what is to be done (actions), and calls the rooms that its header names.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "manager/core/world.h"

namespace opus::manager {

struct Rooms;

class Room {
public:
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

protected:
    explicit Room(World& world)
        : world_(world),
          options_(world.options),
          counters_(world.counters),
          ranks_(world.ranks),
          now_(world.now),
          realtime_(world.realtime) {}
    ~Room() = default;

    void emit(Action action) const { world_.out->push_back(std::move(action)); }
    void log(LogLevel level, std::string text) const { world_.out->push_back(Log{level, std::move(text)}); }
    // Null, and counted: its rank is not known.
    Rank* rank_of(RankId id) const {
        const auto it = ranks_.find(id);
        if (it != ranks_.end()) return &it->second;
        ++counters_.rejected;
        return nullptr;
    }
    Launch* launch_of(const wire::LocalLaunch& id, Rank** rank = nullptr) const {
        const auto it = ranks_.find(id.rank);
        if (it == ranks_.end()) return nullptr;
        if (rank != nullptr) *rank = &it->second;
        return it->second.find(id.seq);
    }

    World& world_;
    const CoreOptions& options_;
    Counters& counters_;
    std::map<RankId, Rank>& ranks_;
    const TimeNs& now_;
    const std::int64_t& realtime_;
};

}  // namespace opus::manager
