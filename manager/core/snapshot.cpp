// What is reported to the controller of the node's state.
#include <algorithm>

#include "manager/core/state.h"

namespace opus::manager {
namespace {

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

// A held launch tells all its keys: a part that is of a communicator which is not held may be what a peer
// waits for, and only the controller can tell that the rest must not wait long for the others.
wire::LaunchDemand Core::Impl::demand_of(const Rank& rank, const Launch& launch) const {
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
                    rank.is_behind_own(launch);
    return demand;
}

wire::Snapshot Core::Impl::snapshot() {
    wire::Snapshot s;
    for (auto& entry : ranks) {
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
    for (const auto& [id, rank] : ranks)
        for (const auto& [index, comm] : rank.entering) s.entering.push_back({comm, id});
    soft.snapshot(s.tokens);
    return s;
}

void Core::Impl::tell_degraded() {
    for (const auto& [id, rank] : ranks)
        for (const auto& member : rank.members)
            if (member && member->lost) outbox.retire.degraded.push_back({member->info.comm, id});
}

}  // namespace opus::manager
