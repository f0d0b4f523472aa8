// What a run may cover: as far as the plan keeps the gang's light, or without end where light is at rest.
#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <utility>
#include <vector>

#include "controller/core/gangs/launches.h"
#include "controller/core/leases/runs.h"
#include "controller/core/program/fences.h"
#include "controller/core/provision/turns.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

constexpr std::int64_t kEndless = wire::kMaxKeysPerLaunch;  // keys of one sequence: then it is asked for once more
// At least: a run that is taken back costs some 100 us, whatever the dark time; with laps now and then a dark time.
constexpr TimeNs kRestNs = 100'000'000, kRestWithoutLapsNs = 1'000'000'000;
constexpr TimeNs kRestDarkTimes = 4, kDarkTimesWithoutLaps = 512, kRestStays = 4, kMostRests = 32;
constexpr int kMostPasses = 16;

// Connections are made once.
bool comes_again(const Key& key) { return key.kind == KeyKind::coll || key.kind == KeyKind::p2p; }

// The first that is greater than or equal to x / y.
std::int64_t divide_up(std::int64_t x, std::int64_t y) { return x / y + (x % y > 0 ? 1 : 0); }

}  // namespace

// A launch of several sequences. It comes again and again, or is taken to.
struct Runs::Whole {
    struct Part {
        Key sequence;
        std::int64_t n = 0;      // of its key, once
        std::int64_t again = 1;  // and so many later the next time
    };
    std::vector<Part> parts;

    // Of one that is taken to come again as it is.
    void repeat() {
        for (Part& p : parts) p.again = std::ranges::count(parts, p.sequence, &Part::sequence);
    }
    std::int64_t most_again() const { return std::ranges::max(parts, {}, &Part::again).again; }
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

// It is all up, and nobody's hand empties its ports.
bool Runs::serves(PairId e) const { return inventory_.lit(e) != nullptr && !fences_.is_drained(e); }

// --- where light is at rest -----------------------------------------------------------------------

// For how long light must be up by the laps of the jobs that the gang is of; 0: of one they are not known.
TimeNs Runs::longest_rest(const Gang& gang) const {
    TimeNs longest = 0;
    for (const Launch* l : gang.launches) {
        const Rank* rank = rank_of(l->id.node, l->id.rank);
        const TimeNs rest = rank == nullptr || rank->job == nullptr ? 0 : rank->job->learner->rest_ns();
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
        const TimeNs dark = fabric_.switch_of(p).dark_ns;
        const TimeNs least = laps_ns > 0 ? std::max({laps_ns, kRestNs, kRestDarkTimes * dark})
                                         : std::max(kRestWithoutLapsNs, kDarkTimesWithoutLaps * dark);
        const TimeNs rest = options_.rest_ns == 0 ? 0
                            : options_.rest_ns    ? std::max(*options_.rest_ns, kRestStays * s.stay_ns)
                                                  : std::clamp(kRestStays * s.stay_ns, least, kMostRests * least);
        return now_ - s.since_ns >= rest;
    };
    const auto& up = inventory_.pair(e).up;
    return !up.empty() && std::ranges::all_of(up, [&](const Circuit& c) { return rested(c.a) && rested(c.b); });
}

// What its launches go on with, and what comes together with that in any launch of the lap: all of it begins with whole
// launches, or none does. A launch that a run covers in part is asked for, and that takes the run back.
Offers Runs::offer_endless(const Gang& gang) {
    if (!may_begin(gang)) return {};
    const TimeNs laps_ns = longest_rest(gang);
    const auto can_lie = [&](PairId e) { return serves(e) && has_rested(e, laps_ns) && !is_taken(gang, e); };
    if (!std::ranges::all_of(gang.pairs, [&](PairId e) { return has_rested(e, laps_ns); })) return {};
    Offers offers;
    std::vector<Whole> wholes;
    list_wholes(gang, can_lie, offers, wholes);
    begin_behind_asked(offers);
    std::set<PairId> pairs(gang.pairs.begin(), gang.pairs.end());
    std::map<Key, std::uint64_t> covered;  // by a run that begins there
    std::erase_if(offers, [&](const auto& entry) {
        const auto& [sequence, offer] = entry;
        const Run* run = run_of(*offer.comm, sequence, offer.begin, offer.begin + offer.length);
        if (run == nullptr) return false;
        if (!run->revoked && run->endless)
            covered[sequence] = std::ranges::find(run->sequences, sequence, &RunSequence::sequence)->begin;
        return true;
    });
    for (auto at = offers.begin(); at != offers.end();) {
        const bool can = find_members(at->first, at->second) && std::ranges::all_of(at->second.pairs, [&](PairId e) {
                             return pairs.contains(e) ? serves(e) : can_lie(e);
                         });
        at = can ? std::next(at) : offers.erase(at);
    }
    offer_whole_launches(wholes, covered, offers);
    for (const auto& [sequence, offer] : offers) pairs.insert(offer.pairs.begin(), offer.pairs.end());
    if (planner_.wants_more({pairs.begin(), pairs.end()}) || !align(wholes, covered, offers)) return {};
    for (auto& [sequence, offer] : offers) offer.end = offer.begin + offer.length;
    return offers;
}

// The sequences that are to be offered, and the launches that tie them to each other. Without those of which one cannot be.
void Runs::list_wholes(const Gang& gang, const std::function<bool(PairId)>& can_lie, Offers& offers,
                       std::vector<Whole>& wholes) {
    const auto offer = [&](const Key& sequence, Comm* comm, bool mesh, std::int64_t times, std::int64_t again) {
        if (!comes_again(sequence) || comm == nullptr || comm->verdict != Verdict::enforced || !comm->complete())
            return;
        Offer& o = offers[sequence];
        o.comm = comm;
        o.mesh |= mesh;
        o.length = std::min(o.length, static_cast<std::uint64_t>(times * again));
    };
    struct Listed {
        const plan::Lap* lap = nullptr;
        std::size_t tied = 0;
        bool can_be_offered = false;
    };
    std::vector<Listed> listed;
    const auto list_tied = [&](Job& job, const plan::Lap& lap, std::size_t tied) {
        const auto known = std::ranges::find_if(listed, [&](const Listed& l) { return l.lap == &lap && l.tied == tied; });
        if (known != listed.end()) return known->can_be_offered;
        listed.push_back({&lap, tied, can_offer_tied(job, tied, can_lie)});
        if (!listed.back().can_be_offered) return false;
        std::int64_t most = 1;
        for (const plan::Together& launch : lap.tied[tied])
            for (const auto& part : launch) most = std::max(most, lap.again(part.first));
        for (const plan::Together& launch : lap.tied[tied]) {
            Whole& whole = wholes.emplace_back();
            for (const auto& [sequence, n] : launch) {
                const plan::Sequence& s = must_find(lap.sequences, sequence);
                offer(sequence, comms_.find(sequence.comm), s.mesh, kEndless / most, lap.again(sequence));
                whole.parts.push_back({sequence, static_cast<std::int64_t>(s.first) + n, lap.again(sequence)});
            }
        }
        return true;
    };
    for (const Launch* launch : gang.launches) {
        const Rank* rank = rank_of(launch->id.node, launch->id.rank);
        Job* job = rank == nullptr ? nullptr : rank->job;
        const plan::Kind* kind = job == nullptr ? nullptr : job->learner->kind();
        Whole whole;
        bool is_of_lap = true, can_be_offered = true;
        for (const KeyRef& r : launch->keys) {
            const Key sequence = sequence_of(r.key->key);
            if (!comes_again(sequence) || r.key->comm->verdict != Verdict::enforced) continue;
            whole.parts.push_back({sequence, static_cast<std::int64_t>(r.key->key.n), 1});
            const auto tied = kind == nullptr ? std::nullopt : kind->lap.tied_to(sequence);
            is_of_lap &= tied.has_value();
            can_be_offered &= !tied || list_tied(*job, kind->lap, *tied);
        }
        if (is_of_lap || !can_be_offered) continue;
        whole.repeat();
        for (const KeyRef& r : launch->keys) {
            const auto part = std::ranges::find(whole.parts, sequence_of(r.key->key), &Whole::Part::sequence);
            if (part != whole.parts.end())
                offer(part->sequence, r.key->comm, r.key->mesh, kEndless / whole.most_again(), part->again);
        }
        if (whole.parts.size() > 1) wholes.push_back(std::move(whole));
    }
}

// All of it may lie on its light. What did not the last time is looked at first.
bool Runs::can_offer_tied(Job& job, std::size_t tied, const std::function<bool(PairId)>& can_lie) {
    const plan::Lap& lap = job.learner->kind()->lap;
    const auto can = [&](const Key& sequence) {
        Comm* comm = comms_.find(sequence.comm);
        return comm != nullptr && comm->complete() &&
               std::ranges::all_of(pairs_of_sequence(*comm, sequence, must_find(lap.sequences, sequence).mesh), can_lie);
    };
    const auto hint = job.unrested.find(tied);
    if (hint != job.unrested.end() && lap.tied_to(hint->second) == tied && !can(hint->second)) return false;
    for (const plan::Together& launch : lap.tied[tied])
        for (const auto& part : launch)
            if (!can(part.first)) {
                job.unrested[tied] = part.first;
                return false;
            }
    return true;
}

// Who has asked for a key, also on another stream, is granted it: the run begins behind that. (Offers of a communicator
// follow each other.)
void Runs::begin_behind_asked(Offers& offers) {
    const Comm* before = nullptr;
    for (auto& [sequence, offer] : offers) {
        offer.begin = std::max(offer.begin, sequence.n);
        for (const std::uint64_t upto : offer.comm->finished_of(sequence))
            if (upto != kAllFinished) offer.begin = std::max(offer.begin, upto);
        if (std::exchange(before, offer.comm) == offer.comm) continue;
        for (const auto& [key, state] : offer.comm->keys)
            if (const auto at = offers.find(sequence_of(key)); at != offers.end())
                at->second.begin = std::max(at->second.begin, key.n + 1);
    }
}

// What is left out of a launch leaves out all of it.
void Runs::offer_whole_launches(const std::vector<Whole>& wholes, const std::map<Key, std::uint64_t>& covered,
                                Offers& offers) {
    for (std::size_t before = offers.size() + 1; before != offers.size();) {
        before = offers.size();
        for (const Whole& whole : wholes)
            if (!std::ranges::all_of(whole.parts, [&](const Whole::Part& p) {
                    return offers.contains(p.sequence) || covered.contains(p.sequence);
                }))
                for (const Whole::Part& p : whole.parts) offers.erase(p.sequence);
    }
}

// All of a launch is behind the begins of its sequences, or nothing is. False: no such begins were found.
bool Runs::align(const std::vector<Whole>& wholes, const std::map<Key, std::uint64_t>& covered, Offers& offers) {
    bool raised = true;
    const auto align = [&](const Whole& whole) {
        std::int64_t times = std::numeric_limits<std::int64_t>::min();  // until it is covered
        const auto begin = [&](const Key& sequence) {
            const auto at = offers.find(sequence);
            return at != offers.end() ? at->second.begin : must_find(covered, sequence);
        };
        if (std::ranges::none_of(whole.parts, [&](const Whole::Part& p) { return offers.contains(p.sequence); }))
            return true;
        for (const Whole::Part& p : whole.parts)
            times = std::max(times, divide_up(static_cast<std::int64_t>(begin(p.sequence)) - p.n, p.again));
        for (const Whole::Part& p : whole.parts) {
            const auto least = static_cast<std::uint64_t>(std::max<std::int64_t>(0, p.n + (times - 1) * p.again + 1));
            if (begin(p.sequence) >= least) continue;
            const auto at = offers.find(p.sequence);
            if (at == offers.end()) return false;
            at->second.begin = least;
            raised = true;
        }
        return true;
    };
    for (int pass = 0; raised && pass < kMostPasses; ++pass) {
        raised = false;
        if (!(pass % 2 == 0 ? std::ranges::all_of(wholes, align) : std::ranges::all_of(wholes | std::views::reverse, align)))
            return false;
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
        offers[sequence] = {.comm = comm, .begin = range.begin, .end = range.end, .mesh = range.mesh};
    }
    begin_behind_asked(offers);
    const auto can_be_offered = [&](const Key& sequence, Offer& offer) {
        if (offer.begin >= offer.end || !find_members(sequence, offer)) return false;
        offer.end = std::min(offer.end, offer.begin + wire::kMostKeysPlanned);
        return run_of(*offer.comm, sequence, offer.begin, offer.end) == nullptr &&
               std::ranges::all_of(offer.pairs,
                                   [&](PairId e) { return std::ranges::binary_search(gang.pairs, e) && serves(e); });
    };
    for (auto at = offers.begin(); at != offers.end();)
        at = can_be_offered(at->first, at->second) ? std::next(at) : offers.erase(at);
    return offers;
}

// --- both -----------------------------------------------------------------------------------------

// All of its members can be told, also one whose launch is in flight already or comes later.
bool Runs::find_members(const Key& sequence, Offer& offer) {
    const bool coll = is_collective(sequence);
    const Comm& comm = *offer.comm;
    std::uint32_t told = 0;
    const std::uint32_t places = coll ? comm.size : place_of(sequence, sequence.dst) == kNone ? 1 : 2;
    for (std::uint32_t place = 0; place < places; ++place) {
        const Member& member = comm.members[slot_of(sequence, place)];
        if (member.gone || !nodes_[member.node].up()) continue;
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
