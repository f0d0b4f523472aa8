#include "manager/core/rank.h"

#include <algorithm>
#include <string>
#include <utility>

namespace opus::manager {
namespace {

constexpr std::uint32_t kLeastFreed = 64;   // a part of the ring
constexpr std::size_t kMostFreeing = 64;  // entries of communicators that wait for the ring

template <class Launches>
auto* find_in(Launches& launches, std::uint64_t seq) {
    const auto it = std::lower_bound(launches.begin(), launches.end(), seq,
                                     [](const Launch& launch, std::uint64_t s) { return launch.seq < s; });
    return it != launches.end() && it->seq == seq ? &*it : nullptr;
}

}  // namespace

Launch* Rank::find(std::uint64_t seq) {
    if (!is_replay(seq)) return find_in(launches, seq);
    const auto it = replays.find(seq);
    return it != replays.end() ? &it->second : nullptr;
}
const Launch* Rank::find(std::uint64_t seq) const { return const_cast<Rank*>(this)->find(seq); }

bool Rank::append(Launch launch) {
    if (is_replay(launch.seq)) {
        const auto [at, fresh] = replays.try_emplace(launch.seq);
        if (!fresh) return false;
        replays_ |= launch.running();
        for (const std::uint16_t m : launch.members)
            if (members[m]) ++members[m]->outstanding;
        at->second = std::move(launch);
        return true;
    }
    if (!launches.empty() && launch.seq < launches.back().end()) return false;
    if (launch.overtaken && overtaken_ != launches.size()) return false;
    if (families_.size() > kMostIdleFamilies) std::erase_if(families_, [](const auto& f) { return f.second.empty(); });
    for (const std::uint32_t family : launch.families) families_[family].push_back(launch.seq);
    for (const std::uint16_t m : launch.members)
        if (members[m]) ++members[m]->outstanding;
    skips_ |= (launch.flags & ring::kLaunchSkips) != 0;
    overtaken_ += launch.overtaken;
    if (launch.overtaken) occupied_ += launch.slots;
    slots_ += launch.slots;
    recorded_upto = launch.end();
    launches.push_back(std::move(launch));
    return true;
}

void Rank::set_done(Launch& launch) {
    launch.phase = Phase::done;
    if (is_replay(launch.seq)) replays_done_.push_back(launch.seq);
    over_ += launch.slots;
}

void Rank::set_unreported(Launch& launch) {
    if (!std::exchange(launch.unreported, true)) unreported += launch.slots;
}

// Connections are made on the host, whatever kernels run: one that waited for an earlier receive would keep the
// host from posting what lets that receive end. Later launches wait for their light alone (Launch::lets_pass). Behind a
// host gate they are one launch with the call. A host gate keeps the host likewise, whatever comes after it: once all
// that comes before has been let go, NCCL keeps the order.
bool Rank::has_turn(const Launch& launch) const {
    if (launch.connects() || launch.families.empty() || is_replay(launch.seq)) return true;
    if (launch.gate == ring::Gate::stream)
        return launch.mixed() || std::any_of(launch.families.begin(), launch.families.end(),
                           [&](std::uint32_t family) { return is_next_of(family, launch); });
    return std::all_of(launch.families.begin(), launch.families.end(), [&](std::uint32_t family) {
        if (is_next_of(family, launch)) return true;
        const auto it = families_.find(family);
        return launch.gate == ring::Gate::host && it != families_.end() && all_let_go(it->second, launch.seq);
    });
}

// Of a launch of several communicators one may be through long before the others, and nobody sees it.
bool Rank::is_next_of(std::uint32_t family, const Launch& launch) const {
    const auto it = families_.find(family);
    if (it == families_.end()) return false;
    for (const std::uint64_t seq : it->second) {
        if (seq == launch.seq) return true;
        const Launch* before = find(seq);
        if (before == nullptr || !before->lets_pass()) return false;
    }
    return false;
}

bool Rank::is_behind_own(const Launch& launch) const {
    if (launch.gate != ring::Gate::stream || launch.connects()) return false;
    const bool behind_call = std::any_of(launch.families.begin(), launch.families.end(), [&](std::uint32_t family) {
        const auto it = families_.find(family);
        return it != families_.end() && !it->second.empty() && it->second.front() < launch.seq;
    });
    if (behind_call || (launch.stands_apart() && replays_)) return true;
    return std::any_of(replays.begin(), replays.end(), [&](const auto& replay) {
        const Launch& other = replay.second;
        const bool is_ordered = other.members == launch.members && !other.lets_pass();
        return other.seq != launch.seq && !is_ordered &&
               std::any_of(other.families.begin(), other.families.end(), [&](std::uint32_t family) {
                   return std::find(launch.families.begin(), launch.families.end(), family) != launch.families.end();
               });
    });
}

// Backwards: what has had its turn in the order tells of all before it.
bool Rank::all_let_go(const std::deque<std::uint64_t>& order, std::uint64_t upto) const {
    for (auto at = std::lower_bound(order.begin(), order.end(), upto); at != order.begin();) {
        const Launch* before = find(*--at);
        if (before == nullptr || !before->running()) return false;
        if (!before->connects() && !before->ungated()) return true;
    }
    return true;
}

std::uint64_t Rank::next_of(std::uint32_t family, std::uint64_t seq) const {
    const auto it = families_.find(family);
    if (it == families_.end()) return kNoLaunch;
    const auto next = std::upper_bound(it->second.begin(), it->second.end(), seq);
    return next != it->second.end() ? *next : kNoLaunch;
}

bool Rank::shares_unheld(const Launch& launch) const {
    return std::any_of(members.begin(), members.begin() + used, [&](const auto& member) {
        return member && member->verdict != Verdict::enforced && member->verdict != Verdict::unknown &&
               std::find(launch.families.begin(), launch.families.end(), member->family) != launch.families.end();
    });
}

bool Rank::is_connecting_before(const Launch& launch) const {
    if (is_replay(launch.seq)) return false;
    for (const Launch& other : launches) {
        if (other.seq >= launch.seq) break;
        if ((other.flags & (ring::kLaunchConn | ring::kLaunchLasts)) == ring::kLaunchConn && other.phase != Phase::done)
            return true;
    }
    return false;
}

void Rank::leave(const Launch& launch) {
    for (const std::uint32_t family : launch.families) {
        const auto it = families_.find(family);
        if (it == families_.end()) continue;
        auto& order = it->second;
        if (!order.empty() && order.front() == launch.seq)
            order.pop_front();
        else
            std::erase(order, launch.seq);
    }
    for (const std::uint16_t m : launch.members)
        if (members[m] && members[m]->outstanding > 0) --members[m]->outstanding;
}

void Rank::stop_waiting(const Launch& launch) {
    std::erase(waiting, launch.seq);
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

void Rank::imply_replayed(const Launch& captured, std::uint64_t replays) {
    if (replays == 0) return;
    for (const LaunchKey& key : captured.keys)
        for (std::uint32_t i = 0; i < key.range.count; ++i) {
            Member* member = members[key.member].get();
            if (member == nullptr || sequences >= kMaxSequences) return;
            Key last = key.range.first;
            last.n = replayed_key(key.range.first.n + i, replays);
            sequences += member->finished.emplace(sequence_of(last), last.n).second;
        }
}

void Rank::forget_replays(const Launch& captured) {
    const std::uint64_t slot = captured.seq % capacity;
    for (auto at = replays.lower_bound(replay_launch(slot, 0)); at != replays.end() && slot_of_replay(at->first) == slot;) {
        const bool forgets = at->second.may_never_come();
        if (forgets) leave(at->second);
        at = forgets ? replays.erase(at) : std::next(at);
    }
}

// No ring keeps what is unreported of replays.
void Rank::forget_unreported() {
    for (auto at = launches.begin(); unreported > 0 && at != launches.end(); ++at)
        if (std::exchange(at->unreported, false)) unreported -= at->slots;
}

// Where nothing ends late this is all that happens: what is done leaves at the front.
Retired Rank::retire(bool keep) {
    Retired r{info.rank};
    for (const std::uint64_t seq : replays_done_) replays.erase(seq);
    replays_done_.clear();
    while (!launches.empty() && launches.front().phase == Phase::done) {
        const Launch& front = launches.front();
        if (front.unreported && keep) break;
        over_ -= front.slots;
        slots_ -= front.slots;
        if (front.unreported) unreported -= front.slots;
        if (front.overtaken) {
            --overtaken_;
            occupied_ -= front.slots;
            r.freed.push_back({front.seq, front.slots});
        } else {
            r.upto = front.end();
        }
        launches.pop_front();
    }
    if (is_short() && over_ - (keep ? unreported : 0) + skipped_slots() >= least_freed()) overtake(keep, r);
    return r;
}

std::uint64_t Rank::used_slots() const {
    return occupied_ + (overtaken_ < launches.size() ? launches.back().end() - launches[overtaken_].seq : 0);
}

// Between launches that were not overtaken: its shim passed over what was occupied by then.
std::uint64_t Rank::skipped_slots() const { return used_slots() - slots_; }

// A fair part of the ring at a time: all launches are looked at for it.
std::uint64_t Rank::least_freed() const { return std::max(1u, capacity / kLeastFreed); }

bool Rank::has_few_left() const { return used_slots() > capacity / 2 || freeing.size() > kMostFreeing; }

bool Rank::is_short() const { return skips_ && (occupied_ > 0 || has_few_left()); }

bool Rank::is_crowded() const { return is_short() && over_ >= least_freed(); }

// Up to the last one that is over, or the last slots that were skipped: those that are go, those that are not stay
// behind with their slots.
void Rank::overtake(bool keep, Retired& r) {
    const auto is_over = [keep](const Launch& l) { return l.phase == Phase::done && !(l.unreported && keep); };
    std::uint64_t upto = 0, next = launches.empty() ? 0 : launches.back().end();
    for (auto launch = launches.rbegin(); launch != launches.rend() && upto == 0; ++launch) {
        if (launch->end() < next || is_over(*launch)) upto = next;
        next = launch->seq;
    }
    for (Launch& launch : launches) {
        if (launch.seq >= upto) break;
        if (is_over(launch)) {
            over_ -= launch.slots;
            slots_ -= launch.slots;
            if (launch.unreported) unreported -= launch.slots;
            if (launch.overtaken) r.freed.push_back({launch.seq, launch.slots});
        } else if (!launch.overtaken) {
            launch.overtaken = true;
            r.occupied.push_back({launch.seq, launch.slots});
        }
    }
    if (overtaken_ < launches.size() && upto > launches[overtaken_].seq) r.upto = upto;
    std::erase_if(launches, is_over);
    overtaken_ = occupied_ = 0;
    for (const Launch& launch : launches) {
        if (!launch.overtaken) break;
        ++overtaken_;
        occupied_ += launch.slots;
    }
}

bool Rank::is_named(const Freeing& entry) const {
    if (overtaken_ < launches.size() && launches[overtaken_].seq < entry.upto) return true;
    return std::any_of(launches.begin(), launches.begin() + static_cast<std::ptrdiff_t>(overtaken_), [&](const Launch& l) {
        return std::find(l.members.begin(), l.members.end(), entry.index) != l.members.end();
    });
}

std::uint64_t Rank::kept_slots() const {
    if (launches.empty() || launches.front().phase != Phase::done) return 0;
    const auto next =
        std::find_if(launches.begin(), launches.end(), [](const Launch& l) { return l.phase != Phase::done; });
    return (next != launches.end() ? next->seq : launches.back().end()) - launches.front().seq;
}

std::uint64_t Rank::last_use(std::uint16_t index) const {
    for (auto it = launches.rbegin(); it != launches.rend(); ++it)
        if (std::find(it->members.begin(), it->members.end(), index) != it->members.end()) return it->end();
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
    std::uint64_t end = 0, over = 0, unreported_slots = 0, occupied = 0, slots = 0;
    std::size_t waits = 0;
    for (const Launch& launch : launches) {
        const std::string which = name + "launch " + std::to_string(launch.seq) + ": ";
        if (launch.seq < end) return which + "out of ring order";
        end = launch.end();
        slots += launch.slots;
        over += launch.phase == Phase::done ? launch.slots : 0;
        unreported_slots += launch.unreported ? launch.slots : 0;
        occupied += launch.overtaken ? launch.slots : 0;
        if (launch.phase == Phase::done) continue;
        for (const std::uint16_t m : launch.members) ++outstanding[m];
        for (const std::uint32_t family : launch.families) expected[family].push_back(launch.seq);
        const bool listed = std::find(waiting.begin(), waiting.end(), launch.seq) != waiting.end();
        if (listed != (launch.phase == Phase::waiting)) return which + "waits without being listed, or the reverse";
        waits += listed;
        if (launch.phase == Phase::waiting && !has_turn(launch)) return which + "waits out of its family's order";
        if (launch.phase == Phase::waiting && launch.firm) return which + "holds a firm token and waits";
        if (launch.phase != Phase::recorded && launch.early != EarlyRelease::no)
            return which + "is released early after it was reached";
        if (launch.phase == Phase::recorded && launch.asked) return which + "asked for before it was ready";
    }
    for (const auto& [seq, launch] : replays) {
        if (launch.phase == Phase::done) return name + "keeps a replay that is done";
        for (const std::uint16_t m : launch.members) ++outstanding[m];
        waits += launch.phase == Phase::waiting;
    }
    if (over != over_ || unreported_slots != unreported || occupied != occupied_ || slots != slots_)
        return name + "miscounts the slots of its launches";
    if (!std::is_partitioned(launches.begin(), launches.end(), [](const Launch& l) { return l.overtaken; }))
        return name + "a launch was overtaken, and one before it not";
    if (waits != waiting.size()) return name + "a launch waits twice, or is gone";
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
