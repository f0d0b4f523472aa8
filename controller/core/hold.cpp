// Decisions for a whole gang without circuits: the hold time is over, or circuits are impossible.
#include <algorithm>
#include <utility>

#include "controller/core/impl.h"

namespace opus::controller {

// One member that would rather fail than run without circuits decides for all: members that mix never meet.
Policy Core::Impl::policy_of(const std::vector<Launch*>& launches) {
    for (const Launch* launch : launches)
        if (const Rank* rank = rank_of(launch->id.node, launch->id.rank); rank && rank->info.policy == Policy::abort)
            return Policy::abort;
    return Policy::proceed;
}

// Gangs live for microseconds and holds are long: one timer looks after all of them.
void Core::Impl::hold(Gang& gang, TimeNs at) {
    gang.hold_at_ns = at;
    if (holds_told >= 0 && holds_told <= at) return;
    holds_told = at;
    arm(at, TimerKind::gang_hold, 0);
}

void Core::Impl::end_holds() {
    if (now < holds_told) return;  // a later word has taken its place
    holds_told = -1;
    std::vector<std::uint64_t> over;
    TimeNs next = -1;
    for (const auto& [id, gang] : gangs) {
        if (gang->hold_at_ns == 0) continue;
        if (gang->hold_at_ns <= now)
            over.push_back(id);
        else if (next < 0 || gang->hold_at_ns < next)
            next = gang->hold_at_ns;
    }
    if (next >= 0) {
        holds_told = next;
        arm(next, TimerKind::gang_hold, 0);
    }
    for (const std::uint64_t id : over)
        if (Gang* gang = find_gang(id)) hold_expired(*gang);
}

// What its user has asked for; 0: nothing.
TimeNs Core::Impl::asked_hold(const Launch& launch) {
    const Rank* rank = rank_of(launch.id.node, launch.id.rank);
    return rank != nullptr ? TimeNs(rank->info.hold_ms) * 1'000'000 : 0;
}

SwitchIndex Core::Impl::slowest_switch(GpuId gpu) const {
    SwitchIndex slowest = kNone;
    for (const PortId p : fabric.gpus[gpu].ports)
        if (const SwitchIndex s = fabric.ports[p].sw;
            slowest == kNone || fabric.switches[s].dark_ns > fabric.switches[slowest].dark_ns)
            slowest = s;
    return slowest;
}

SwitchIndex Core::Impl::slowest_switch(const Gang& gang) const {
    SwitchIndex slowest = kNone;
    for (const EdgeId e : gang.edges)
        if (const SwitchIndex s = slowest_switch(inventory.edge(e).a);
            s != kNone && (slowest == kNone || fabric.switches[s].dark_ns > fabric.switches[slowest].dark_ns))
            slowest = s;
    return slowest;
}

// A user may hold for less time than a switch takes; then everything that waits for it passes. Said once a job.
void Core::Impl::look_at_hold(NodeIndex node, const wire::CommMember& member) {
    if (member.gpu >= fabric.nodes[node].gpus.size()) return;
    const Rank* rank = rank_of(node, member.rank);
    const SwitchIndex s = slowest_switch(fabric.nodes[node].gpus[member.gpu]);
    if (rank == nullptr || rank->info.hold_ms == 0 || s == kNone) return;
    const TimeNs needed = needed_hold_ns(fabric.switches[s].dark_ns);
    if (TimeNs(rank->info.hold_ms) * 1'000'000 >= needed || !short_holds.insert(rank->info.job).second) return;
    log(LogLevel::error, "job " + rank->info.job + " has OPUS_HOLD_MS=" + std::to_string(rank->info.hold_ms) +
                             ", and " + fabric.switches[s].name + " needs " + std::to_string(needed / 1'000'000) +
                             ": what waits for it may pass without circuits; raise it, or leave it unset");
}

// Who has asked for no hold time is held for as long as the slowest switch of its gang may need.
void Core::Impl::hold_expired(Gang& gang) {
    if (gang.hold_at_ns == 0) return;
    const SwitchIndex slowest = slowest_switch(gang);
    const TimeNs needed = slowest != kNone ? needed_hold_ns(fabric.switches[slowest].dark_ns) : 0;
    TimeNs due = -1, asked = 0;
    for (const Launch* launch : gang.launches) {
        if (launch->open) continue;
        const TimeNs wanted = asked_hold(*launch);
        const TimeNs at = launch->complete_ns + (wanted != 0 ? wanted : std::max(kDefaultHoldNs, needed));
        if (due >= 0 && due <= at) continue;
        due = at;
        asked = wanted;
    }
    if (due < 0) {  // until one joins that is held
        gang.hold_at_ns = 0;
        return;
    }
    if (now < due) return hold(gang, due);
    std::vector<std::string> reasons;
    Explained said(HolderTable(inventory, mark));
    explain_ports(gang, reasons, said);
    std::string why = "held for the hold time: " + (reasons.empty() ? "not granted" : reasons.front());
    if (asked != 0 && asked < needed)
        why += "; OPUS_HOLD_MS=" + std::to_string(asked / 1'000'000) + " is less than the " +
               std::to_string(needed / 1'000'000) + " that " + fabric.switches[slowest].name + " needs";
    pass_gang(gang, why + "; see opus-ctl why, or raise OPUS_HOLD_MS");
}

// The gang's needs, or a launch's alone, are more than its ports can do.
//
// Launches that run already (suspended) wait by themselves: what is left may fit. Launches that would fit
// one by one are opened at once, suspended from birth, and each gets its circuits in turn: a program that
// ends without Opus must not fail for the order in which its ranks came. What fits in no order is the
// policy's.
void Core::Impl::not_routable(Gang& gang) {
    const std::string why = planner.explain(gang.edges);
    std::vector<Launch*> running, held, impossible;
    for (Launch* launch : gang.launches) {
        (launch->open ? running : held).push_back(launch);
        if (!fits_alone(*launch)) impossible.push_back(launch);
    }
    if (!impossible.empty()) {
        ++counters.unroutable;
        for (Launch* launch : impossible) launch->no_light = true;
        return pass_gang(gang, why);
    }
    const bool split = !running.empty() && !held.empty();
    for (Launch* launch : split ? running : gang.launches) launch->alone = true;
    if (!split && !held.empty()) ++counters.crowded;
    if (!split && !held.empty())
        return pass_launches(held, Policy::proceed, "together with its peers' other launches, " + why, false);
    for (Launch* launch : running) leave(*launch);
    regather(running);
}

// What no ports could serve is looked at again: what started over circuits that broke can end by nothing else.
void Core::Impl::relight() {
    Gathered gathered;
    for (NodeState& node : nodes)
        for (auto& [id, rank] : node.ranks)
            for (auto& [seq, launch] : rank.launches) {
                if (!launch->no_light || policy_of({launch.get()}) == Policy::abort) continue;
                launch->no_light = false;
                if (launch->stage == Stage::suspended) regather(*launch, gathered);
            }
}

bool Core::Impl::fits_alone(Launch& launch) {
    std::vector<EdgeId> edges;
    for (const KeyRef& r : launch.keys) {
        const auto [begin, end] = edges_of(*r.key);
        edges.insert(edges.end(), begin, end);
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    return planner.routable(edges);
}

void Core::Impl::pass_gang(Gang& gang, const std::string& why) {
    std::vector<Launch*> launches = gang.launches;
    std::sort(launches.begin(), launches.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    gang.hold_at_ns = 0;
    std::string who;
    for (const Launch* launch : launches)
        if (who.empty() && !launch->keys.empty()) {
            const KeyRef& r = launch->keys.front();
            const std::uint32_t slot = slot_of(r.key->key, r.slot);
            who = name_of_member(*r.key->comm, slot) + ", " + name(launch->id) + ": ";
        }
    const std::string text = who + why;
    const Policy how = policy_of(launches);
    std::vector<Comm*> concerned;
    const std::uint64_t m = next_mark();
    for (const Launch* launch : launches)
        for (const KeyRef& r : launch->keys)
            if (std::exchange(r.key->comm->mark, m) != m) concerned.push_back(r.key->comm);
    pass_launches(launches, how, text, false);
    for (Comm* comm : concerned) degrade(*comm, how, Reason::passed, text);
}

// Opens those that are held. They run in the dark; unless that is pointless, they queue for circuits, each
// for itself.
void Core::Impl::pass_launches(const std::vector<Launch*>& launches, Policy how, const std::string& why, bool no_light) {
    std::map<NodeIndex, wire::Pass> passes;
    std::vector<Launch*> again;
    for (Launch* launch : launches) {
        if (no_light || how == Policy::abort) launch->no_light |= launch->stage != Stage::in_flight;
        if (launch->no_light && launch->gang != nullptr && launch->waits()) leave(*launch);
        if (launch->open) continue;
        if (launch->gang != nullptr && launch->waits()) leave(*launch);
        launch->open = launch->passed = true;
        launch->in_call = false;
        launch->alone = launch->keys.size() > 1;  // it needs no one to start with
        if (launch->stage == Stage::ready) {
            launch->stage = Stage::suspended;
            again.push_back(launch);
        }
        ++(how == Policy::abort ? counters.aborts : counters.passes);
        wire::Pass& pass = passes[launch->id.node];
        pass.how = how;
        if (pass.why.empty()) pass.why = why.substr(0, wire::kMaxText);
        pass.launches.push_back({launch->id.rank, launch->id.seq});
        Trace t;
        t.kind = Trace::Kind::pass;
        t.launch = launch->id;
        t.op = launch->op;
        t.bytes = launch->bytes;
        trace(std::move(t));
    }
    if (!passes.empty())
        log(LogLevel::warn, std::string(how == Policy::abort ? "aborted" : "passed without circuits") + ": " + why);
    for (auto& [node, pass] : passes) send(node, std::move(pass));
    std::erase_if(again, [](const Launch* launch) { return launch->no_light; });
    regather(again);
}

// A manager had to decide alone. Its launch runs; the rest of its gang is decided alike, and its key stays:
// who comes later meets it (scenario J).
void Core::Impl::expired(NodeIndex node, const wire::Expired& message) {
    std::vector<Launch*> concerned;
    std::vector<Comm*> comms_concerned;
    for (const wire::LocalLaunch& id : message.launches) {
        Launch* launch = launch_of({node, id.rank, id.seq});
        if (launch == nullptr) continue;
        for (const KeyRef& r : launch->keys)
            if (std::find(comms_concerned.begin(), comms_concerned.end(), r.key->comm) == comms_concerned.end())
                comms_concerned.push_back(r.key->comm);
        if (launch->open) continue;
        ++counters.passes;
        std::vector<Launch*> gang = launch->gang != nullptr ? launch->gang->launches : std::vector<Launch*>{};
        if (launch->gang != nullptr && launch->waits()) leave(*launch);
        launch->open = launch->passed = true;
        launch->in_call = false;
        launch->alone = launch->keys.size() > 1;
        if (launch->stage == Stage::ready) launch->stage = Stage::suspended;
        launch->no_light = policy_of({launch}) == Policy::abort;
        if (!launch->no_light && launch->stage == Stage::suspended) regather(*launch);
        std::erase(gang, launch);
        concerned.insert(concerned.end(), gang.begin(), gang.end());
    }
    std::sort(concerned.begin(), concerned.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    concerned.erase(std::unique(concerned.begin(), concerned.end()), concerned.end());
    const std::string why = "a member's hold time ran out while " + fabric.nodes[node].name + " had no controller";
    const Policy how = policy_of(concerned);
    pass_launches(concerned, how, why, false);
    for (Comm* comm : comms_concerned) degrade(*comm, how, Reason::passed, why);
}

}  // namespace opus::controller
