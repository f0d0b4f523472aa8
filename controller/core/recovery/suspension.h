// Suspension: what stands in the way for ever, or by plan for long, is moved away, and brought back.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/core/explain.h"
#include "controller/core/gangs/gangs.h"
#include "controller/core/room.h"

namespace opus::controller {

class Gangs;
class Launches;
class Runs;
class Schedule;

class Suspension : Room {
public:
    // What one look at who might be suspended has found of keys, each looked at once.
    struct KeyLooked {
        bool half_started = false;
        std::uint64_t held = 0;  // members that are not let go
    };
    using KeysLooked = std::unordered_map<const KeyState*, KeyLooked>;

    Suspension(World& world, Rooms& rooms);

    TimeNs break_time(const Gang& gang) const;
    TimeNs least_break_time() const;
    void consider(Gang& gang);  // it has waited for its break time

    void suspend(const std::vector<Launch*>& launches, const std::string& why, LogLevel level = LogLevel::warn);
    // Nothing is under way over it: its launches wait for transfers that others have not come to, and that are late.
    bool may_make_way(PairId e, const std::function<bool(const Key&)>& is_late);
    void make_way(PairId e, const std::string& why);
    void drop_drained(KeyState& key);
    void lost_light(PairId e, const std::string& why);

private:
    // Launches that keys tie to each other: by Launch::part, true if one of them may not be able to finish.
    struct TiedLaunches {
        std::uint64_t mark = 0;
        std::vector<bool> half_started;
    };
    struct Suspending {
        Explained said;
        KeysLooked looked;
        Gathered gathered;
    };
    bool in_the_way(Gang& gang, std::vector<PairId>& pairs);
    bool suspendable(const std::vector<Launch*>& holders, const Gang& gang, TimeNs patience, TimeNs& again);
    bool half_started(const Launch& launch, KeysLooked& looked) const;
    static bool is_idle(const Launch& launch, const std::function<bool(const Key&)>& is_late);
    std::uint64_t awaited_by(const Launch& launch, KeysLooked& looked) const;
    TimeNs patience_of(const Gang& gang) const;
    bool tied_to_half_started(Launch& launch, TiedLaunches& tied, KeysLooked& looked);
    void suspend(Launch& launch, const std::string& why, LogLevel level, Suspending& with);
    std::vector<Launch*> holders_of(PairId e);  // all of them

    Launches& launches_;
    Gangs& gangs_;
    Schedule& schedule_;
    Runs& runs_;
    Explain& explain_;
};

}  // namespace opus::controller
