// Runs: granted with a gang as far as the plan keeps its light, or without end where it is at rest; revoked when
// somebody wants their ports, ended by a cut that leaves no key half-started unseen.
#include <algorithm>

#include "controller/core/gangs/gangs.h"
#include "controller/core/leases/runs.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

constexpr TimeNs kLeastQuantumNs = 1'000'000;

}  // namespace

Run* Runs::find(std::uint64_t grant) {
    const auto it = runs_.find(grant);
    return it == runs_.end() ? nullptr : &it->second;
}

// --- granting -------------------------------------------------------------------------------------

// The soft part of the gang's grant, by node. Called before its launches take off.
std::map<NodeIndex, std::vector<wire::KeyRange>> Runs::begin(const Gang& gang, std::uint64_t grant, std::uint32_t circuits) {
    std::map<NodeIndex, std::vector<wire::KeyRange>> soft;
    Offers offers = offer_endless(gang);
    Run run;
    run.grant = grant;
    run.endless = !offers.empty();
    if (offers.empty()) offers = offer_planned(gang);
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
    const auto is_of_gang = [&](PairId e) { return std::ranges::binary_search(gang.pairs, e); };
    run.circuits = std::ranges::all_of(run.pairs, is_of_gang) ? circuits : 0;
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
// by that light would keep it: without end, of a plan before this one, or by another circuit of the pair.
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
