// Decisions for a whole gang without circuits: the hold time is over, or circuits are impossible.
#include <algorithm>
#include <utility>

#include "controller/core/explain.h"
#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/holders.h"
#include "controller/core/membership/registration.h"
#include "controller/core/recovery/holds.h"

namespace opus::controller {

// One member that would rather fail than run without circuits decides for all: members that mix never meet.
Policy Holds::policy_of(const std::vector<Launch*>& launches) {
    for (const Launch* launch : launches)
        if (const Rank* rank = rank_of(launch->id.node, launch->id.rank); rank && rank->info.policy == Policy::abort)
            return Policy::abort;
    return Policy::proceed;
}

// Gangs live for microseconds and holds are long: one timer looks after all of them.
void Holds::hold(Gang& gang, TimeNs at) {
    gang.hold_at_ns = at;
    if (told_ns_ >= 0 && told_ns_ <= at) return;
    told_ns_ = at;
    arm(at, TimerKind::gang_hold, 0);
}

void Holds::end_holds() {
    if (now_ < told_ns_) return;  // a later word has taken its place
    told_ns_ = -1;
    std::vector<std::uint64_t> over;
    TimeNs next = -1;
    for (const auto& [id, gang] : gangs_.all()) {
        if (gang->hold_at_ns == 0) continue;
        if (gang->hold_at_ns <= now_)
            over.push_back(id);
        else if (next < 0 || gang->hold_at_ns < next)
            next = gang->hold_at_ns;
    }
    if (next >= 0) {
        told_ns_ = next;
        arm(next, TimerKind::gang_hold, 0);
    }
    for (const std::uint64_t id : over)
        if (Gang* gang = gangs_.find(id)) hold_expired(*gang);
}

// What its user has asked for; 0: nothing.
TimeNs Holds::asked_hold(const Launch& launch) {
    const Rank* rank = rank_of(launch.id.node, launch.id.rank);
    return rank != nullptr ? TimeNs(rank->info.hold_ms) * 1'000'000 : 0;
}

SwitchIndex Holds::slowest_switch(GpuId gpu) const {
    SwitchIndex slowest = kNone;
    for (const PortId p : fabric_.gpus[gpu].ports)
        if (const SwitchIndex s = fabric_.ports[p].sw;
            slowest == kNone || fabric_.switches[s].dark_ns > fabric_.switches[slowest].dark_ns)
            slowest = s;
    return slowest;
}

SwitchIndex Holds::slowest_switch(const Gang& gang) const {
    SwitchIndex slowest = kNone;
    for (const PairId e : gang.pairs)
        if (const SwitchIndex s = slowest_switch(inventory_.pair(e).a);
            s != kNone && (slowest == kNone || fabric_.switches[s].dark_ns > fabric_.switches[slowest].dark_ns))
            slowest = s;
    return slowest;
}

// A user may hold for less time than a switch takes; then everything that waits for it passes. Said once a job.
void Holds::look_at_hold(NodeIndex node, const wire::CommMember& member) {
    if (member.gpu >= fabric_.nodes[node].gpus.size()) return;
    const Rank* rank = rank_of(node, member.rank);
    const SwitchIndex s = slowest_switch(fabric_.nodes[node].gpus[member.gpu]);
    if (rank == nullptr || rank->info.hold_ms == 0 || s == kNone) return;
    const TimeNs needed = needed_hold_ns(fabric_.switches[s].dark_ns);
    if (TimeNs(rank->info.hold_ms) * 1'000'000 >= needed || !short_.insert(rank->info.job).second) return;
    log(LogLevel::error, "job " + rank->info.job + " has OPUS_HOLD_MS=" + std::to_string(rank->info.hold_ms) +
                             ", and " + fabric_.switches[s].name + " needs " + std::to_string(needed / 1'000'000) +
                             ": what waits for it may pass without circuits; raise it, or leave it unset");
}

// Who has asked for no hold time is held for as long as the slowest switch of its gang may need.
void Holds::hold_expired(Gang& gang) {
    if (gang.hold_at_ns == 0) return;
    const SwitchIndex slowest = slowest_switch(gang);
    const TimeNs needed = slowest != kNone ? needed_hold_ns(fabric_.switches[slowest].dark_ns) : 0;
    TimeNs due = -1, asked = 0;
    for (const Launch* launch : gang.launches) {
        if (launch->open()) continue;
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
    if (now_ < due) return hold(gang, due);
    std::vector<std::string> reasons;
    Explained said(world_);
    explain_.explain_ports(gang, reasons, said);
    std::string why = "held for the hold time: " + (reasons.empty() ? "not granted" : reasons.front());
    if (asked != 0 && asked < needed)
        why += "; OPUS_HOLD_MS=" + std::to_string(asked / 1'000'000) + " is less than the " +
               std::to_string(needed / 1'000'000) + " that " + fabric_.switches[slowest].name + " needs";
    pass_gang(gang, why + "; see opus-ctl why, or raise OPUS_HOLD_MS");
}

// The gang's needs, or a launch's alone, are more than its ports can do.
//
// Launches that run already (suspended) wait by themselves: what is left may fit. Launches that would fit
// one by one are opened at once, suspended from birth, and each gets its circuits in turn: a program that
// ends without Opus must not fail for the order in which its ranks came. What fits in no order is the
// policy's.
void Holds::not_routable(Gang& gang) {
    const std::string why = planner_.explain(gang.pairs);
    std::vector<Launch*> running, held, impossible;
    for (Launch* launch : gang.launches) {
        (launch->open() ? running : held).push_back(launch);
        if (!fits_alone(*launch)) impossible.push_back(launch);
    }
    if (!impossible.empty()) {
        ++counters_.unroutable;
        for (Launch* launch : impossible) launch->no_light = true;
        return pass_gang(gang, why);
    }
    const bool split = !running.empty() && !held.empty();
    for (Launch* launch : split ? running : gang.launches) launch->alone = true;
    if (!split && !held.empty()) ++counters_.crowded;
    if (!split && !held.empty())
        return pass_launches(held, Policy::proceed, "together with its peers' other launches, " + why, false);
    for (Launch* launch : running) gangs_.leave(*launch);
    gangs_.regather(running);
}

// What no ports could serve is looked at again: what started over circuits that broke can end by nothing else.
void Holds::relight() {
    Gathered gathered;
    for (NodeState& node : nodes_)
        for (auto& [id, rank] : node.ranks)
            for (auto& [seq, launch] : rank.launches) {
                if (!launch->no_light || policy_of({launch.get()}) == Policy::abort) continue;
                launch->no_light = false;
                if (launch->stage == Stage::suspended) gangs_.regather(*launch, gathered);
            }
}

bool Holds::fits_alone(Launch& launch) {
    std::vector<PairId> pairs;
    for (const KeyRef& r : launch.keys) {
        const auto [begin, end] = launches_.pairs_of(*r.key);
        pairs.insert(pairs.end(), begin, end);
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return planner_.routable(pairs);
}

void Holds::pass_gang(Gang& gang, const std::string& why) {
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
    for (Comm* comm : concerned) registration_.degrade(*comm, how, Reason::passed, text);
}

// Opens those that are held. They run in the dark; unless that is pointless, they queue for circuits, each
// for itself.
void Holds::pass_launches(const std::vector<Launch*>& launches, Policy how, const std::string& why, bool no_light) {
    std::map<NodeIndex, wire::Pass> passes;
    std::vector<Launch*> again;
    for (Launch* launch : launches) {
        if (no_light || how == Policy::abort) launch->no_light |= launch->stage != Stage::in_flight;
        if (launch->no_light && launch->gang != nullptr && launch->waits()) gangs_.leave(*launch);
        if (launch->open()) continue;
        if (launch->gang != nullptr && launch->waits()) gangs_.leave(*launch);
        launch->gate = Gate::passed;
        launch->in_call = false;
        launch->alone = launch->keys.size() > 1;  // it needs no one to start with
        if (launch->stage == Stage::ready) {
            launch->stage = Stage::suspended;
            again.push_back(launch);
        }
        ++(how == Policy::abort ? counters_.aborts : counters_.passes);
        wire::Pass& pass = passes[launch->id.node];
        pass.how = how;
        if (pass.why.empty()) pass.why = why.substr(0, wire::kMaxText);
        pass.launches.push_back({launch->id.rank, launch->id.seq});
        trace({.kind = Trace::Kind::pass, .launch = launch->id, .op = launch->op, .bytes = launch->bytes});
    }
    if (!passes.empty())
        log(LogLevel::warn, std::string(how == Policy::abort ? "aborted" : "passed without circuits") + ": " + why);
    for (auto& [node, pass] : passes) send(node, std::move(pass));
    std::erase_if(again, [](const Launch* launch) { return launch->no_light; });
    gangs_.regather(again);
}

// It waits for nobody, and what no ports can do goes by its policy.
void Holds::pass_unheld(Launch& launch) {
    pass_launches({&launch}, launch.no_light ? policy_of({&launch}) : Policy::proceed, "its communicator is not held",
                  launch.no_light);
}

// A manager had to decide alone. Its launch runs; the rest of its gang is decided alike, and its key stays:
// who comes later meets it (scenario J).
void Holds::expired(NodeIndex node, const wire::Expired& message) {
    std::vector<Launch*> concerned;
    std::vector<Comm*> comms_concerned;
    for (const wire::LocalLaunch& id : message.launches) {
        Launch* launch = launch_of({node, id.rank, id.seq});
        if (launch == nullptr) continue;
        for (const KeyRef& r : launch->keys)
            if (std::find(comms_concerned.begin(), comms_concerned.end(), r.key->comm) == comms_concerned.end())
                comms_concerned.push_back(r.key->comm);
        if (launch->open()) continue;
        ++counters_.passes;
        std::vector<Launch*> gang = launch->gang != nullptr ? launch->gang->launches : std::vector<Launch*>{};
        if (launch->gang != nullptr && launch->waits()) gangs_.leave(*launch);
        launch->gate = Gate::passed;
        launch->in_call = false;
        launch->alone = launch->keys.size() > 1;
        if (launch->stage == Stage::ready) launch->stage = Stage::suspended;
        launch->no_light = policy_of({launch}) == Policy::abort;
        if (!launch->no_light && launch->stage == Stage::suspended) gangs_.regather(*launch);
        std::erase(gang, launch);
        concerned.insert(concerned.end(), gang.begin(), gang.end());
    }
    std::sort(concerned.begin(), concerned.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    concerned.erase(std::unique(concerned.begin(), concerned.end()), concerned.end());
    const std::string why = "a member's hold time ran out while " + fabric_.nodes[node].name + " had no controller";
    const Policy how = policy_of(concerned);
    pass_launches(concerned, how, why, false);
    for (Comm* comm : comms_concerned) registration_.degrade(*comm, how, Reason::passed, why);
}

}  // namespace opus::controller
