#include "manager/core/rank.h"

#include <algorithm>
#include <string>
#include <utility>

namespace opus::manager {
namespace {

template <class Launches>
auto* find_in(Launches& launches, std::uint64_t seq) {
    const auto it = std::lower_bound(launches.begin(), launches.end(), seq,
                                     [](const Launch& launch, std::uint64_t s) { return launch.seq < s; });
    return it != launches.end() && it->seq == seq ? &*it : nullptr;
}

}  // namespace

Launch* Rank::find(std::uint64_t seq) { return find_in(launches, seq); }
const Launch* Rank::find(std::uint64_t seq) const { return find_in(launches, seq); }

bool Rank::append(Launch launch) {
    if (!launches.empty() && launch.seq < launches.back().seq + launches.back().slots) return false;
    if (families_.size() > kMostIdleFamilies) std::erase_if(families_, [](const auto& f) { return f.second.empty(); });
    for (const std::uint32_t family : launch.families) families_[family].push_back(launch.seq);
    for (const std::uint16_t m : launch.members)
        if (members[m]) ++members[m]->outstanding;
    launches.push_back(std::move(launch));
    return true;
}

// Connections are made on the host, whatever kernels run: one that waited for an earlier receive would keep the
// host from posting what lets that receive end. Later launches wait for them all the same.
bool Rank::has_turn(const Launch& launch) const {
    if ((launch.flags & ring::kLaunchConn) != 0) return true;
    return std::all_of(launch.families.begin(), launch.families.end(), [&](std::uint32_t family) {
        const auto it = families_.find(family);
        return it != families_.end() && !it->second.empty() && it->second.front() == launch.seq;
    });
}

bool Rank::shares_unheld(const Launch& launch) const {
    return std::any_of(members.begin(), members.begin() + used, [&](const auto& member) {
        return member && member->verdict != Verdict::enforced && member->verdict != Verdict::unknown &&
               std::find(launch.families.begin(), launch.families.end(), member->family) != launch.families.end();
    });
}

void Rank::leave(const Launch& launch, std::vector<std::uint64_t>& heads) {
    for (const std::uint32_t family : launch.families) {
        const auto it = families_.find(family);
        if (it == families_.end()) continue;
        auto& order = it->second;
        if (!order.empty() && order.front() == launch.seq) {
            order.pop_front();
            if (!order.empty()) heads.push_back(order.front());
        } else {
            std::erase(order, launch.seq);
        }
    }
    for (const std::uint16_t m : launch.members)
        if (members[m] && members[m]->outstanding > 0) --members[m]->outstanding;
}

void Rank::stop_waiting(const Launch& launch) {
    std::erase(waiting, launch.seq);
    std::erase(withheld, launch.seq);
}

void Rank::withhold(const Launch& launch) {
    if (std::find(withheld.begin(), withheld.end(), launch.seq) == withheld.end()) withheld.push_back(launch.seq);
}

void Rank::note_finished(const Launch& launch) {
    for (const LaunchKey& key : launch.keys) {
        Member* member = members[key.member].get();
        // What was held before its communicator was not, a peer may still wait for.
        if (member == nullptr || (member->verdict != Verdict::enforced && member->verdict != Verdict::degraded))
            continue;
        const Key sequence = sequence_of(key.range.first);
        auto it = member->finished.find(sequence);
        if (it == member->finished.end()) {
            if (sequences >= kMaxSequences) continue;
            ++sequences;
            it = member->finished.emplace(sequence, 0).first;
        }
        it->second = std::max(it->second, key.range.first.n + key.range.count);
    }
}

void Rank::imply_finished(const Launch& first) {
    for (const LaunchKey& key : first.keys) {
        Member* member = members[key.member].get();
        if (member == nullptr || sequences >= kMaxSequences) continue;
        sequences += member->finished.emplace(sequence_of(key.range.first), key.range.first.n).second;
    }
}

void Rank::forget_untold() {
    for (auto at = launches.begin(); untold > 0 && at != launches.end(); ++at)
        untold -= std::exchange(at->untold, false);
}

std::uint64_t Rank::retire(bool keep) {
    std::uint64_t upto = 0;
    while (!launches.empty() && launches.front().phase == Phase::done) {
        if (keep && launches.front().untold) break;
        untold -= launches.front().untold;
        upto = launches.front().seq + launches.front().slots;
        launches.pop_front();
    }
    return upto;
}

std::uint64_t Rank::kept_slots() const {
    if (launches.empty() || launches.front().phase != Phase::done) return 0;
    const auto next =
        std::find_if(launches.begin(), launches.end(), [](const Launch& l) { return l.phase != Phase::done; });
    return (next != launches.end() ? next->seq : launches.back().seq + launches.back().slots) - launches.front().seq;
}

std::uint64_t Rank::last_use(std::uint16_t index) const {
    for (auto it = launches.rbegin(); it != launches.rend(); ++it)
        if (std::find(it->members.begin(), it->members.end(), index) != it->members.end()) return it->seq + it->slots;
    return 0;
}

MemberLookup Rank::lookup() const {
    return [this](std::uint16_t index) -> const wire::CommMember* {
        return index < members.size() && members[index] ? &members[index]->info : nullptr;
    };
}

std::string Rank::check() const {
    const std::string name = "rank " + std::to_string(info.rank) + ": ";
    std::array<std::uint32_t, ring::kMaxComms> outstanding{};
    std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> expected;
    std::uint64_t end = 0;
    std::size_t waits = 0;
    for (const Launch& launch : launches) {
        const std::string which = name + "launch " + std::to_string(launch.seq) + ": ";
        if (launch.seq < end) return which + "out of ring order";
        end = launch.seq + launch.slots;
        if (launch.phase == Phase::done) continue;
        for (const std::uint16_t m : launch.members) ++outstanding[m];
        for (const std::uint32_t family : launch.families) expected[family].push_back(launch.seq);
        const bool listed = std::find(waiting.begin(), waiting.end(), launch.seq) != waiting.end();
        if (listed != (launch.phase == Phase::waiting)) return which + "waits without being listed, or the reverse";
        waits += listed;
        if (launch.phase == Phase::waiting && !has_turn(launch)) return which + "waits out of its family's order";
        if (launch.phase == Phase::waiting && launch.firm) return which + "holds a firm token and waits";
        if (launch.phase != Phase::recorded && launch.ahead != Ahead::no)
            return which + "is let go ahead after it was reached";
        if (launch.phase == Phase::recorded && launch.asked) return which + "asked for before it was ready";
    }
    if (waits != waiting.size()) return name + "a launch waits twice, or is gone";
    for (const std::uint64_t seq : withheld)
        if (std::find(waiting.begin(), waiting.end(), seq) == waiting.end())
            return name + "withholds what does not wait";
    const auto live = std::count_if(families_.begin(), families_.end(), [](const auto& f) { return !f.second.empty(); });
    if (expected.size() != static_cast<std::size_t>(live)) return name + "families of launches that are gone";
    for (const auto& [family, order] : expected) {
        const auto it = families_.find(family);
        if (it == families_.end() || !std::equal(order.begin(), order.end(), it->second.begin(), it->second.end()))
            return name + "family " + std::to_string(family) + " lost its order";
    }
    for (std::size_t m = 0; m < members.size(); ++m)
        if (members[m] && members[m]->outstanding != outstanding[m])
            return name + "communicator entry " + std::to_string(m) + " miscounts its launches";
    return {};
}

}  // namespace opus::manager
