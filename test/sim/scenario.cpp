#include "test/sim/scenario.h"

#include <algorithm>

#include "test/sim/calendar.h"
#include "test/sim/fabrics.h"
#include "test/sim/programs.h"
#include "test/sim/random.h"

namespace opus::sim {
namespace {

enum Stream : std::uint64_t {
    kFabric = 1,
    kJobs,
    kTiming,
    kFaults,
    kPrograms,
    kSilence = 64,
    kEarly,
    kStages,
    kGuard,
    kRest,
    kRings,
    kDrains
};

void add_job(Scenario& s, Random& random) {
    const auto index = static_cast<std::uint32_t>(s.jobs.size());
    JobPlan job;
    std::vector<GpuId> places;
    for (GpuId g = 0; g < s.fabric.gpus.size(); ++g)
        if (index == 0 || random.chance(600)) places.push_back(g);
    if (places.size() < 2) places = {0, static_cast<GpuId>(s.fabric.gpus.size() - 1)};
    if (index > 0) {
        if (random.chance(500)) {
            job.after = random.below(index);
            job.start_ns = random.spread(10 * 1000, 50'000'000);
        } else {
            job.start_ns = random.spread(10 * 1000, 100'000'000);
        }
    }
    // NCCL's ranks need not follow the nodes.
    if (random.chance(300))
        for (std::size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[random.below(i)]);
    const Policy policy = s.fault_class == FaultClass::mixed && random.chance(100) ? Policy::abort : Policy::proceed;
    for (const GpuId g : places) {
        RankPlan rank;
        rank.job = index;
        rank.node = s.fabric.gpus[g].node;
        rank.gpu = s.fabric.gpus[g].local;
        rank.policy = policy;
        if (s.fault_class == FaultClass::mixed && random.chance(10)) rank.mode = Mode::observe;
        if (s.fault_class == FaultClass::early && random.chance(100)) rank.mode = Mode::observe;
        job.ranks.push_back(static_cast<std::uint32_t>(s.ranks.size()));
        s.ranks.push_back(std::move(rank));
    }
    s.jobs.push_back(std::move(job));
}

// The first one's ranks: one that sends early, one that posts its receive earlier still, and the other's neighbour.
void add_early_jobs(Scenario& s, Random& random) {
    const auto nodes = static_cast<NodeIndex>(s.fabric.nodes.size());
    const std::uint32_t gpu = random.below(s.fabric.nodes[0].gpus.size()), others = random.below(3);
    for (std::uint32_t j = 0; j < (others == 1 ? 2 : 1); ++j) {
        JobPlan job;
        job.shape = JobShape::early;
        const NodeIndex first = random.below(nodes);
        for (std::uint32_t i = 0; i < 3; ++i) {
            RankPlan rank;
            rank.job = j;
            rank.node = (first + i) % nodes;
            rank.gpu = gpu;
            job.ranks.push_back(static_cast<std::uint32_t>(s.ranks.size()));
            s.ranks.push_back(std::move(rank));
        }
        s.jobs.push_back(std::move(job));
    }
    if (others == 2) add_job(s, random);
}

// Stages in a ring or a line, a GPU of each node.
void add_stages(Scenario& s, Random& random) {
    const std::uint32_t gpu = random.below(s.fabric.nodes[0].gpus.size());
    JobPlan job;
    job.shape = random.chance(500) ? JobShape::ring : JobShape::line;
    for (NodeIndex node = 0; node < s.fabric.nodes.size(); ++node) {
        RankPlan rank;
        rank.node = node;
        rank.gpu = gpu;
        job.ranks.push_back(static_cast<std::uint32_t>(s.ranks.size()));
        s.ranks.push_back(std::move(rank));
    }
    s.jobs.push_back(std::move(job));
}

// Two jobs of two ranks each: the second wants the ports of the first one's second rank.
void add_silent_jobs(Scenario& s, Random& random) {
    const auto nodes = static_cast<NodeIndex>(s.fabric.nodes.size());
    const NodeIndex first = random.below(nodes);
    const std::uint32_t gpu = random.below(s.fabric.nodes[0].gpus.size());
    for (std::uint32_t j = 0; j < 2; ++j) {
        JobPlan job;
        job.shape = JobShape::silent;
        if (j == 1) job.start_ns = random.between(50 * kMs, s.timing.silence_ns + s.timing.grace_ns / 2);
        for (std::uint32_t i = 0; i < 2; ++i) {
            RankPlan rank;
            rank.job = j;
            rank.node = (first + i + j) % nodes;
            rank.gpu = gpu;
            job.ranks.push_back(static_cast<std::uint32_t>(s.ranks.size()));
            s.ranks.push_back(std::move(rank));
        }
        s.jobs.push_back(std::move(job));
    }
}

void add_jobs(Scenario& s, Random random) {
    if (s.fault_class == FaultClass::silence) return add_silent_jobs(s, random);
    if (s.fault_class == FaultClass::early) return add_early_jobs(s, random);
    std::uint32_t count = random.chance(600) ? 1 : 2 + random.below(2);
    const bool may_be_stages = s.fault_class == FaultClass::windows || s.fault_class == FaultClass::mixed;
    Random stages(s.seed, kStages);
    if (may_be_stages && s.fabric.nodes.size() > 2 && stages.chance(400)) {
        s.provision = true;
        add_stages(s, stages);
        --count;
    }
    for (std::uint32_t i = 0; i < count; ++i) add_job(s, random);
}

// The first one's node that computes for long; now and then the other's, too.
NodeIndex silent_node(const Scenario& s, std::uint32_t fault, Random& random) {
    return s.ranks[s.jobs[0].ranks[fault > 0 && random.chance(200) ? 1 : 0]].node;
}

std::vector<FaultKind> kinds_of(FaultClass c) {
    using enum FaultKind;
    switch (c) {
        case FaultClass::calm:
        case FaultClass::windows: return {};
        case FaultClass::ranks: return {rank_death};
        case FaultClass::managers: return {manager_death};
        case FaultClass::controller: return {controller_death};
        case FaultClass::network: return {link_break, partition, lossy, duplicates};
        case FaultClass::switches: return {session_drop, slow, refuse, refuse_all, partial, stuck, reboot};
        case FaultClass::foreign: return {foreign_hand};
        case FaultClass::silence: return {partition, mute, deaf};
        case FaultClass::early:
            return {rank_death, manager_death, controller_death, link_break, partition,  lossy,  duplicates,  mute,
                    deaf,       session_drop,  slow,             refuse,     refuse_all, reboot, foreign_hand};
        case FaultClass::wide:
        case FaultClass::mixed:
            return {rank_death,   manager_death, controller_death, link_break, partition, lossy, duplicates,
                    session_drop, slow,          refuse,           refuse_all, partial,   stuck, reboot};
    }
    return {};
}

void add_faults(Scenario& s, Random random) {
    const std::vector<FaultKind> kinds = kinds_of(s.fault_class);
    if (kinds.empty()) return;
    const bool early = s.fault_class == FaultClass::early;
    const bool wide = s.fault_class == FaultClass::wide;
    const std::uint32_t count = early ? random.below(4)
                                : wide && random.chance(500)
                                    ? 0
                                    : 1 + random.below(s.fault_class == FaultClass::mixed ? 5 : 3);
    for (std::uint32_t i = 0; i < count; ++i) {
        Fault f;
        f.kind = kinds[random.below(kinds.size())];
        if (s.timing.long_silence && i == 0) f.kind = FaultKind::partition;
        f.at_ns = random.spread(50'000, 150'000'000);
        f.lasts_ns = random.spread(200'000, 2'500'000'000);
        f.detail = random.next();
        if (early) f.at_ns = random.between(0, s.about_ns);
        if (s.fault_class == FaultClass::silence) {
            f.at_ns = random.between(50 * kMs, 500 * kMs);
            f.lasts_ns = s.timing.silence_ns + random.between(s.timing.grace_ns / 4 * 3, 3 * s.timing.grace_ns);
        }
        switch (f.kind) {
            case FaultKind::rank_death: f.target = random.below(s.ranks.size()); break;
            case FaultKind::controller_death: f.target = 0; break;
            case FaultKind::mute:
            case FaultKind::deaf: f.target = silent_node(s, i, random); break;
            case FaultKind::manager_death:
            case FaultKind::link_break:
            case FaultKind::partition:
                if (s.fault_class == FaultClass::silence) {
                    f.target = silent_node(s, i, random);
                    break;
                }
                [[fallthrough]];
            case FaultKind::lossy:
            case FaultKind::duplicates: f.target = random.below(s.fabric.nodes.size()); break;
            default: f.target = random.below(s.fabric.switches.size()); break;
        }
        if (early && !is_of_switch(f.kind) && random.chance(600)) {
            const std::uint32_t receiver = s.jobs[0].ranks[1];
            f.target = f.kind == FaultKind::rank_death         ? receiver
                       : f.kind == FaultKind::controller_death ? 0
                                                               : s.ranks[receiver].node;
        }
        // Longer than the hold time, now and then: then the policy acts.
        if (random.chance(60) && (f.kind == FaultKind::manager_death || f.kind == FaultKind::controller_death))
            f.lasts_ns = s.timing.hold_ns + random.between(0, s.timing.hold_ns);
        if (s.timing.long_silence && f.kind == FaultKind::partition)
            f.lasts_ns = s.timing.silence_ns + random.between(s.timing.grace_ns / 2, 3 * s.timing.grace_ns);
        s.faults.push_back(f);
    }
    std::sort(s.faults.begin(), s.faults.end(), [](const Fault& x, const Fault& y) { return x.at_ns < y.at_ns; });
}

}  // namespace

const char* name_of(FaultClass c) {
    static constexpr const char* kNames[] = {"calm",    "ranks", "managers", "controller", "network", "switches",
                                             "foreign", "mixed", "windows",  "silence",    "early",   "wide"};
    return kNames[static_cast<std::size_t>(c)];
}

const char* name_of(FaultKind kind) {
    static constexpr const char* kNames[] = {
        "rank death",   "manager death", "controller death", "link break", "partition", "lossy",  "duplicates",
        "session drop", "slow",          "refuse",           "refuse all", "partial",   "stuck",  "reboot",
        "foreign hand",
        "mute",         "deaf"};
    return kNames[static_cast<std::size_t>(kind)];
}

bool is_of_switch(FaultKind kind) {
    using enum FaultKind;
    return kind == session_drop || kind == slow || kind == refuse || kind == refuse_all || kind == partial ||
           kind == stuck || kind == reboot || kind == foreign_hand;
}

bool is_of_network(FaultKind kind) {
    using enum FaultKind;
    return kind == link_break || kind == partition || kind == mute || kind == deaf || kind == lossy || kind == duplicates;
}

const char* name_of(Mutation m) {
    static constexpr const char* kNames[] = {"none",
                                             "cut-under-launch",
                                             "drop-grants",
                                             "start-without-go",
                                             "lying-switch",
                                             "forget-done",
                                             "early-answer",
                                             "half-grant",
                                             "ignore-revoke",
                                             "keep-runs",
                                             "retract-nothing",
                                             "fast-path-first-use",
                                             "no-connect-keys",
                                             "no-empty-keys",
                                             "no-pair-keys",
                                             "overlook-ahead",
                                             "keep-replays"};
    return kNames[static_cast<std::size_t>(m)];
}

std::string Scenario::name_of_rank(std::uint32_t rank) const {
    const RankPlan& r = ranks[rank];
    return "r" + std::to_string(rank) + "(" + fabric.nodes[r.node].name + ".g" + std::to_string(r.gpu) + ")";
}

Scenario make_scenario(std::uint64_t seed, FaultClass fault_class, Mutation mutation) {
    Scenario s;
    s.seed = seed;
    s.fault_class = fault_class;
    s.mutation = mutation;
    const bool silent = fault_class == FaultClass::silence;
    const bool early = fault_class == FaultClass::early;
    Random early_random(seed, kEarly);
    Random fabric(seed, kFabric);
    Shape shape = fault_class == FaultClass::wide ? wide_shape(fabric) : some_shape(fabric, silent || early);
    if (early) shape.dark_ns = early_random.chance(500) ? 5 * kMs : early_random.chance(500) ? 25 * kMs : 150 * kMs;
    s.fabric = make_fabric(shape);
    Random timing(seed, kTiming);
    s.timing.wire_high_ns = timing.chance(700) ? timing.spread(50'000, 500'000) : timing.spread(500'000, 20'000'000);
    s.timing.poll_high_ns = timing.spread(20'000, 600'000);
    if (fault_class == FaultClass::network || fault_class == FaultClass::mixed)
        if (Random silence(seed, kSilence); silence.chance(150)) {
            s.timing.long_silence = true;
            s.timing.grace_ns = silence.between(1'500'000'000, 3'000'000'000);
            s.timing.compute_high_ns = 2 * s.timing.grace_ns;
        }
    if (silent) {  // in the daemons' own proportion: the grace time is more than four times the silence
        s.timing.heartbeat_ns = 100 * kMs;
        s.timing.silence_ns = 400 * kMs;
        s.timing.grace_ns = timing.between(2'000 * kMs, 3'000 * kMs);
    }
    s.provision = fault_class == FaultClass::windows || early || timing.chance(800);
    s.guard = Random(seed, kGuard).chance(250);
    if (Random rings(seed, kRings); rings.chance(400)) s.ring_slots = 8u << rings.between(0, 2);
    if (Random rest(seed, kRest); rest.chance(600)) s.timing.rest_ns = rest.chance(500) ? 0 : rest.spread(1, 100 * kMs);
    add_jobs(s, Random(seed, kJobs));
    for (std::uint32_t i = 0; i < s.jobs.size(); ++i) {
        s.jobs[i].drains = Random(seed, kDrains + i).chance(500);
        write_programs(s, i, Random(seed, kPrograms + i));
        s.jobs[i].drains = s.jobs[i].drains && ends_without_opus(s, i);
    }
    if (early)  // in the midst of what is there
        for (std::uint32_t i = 1; i < s.jobs.size(); ++i)
            if (s.jobs[i].after == kNone) s.jobs[i].start_ns = early_random.between(0, s.about_ns);
    add_faults(s, Random(seed, kFaults));
    for (const Fault& f : s.faults) s.healed_ns = std::max(s.healed_ns, f.at_ns + f.lasts_ns);
    return s;
}

}  // namespace opus::sim
