// The hold. It runs here only while there is no controller; a late peer never ends it (docs/protocol.md, "Hold").
#include <algorithm>
#include <limits>

#include "manager/core/rooms.h"

namespace opus::manager {

Holds::Holds(World& world, Rooms& rooms)
    : Room(world), members_(rooms.members), launches_(rooms.launches), reports_(rooms.reports), session_(rooms.session) {}

// The gates opened by themselves: the gang's network is decided, whoever decided it.
void Holds::handle(const GaveUp& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr) return;
    const auto waiting = rank->waiting;
    for (const std::uint64_t seq : waiting)
        if (Launch* launch = rank->find(seq); launch != nullptr && launch->phase == Phase::waiting)
            expire(*rank, *launch);
    log(LogLevel::warn, "rank " + std::to_string(e.rank) + ": gates opened because this manager stood still");
}

TimeNs Holds::hold_deadline(const Rank& rank, TimeNs since) const {
    const std::uint32_t hold_ms = rank.info.hold_ms != 0 ? rank.info.hold_ms : options_.default_hold_ms;
    return std::max(since, *alone_since_) + TimeNs(hold_ms) * 1'000'000;
}

TimeNs Holds::verdict_deadline(const Rank& rank, const Member& member) const {
    return waited_in_vain_ ? member.since : hold_deadline(rank, member.since);
}

void Holds::expire(Rank& rank, Launch& launch) {
    const bool abort = rank.info.policy == Policy::abort;
    const wire::LocalLaunch id{rank.info.rank, launch.seq};
    launch.reported = true;
    launches_.start(rank, launch, Phase::passed, abort);
    ++counters_.expired;
    reports_.expired(id);
    const std::uint32_t hold_ms = rank.info.hold_ms != 0 ? rank.info.hold_ms : options_.default_hold_ms;
    log(LogLevel::error, name_of(id) + ": held for " + std::to_string(hold_ms) + " ms without a controller; " +
                             (abort ? "aborted" : "passed without circuits"));
    if (abort) return;
    std::vector<CommId> comms;
    for (const LaunchKey& key : launch.keys)
        if (rank.members[key.member]) comms.push_back(rank.members[key.member]->info.comm);
    for (const CommId& comm : comms) members_.degrade_here(comm);
}

void Holds::expire_overdue() {
    if (session_.is_up() || !alone_since_) return;
    for (auto& entry : ranks_) {
        Rank& rank = entry.second;
        const auto waiting = rank.waiting;
        for (const std::uint64_t seq : waiting) {
            Launch* launch = rank.find(seq);
            if (launch == nullptr || launch->phase != Phase::waiting) continue;
            if (now_ >= hold_deadline(rank, launch->waiting_since)) expire(rank, *launch);
        }
        if (rank.info.policy == Policy::abort) continue;
        for (const auto& member : rank.members)
            if (member && member->awaits_verdict() && now_ >= verdict_deadline(rank, *member)) {
                waited_in_vain_ = true;
                members_.degrade_here(CommId(member->info.comm));
            }
    }
    launches_.decide_all();
}

// No controller, from now on if there was one.
void Holds::note_alone() {
    if (!alone_since_) alone_since_ = now_;
}

// A member has waited for its verdict as long as others would.
void Holds::note_waited() { waited_in_vain_ |= alone_since_.has_value(); }

void Holds::controller_back() {
    alone_since_.reset();
    waited_in_vain_ = false;
}

TimeNs Holds::next_deadline() const {
    TimeNs at = std::numeric_limits<TimeNs>::max();
    if (!alone_since_) return at;
    for (const auto& [id, rank] : ranks_) {
        for (const std::uint64_t seq : rank.waiting)
            if (const Launch* launch = rank.find(seq)) at = std::min(at, hold_deadline(rank, launch->waiting_since));
        if (rank.info.policy == Policy::abort) continue;
        for (const auto& member : rank.members)
            if (member && member->awaits_verdict()) at = std::min(at, verdict_deadline(rank, *member));
    }
    return at;
}

}  // namespace opus::manager
