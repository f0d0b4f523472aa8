#include "test/sim/inspector.h"

#include <algorithm>
#include <utility>

#include "test/sim/programs.h"
#include "test/sim/world.h"

namespace opus::sim {

Inspector::Inspector(World& world, const Scenario& scenario)
    : world_(world),
      s_(scenario),
      turns_(world, scenario),
      held_for_(scenario.fabric.gpus.size() * scenario.fabric.gpus.size()),
      issued_(scenario.flows.size()),
      unrecorded_(scenario.flows.size(), 0),
      soft_(scenario.fabric.nodes.size()),
      left_(scenario.fabric.nodes.size()),
      returning_(scenario.fabric.nodes.size()),
      asked_(scenario.fabric.nodes.size()),
      dropped_(scenario.flows.size()),
      given_up_(scenario.fabric.nodes.size()),
      reported_(scenario.fabric.nodes.size()),
      open_(scenario.comms.size()) {}

LaunchIndex Inspector::launch_of(NodeIndex node, RankId id, std::uint64_t seq) const {
    const std::uint32_t rank = world_.managers[node]->rank_of(id);
    return rank == kNone ? kNone : world_.ranks[rank]->launch_of(seq);
}

std::string Inspector::name(LaunchIndex index) const {
    const LaunchRun& run = world_.launches[index];
    return s_.name_of_rank(run.rank) + " #" + std::to_string(run.seq);
}

std::string Inspector::describe(const std::vector<wire::KeyRange>& ranges) const {
    std::string text;
    for (const wire::KeyRange& range : ranges) {
        std::size_t c = 0;
        while (c < s_.comms.size() && s_.comms[c].id != range.first.comm) ++c;
        const Key& key = range.first;
        text += " c" + std::to_string(c);
        if (key.kind != KeyKind::coll) text += " r" + std::to_string(key.src) + ">r" + std::to_string(key.dst);
        text += " #" + std::to_string(key.n) + ".." + std::to_string(key.n + range.count - 1) + (range.mesh ? " mesh" : "");
    }
    return text;
}

void Inspector::issued(LaunchIndex index) {
    for (const Part& part : *world_.launches[index].parts) issued_[part.flow].push_back(index);
    turns_.issued(index);
    if (!world_.journal.on) return;
    std::string text = name(index) + " issued:";
    for (const Part& part : *world_.launches[index].parts) text += " " + world_.describe(part.flow);
    world_.journal.add(world_.now, text);
}

// --- what the controller knows and says ---------------------------------------------------------------

void Inspector::controller_heard(NodeIndex node, const wire::Message& message) {
    const auto heard = [&](const wire::LaunchDemand& d) {
        const LaunchIndex index = launch_of(node, d.launch.rank, d.launch.seq);
        if (index == kNone) return world_.fail("a demand for a launch that was never recorded");
        LaunchRun& run = world_.launches[index];
        if (!run.demanded) run.heard = ++heard_;
        run.demanded = true;
        run.unheard = false;
        if (std::exchange(run.given_up, false)) {  // what was decided before may concern circuits that it does without
            run.grant_life = world_.controller.life();
            run.granted_ns = world_.now;
            back_.push_back(index);
        }
        turns_.heard(index);
        if (world_.journal.on) world_.journal.add(world_.now, "controller hears of " + name(index));
    };
    if (const auto* demand = std::get_if<wire::Demand>(&message))
        for (const auto& d : demand->launches) heard(d);
    if (const auto* done = std::get_if<wire::Done>(&message))
        for (const auto& ran : done->ran)
            if (const LaunchIndex index = launch_of(node, ran.done.launch.rank, ran.done.launch.seq); index != kNone) {
                if (std::exchange(world_.launches[index].unheard, false)) world_.launches[index].heard = ++heard_;
                turns_.ran(index);
            }
    if (const auto* answer = std::get_if<wire::Returned>(&message)) {
        for (const auto& d : answer->running) heard(d);
        returned(node, answer->id);
    }
    if (const auto* snapshot = std::get_if<wire::Snapshot>(&message)) {
        for (const auto& l : snapshot->launches) {
            heard(l.demand);
            if (const LaunchIndex index = launch_of(node, l.demand.launch.rank, l.demand.launch.seq);
                index != kNone && l.state == wire::LaunchState::in_flight)
                world_.launches[index].listed_life = world_.controller.life();
        }
        listed(node, *snapshot);
    }
}

// A node's snapshot replaces what was known of it: the controller believes in no launch that it does not list.
void Inspector::listed(NodeIndex node, const wire::Snapshot& snapshot) {
    listed_node_ = node;
    listed_.clear();
    for (const auto& l : snapshot.launches) ++listed_[l.demand.launch.rank];
}

void Inspector::check_listed() {
    for (const controller::RankStatus& rank : world_.controller.core()->ranks())
        if (rank.node == listed_node_ && rank.launches_in_flight + rank.launches_ready > listed_[rank.info.rank])
            world_.fail("n" + std::to_string(rank.node) + ".r" + std::to_string(rank.info.rank) +
                        " is thought to have launches that its node's snapshot does not list");
    listed_node_ = kNone;
}

// What it has not suspended has its circuits, and keeps them. A later controller than the one that gave it up knows
// when it has read the maps.
void Inspector::check_back() {
    for (const LaunchIndex index : std::exchange(back_, {})) {
        const LaunchRun& run = world_.launches[index];
        if (is_excused(run) || run.free() || !run.runs() || world_.controller.life() > 1) continue;
        for_each_pair(index, [&](PairIndex pair) {
            if (!world_.plane.stays_lit(pair) && !world_.plane.darkened_by_others(pair))
                world_.fail("I2: " + name(index) + " is listed again, and its circuits are moved");
        });
    }
}

namespace {

bool covers(const wire::KeyRange& range, const Key& key) {
    Key first = range.first;
    first.n = key.n;
    return first == key && range.first.n <= key.n && key.n < range.first.n + range.count;
}

}  // namespace

// The controller may move the circuits now: nothing has started under these runs that it was not told of, and nothing
// will.
void Inspector::returned(NodeIndex node, std::uint64_t revocation) {
    const auto asked = asked_[node].find(revocation);
    if (asked == asked_[node].end()) return;
    for (const std::uint64_t grant : asked->second.grants) soft_[node].erase(grant);
    for (LaunchIndex index = 0; index < world_.launches.size(); ++index) {
        const LaunchRun& run = world_.launches[index];
        if (!run.unheard || run.state == LaunchRun::State::done || run.free()) continue;
        if (s_.ranks[run.rank].node != node || !world_.ranks[run.rank]->alive()) continue;
        for (const Part& part : *run.parts)
            for (const wire::KeyRange& range : asked->second.ranges)
                if (!open_[part.comm] && covers(range, s_.flows[part.flow].key))
                    return world_.fail("I2: a run is returned, and " + name(index) +
                                       " has started under it and is not reported");
    }
    asked_[node].erase(asked);
}

// A node that nobody has heard of for the grace time is given up, and what runs there with it: it holds no circuits
// until its manager lists it again. What was granted whole has ended long before; what was started under a run may
// be waiting for a peer. Nothing may start there under a run any more.
void Inspector::note_given_up() {
    for (const controller::NodeStatus& node : world_.controller.core()->nodes()) {
        if (reported_[node.node] && !node.reported) disturbed();
        reported_[node.node] = node.reported;
        if (node.given_up && !given_up_[node.node])
            for (LaunchRun& run : world_.launches) {
                if (s_.ranks[run.rank].node != node.node) continue;
                run.given_up |= run.go;
                run.suspended |= run.told_suspended;  // as its manager will list it
                if (run.go || run.named || !run.granted) continue;
                run.granted = false;  // its manager has never heard of it, and never will
                release(static_cast<LaunchIndex>(&run - world_.launches.data()));
            }
        given_up_[node.node] = node.given_up;
    }
}

// Light that another hand has taken is not there for what starts under the run before its manager has heard that it is
// taken back: the answer will tell, and the controller suspends it.
void Inspector::note_robbed(NodeIndex node, const wire::Revoke& revoke) {
    for (const std::uint64_t grant : revoke.grants) {
        const auto soft = soft_[node].find(grant);
        if (soft == soft_[node].end()) continue;
        for (PairIndex pair = 0; pair < held_for_.size(); ++pair) {
            if (!world_.plane.robbed(pair)) continue;
            soft->second.robbed.push_back(pair);
            for (const LaunchIndex index : soft->second.let_go)
                robbed_[index].push_back(pair);  // NCCL may start it later
        }
    }
}

void Inspector::controller_did(const controller::Actions& actions) {
    grant_.clear();
    if (listed_node_ != kNone) check_listed();
    // Nodes are not lost, given up or found again without a word.
    if (std::any_of(actions.begin(), actions.end(),
                    [](const auto& a) { return std::holds_alternative<controller::Log>(a); }))
        note_given_up();
    for (const controller::Action& action : actions)  // told at the step's end, and decided before all that follows from it
        if (const auto* send = std::get_if<controller::SendTo>(&action))
            if (const auto* verdicts = std::get_if<wire::Verdicts>(&send->message)) judged(*verdicts);
    for (const controller::Action& action : actions) {
        if (const auto* trace = std::get_if<controller::Trace>(&action)) {
            using Kind = controller::Trace::Kind;
            if (trace->kind == Kind::circuit_down) {  // in order with the grants of this step
                const auto [a, b] = trace->circuit;
                if (b < s_.fabric.ports.size()) world_.plane.counted_on(trace->circuit);
                if (b < s_.fabric.ports.size() && s_.fabric.ports[a].gpu != s_.fabric.ports[b].gpu)
                    decided_to_cut(s_.pair_of(s_.fabric.ports[a].gpu, s_.fabric.ports[b].gpu), true);
            }
            if (trace->kind != Kind::suspend && trace->kind != Kind::resume) continue;
            const LaunchIndex index = launch_of(trace->launch.node, trace->launch.rank, trace->launch.seq);
            if (index == kNone) continue;
            world_.launches[index].suspended = trace->kind == Kind::suspend;
            world_.launches[index].listed_life = 0;
            for (const Part& part : *world_.launches[index].parts) dropped_[part.flow] = true;
            if (trace->kind == Kind::suspend) turns_.suspended(index);
            if (trace->kind == Kind::resume) {
                turns_.resumed(index);
                hold(index);
                resumed(index);
            }
            if (world_.journal.on)
                world_.journal.add(
                    world_.now, name(index) + (trace->kind == Kind::suspend ? " suspended" : " has its circuits back"));
        } else if (const auto* send = std::get_if<controller::SendTo>(&action)) {
            if (const auto* pass = std::get_if<wire::Pass>(&send->message))
                for (const wire::LocalLaunch& l : pass->launches)
                    if (const LaunchIndex index = launch_of(send->node, l.rank, l.seq); index != kNone) {
                        world_.launches[index].pass_sent = true;
                        turns_.passed(index);
                    }
            if (const auto* revoke = std::get_if<wire::Revoke>(&send->message)) {
                note_robbed(send->node, *revoke);
                Asked& asked = asked_[send->node][revoke->id];
                asked.grants = revoke->grants;
                for (const std::uint64_t id : revoke->grants)
                    if (const auto soft = soft_[send->node].find(id); soft != soft_[send->node].end())
                        asked.ranges.insert(asked.ranges.end(), soft->second.ranges.begin(), soft->second.ranges.end());
            }
            const auto* grant = std::get_if<wire::Grant>(&send->message);
            if (grant == nullptr) continue;
            if (!grant->soft.empty()) {
                soft_[send->node][grant->id] = {grant->soft, world_.controller.life(), world_.now, false, {}, {}};
                if (world_.journal.on)
                    world_.journal.add(world_.now, "run " + std::to_string(grant->id) + " for n" +
                                                       std::to_string(send->node) + ":" + describe(grant->soft));
            }
            for (const wire::LocalLaunch& l : grant->firm) {
                const LaunchIndex index = launch_of(send->node, l.rank, l.seq);
                if (index == kNone) return world_.fail("a grant for a launch that was never recorded");
                const LaunchRun& before = world_.launches[index];
                // Told again: it was granted with its gang.
                const bool again = before.granted && !before.suspended && before.grant_life == world_.controller.life();
                if (!again) grant_.push_back(index);
                world_.launches[index].suspended = false;  // told again: it had never heard
                hold(index);
                world_.launches[index].grant = grant->id;
                if (world_.journal.on)
                    world_.journal.add(world_.now, "grant " + std::to_string(grant->id) + ": " + name(index));
            }
        }
    }
    check_back();
    note_waited();
    for (const LaunchIndex index : grant_) whole(index);
    if (const std::string unfair = turns_.granted(grant_); !unfair.empty()) world_.fail("I4: " + unfair);
}

void Inspector::judged(const wire::Verdicts& verdicts) {
    for (const wire::CommVerdict& v : verdicts.comms)
        for (std::size_t c = 0; c < s_.comms.size(); ++c) {
            if (s_.comms[c].id != v.comm) continue;
            open_[c] = v.verdict != Verdict::enforced && v.verdict != Verdict::unknown;
            if (v.reason != Reason::missing || s_.fault_class != FaultClass::calm) continue;
            const auto& members = s_.comms[c].ranks;
            if (std::all_of(members.begin(), members.end(), [this](std::uint32_t r) { return world_.ranks[r]->attached(); }))
                world_.fail("a communicator passes for a member that is late");
        }
}

void Inspector::disturbed() {
    turns_.distrust();
    half_done_.clear();
}

void Inspector::controller_died() {
    for (auto& asked : asked_) asked.clear();
    for (LaunchRun& run : world_.launches) {
        if (run.state == LaunchRun::State::done) continue;
        run.demanded = false;
        run.pass_sent = run.told_pass;
        run.suspended |= run.told_suspended;  // nobody will ever hear that its circuits were back
        if (run.named || run.go || !run.granted) continue;
        run.granted = false;  // nobody will ever hear of it
        release(static_cast<LaunchIndex>(&run - world_.launches.data()));
    }
}

// I3: of each key that all members have reached, all members are let go together, or are on their way. Who
// came when the gang was complete already may have come too late for it; and while switches are at work for some of
// them, as good as granted, the others may find their own circuits ready.
void Inspector::whole(LaunchIndex index) {
    const LaunchRun& run = world_.launches[index];
    if (!run.demanded) return world_.fail("I3: granted unasked: " + name(index));
    bool any = false, counted = false, needs = false;
    for_each_pair(index, [&](PairIndex) { needs = true; });
    if (!needs) return;  // nothing to hold together: it may go as it comes
    // Whom it meets in a communicator that is not held nobody sees: it may go as it comes.
    if (std::any_of(run.parts->begin(), run.parts->end(),
                    [this](const Part& p) { return open_[p.comm] || s_.comms[p.comm].intra; }))
        return;
    std::uint64_t last = 0;
    for (const LaunchIndex m : grant_)
        if (world_.launches[m].grant == run.grant) last = std::max(last, world_.launches[m].heard);
    for (const Part& part : *run.parts) {
        const auto& members = issued_[part.flow];
        const auto there = std::count_if(members.begin(), members.end(), [&](LaunchIndex m) {
            const LaunchRun& x = world_.launches[m];
            return x.demanded || x.granted || x.state == LaunchRun::State::done;
        });
        if (world_.ranks[run.rank]->verdict(part.comm) != Verdict::enforced) continue;
        counted = true;
        // What has begun unrecorded its manager reports to be through with.
        if (static_cast<std::uint32_t>(there) + unrecorded_[part.flow] < s_.flows[part.flow].members) continue;
        any = true;
        if (static_cast<std::uint32_t>(there) < s_.flows[part.flow].members) continue;  // and nobody may have heard it yet
        // Complete, but not for the controller: a member that has gone under a run is in flight when it is told of.
        if (std::any_of(members.begin(), members.end(), [this](LaunchIndex m) { return world_.launches[m].unheard; }))
            continue;
        // Nor was it, when the gang was: somebody came, or was told of, later.
        if (std::any_of(members.begin(), members.end(), [&](LaunchIndex m) { return world_.launches[m].heard > last; }))
            continue;
        const bool ties = std::any_of(members.begin(), members.end(),
                                      [this](LaunchIndex m) { return world_.launches[m].parts->size() > 1; });
        for (const LaunchIndex m : members) {
            const LaunchRun& x = world_.launches[m];
            if (x.state == LaunchRun::State::done || x.free() || x.pass_sent || (x.granted && !x.suspended)) continue;
            if (!world_.ranks[x.rank]->alive() || x.heard > last || world_.plane.at_work()) continue;
            // One that runs already, and with the others would need more neighbours than it has ports, waits by itself.
            if (x.suspended && ties) continue;
            // Nobody who lives has heard of its suspension: it is in flight.
            if (x.suspended && x.listed_life == world_.controller.life()) continue;
            if (!reachable(s_.ranks[x.rank].node)) continue;  // its node's next snapshot will have it told again
            return world_.fail("I3: " + name(index) + " is granted, and " + name(m) + " of the same key is not");
        }
    }
    if (!any && counted && !run.connects)
        world_.fail("I3: granted before any of its keys was complete: " + name(index));
}

bool Inspector::reachable(NodeIndex node) const {
    for (const controller::NodeStatus& n : world_.controller.core()->nodes())
        if (n.node == node) return n.session && n.reported;
    return false;
}

// What is brought back is there.
void Inspector::resumed(LaunchIndex index) {
    const LaunchRun& run = world_.launches[index];
    if (!run.runs() || run.free()) return;
    for_each_pair(index, [&](PairIndex pair) {
        if (!world_.plane.lit(pair) && !world_.plane.darkened_by_others(pair) && !is_through(index, pair))
            world_.fail("I1: " + name(index) + " is told that its circuits are back, and they are dark");
    });
}

// --- what managers hear and do ------------------------------------------------------------------------

void Inspector::manager_heard(NodeIndex node, const wire::Message& message) {
    const auto each = [&](const std::vector<wire::LocalLaunch>& list, auto&& f) {
        for (const wire::LocalLaunch& l : list)
            if (const LaunchIndex index = launch_of(node, l.rank, l.seq); index != kNone) f(world_.launches[index]);
    };
    if (const auto* grant = std::get_if<wire::Grant>(&message))
        each(grant->firm, [](LaunchRun& run) { run.named = true; });
    if (const auto* grant = std::get_if<wire::Grant>(&message))
        if (const auto soft = soft_[node].find(grant->id); soft != soft_[node].end()) soft->second.heard = true;
    if (const auto* revoke = std::get_if<wire::Revoke>(&message)) returning_[node][revoke->id] = revoke->grants;
    if (const auto* s = std::get_if<wire::Suspended>(&message))
        each(s->launches, [s](LaunchRun& run) { run.told_suspended = !s->back; });
    if (const auto* pass = std::get_if<wire::Pass>(&message))
        each(pass->launches, [](LaunchRun& run) { run.told_pass = true; });
}

// From its answer on nothing starts under a run: what was released early has been retracted.
void Inspector::manager_says(NodeIndex node, const wire::Message& message) {
    const auto* answer = std::get_if<wire::Returned>(&message);
    if (answer == nullptr) return;
    const auto returning = returning_[node].extract(answer->id);
    if (returning.empty()) return;
    for (const std::uint64_t grant : returning.mapped()) soft_[node].erase(grant);
}

// What it had released early goes on.
void Inspector::manager_died(NodeIndex node) {
    left_[node] = std::exchange(soft_[node], {});
    returning_[node].clear();
    asked_[node].clear();
}

void Inspector::manager_came(NodeIndex node) { left_[node].clear(); }

// All that it needs light for lies under runs that its manager has heard of and not returned. It counts from when
// the last of these was granted: what was decided before may concern the circuits of that one.
bool Inspector::starts_under_run(LaunchIndex index) {
    LaunchRun& run = world_.launches[index];
    const NodeIndex node = s_.ranks[run.rank].node;
    auto& tokens = left_[node].empty() ? soft_[node] : left_[node];
    const Soft* newest = nullptr;
    for (const Part& part : *run.parts) {
        if (world_.ranks[run.rank]->verdict(part.comm) != Verdict::enforced) continue;
        const Key& key = s_.flows[part.flow].key;
        const auto lies_under = [&](const auto& token) {
            return token.second.heard && std::any_of(token.second.ranges.begin(), token.second.ranges.end(),
                                                     [&](const wire::KeyRange& r) { return covers(r, key); });
        };
        // The last of them: its manager may have let go of earlier ones when it heard nothing, and has told nobody.
        auto token = tokens.end();
        for (auto t = tokens.begin(); t != tokens.end(); ++t)
            if (lies_under(*t) && (token == tokens.end() || t->second.at_ns >= token->second.at_ns)) token = t;
        if (token == tokens.end()) return false;
        if (newest == nullptr || token->second.at_ns > newest->at_ns) newest = &token->second;
        if (!token->second.robbed.empty()) robbed_[index] = token->second.robbed;
        token->second.let_go.push_back(index);
    }
    if (newest == nullptr) return false;
    run.named = true;
    run.unheard = !run.demanded;
    run.given_up = given_up_[node] && !left_[node].empty();
    hold(index);
    run.grant_life = newest->life;
    run.granted_ns = newest->at_ns;
    if (const std::string unfair = turns_.starts(index, newest->at_ns); !unfair.empty()) world_.fail("I4: " + unfair);
    return true;
}

// A gate opens: by whose word?
void Inspector::went(LaunchIndex index, bool abort) {
    LaunchRun& run = world_.launches[index];
    if (!run.named && !run.told_pass && !abort && starts_under_run(index)) {
        if (world_.journal.on) world_.journal.add(world_.now, name(index) + " go under a run");
        return;
    }
    if (world_.journal.on)
        world_.journal.add(world_.now, name(index) + (abort       ? " go, to fail"
                                                      : run.named ? " go"
                                                                  : " go without a grant"));
    if (run.named && !run.told_pass) return;
    run.passed = true;
    if (run.told_pass) return;
    const Rank& rank = *world_.ranks[run.rank];
    bool open = true;
    for (const Part& part : *run.parts) open &= rank.verdict(part.comm) != Verdict::enforced;
    if (open) return;
    const ManagerHost& manager = world_.manager_of(run.rank);
    if (manager.alone_for() >= s_.timing.hold_ns || rank.view().header->gave_up.load() > 0) return;
    world_.fail("I1: " + name(index) + " is let go by nobody's word");
}

// --- ranks --------------------------------------------------------------------------------------------

template <class F>
void Inspector::for_each_pair(LaunchIndex index, F&& f) const {
    const LaunchRun& run = world_.launches[index];
    for (const Part& part : *run.parts) {
        if (world_.ranks[run.rank]->verdict(part.comm) != Verdict::enforced) continue;
        for (const PairIndex pair : s_.flows[part.flow].pairs) f(pair);
    }
}

void Inspector::started(LaunchIndex index) {
    const LaunchRun& run = world_.launches[index];
    if (world_.journal.on) {
        std::string text = name(index) + " starts:";
        for (const Part& part : *run.parts) text += " " + world_.describe(part.flow);
        world_.journal.add(world_.now, text);
    }
    if (run.seq == kUnrecorded && !run.forgotten) {
        for (const Part& part : *run.parts) ++unrecorded_[part.flow];
        return;
    }
    if (!run.forgotten && !run.go && !run.passed) return world_.fail("I1: " + name(index) + " starts without go");
    const auto robbed = robbed_.find(index);
    for_each_pair(index, [&](PairIndex pair) {
        if (robbed != robbed_.end() && std::count(robbed->second.begin(), robbed->second.end(), pair) != 0) return;
        if (is_excused(run) || world_.plane.stays_lit(pair) || world_.plane.darkened_by_others(pair)) return;
        // A controller that has come since may not know which light that was.
        if (world_.controller.life() > 1 && world_.plane.robbed(pair)) return;
        world_.fail("I1: " + name(index) + " starts in the dark");
    });
    if (s_.mutation == Mutation::cut_under_launch && world_.mutations_left > 0 && !is_excused(run)) {
        PairIndex target = kNone;
        for_each_pair(index, [&](PairIndex pair) { target = pair; });
        if (target == kNone) return;
        --world_.mutations_left;
        world_.plane.cut_for_test(target);
    }
}

void Inspector::finished(LaunchIndex index) {
    const LaunchRun& run = world_.launches[index];
    note_waited();
    turns_.finished(index);
    if (world_.journal.on) world_.journal.add(world_.now, name(index) + " done");
    if (run.granted) note_half_done(index);
    if (run.granted) release(index);
}

// What one end of a transfer is through with may still be on its way.
void Inspector::note_half_done(LaunchIndex index) {
    if (!turns_.trusted()) return;
    const LaunchRun& run = world_.launches[index];
    for (std::size_t i = 0; i < run.parts->size(); ++i) {
        const FlowIndex f = (*run.parts)[i].flow;
        const FlowPlan& flow = s_.flows[f];
        const bool over =
            issued_[f].size() >= flow.members && std::all_of(issued_[f].begin(), issued_[f].end(), [&](LaunchIndex m) {
                return m == index || world_.launches[m].state == LaunchRun::State::done;
            });
        std::erase(half_done_, f);
        const bool held = !is_excused(run) && !run.free() && (i >= 64 || (run.unheld >> i & 1) == 0);
        if (!over && held && flow.key.kind == KeyKind::p2p) half_done_.push_back(f);
    }
}

// Until some gang has waited T_break for its ports, its circuits stay; from then on they are anybody's, whether that
// gang still waits or not.
void Inspector::note_waited() {
    if (half_done_.empty()) return;
    const std::vector<GpuId> wanted = turns_.waited_for(turns_.break_time());
    if (wanted.empty()) return;
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    for (const FlowIndex f : half_done_)
        for (const PairIndex pair : s_.flows[f].pairs)
            for (const GpuId gpu : {pair / gpus, pair % gpus})
                if (std::find(wanted.begin(), wanted.end(), gpu) != wanted.end()) dropped_[f] = true;
}

void Inspector::check_half_done(PairIndex pair) {
    note_waited();
    for (const FlowIndex f : half_done_) {
        const std::vector<PairIndex>& pairs = s_.flows[f].pairs;
        if (dropped_[f] || open_[s_.flows[f].comm] || std::find(pairs.begin(), pairs.end(), pair) == pairs.end())
            continue;
        if (std::any_of(issued_[f].begin(), issued_[f].end(), [this](LaunchIndex m) {
                return world_.launches[m].free() || world_.launches[m].pass_sent || is_excused(world_.launches[m]);
            }))
            continue;
        return world_.fail("I2: a circuit is to be moved while bytes of " + world_.describe(f) + " may be on their way");
    }
}

void Inspector::hold(LaunchIndex index) {
    LaunchRun& run = world_.launches[index];
    if (run.state == LaunchRun::State::done || !world_.ranks[run.rank]->alive()) return;
    run.granted = true;
    run.grant_life = world_.controller.life();
    run.granted_ns = world_.now;
    for_each_pair(index, [&](PairIndex pair) {
        auto& list = held_for_[pair];
        if (std::find(list.begin(), list.end(), index) == list.end()) list.push_back(index);
    });
}

void Inspector::release(LaunchIndex index) {
    for (const Part& part : *world_.launches[index].parts)
        for (const PairIndex pair : s_.flows[part.flow].pairs) std::erase(held_for_[pair], index);
}

void Inspector::gone(std::uint32_t rank) {
    turns_.gone(rank);
    for (auto& list : held_for_)
        std::erase_if(list, [&](LaunchIndex index) { return world_.launches[index].rank == rank; });
}

// --- optical plane --------------------------------------------------------------------------------------------

// Of the launch's operations between these two. A controller that came later holds nothing for a communicator that it lets
// pass; and a peer that was through with one and has destroyed it is unknown to it: all bytes between the two have arrived.
bool Inspector::is_through(LaunchIndex index, PairIndex pair) const {
    if (world_.controller.life() <= 1) return false;
    const auto& parts = *world_.launches[index].parts;
    return std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
        const auto& pairs = s_.flows[part.flow].pairs;
        return std::find(pairs.begin(), pairs.end(), pair) == pairs.end() || open_[part.comm] ||
               world_.traffic.has_arrived(part.flow);
    });
}

// A node that has not reported for the grace time is given up, and with it what others had with it.
bool Inspector::leads_to_given_up(PairIndex pair) const {
    if (!world_.controller.alive()) return false;
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    const NodeIndex a = s_.fabric.gpus[pair / gpus].node, b = s_.fabric.gpus[pair % gpus].node;
    const auto nodes = world_.controller.core()->nodes();
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const controller::NodeStatus& n) { return (n.node == a || n.node == b) && n.given_up; });
}

void Inspector::decided_to_cut(PairIndex pair, bool in_order) {
    // Its light is another hand's: what the controller knows it by is gone, and the map not read since.
    if (world_.plane.darkened_by_others(pair)) return;
    check_half_done(pair);
    for (const LaunchIndex index : held_for_[pair])
        if (!is_excused(world_.launches[index]) && !is_through(index, pair) && !leads_to_given_up(pair) &&
            (in_order || world_.launches[index].granted_ns < world_.now))
            return world_.fail("I2: a circuit is to be moved under " + name(index));
}

// Granted by the same controller after it had decided, the launch does not count on this circuit.
void Inspector::cut(PairIndex pair, std::uint64_t life, TimeNs decided_ns) {
    if (world_.plane.darkened_by_others(pair)) return;
    for (const LaunchIndex index : held_for_[pair]) {
        const LaunchRun& run = world_.launches[index];
        if (is_excused(run) || is_through(index, pair) || leads_to_given_up(pair) ||
            (run.grant_life == life && run.granted_ns >= decided_ns))
            continue;
        return world_.fail("I2: a circuit is moved under " + name(index));
    }
}

void Inspector::after_death(std::uint32_t job) {
    if (!world_.controller.alive()) return;
    for (LaunchIndex index = 0; index < world_.launches.size(); ++index) {
        const LaunchRun& run = world_.launches[index];
        if (s_.ranks[run.rank].job != job || run.state != LaunchRun::State::reached || run.go || !run.demanded)
            continue;
        if (!world_.ranks[run.rank]->alive() || !world_.manager_of(run.rank).alive()) continue;
        for (const Part& part : *run.parts) {
            // Not held for this one: NCCL shows the death there.
            if (world_.ranks[run.rank]->verdict(part.comm) != Verdict::enforced) continue;
            for (const std::uint32_t r : s_.comms[part.comm].ranks)
                if (world_.ranks[r]->died() && is_member(part, r))
                    return world_.fail("I6: " + name(index) + " is held for " + s_.name_of_rank(r) + ", which is dead");
        }
    }
}

bool Inspector::is_member(const Part& part, std::uint32_t rank) const {
    const FlowPlan& flow = s_.flows[part.flow];
    const auto& ranks = s_.comms[part.comm].ranks;
    if (flow.key.kind == KeyKind::coll || flow.key.kind == KeyKind::conn) return true;
    return ranks[flow.key.src] == rank || ranks[flow.key.dst] == rank;
}

void Inspector::at_rest(bool all_ended) {
    if (!world_.controller.alive()) return world_.fail("at rest without a controller");
    const controller::Core& core = *world_.controller.core();
    if (std::string fault = core.check(); !fault.empty()) return world_.fail("controller: check: " + fault);
    const auto ports = core.ports();
    for (const controller::PortStatus& port : ports) {
        const std::string& name = s_.fabric.ports[port.port].name;
        const PortId says = world_.plane.says(port.port);
        // A switch port of no NIC is no peer: it is noted.
        if (port.peer != (says == kNone - 1 ? kNone : says) || (says == kNone - 1 && port.note.empty()))
            return world_.fail("I5: " + name + ": the controller believes " + std::to_string(port.peer) +
                               ", the switch says " + std::to_string(world_.plane.says(port.port)));
        using enum controller::PortUse;
        if (port.use == unknown || port.use == moving)
            return world_.fail("I5: at rest, and " + name + " is in doubt: " + port.note);
        if (port.use == fenced)
            return world_.fail("all switches are well, and " + name + " is still fenced: " + port.fence->why);
        if (all_ended && (port.use == busy || port.use == reserved || port.use == absent))
            return world_.fail("all programs are over, and " + name + " is still kept");
    }
    if (!all_ended) return;
    for (const controller::RankStatus& rank : core.ranks())
        if (rank.launches_in_flight + rank.launches_ready > 0)
            return world_.fail("all programs are over, and a launch is not");
    if (const auto why = core.why(world_.now); !why.empty())
        return world_.fail("all programs are over, and something waits");
    for (const controller::GroupStatus& group : core.groups()) {
        std::size_t c = 0;
        while (c < s_.comms.size() && s_.comms[c].id != group.comm) ++c;
        return world_.fail("all programs are over, and communicator c" + std::to_string(c) +
                           " is kept: " + std::to_string(group.registered) + " of " + std::to_string(group.size) +
                           " ranks, verdict " + std::to_string(static_cast<int>(group.verdict)));
    }
}

}  // namespace opus::sim
