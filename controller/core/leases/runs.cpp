// Runs: granted with a gang as far as the plan keeps its light, or without end where it is at rest; revoked when
// somebody wants their ports, ended by a cut that leaves no key half-started unseen.
#include <algorithm>
#include <limits>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/runs.h"
#include "controller/core/program/fences.h"
#include "controller/core/provision/turns.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

constexpr std::uint64_t kEndless = wire::kMaxKeysPerLaunch;  // keys of one sequence: then it is asked for once more
constexpr TimeNs kLeastQuantumNs = 1'000'000;
constexpr TimeNs kRestDarkTimes = 16, kRestStays = 4, kMostRests = 32;

// Connections are made once.
bool comes_again(const Key& key) { return key.kind == KeyKind::coll || key.kind == KeyKind::p2p; }
bool goes_on(const KeyState& key) { return comes_again(key.key) && key.comm->verdict == Verdict::enforced; }

}  // namespace

// Of a sequence: what a run may cover of it, and, once it is known to be possible, whose nodes are told and on which pairs it lies.
struct Runs::Offer {
    Comm* comm = nullptr;
    std::uint64_t begin = 0, end = ~0ull;
    bool mesh = false;
    std::set<NodeIndex> nodes = {};
    std::vector<PairId> pairs = {};
};

std::vector<PairId> Runs::pairs_of_sequence(Comm& comm, const Key& sequence, bool mesh) {
    KeyState key = stand_in(comm, sequence, mesh);
    const auto [begin, end] = launches_.pairs_of(key);
    std::vector<PairId> pairs(begin, end);
    std::sort(pairs.begin(), pairs.end());
    return pairs;
}

Run* Runs::find(std::uint64_t grant) {
    const auto it = runs_.find(grant);
    return it == runs_.end() ? nullptr : &it->second;
}

// --- granting -------------------------------------------------------------------------------------

bool Runs::may_begin(const Gang& gang, bool endless) {
    if (!options_.runs || gang.launches.empty()) return false;
    if (const Job* job = turns_.job_of(gang); !endless && (job == nullptr || job->course == nullptr)) return false;
    for (const Launch* l : gang.launches)  // those that come back from the dark have lost their place
        if (l->open() || l->passed() || l->mixed || l->alone || !nodes_[l->id.node].up()) return false;
    if (gang.revoked_for) return true;  // it has its quantum
    for (const PairId e : gang.pairs)
        for (const Circuit& c : inventory_.pair(e).up)
            for (const PortId p : {c.a, c.b})
                for (const Reservation& r : inventory_.port(p).reservations)
                    if (r.gang != &gang && r.pair != e) return false;
    return true;
}

// For how long light must be up by the laps of the jobs that the gang is of; 0: of one it is not known.
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

// Its light has been up for whole laps, and for much longer than light there before somebody else wanted the port.
bool Runs::has_rested(const Gang& gang) const {
    const TimeNs laps = longest_rest(gang);
    if (!options_.rest_ns && laps == 0) return false;
    const auto rested = [&](PortId p) {
        const PortState& s = inventory_.port(p);
        const TimeNs least = std::max(laps, kRestDarkTimes * fabric_.switch_of(p).dark_ns);
        const TimeNs rest = options_.rest_ns == 0 ? 0
                            : options_.rest_ns    ? std::max(*options_.rest_ns, kRestStays * s.stay_ns)
                                                  : std::clamp(kRestStays * s.stay_ns, least, kMostRests * least);
        return now_ - s.since_ns >= rest;
    };
    return std::all_of(gang.pairs.begin(), gang.pairs.end(), [&](PairId e) {
        const auto& up = inventory_.pair(e).up;
        return !up.empty() &&
               std::all_of(up.begin(), up.end(), [&](const Circuit& c) { return rested(c.a) && rested(c.b); });
    });
}

// What its launches themselves may go on with where the run has no end.
void Runs::offer_endless(const Gang& gang, std::map<Key, Offer>& offers) {
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys) {
            const Key& key = r.key->key;
            Comm* comm = r.key->comm;
            if (!goes_on(*r.key) || !comm->complete()) continue;
            Offer& offer = offers[sequence_of(key)];
            offer.comm = comm;
            offer.begin = std::max(offer.begin, key.n + 1);
            offer.mesh |= r.key->mesh;
        }
}

// What the plan of its job has next for the gang's light, before anything is turned.
void Runs::offer_planned(const Gang& gang, std::map<Key, Offer>& offers) {
    const Job& job = *turns_.job_of(gang);
    std::vector<PortId> ports;
    TimeNs dark = 0;
    for (const PairId e : gang.pairs)
        for (const Circuit& c : inventory_.pair(e).up) {
            ports.insert(ports.end(), {c.a, c.b});
            dark = std::max(dark, fabric_.switch_of(c.a).dark_ns);
        }
    // Where other jobs want the light, a member that starts before the others keeps it from them until those come.
    const TimeNs most_apart = turns_.shares_light(job, ports) ? dark : std::numeric_limits<TimeNs>::max();
    for (const auto& [sequence, range] : job.course->kept_keys(ports, most_apart)) {
        Comm* comm = comes_again(sequence) ? comms_.find(sequence.comm) : nullptr;
        if (comm == nullptr || comm->verdict != Verdict::enforced || !comm->complete()) continue;
        offers.emplace(sequence, Offer{comm, range.begin, range.end, range.mesh});
    }
}

// All of its members can be told, also one whose launch is in flight already or comes later; its light is all up; no other run covers it.
bool Runs::can_be_offered(const Gang& gang, const Key& sequence, std::uint64_t most, Offer& offer) {
    const bool coll = is_collective(sequence);
    const Comm& comm = *offer.comm;
    // Who has asked for a key of it, on another stream, is granted it: the run begins behind that.
    for (const auto& entry : comm.keys)
        if (sequence_of(entry.first) == sequence) offer.begin = std::max(offer.begin, entry.first.n + 1);
    if (offer.begin >= offer.end) return false;
    std::uint32_t told = 0;
    for (std::uint32_t slot = 0; slot < comm.size; ++slot) {
        const Member& member = comm.members[slot];
        if (place_of(sequence, slot) == kNone || member.gone || !nodes_[member.node].up()) continue;
        ++told;
        offer.nodes.insert(member.node);
    }
    if (told != (coll ? comm.size : 2u)) return false;
    offer.end = std::min(offer.end, offer.begin + most);
    if (run_of(*offer.comm, sequence, offer.begin, offer.end) != nullptr) return false;
    offer.pairs = pairs_of_sequence(*offer.comm, sequence, coll && offer.mesh);
    return std::all_of(offer.pairs.begin(), offer.pairs.end(), [&](PairId e) {
        return std::binary_search(gang.pairs.begin(), gang.pairs.end(), e) && inventory_.lit(e) != nullptr &&
               !fences_.is_drained(e);
    });
}

// A launch of several sequences starts in a run with all of them, or asks for all, and asking takes back what covers a
// part. So sequences that come together are offered together, or are covered already.
void Runs::offer_whole_launches(const Gang& gang, std::map<Key, Offer>& offers) {
    const auto lacks = [&](const Launch* launch) {
        return std::any_of(launch->keys.begin(), launch->keys.end(), [&](const KeyRef& r) {
            const Key sequence = sequence_of(r.key->key);
            const std::uint64_t next = r.key->key.n + 1;
            return goes_on(*r.key) && !offers.contains(sequence) && run_of(*r.key->comm, sequence, next, next + 1) == nullptr;
        });
    };
    for (std::size_t before = offers.size() + 1; before != offers.size();) {
        before = offers.size();
        for (const Launch* launch : gang.launches)
            if (lacks(launch))
                for (const KeyRef& r : launch->keys) offers.erase(sequence_of(r.key->key));
    }
}

// The soft part of the gang's grant, by node. Called before its launches take off.
std::map<NodeIndex, std::vector<wire::KeyRange>> Runs::begin(const Gang& gang, std::uint64_t grant, std::uint32_t circuits) {
    std::map<NodeIndex, std::vector<wire::KeyRange>> soft;
    const bool endless = options_.runs && has_rested(gang) && !planner_.wants_more(gang.pairs);
    if (!may_begin(gang, endless)) return soft;
    std::map<Key, Offer> offers;
    endless ? offer_endless(gang, offers) : offer_planned(gang, offers);
    const std::uint64_t most = endless ? kEndless : wire::kMostKeysPlanned;
    for (auto it = offers.begin(); it != offers.end();)
        it = can_be_offered(gang, it->first, most, it->second) ? std::next(it) : offers.erase(it);
    if (endless) offer_whole_launches(gang, offers);
    Run run;
    run.grant = grant;
    run.endless = endless;
    run.circuits = circuits;
    for (const auto& [sequence, offer] : offers) {
        const bool mesh = is_collective(sequence) && offer.mesh;
        run.sequences.push_back({sequence, mesh, offer.begin, offer.end});
        run.pairs.insert(run.pairs.end(), offer.pairs.begin(), offer.pairs.end());
        Key first = sequence;
        first.n = offer.begin;
        for (const NodeIndex n : offer.nodes)
            soft[n].push_back({first, static_cast<std::uint32_t>(offer.end - offer.begin), mesh});
        run.nodes.insert(offer.nodes.begin(), offer.nodes.end());
    }
    if (run.sequences.empty()) return soft;
    ++counters_.runs;
    if (gang.revoked_for) {
        TimeNs dark = 0;
        for (const PairId e : run.pairs)
            for (const Circuit& c : inventory_.pair(e).up) dark = std::max(dark, fabric_.switch_of(c.a).dark_ns);
        run.keep_until_ns = now_ + std::max(2 * dark, kLeastQuantumNs);
        arm(run.keep_until_ns, TimerKind::run_quantum, grant);
        kept_.insert(grant);
    }
    Run& lasting = runs_[grant] = std::move(run);
    for (const NodeIndex n : lasting.nodes) nodes_[n].runs.insert(grant);
    for (const RunSequence& s : lasting.sequences) join_comm(*comms_.find(s.sequence.comm), grant);
    lie_on_pairs(lasting);
    return soft;
}

void Runs::join_comm(Comm& comm, std::uint64_t grant) {
    if (std::find(comm.runs.begin(), comm.runs.end(), grant) == comm.runs.end()) comm.runs.push_back(grant);
}

void Runs::lie_on_pairs(Run& run) {
    std::sort(run.pairs.begin(), run.pairs.end());
    run.pairs.erase(std::unique(run.pairs.begin(), run.pairs.end()), run.pairs.end());
    for (const PairId e : run.pairs) inventory_.pair(e).runs.push_back(run.grant);
}

Run* Runs::run_of(const Comm& comm, const Key& sequence, std::uint64_t begin, std::uint64_t end) {
    for (const std::uint64_t grant : comm.runs)
        for (const RunSequence& s : must_find(runs_, grant).sequences)
            if (s.sequence == sequence && begin < s.end && s.begin < end) return &must_find(runs_, grant);
    return nullptr;
}

bool Runs::covers(const Run& run, const KeyState& key) {
    return std::any_of(run.sequences.begin(), run.sequences.end(), [&](const RunSequence& s) {
        return s.sequence == sequence_of(key.key) && s.begin <= key.key.n && key.key.n < s.end && (s.mesh || !key.mesh);
    });
}

// --- revoking -------------------------------------------------------------------------------------

void Runs::revoke(Run& run, const std::string& why) {
    if (run.revoked) return;
    run.revoked = true;
    if (run.unsettled) return;  // asked for when its circuits are known
    ++counters_.revocations;
    log(LogLevel::debug, "run " + std::to_string(run.grant) + " is revoked: " + why);
    auto ports = ports_of(run);
    for (const NodeIndex n : run.nodes) send(n, wire::Revoke{run.grant, std::move(ports[n]), {run.grant}});
}

std::map<NodeIndex, std::vector<wire::PortSteering>> Runs::ports_of(const Run& run) const {
    std::map<NodeIndex, std::vector<wire::PortSteering>> ports;
    for (const PairId e : run.pairs)
        for (const Circuit& c : inventory_.pair(e).up)
            for (const PortId p : {c.a, c.b}) {
                const Gpu& gpu = fabric_.gpus[fabric_.ports[p].gpu];
                ports[gpu.node].push_back({gpu.local, fabric_.ports[p].index, kNone, kNone, kNone});
            }
    return ports;
}

// Somebody wants what it lies on, or asks for what it covers.
void Runs::take_back(Run& run, const std::string& why) {
    if (run.endless && !run.revoked)
        for (const PairId e : run.pairs)
            for (const Circuit& c : inventory_.pair(e).up)
                for (const PortId p : {c.a, c.b}) inventory_.end_stay(p, now_);
    revoke(run, why);
}

// The plan keeps the port's light for nothing any more, and is to turn it. Runs there that go on with what is not next
// by that light, without end or of a plan before this one, would keep it.
void Runs::end_beyond(const plan::Course& course, PortId p) {
    const PairId e = inventory_.port(p).pair;
    if (e == kNone) return;
    for (const std::uint64_t grant : std::vector<std::uint64_t>(inventory_.pair(e).runs)) {
        Run& run = must_find(runs_, grant);
        if (std::ranges::any_of(run.sequences, [&](const RunSequence& s) { return course.reached(s.sequence) < s.end; }))
            revoke(run, "a plan moves " + fabric_.ports[p].name);
    }
}

void Runs::send_revoke(const Run& run, NodeIndex n) {
    send(n, wire::Revoke{run.grant, std::move(ports_of(run)[n]), {run.grant}});
}

// What a waiting gang wants is taken from runs of others, once their quantum is over.
void Runs::revoke_for(Gang& gang, const WantedPort& wanted) {
    const PairId e = inventory_.port(wanted.port).pair;
    if (e == kNone || e == wanted.pair || inventory_.pair(e).runs.empty()) return;
    for (const std::uint64_t grant : std::vector<std::uint64_t>(inventory_.pair(e).runs)) {
        Run& run = must_find(runs_, grant);
        if (!run.revoked && now_ < run.keep_until_ns) continue;  // its timer looks again
        gang.revoked_for = true;
        take_back(run, "gang " + std::to_string(gang.ticket) + " wants " + fabric_.ports[wanted.port].name);
    }
}

void Runs::quantum_over(std::uint64_t grant) {
    kept_.erase(grant);
    Run* run = find(grant);
    if (run == nullptr) return;
    run->keep_until_ns = 0;
    std::set<std::uint64_t> waiting;
    for (const PairId e : run->pairs)
        for (const Circuit& c : inventory_.pair(e).up)
            for (const PortId p : {c.a, c.b})
                for (const Reservation& r : inventory_.port(p).reservations) waiting.insert(r.gang->id);
    for (const std::uint64_t id : waiting)
        if (Gang* gang = gangs_.find(id))
            for (const WantedPort& w : gang->wanted) revoke_for(*gang, w);
}

// A key that a run covers is asked for: that member does not hold the run any more, or cannot use it, and the
// others may have started without it. Or the demand has crossed the grant: if that covers all of it, it starts when
// its manager hears. Or the rank has gone on to something else: its run needs no quantum.
void Runs::demand_meets_runs(const Launch& launch) {
    std::vector<Run*> met;
    bool crossed = true;
    for (const KeyRef& r : launch.keys) {
        const Key& key = r.key->key;
        Run* run = r.key->comm->runs.empty() ? nullptr : run_of(*r.key->comm, sequence_of(key), key.n, key.n + 1);
        if (run != nullptr) met.push_back(run);
        crossed &= run != nullptr && !run->revoked && run->nodes.count(launch.id.node) != 0 && covers(*run, *r.key);
    }
    if (!crossed)
        for (Run* run : met) take_back(*run, name(launch.id) + " asks for what it covers");
    if (kept_.empty()) return;
    const Rank* rank = rank_of(launch.id.node, launch.id.rank);
    if (rank == nullptr) return;
    for (const std::uint64_t grant : std::set<std::uint64_t>(kept_))
        if (const Run* run = find(grant);
            run != nullptr && std::any_of(run->sequences.begin(), run->sequences.end(),
                                          [&](const RunSequence& s) { return rank->comms.count(s.sequence.comm) != 0; }))
            quantum_over(grant);
}

// endless: those without end, too. They are no guess.
void Runs::revoke_of(Comm& comm, const std::string& why, bool endless) {
    for (const std::uint64_t grant : std::vector<std::uint64_t>(comm.runs))
        if (Run& run = must_find(runs_, grant); endless || !run.endless) revoke(run, why);
}

void Runs::revoke_on(PairId e, const std::string& why) {
    for (const std::uint64_t grant : std::vector<std::uint64_t>(inventory_.pair(e).runs))
        revoke(must_find(runs_, grant), why);
}

void Runs::revoke_endless_at(GpuId gpu, const std::string& why) {
    for (auto& [grant, run] : runs_)
        if (run.endless && std::ranges::any_of(run.pairs, [&](PairId e) {
                return inventory_.pair(e).a == gpu || inventory_.pair(e).b == gpu;
            }))
            revoke(run, why);
}

}  // namespace opus::controller
