// What a run may cover: as far as the plan keeps the gang's light, or without end where light is at rest.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/runs.h"
#include "controller/core/program/fences.h"
#include "controller/core/provision/turns.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

constexpr std::uint64_t kEndless = wire::kMaxKeysPerLaunch;  // keys of one sequence: then it is asked for once more
constexpr TimeNs kRestDarkTimes = 16, kRestStays = 4, kMostRests = 32;
constexpr int kMostPasses = 16;

// Connections are made once.
bool comes_again(const Key& key) { return key.kind == KeyKind::coll || key.kind == KeyKind::p2p; }

// The first that is greater than or equal to x / y.
std::int64_t divide_up(std::int64_t x, std::int64_t y) { return x / y + (x % y > 0 ? 1 : 0); }

template <class IsKept>
void keep_if(Offers& offers, const IsKept& is_kept) {
    for (auto at = offers.begin(); at != offers.end();)
        at = is_kept(at->first, at->second) ? std::next(at) : offers.erase(at);
}

}  // namespace

// A launch of several sequences. It comes again and again, or is taken to.
struct Runs::Whole {
    struct Part {
        Key sequence;
        std::int64_t n = 0;      // of its key, once
        std::int64_t again = 1;  // and so many later the next time
    };
    std::vector<Part> parts;
};

bool Runs::may_begin(const Gang& gang) const {
    if (!options_.runs || gang.launches.empty()) return false;
    for (const Launch* l : gang.launches)  // those that come back from the dark have lost their place
        if (l->open() || l->passed() || l->mixed || l->alone || !nodes_[l->id.node].up()) return false;
    // Where another was revoked for it, it has its quantum.
    return gang.revoked_for || std::ranges::none_of(gang.pairs, [&](PairId e) { return is_taken(gang, e); });
}

// Somebody else waits for a port of this light.
bool Runs::is_taken(const Gang& gang, PairId e) const {
    for (const Circuit& c : inventory_.pair(e).up)
        for (const PortId p : {c.a, c.b})
            for (const Reservation& r : inventory_.port(p).reservations)
                if (r.gang != &gang && r.pair != e) return true;
    return false;
}

// --- where light is at rest -----------------------------------------------------------------------

// For how long light must be up by the laps of the jobs that the gang is of; 0: of one they are not known.
TimeNs Runs::longest_rest(const Gang& gang) const {
    TimeNs longest = 0;
    for (const Launch* l : gang.launches) {
        const auto& ranks = nodes_[l->id.node].ranks;
        const auto rank = ranks.find(l->id.rank);
        const TimeNs rest = rank == ranks.end() || rank->second.job == nullptr ? 0 : rank->second.job->learner->rest_ns();
        if (rest <= 0) return 0;
        longest = std::max(longest, rest);
    }
    return longest;
}

// Its light has been up for whole laps, or where they are not known for so long that it costs nothing to be wrong; and
// for much longer than light there before somebody else wanted the port.
bool Runs::has_rested(PairId e, TimeNs laps_ns) const {
    const auto rested = [&](PortId p) {
        const PortState& s = inventory_.port(p);
        const TimeNs some = kRestDarkTimes * fabric_.switch_of(p).dark_ns;
        const TimeNs least = laps_ns > 0 ? std::max(laps_ns, some) : kMostRests * some;
        const TimeNs rest = options_.rest_ns == 0 ? 0
                            : options_.rest_ns    ? std::max(*options_.rest_ns, kRestStays * s.stay_ns)
                                                  : std::clamp(kRestStays * s.stay_ns, least, kMostRests * least);
        return now_ - s.since_ns >= rest;
    };
    const auto& up = inventory_.pair(e).up;
    return !up.empty() && std::ranges::all_of(up, [&](const Circuit& c) { return rested(c.a) && rested(c.b); });
}

// What its launches go on with, and what comes together with that in any launch of the lap: all of it begins with whole
// launches, or none does. For one of which a run covers a part must be asked for, and that takes the run back.
Offers Runs::offer_endless(const Gang& gang) {
    const TimeNs laps_ns = longest_rest(gang);
    const auto rested = [&](PairId e) { return has_rested(e, laps_ns); };
    if (!may_begin(gang) || !std::ranges::all_of(gang.pairs, rested)) return {};
    Offers offers;
    std::vector<Whole> wholes;
    list_wholes(gang, offers, wholes);
    begin_behind_asked(offers);
    std::set<PairId> pairs(gang.pairs.begin(), gang.pairs.end());
    std::set<Key> covered;
    keep_if(offers, [&](const Key& sequence, Offer& offer) {
        if (!find_members(sequence, offer)) return false;
        if (const Run* run = run_of(*offer.comm, sequence, offer.begin, offer.begin + kEndless)) {
            if (!run->revoked && run->endless) covered.insert(sequence);
            return false;
        }
        offer.end = offer.begin + kEndless;
        return std::ranges::all_of(offer.pairs, [&](PairId e) {
            return inventory_.lit(e) != nullptr && !fences_.is_drained(e) &&
                   (pairs.contains(e) || (rested(e) && !is_taken(gang, e)));
        });
    });
    offer_whole_launches(wholes, covered, offers);
    for (const auto& [sequence, offer] : offers) pairs.insert(offer.pairs.begin(), offer.pairs.end());
    if (planner_.wants_more({pairs.begin(), pairs.end()}) || !align(wholes, offers)) return {};
    return offers;
}

void Runs::list_wholes(const Gang& gang, Offers& offers, std::vector<Whole>& wholes) const {
    const auto offer = [&](const Key& sequence, Comm* comm, bool mesh) {
        if (comm == nullptr || comm->verdict != Verdict::enforced || !comm->complete()) return;
        Offer& o = offers[sequence];
        o.comm = comm;
        o.mesh |= mesh;
    };
    std::vector<std::pair<const plan::Lap*, std::size_t>> listed;
    for (const Launch* launch : gang.launches) {
        const Rank* rank = rank_of(launch->id.node, launch->id.rank);
        const plan::Kind* kind = rank == nullptr || rank->job == nullptr ? nullptr : rank->job->learner->kind();
        Whole whole;
        bool is_of_lap = false;
        for (const KeyRef& r : launch->keys) {
            const Key sequence = sequence_of(r.key->key);
            if (!comes_again(sequence) || r.key->comm->verdict != Verdict::enforced) continue;
            offer(sequence, r.key->comm, r.key->mesh);
            whole.parts.push_back({sequence, static_cast<std::int64_t>(r.key->key.n), 1});
            if (kind == nullptr) continue;
            const plan::Lap& lap = kind->lap;
            const auto known = lap.sequences.find(sequence);
            if (known == lap.sequences.end() || !known->second.tied) continue;
            is_of_lap = true;
            const std::pair<const plan::Lap*, std::size_t> tied{&lap, *known->second.tied};
            if (std::ranges::find(listed, tied) != listed.end()) continue;
            listed.push_back(tied);
            for (const plan::Together& launch_of_lap : lap.tied[*known->second.tied]) {
                Whole& again = wholes.emplace_back();
                for (const auto& [other, n] : launch_of_lap) {
                    const plan::Sequence& s = must_find(lap.sequences, other);
                    offer(other, comms_.find(other.comm), s.mesh);
                    again.parts.push_back(
                        {other, static_cast<std::int64_t>(s.first) + n, static_cast<std::int64_t>(s.uses.size())});
                }
            }
        }
        if (!is_of_lap && whole.parts.size() > 1) wholes.push_back(std::move(whole));
    }
}

// Who has asked for a key, also on another stream, is granted it: the run begins behind that.
void Runs::begin_behind_asked(Offers& offers) {
    const Comm* before = nullptr;
    for (auto& [sequence, offer] : offers) {
        for (const std::uint64_t upto : offer.comm->finished_of(sequence))
            if (upto != kAllFinished) offer.begin = std::max(offer.begin, upto);
        if (std::exchange(before, offer.comm) == offer.comm) continue;
        for (const auto& [key, state] : offer.comm->keys)
            if (const auto at = offers.find(sequence_of(key)); at != offers.end())
                at->second.begin = std::max(at->second.begin, key.n + 1);
    }
}

// What is left out of a launch leaves out all of it.
void Runs::offer_whole_launches(const std::vector<Whole>& wholes, const std::set<Key>& covered, Offers& offers) {
    for (std::size_t before = offers.size() + 1; before != offers.size();) {
        before = offers.size();
        for (const Whole& whole : wholes)
            if (!std::ranges::all_of(whole.parts, [&](const Whole::Part& p) {
                    return offers.contains(p.sequence) || covered.contains(p.sequence);
                }))
                for (const Whole::Part& p : whole.parts) offers.erase(p.sequence);
    }
}

// All of a launch is behind the begins of its sequences, or nothing is. False: there are no such begins.
bool Runs::align(const std::vector<Whole>& wholes, Offers& offers) {
    bool raised = true;
    for (int pass = 0; raised && pass < kMostPasses; ++pass) {
        raised = false;
        for (const Whole& whole : wholes) {
            std::int64_t times = std::numeric_limits<std::int64_t>::min();  // until it is covered
            for (const Whole::Part& p : whole.parts)
                if (const auto at = offers.find(p.sequence); at != offers.end())
                    times = std::max(times, divide_up(static_cast<std::int64_t>(at->second.begin) - p.n, p.again));
            for (const Whole::Part& p : whole.parts) {
                const auto at = offers.find(p.sequence);
                if (at == offers.end()) continue;
                const auto least = static_cast<std::uint64_t>(std::max<std::int64_t>(0, p.n + (times - 1) * p.again + 1));
                if (at->second.begin >= least) continue;
                at->second.begin = least;
                at->second.end = least + kEndless;
                raised = true;
            }
        }
    }
    return !raised;
}

// --- by the plan ----------------------------------------------------------------------------------

// What the plan of its job has next for the gang's light, before anything is turned.
Offers Runs::offer_planned(const Gang& gang) {
    const Job* job = turns_.job_of(gang);
    if (job == nullptr || job->course == nullptr || !may_begin(gang)) return {};
    std::vector<PortId> ports;
    TimeNs dark = 0;
    for (const PairId e : gang.pairs)
        for (const Circuit& c : inventory_.pair(e).up) {
            ports.insert(ports.end(), {c.a, c.b});
            dark = std::max(dark, fabric_.switch_of(c.a).dark_ns);
        }
    // Where other jobs want the light, a member that starts before the others keeps it from them until those come.
    const TimeNs most_apart = turns_.shares_light(*job, ports) ? dark : std::numeric_limits<TimeNs>::max();
    Offers offers;
    for (const auto& [sequence, range] : job->course->kept_keys(ports, most_apart)) {
        Comm* comm = comes_again(sequence) ? comms_.find(sequence.comm) : nullptr;
        if (comm == nullptr || comm->verdict != Verdict::enforced || !comm->complete()) continue;
        Offer& offer = offers[sequence];
        offer = {comm, range.begin, range.end, range.mesh};
    }
    begin_behind_asked(offers);
    keep_if(offers, [&](const Key& sequence, Offer& offer) {
        if (offer.begin >= offer.end || !find_members(sequence, offer)) return false;
        offer.end = std::min(offer.end, offer.begin + wire::kMostKeysPlanned);
        return run_of(*offer.comm, sequence, offer.begin, offer.end) == nullptr &&
               std::ranges::all_of(offer.pairs, [&](PairId e) {
                   return std::binary_search(gang.pairs.begin(), gang.pairs.end(), e) && inventory_.lit(e) != nullptr &&
                          !fences_.is_drained(e);
               });
    });
    return offers;
}

// --- both -----------------------------------------------------------------------------------------

// All of its members can be told, also one whose launch is in flight already or comes later.
bool Runs::find_members(const Key& sequence, Offer& offer) {
    const bool coll = is_collective(sequence);
    const Comm& comm = *offer.comm;
    std::uint32_t told = 0;
    for (std::uint32_t slot = 0; slot < comm.size; ++slot) {
        const Member& member = comm.members[slot];
        if (place_of(sequence, slot) == kNone || member.gone || !nodes_[member.node].up()) continue;
        ++told;
        offer.nodes.insert(member.node);
    }
    offer.pairs = pairs_of_sequence(*offer.comm, sequence, coll && offer.mesh);
    return told == (coll ? comm.size : 2u);
}

std::vector<PairId> Runs::pairs_of_sequence(Comm& comm, const Key& sequence, bool mesh) {
    KeyState key = stand_in(comm, sequence, mesh);
    const auto [begin, end] = launches_.pairs_of(key);
    std::vector<PairId> pairs(begin, end);
    std::sort(pairs.begin(), pairs.end());
    return pairs;
}

}  // namespace opus::controller
