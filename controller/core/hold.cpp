// Decisions for a whole gang without circuits: the hold time is over, or circuits are impossible.
#include <algorithm>

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

void Core::Impl::hold_expired(Gang& gang) {
    if (gang.hold_at_ns == 0) return;
    const bool held = std::any_of(gang.launches.begin(), gang.launches.end(), [](const Launch* l) { return !l->open; });
    if (!held) {  // until one joins that is
        gang.hold_at_ns = 0;
        return;
    }
    if (now < gang.hold_at_ns) return hold(gang, gang.hold_at_ns);
    std::vector<std::string> reasons;
    explain_ports(gang, reasons);
    pass_gang(gang, "held for the hold time: " + (reasons.empty() ? "not granted" : reasons.front()) +
                        "; see opus-ctl why, or raise OPUS_HOLD_MS");
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
    for (Launch* launch : running) regather(*launch);
}

// What no ports could serve is looked at again: what started over circuits that broke can end by nothing else.
void Core::Impl::relight() {
    for (NodeState& node : nodes)
        for (auto& [id, rank] : node.ranks)
            for (auto& [seq, launch] : rank.launches) {
                if (!launch->no_light || policy_of({launch.get()}) == Policy::abort) continue;
                launch->no_light = false;
                if (launch->stage == Stage::suspended) regather(*launch);
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
    for (const Launch* launch : launches)
        for (const KeyRef& r : launch->keys)
            if (std::find(concerned.begin(), concerned.end(), r.key->comm) == concerned.end())
                concerned.push_back(r.key->comm);
    pass_launches(launches, how, text, false);
    for (Comm* comm : concerned) degrade(*comm, how, text);
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
    for (Launch* launch : again)
        if (!launch->no_light) regather(*launch);
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
    for (Comm* comm : comms_concerned) degrade(*comm, how, why);
}

}  // namespace opus::controller
