// Early release: a launch under a soft token gets its go before its gate is reached, so that it waits for no poll
// there. Retracted, it has started if its gate was reached in time, and waits as others do if not. A run is returned,
// or ends, only when that is known. The states of a launch are drawn in rank.h, the words in launch_ring.h.
//
// In a run without end it goes further: the go word of a communicator lies ahead of what is recorded, and its launches wait
// for nobody. What was recorded in time went; so before a Retract of such a word is answered the ring has been read.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "manager/core/rooms.h"

namespace opus::manager {
namespace {

// Of one rank. More than start between two looks at a busy stream; few, because a manager that dies cannot retract
// them.
constexpr std::size_t kMostReleasedEarly = 32;  // of those that are recorded
constexpr std::uint64_t kMostAhead = 32;        // and beyond these
constexpr std::size_t kMostLooked = 128;  // launches not done

// The launches of each family that are not done, in ring order.
class FamilyOrder {
public:
    Ahead ahead_of(const Launch& launch) {
        bool in_stream = launch.in_stream_order(), behind_gone = in_stream && !launch.stands_apart();
        for (const std::uint32_t family : launch.families) {
            Family& ahead = of(family, launch);
            ahead.one_stream &= launch.in_stream_order() && ahead.stream == launch.stream;
            in_stream &= ahead.one_stream;
            behind_gone &= ahead.gone;
        }
        if (launch.by_comm_go() && !behind_gone) return Ahead::waits;  // their word would let those ahead go as well
        return in_stream ? Ahead::in_stream : behind_gone ? Ahead::let_go : Ahead::waits;
    }
    void add(const Launch& launch) {
        const bool gone = launch.phase == Phase::started || launch.early == EarlyRelease::released;
        for (const std::uint32_t family : launch.families) of(family, launch).gone &= gone && !launch.stands_apart();
    }
    bool all_gone(std::uint32_t family) const {
        return std::ranges::all_of(families_, [family](const Family& f) { return f.family != family || f.gone; });
    }

private:
    struct Family {
        std::uint32_t family;
        std::uint64_t stream;
        bool one_stream, gone;
    };
    Family& of(std::uint32_t family, const Launch& launch) {
        const auto at =
            std::find_if(families_.begin(), families_.end(), [family](const Family& f) { return f.family == family; });
        return at != families_.end() ? *at : families_.emplace_back(family, launch.stream, true, true);
    }
    std::vector<Family> families_;
};

// Of the same communicator: kernels of the two run in the order of their launches.
bool is_ahead(const Launch& ahead, const Launch& launch) {
    return ahead.families == launch.families && !ahead.stands_apart() && !launch.stands_apart();
}

}  // namespace

EarlyReleases::EarlyReleases(World& world, Rooms& rooms) : Room(world), launches_(rooms.launches), runs_(rooms.runs) {}

bool EarlyReleases::is_due() const {
    return !runs_.empty() && retractions_ == 0 &&
           std::any_of(ranks_.begin(), ranks_.end(), [](const auto& entry) { return entry.second.early_release_due; });
}

void EarlyReleases::release_all() {
    if (!is_due()) return;
    for (auto& entry : ranks_)
        if (std::exchange(entry.second.early_release_due, false)) release(entry.second);
}

void EarlyReleases::release(Rank& rank) {
    release_replays(rank);
    FamilyOrder order;
    std::size_t released = 0, looked = 0;
    rank.held_back = true;
    bool held_back = false;
    for (Launch& launch : rank.launches) {
        if (launch.phase == Phase::done || launch.phase == Phase::captured) continue;
        if (released == kMostReleasedEarly || ++looked > kMostLooked) return;
        released += launch.early != EarlyRelease::no;
        if (const std::uint64_t grant = grant_for(rank, launch, order.ahead_of(launch)); grant != 0) {
            let_go(rank, launch, grant);
            ++released;
        }
        held_back |= launch.pending() && launch.early == EarlyRelease::no;
        order.add(launch);
    }
    rank.held_back = held_back;
    release_ahead(rank, [&order](std::uint32_t family) { return order.all_gone(family); });
}

// The next of each graph, which may not be launched yet, in runs without end alone. Where its turn is nobody here sees: its gate is
// reached when what comes before it on its communicator is over (shim/captured.h), but for those of several.
void EarlyReleases::release_replays(Rank& rank) {
    const auto release = [&](Launch& launch) {
        const bool keeps_counts = (launch.flags & ring::kLaunchKeepsCounts) != 0;
        if (launch.stands_apart() || !keeps_counts || !launch.may_be_released_early()) return;
        const std::uint64_t grant = runs_.cover(rank, launch, {});
        if (runs_.is_endless(launch, grant)) let_go(rank, launch, grant);
    };
    if (std::exchange(rank.all_replays_due, false)) {
        for (auto& [seq, launch] : rank.replays) release(launch);
    } else {
        for (const std::uint64_t seq : rank.replays_due)
            if (Launch* launch = rank.find(seq)) release(*launch);
    }
    rank.replays_due.clear();
}

void EarlyReleases::let_go(Rank& rank, Launch& launch, std::uint64_t grant) {
    launch.grant = grant;
    launch.early = EarlyRelease::released;
    ++counters_.released_early;
    emit(ReleaseEarly{rank.info.rank, launch.seq, launch.go_comm()});
}

bool EarlyReleases::go_ahead() const {
    return std::ranges::any_of(ranks_, [](const auto& entry) {
        const Rank& rank = entry.second;
        return std::any_of(rank.members.begin(), rank.members.begin() + rank.used,
                           [&rank](const auto& member) { return member && member->ahead > rank.recorded_upto; });
    });
}

bool EarlyReleases::holds_back() const {
    return std::ranges::any_of(ranks_, [](const auto& entry) { return entry.second.held_back; });
}

// Where all that it has recorded has been let go.
void EarlyReleases::release_ahead(Rank& rank, const std::function<bool(std::uint32_t family)>& all_gone) {
    for (std::uint32_t i = 0; i < rank.used; ++i) {
        if (!rank.members[i] || !rank.members[i]->next) continue;
        Member& member = *rank.members[i];
        if (member.ahead > rank.recorded_upto + kMostAhead / 2 || !all_gone(member.family) || !goes_ahead(rank, member, {}))
            continue;
        member.ahead = rank.recorded_upto + kMostAhead;
        emit(ReleaseAhead{{rank.info.rank, i, member.ahead}});
    }
}

// Not what shares its resources: launches of others that are not recorded yet may come before its own.
bool EarlyReleases::goes_ahead(const Rank& rank, const Member& member, const std::vector<std::uint64_t>& without) const {
    const auto shares = [&member](const auto& other) { return other && other->family == member.family; };
    return member.next && member.verdict == Verdict::enforced && !member.retired &&
           runs_.goes_ahead(*member.next, without) &&
           std::count_if(rank.members.begin(), rank.members.begin() + rank.used, shares) == 1;
}

// A word that lay ahead of it has let it go, and may have while it was taken back.
void EarlyReleases::recorded(Rank& rank, Launch& launch) {
    if (is_replay(launch.seq) && !runs_.empty()) rank.replays_due.push_back(launch.seq);
    for (const LaunchKey& key : launch.keys) {
        if (!rank.members[key.member]) continue;
        std::optional<Key>& next = rank.members[key.member]->next;
        Key behind = key.range.first;
        behind.n += key.range.count;
        if (next ? sequence_of(*next) == sequence_of(behind) : launch.by_comm_go()) next = behind;
    }
    if (!launch.by_comm_go() || !launch.may_be_released_early()) return;
    const Member& member = *rank.members[launch.members.front()];
    if (launch.seq >= std::max(member.ahead, member.retracted_ahead)) return;
    launch.early = launch.seq < member.ahead ? EarlyRelease::released : EarlyRelease::retracting;
    launch.grant = runs_.cover_by_tokens(rank, launch, {});
    ++counters_.released_early;
    if (launch.grant == 0 && launch.early == EarlyRelease::released) retract({});
}

// Under which it may be released; 0: under none. What is reached before its turn keeps its circuits for longer than it
// runs. So that is left to runs without end: of others' ports somebody wants something soon.
std::uint64_t EarlyReleases::grant_for(const Rank& rank, const Launch& launch, Ahead ahead) const {
    if (ahead == Ahead::waits || !launch.may_be_released_early()) return 0;
    const std::uint64_t grant = runs_.cover(rank, launch, {});
    return grant == 0 || ahead == Ahead::in_stream || runs_.is_endless(launch, grant) ? grant : 0;
}

// Its gate was reached: seen by the answer to a Retract, or by its end, before a poll of ours found its ready.
void EarlyReleases::started(Rank& rank, Launch& launch) {
    start_before(rank, launch);
    launch.reached = true;
    launch.waiting_since = now_;
    if (launch.ready_ns == 0) launch.ready_ns = realtime_;
    ++counters_.ready;
    launches_.start(rank, launch, Phase::started);
}

// It runs, or waits for those ahead of it in its communicator, which stand in other streams: what has started of a
// sequence has no holes. They were let go before it, and are again.
void EarlyReleases::start_before(Rank& rank, const Launch& launch) {
    if (is_replay(launch.seq)) return;  // what comes before it nobody here sees
    for (Launch& ahead : rank.launches) {
        if (ahead.seq >= launch.seq) break;
        if (ahead.early != EarlyRelease::no && is_ahead(ahead, launch)) launches_.start(rank, ahead, Phase::started);
    }
}

// The same by the manager that comes next: it has retracted what was not reached.
void EarlyReleases::recovered(Rank& rank, const Launch& launch) {
    if (!launch.in_stream_order()) return;
    for (Launch& ahead : rank.launches) {
        if (ahead.seq >= launch.seq) break;
        if (!ahead.may_be_released_early() || !ahead.in_stream_order() || ahead.stream == launch.stream ||
            !is_ahead(ahead, launch))
            continue;
        ahead.reported = true;
        launches_.start(rank, ahead, Phase::started);
    }
}

void EarlyReleases::retract_unless(const Kept& kept) {
    Retract back;
    for (auto& [id, rank] : ranks_) {
        FamilyOrder order;
        std::map<std::uint32_t, std::uint64_t> first;  // by communicator: the first of its launches that is taken back
        for (Launch& launch : rank.launches) {
            if (launch.phase == Phase::done) continue;
            const bool stays =
                order.ahead_of(launch) != Ahead::waits;  // not where one ahead of it, in another stream, does not
            if (launch.early == EarlyRelease::released && !(stays && kept.launch(rank, launch))) {
                launch.early = EarlyRelease::retracting;
                back.launches.push_back({id, launch.seq});
                if (launch.by_comm_go()) first.try_emplace(launch.go_comm(), launch.seq);
            }
            order.add(launch);
        }
        for (auto& [seq, launch] : rank.replays)
            if (launch.early == EarlyRelease::released && !kept.launch(rank, launch)) {
                launch.early = EarlyRelease::retracting;
                back.launches.push_back({id, seq});
            }
        for (std::uint32_t i = 0; i < rank.used; ++i) {
            if (!rank.members[i]) continue;
            Member& member = *rank.members[i];
            const auto at = first.find(i);
            if (at == first.end() && (member.ahead == 0 || kept.ahead(rank, member))) continue;
            back.comms.push_back({id, i, at != first.end() ? at->second : rank.recorded_upto});
            member.retracted_ahead = std::max(member.retracted_ahead, std::exchange(member.ahead, 0));
        }
    }
    if (back.launches.empty() && back.comms.empty()) return;
    counters_.retracted += back.launches.size();
    ++retractions_;
    emit(std::move(back));
}

void EarlyReleases::retract_all() {
    retract_unless({[](const Rank&, const Launch&) { return false; }, [](const Rank&, const Member&) { return false; }});
}

void EarlyReleases::retract(const std::vector<std::uint64_t>& lapsing) {
    retract_unless({[&](const Rank& rank, const Launch& launch) { return runs_.cover(rank, launch, lapsing) != 0; },
                    [&](const Rank& rank, const Member& member) { return goes_ahead(rank, member, lapsing); }});
}

// Of a word that was taken back, those that were recorded meanwhile are told of by now.
void EarlyReleases::handle(const Retracted& e) {
    if (retractions_ == 0) {
        ++counters_.rejected;
        return;
    }
    --retractions_;
    std::vector<wire::LocalLaunch> launches = e.launches;
    for (const CommGo& go : e.comms) {
        Rank* rank = rank_of(go.rank);
        if (rank == nullptr || !rank->members[go.comm]) continue;
        rank->members[go.comm]->retracted_ahead = 0;
        rank->set_all_due();
        for (const Launch& launch : rank->launches)
            if (launch.early == EarlyRelease::retracting && launch.go_comm() == go.comm &&
                std::ranges::find(launches, wire::LocalLaunch{go.rank, launch.seq}) == launches.end())
                launches.push_back({go.rank, launch.seq});
    }
    const auto each = [&](bool reached, auto&& f) {
        for (const wire::LocalLaunch& id : launches) {
            Rank* rank = nullptr;
            Launch* launch = launch_of(id, &rank);
            if (launch == nullptr || launch->early != EarlyRelease::retracting)
                continue;  // seen to be ready before this
            if (reached != (launch->reached || std::find(e.reached.begin(), e.reached.end(), id) != e.reached.end()))
                continue;
            f(*rank, *launch);
            rank->set_all_due();
        }
    };
    each(true, [this](Rank& rank, Launch& launch) { started(rank, launch); });
    each(false, [](Rank&, Launch& launch) {
        launch.early = EarlyRelease::no;
        if (!launch.firm) launch.grant = 0;
    });
    if (retractions_ != 0) return;
    runs_.retracted();
}

std::string EarlyReleases::check() const {
    std::string fault;
    for (const auto& [id, rank] : ranks_)
        rank.each([&](const Launch& launch) {
            if (launch.early == EarlyRelease::released && runs_.cover_by_tokens(rank, launch, {}) == 0)
                fault = name_of({id, launch.seq}) + " is released early, and no run covers it";
        });
    return fault;
}

}  // namespace opus::manager
