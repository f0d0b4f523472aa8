// What the controller is told of this node: of each look what has come together, and all of it in a snapshot.
#include <algorithm>
#include <iterator>
#include <utility>

#include "manager/core/rooms.h"

namespace opus::manager {
namespace {

constexpr std::size_t kMaxUnreported = 4096, kMaxExpired = 65536;

wire::LaunchState state_of(Phase phase) {
    switch (phase) {
        case Phase::started: return wire::LaunchState::in_flight;
        case Phase::suspended: return wire::LaunchState::suspended;
        case Phase::passed: return wire::LaunchState::passed;
        default: return wire::LaunchState::ready;
    }
}

wire::Token& token_of(std::vector<wire::Token>& tokens, std::uint64_t grant) {
    auto it = std::find_if(tokens.begin(), tokens.end(), [grant](const auto& t) { return t.grant == grant; });
    return it != tokens.end() ? *it : *tokens.insert(tokens.end(), wire::Token{grant, {}, {}, {}});
}

}  // namespace

Reports::Reports(World& world, Rooms& rooms)
    : Room(world), launches_(rooms.launches), runs_(rooms.runs), session_(rooms.session) {}

// While a run goes on, the ends of its launches wait for something else to be said (or for its own end): the
// circuits are held in any case.
void Reports::tell_done(Rank& rank, Launch& launch, bool passed) {
    wire::LaunchDone done{{rank.info.rank, launch.seq}, launch.ready_ns, launch.go_ns, launch.done_ns, passed};
    const bool goes_on = runs_.goes_on(launch);
    if (launch.grant != 0 && !launch.firm && !launch.reported) {
        // Heard of even if there is no controller now.
        wire::LaunchDemand what = demand_of(rank, launch);
        if (what.keys.empty())  // its communicators are no longer held
            for (const LaunchKey& key : launch.keys) what.keys.push_back(key.range);
        if (unreported_.ran.size() < kMaxUnreported) unreported_.ran.push_back({std::move(what), done});
        rank.set_unreported(launch);
        due_ |= !goes_on;
    } else if (session_.is_up() && launch.reported) {
        (goes_on ? unreported_ : outbox_.done).launches.push_back(done);
    } else if (session_.is_up() && launch.ungated() && !launch.members.empty() && !launches_.is_intra(rank, launch)) {
        outbox_.done.seen.push_back({done, rank.members[launch.members.front()]->info.comm, launch.op, launch.bytes});
    }
}

void Reports::gather_done() {
    const auto append = [](auto& to, auto& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
        from.clear();
    };
    append(outbox_.done.launches, unreported_.launches);
    append(outbox_.done.ran, unreported_.ran);
    append(outbox_.done.ended, unreported_.ended);
    due_ = false;
    all_reported();
}

void Reports::all_reported() {
    for (auto& entry : ranks_) {
        entry.second.forget_unreported();
        launches_.retire(entry.second);
    }
}

// True: it asks for circuits.
bool Reports::send() {
    const bool asks = !outbox_.demand.empty();
    if (session_.is_up()) {
        wire::Demand demand;
        for (const wire::LocalLaunch& id : outbox_.demand) {
            Rank* rank = nullptr;
            Launch* launch = launch_of(id, &rank);
            if (launch == nullptr || launch->phase != Phase::waiting) continue;
            launch->reported = true;
            demand.launches.push_back(demand_of(*rank, *launch));
        }
        counters_.demand_launches += demand.launches.size();
        counters_.demand_messages += !demand.launches.empty();
        // What may wait goes along with what does not.
        if (const auto& o = outbox_; due_ || !o.done.launches.empty() || !demand.launches.empty() ||
                                     !o.registered.comms.empty() || !o.registered.entering.empty() ||
                                     !o.retire.comms.empty() || !o.retire.ranks.empty() || !o.retire.degraded.empty() ||
                                     !o.retire.failed.empty() ||
                                     unreported_.ran.size() + unreported_.launches.size() >= kMaxUnreported / 2)
            due_ = true;
        due_ |= take_ended();
        if (due_) gather_done();
        const bool any_done = !outbox_.done.launches.empty() || !outbox_.done.ran.empty() ||
                              !outbox_.done.ended.empty() || !outbox_.done.seen.empty();
        counters_.done_messages += any_done;
        const auto send_if = [this](bool any, auto& message) {
            if (any) emit(Send{std::move(message)});
        };
        auto& [registered, done, retire, passed, asked] = outbox_;
        send_if(!registered.ranks.empty() || !registered.comms.empty() || !registered.entering.empty(), registered);
        send_if(any_done, done);
        send_if(!passed.launches.empty(), passed);
        send_if(!demand.launches.empty(), demand);
        send_if(!retire.ranks.empty() || !retire.comms.empty() || !retire.degraded.empty() || !retire.failed.empty(), retire);
    }
    outbox_.clear();
    return asks;
}

// A held launch tells all its keys: a part that is of a communicator which is not held may be what a peer
// waits for, and only the controller can tell that the rest must not wait long for the others.
wire::LaunchDemand Reports::demand_of(const Rank& rank, const Launch& launch) const {
    wire::LaunchDemand demand;
    demand.launch = {rank.info.rank, launch.seq};
    const bool passed = launch.phase == Phase::passed;  // was held when it was demanded
    const bool held = std::any_of(launch.keys.begin(), launch.keys.end(), [&rank](const LaunchKey& key) {
        const Member* member = rank.members[key.member].get();
        return member != nullptr && member->verdict == Verdict::enforced;
    });
    for (const LaunchKey& key : launch.keys) {
        const Member* member = rank.members[key.member].get();
        if (member == nullptr || (member->verdict == Verdict::intra && !held)) continue;
        if (held || passed || launch.running()) demand.keys.push_back(key.range);
    }
    demand.op = launch.op;
    demand.bytes = launch.bytes;
    demand.ready_ns = launch.ready_ns;
    demand.mixed = launch.mixed();
    demand.behind = launch.behind_streams() || rank.shares_unheld(launch) || rank.is_connecting_before(launch) ||
                    rank.is_behind_own(launch) || (launch.running() && !launch.reached);
    return demand;
}

wire::Snapshot Reports::snapshot() {
    wire::Snapshot s;
    for (auto& entry : ranks_) {
        const RankId id = entry.first;
        Rank& rank = entry.second;
        s.ranks.push_back(rank.info);
        for (const auto& member : rank.members) {
            if (!member) continue;
            s.comms.push_back(member->info);
            s.comms.back().verdict = member->verdict;
            for (const auto& [sequence, end] : member->finished) {
                if (end == 0) continue;
                Key last = sequence;
                last.n = end - 1;
                s.comms.back().done.push_back({last, 1});
            }
        }
        rank.each([&](Launch& launch) {
            const bool waits = launch.phase == Phase::waiting;
            if (launch.firm && launch.phase != Phase::done)
                token_of(s.tokens, launch.grant).firm.push_back({id, launch.seq});
            if (!waits && !(launch.running() && launch.reported) && !(launch.running() && launch.grant != 0)) return;
            if (waits) {
                // Not judged yet: it is demanded when its communicators are.
                const bool unknown = std::any_of(launch.keys.begin(), launch.keys.end(), [&](const LaunchKey& key) {
                    const Member* member = rank.members[key.member].get();
                    return member != nullptr && member->verdict == Verdict::unknown;
                });
                if (unknown) return;
                launch.asked = true;
            }
            wire::LaunchDemand demand = demand_of(rank, launch);
            if (demand.keys.empty()) return;
            launch.reported = true;
            launch.known_running |= launch.running();
            s.launches.push_back({std::move(demand), state_of(launch.phase), launch.grant});
        });
    }
    for (const auto& [id, rank] : ranks_)
        for (const auto& [index, comm] : rank.entering) s.entering.push_back({comm, id});
    runs_.snapshot(s.tokens);
    return s;
}

// Grants that were used up since.
bool Reports::take_ended() {
    const auto ended = runs_.take_ended();
    unreported_.ended.insert(unreported_.ended.end(), ended.begin(), ended.end());
    return !ended.empty();
}

// All that has ended, now: before it is said what goes on.
void Reports::send_done() {
    take_ended();
    gather_done();
    wire::Done& done = outbox_.done;
    if (!done.launches.empty() || !done.ran.empty() || !done.ended.empty()) emit(Send{std::exchange(done, {})});
}

void Reports::expired(const wire::LocalLaunch& launch) {
    if (session_.is_up())
        outbox_.expired.launches.push_back(launch);
    else if (expired_.size() < kMaxExpired)
        expired_.push_back(launch);
}

void Reports::forget_expired(RankId rank) {
    std::erase_if(expired_, [rank](const wire::LocalLaunch& launch) { return launch.rank == rank; });
}

// The next snapshot reports what was to be reported of launches that the controller knew, and of tokens.
void Reports::controller_lost() {
    unreported_.ran.insert(unreported_.ran.end(), outbox_.done.ran.begin(), outbox_.done.ran.end());
    unreported_.launches.clear();
    unreported_.ended.clear();
    outbox_.clear();
    for (auto& entry : ranks_) entry.second.each([](Launch& launch) { launch.asked = false; });
}

void Reports::controller_back() {
    outbox_.clear();
    emit(Send{snapshot()});
    all_reported();  // by what it says is finished
    unreported_.launches.clear();
    unreported_.ended.clear();
    runs_.take_ended();
    if (!expired_.empty()) emit(Send{wire::Expired{std::move(expired_)}});
    expired_.clear();
    tell_degraded();
}

void Reports::tell_degraded() {
    for (const auto& [id, rank] : ranks_)
        for (const auto& member : rank.members)
            if (member && member->lost) outbox_.retire.degraded.push_back({member->info.comm, id});
}

}  // namespace opus::manager
