// Gangs: launches that must start together. Built as launches come, and taken apart as they leave.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class Holds;
class Launches;
class Schedule;

// Full keys whose members come to wait one after the other: the first of those that do.
using Gathered = std::unordered_map<const KeyState*, std::uint32_t>;

class Gangs : Room {
public:
    Gangs(World& world, Rooms& rooms);

    const std::map<std::uint64_t, std::unique_ptr<Gang>>& all() const { return all_; }  // by id
    Gang* find(std::uint64_t id);
    Gang& of(Launch& launch);  // its own, made if it has none

    // The key is full, or the launch waits again.
    void gather(KeyState& key);
    void regather(Launch& launch);
    void regather(Launch& launch, Gathered& gathered);
    void regather(const std::vector<Launch*>& launches);
    void leave(Launch& launch);
    void erase(Gang& gang);

    // Its needs: of launches that joined since; from the beginning after restamp().
    bool collect(Gang& gang, std::vector<PairId>& added);
    void restamp(Gang& gang);
    TimeNs complete_since(const Gang& gang) const;

    std::string check();  // an invariant, for Core::check()

private:
    void join(Gang& gang, Launch& launch);
    template <class Change>
    void change_place(Gang& gang, Change change);
    Gang& merge(Gang& x, Gang& y);
    void gather(Launch& launch, KeyState& key, std::uint32_t& first);

    std::map<std::uint64_t, std::unique_ptr<Gang>> all_;
    std::uint64_t next_gang_ = 1, next_ticket_ = 1, next_stamp_ = 1;

    Launches& launches_;
    Schedule& schedule_;
    Holds& holds_;
};

}  // namespace opus::controller
