#include "test/sim/world.h"

#include <algorithm>

namespace opus::sim {
namespace {

constexpr TimeNs kInspectNs = 50 * kMs;
constexpr TimeNs kSettleNs = 3 * kSecond;     // from the last program's end to rest
constexpr TimeNs kTakenBackNs = 20 * kSecond;  // ... where a port is fenced: its pauses grow to 6.4 s
constexpr TimeNs kPatienceNs = 60 * kSecond;  // from healing, and from a job's start, to its end
constexpr TimeNs kPatienceDarkTimes = 400;    // besides: without the guard a wrong plan may cost each launch two
constexpr TimeNs kAbortNs = kSecond;          // from a rank's death to that of its job

}  // namespace

World::World(const Scenario& s, RingMemory& ring_memory, const WorldOptions& o)
    : scenario(s),
      options(o),
      memory(ring_memory),
      plane(*this, s),
      traffic(*this, s),
      inspector(*this, s),
      network(*this, s),
      controller(*this, s),
      arrivals(s.creations.size()),
      jobs_(s.jobs.size()),
      manager_deaths_(s.fabric.nodes.size()) {
    journal.on = o.log;
    memory.reset();
    if (s.mutation == Mutation::lying_switch || s.mutation == Mutation::early_answer) mutations_left = 1'000;
    for (NodeIndex n = 0; n < s.fabric.nodes.size(); ++n)
        managers.push_back(std::make_unique<ManagerHost>(*this, s, n));
    for (std::uint32_t r = 0; r < s.ranks.size(); ++r) ranks.push_back(std::make_unique<Rank>(*this, s, r));
}

Outcome World::run() {
    jobs_left_ = static_cast<std::uint32_t>(jobs_.size());
    controller.start();
    for (auto& manager : managers) manager->start();
    for (std::uint32_t j = 0; j < jobs_.size(); ++j)
        if (scenario.jobs[j].after == kNone) calendar.add(scenario.jobs[j].start_ns, {Kind::job_start, j});
    for (std::uint32_t f = 0; f < scenario.faults.size(); ++f)
        if (!scenario.faults[f].left_out)
            calendar.add(scenario.faults[f].at_ns, {Kind::fault, f});
    healed_ns_ = scenario.healed_ns;
    deadline_ns_ = healed_ns_ + kPatienceNs;
    after(kInspectNs, Kind::inspect, 0);
    bool over = false;
    while (!calendar.empty() && !failed() && !over) {
        const auto [at_ns, number, entry] = calendar.take();
        now = at_ns;
        ++outcome_.events;
        if (entry.kind == Kind::inspect) {
            inspect();
            const TimeNs settle = controller.fences() ? kTakenBackNs : kSettleNs;
            over = ended_ns_ >= 0 && now >= std::max(ended_ns_, healed_ns_) + settle;
        } else {
            dispatch(entry);
        }
    }
    if (!failed()) inspector.at_rest(true);
    outcome_.virtual_ns = now;
    outcome_.launches = launches.size();
    count_controller();
    return outcome_;
}

void World::dispatch(const Entry& e) {
    switch (e.kind) {
        case Kind::job_start: return start_job(e.who);
        case Kind::host: return ranks[e.who]->host();
        case Kind::stream: return ranks[e.who]->stream_step(static_cast<std::uint32_t>(e.what));
        case Kind::gate_look: return ranks[launches[e.who].rank]->look_at_gate(e.who);
        case Kind::gate_open: return ranks[launches[e.who].rank]->open_gate(e.who);
        case Kind::gave_up: return ranks[launches[e.who].rank]->give_up(e.who, e.what);
        case Kind::verdict_gave_up: return ranks[e.who]->give_up_verdict(e.what);
        case Kind::part_done: return ranks[launches[e.who].rank]->part_done(e.who, static_cast<std::uint32_t>(e.what));
        case Kind::flow: return traffic.advance(e.who, e.what);
        case Kind::rank_killed: return rank_died(e.who, false);
        case Kind::rank_noticed: return manager_of(e.who).rank_gone(e.who);
        case Kind::look: return managers[e.who]->look(e.what);
        case Kind::manager_tick: return managers[e.who]->tick(e.what);
        case Kind::retracted: return managers[e.who]->retracted(e.what);
        case Kind::connect: return network.try_connect(e.who, e.what);
        case Kind::frame_up: return network.arrive_up(e.who, e.what);
        case Kind::frame_down: return network.arrive_down(e.who, e.what);
        case Kind::resume: return network.resume(e.who);
        case Kind::broken_below: return network.broken_below(e.who);
        case Kind::broken_above: return network.broken_above(e.who);
        case Kind::controller_tick: return controller.tick(e.what);
        case Kind::thought: return controller.thought(e.what);
        case Kind::controller_second: return controller.every_second(e.what);
        case Kind::driver_up: return plane.driver_up(e.who, e.what);
        case Kind::command: return plane.execute(e.who);
        case Kind::settled: return plane.settle(e.who);
        case Kind::answer: return plane.deliver(e.who, e.what);
        case Kind::fault: return begin_fault(e.who);
        case Kind::heal: return end_fault(e.who);
        case Kind::inspect: return;
    }
}

void World::fail(std::string what) {
    if (failed()) return;
    outcome_.failure = std::move(what);
    if (journal.on) journal.add(now, "FAILS: " + outcome_.failure + "\n" + why());
}

std::string World::describe(FlowIndex index) const {
    static constexpr const char* kKinds[] = {"coll", "p2p", "conn", "conn"};
    const FlowPlan& flow = scenario.flows[index];
    const auto& ranks_of = scenario.comms[flow.comm].ranks;
    std::string text = std::string(kKinds[static_cast<int>(flow.key.kind)]) + "(c" + std::to_string(flow.comm);
    if (flow.key.kind == KeyKind::p2p || flow.key.kind == KeyKind::conn_p2p)
        text += " r" + std::to_string(ranks_of[flow.key.src]) + ">r" + std::to_string(ranks_of[flow.key.dst]);
    text += " #" + std::to_string(flow.key.n) + " " + std::to_string(traffic.members(index).size()) + "/" +
            std::to_string(flow.members);
    const auto gpus = static_cast<PairIndex>(scenario.fabric.gpus.size());
    for (const PairIndex p : flow.pairs)
        text += " " + scenario.fabric.gpus[p / gpus].name + "-" + scenario.fabric.gpus[p % gpus].name +
                (plane.lit(p) ? "" : "!");
    return text + ")";
}

// --- jobs ---------------------------------------------------------------------------------------------

void World::start_job(std::uint32_t job) {
    JobState& state = jobs_[job];
    state.started = true;
    state.living = static_cast<std::uint32_t>(scenario.jobs[job].ranks.size());
    TimeNs dark = 0;
    for (const Switch& sw : scenario.fabric.switches) dark = std::max(dark, sw.dark_ns);
    const TimeNs patience =
        (scenario.jobs[job].drains ? 3 * kPatienceNs : kPatienceNs) +  // of what waits, others are suspended in turn
        kPatienceDarkTimes * dark;
    deadline_ns_ = std::max(deadline_ns_, now + patience + scenario.jobs[job].pauses_ns);
    for (const std::uint32_t r : scenario.jobs[job].ranks) ranks[r]->start();
}

void World::rank_ended(std::uint32_t rank) {
    const std::uint32_t job = scenario.ranks[rank].job;
    if (--jobs_[job].living > 0) return;
    jobs_[job].over = true;
    --jobs_left_;
    for (std::uint32_t j = 0; j < jobs_.size(); ++j)
        if (scenario.jobs[j].after == job) after(scenario.jobs[j].start_ns, Kind::job_start, j);
    if (jobs_left_ == 0) ended_ns_ = now;
}

// Its peers wait in NCCL for a while; then whoever runs jobs ends this one.
void World::rank_died(std::uint32_t rank, bool) {
    if (!ranks[rank]->alive()) return;
    ranks[rank]->kill();
    JobState& job = jobs_[scenario.ranks[rank].job];
    if (!job.aborted) job.aborted_ns = now;
    job.aborted = true;
    rank_ended(rank);
}

// --- faults -------------------------------------------------------------------------------------------

void World::begin_fault(std::uint32_t index) {
    const Fault& f = scenario.faults[index];
    if (journal.on)
        journal.add(now, std::string("fault ") + std::to_string(index) + ": " + name_of(f.kind) + " of " +
                             std::to_string(f.target));
    is_of_network(f.kind) ? inspector.delayed() : inspector.disturbed();
    switch (f.kind) {
        case FaultKind::rank_death: return rank_died(f.target, false);
        case FaultKind::manager_death:
            if (manager_deaths_[f.target]++ == 0) managers[f.target]->die();
            break;
        case FaultKind::controller_death:
            if (controller_deaths_++ == 0) controller.die();
            break;
        default: is_of_network(f.kind) ? network.begin(f) : plane.begin(f);
    }
    after(f.lasts_ns, Kind::heal, index);
}

void World::end_fault(std::uint32_t index) {
    const Fault& f = scenario.faults[index];
    if (journal.on) journal.add(now, std::string("fault ") + std::to_string(index) + " is over: " + name_of(f.kind));
    switch (f.kind) {
        case FaultKind::rank_death: break;
        case FaultKind::manager_death:
            if (--manager_deaths_[f.target] == 0) managers[f.target]->start();
            break;
        case FaultKind::controller_death:
            if (--controller_deaths_ == 0) controller.start();
            break;
        default: is_of_network(f.kind) ? network.end(f) : plane.end(f);
    }
}

// --- verdict ------------------------------------------------------------------------------------------

void World::inspect() {
    for (std::uint32_t j = 0; j < jobs_.size(); ++j) {
        JobState& job = jobs_[j];
        if (!job.aborted || job.over || now < job.aborted_ns + kAbortNs) continue;
        if (scenario.fault_class == FaultClass::ranks) inspector.after_death(j);
        for (const std::uint32_t r : scenario.jobs[j].ranks) rank_died(r, true);
    }
    if (ended_ns_ < 0 && now > deadline_ns_) return fail("I7: a program does not end\n" + why());
    after(kInspectNs, Kind::inspect, 0);
}

void World::count_controller() {
    const controller::Core* core = controller.core();
    if (core == nullptr) return;
    const controller::Counters& c = core->counters();
    outcome_.grants += c.grants;
    outcome_.suspensions += c.suspensions;
    outcome_.passes += c.passes + c.aborts;
    outcome_.unroutable += c.unroutable;
    outcome_.crowded += c.crowded;
    outcome_.moves += c.circuits_moved;
    outcome_.runs += c.runs;
    outcome_.run_launches += c.run_launches;
    outcome_.revocations += c.revocations;
    outcome_.speculations += c.speculations;
    outcome_.used += c.speculations_used;
    outcome_.wrong += c.speculations_wrong;
}

std::string World::why() {
    std::string text;
    for (const auto& rank : ranks)
        if (rank->alive()) text += "  " + rank->where() + "\n";
    if (!controller.alive()) return text + "  no controller\n";
    for (const controller::Why& w : controller.core()->why(now)) {
        text += "  controller: n" + std::to_string(w.launch.node) + ".r" + std::to_string(w.launch.rank) + " #" +
                std::to_string(w.launch.seq) + " state " + std::to_string(static_cast<int>(w.state)) + ":";
        for (const std::string& reason : w.reasons) text += " " + reason + ";";
        text += "\n";
    }
    for (const controller::PortStatus& p : controller.core()->ports()) {
        if (p.use == controller::PortUse::idle || p.use == controller::PortUse::dark) continue;
        text += "  port " + scenario.fabric.ports[p.port].name + " use " + std::to_string(static_cast<int>(p.use)) +
                " " + p.note + "\n";
    }
    return text;
}

}  // namespace opus::sim
