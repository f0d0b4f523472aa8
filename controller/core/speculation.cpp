// Speculation: circuits are moved while their ranks compute, as soon as all members of a key have said that it
// comes next. It takes idle ports only and stands in nobody's way: any gang may turn what it has made, and
// waits only for a switch that is at work. Each port keeps an account of the dark time that was saved and lost
// on it; one that has lost more than was saved is not bet on again.
#include "controller/core/speculation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "controller/core/impl.h"

namespace opus::controller {
namespace {

constexpr std::uint32_t kAmends = 8, kMostDoubled = 24;

// So long a gang lets be the light that was made ahead for another.
TimeNs moment_of(const Switch& sw) { return sw.dark_ns / 8; }

bool sends(const Launch& launch) {
    return std::all_of(launch.keys.begin(), launch.keys.end(),
                       [](const KeyRef& r) { return r.key->key.kind == KeyKind::p2p && r.slot == 0; });
}

}  // namespace

// At the end of a step, when every gang has had its turn.
void Core::Impl::speculate() {
    join_again();
    while (!spec.due.empty()) {
        const std::uint64_t id = *spec.due.begin();
        spec.due.erase(spec.due.begin());
        const auto at = spec.open.find(id);
        if (at == spec.open.end()) continue;
        speculate(at->second);
    }
}

// Only where the ranks at both ends have spoken: others may be in the midst of their phase.
bool Core::Impl::may_speculate(const Speculation& s) const {
    const auto spoken = [&](GpuId gpu) { return spec.of_gpu[gpu] == s.gang.id; };
    for (const EdgeId e : s.gang.edges)
        for (const GpuId gpu : {inventory.edge(e).a, inventory.edge(e).b}) {
            if (!spoken(gpu)) return false;
            // With some of its ports only, the gang would stop to take the others.
            for (const PortId p : fabric.gpus[gpu].ports)
                if (inventory.obstacle(p, s.gang) == Obstacle::spent) return false;
        }
    return std::all_of(s.ranks.begin(), s.ranks.end(), [this](const RankName& r) {
        return nodes[r.first].up() && rule_of(r).provision;
    });
}

void Core::Impl::speculate(Speculation& s) {
    if (s.gang.edges.empty() || !may_speculate(s)) return;
    Plan plan;
    if (!planner.place(s.gang, plan)) return;
    std::erase_if(plan.fresh, [this](const auto& f) {
        return inventory.port(f.second.a).peer == f.second.b && inventory.usable(f.second);
    });
    if (plan.fresh.empty() || rests_until(plan) > now) return;
    if (!s.moved) ++counters.speculations;
    s.moved = true;
    // What was bet on a port and not used yet has not been what it had: the one before counts.
    std::map<PortId, Bet> bets;
    const auto bet = [&](PortId p, PortId made) {
        if (p >= fabric.ports.size()) return;
        const Bet& old = spec.bets[p];
        const PortId before = old.speculation != 0 ? old.before : inventory.port(p).peer;
        bets[p] = {s.gang.id, before, made, now, -1, 0};
    };
    for (const auto& [edge, circuit] : plan.fresh)
        for (const PortId p : {circuit.a, circuit.b}) bet(inventory.port(p).peer, kNone);
    for (const auto& [edge, circuit] : plan.fresh) {
        bet(circuit.a, circuit.b);
        bet(circuit.b, circuit.a);
    }
    std::map<SwitchIndex, OpId> ops;
    for (const auto& [edge, circuit] : plan.fresh) {
        OpId& id = ops[fabric.ports[circuit.a].sw];
        Op& op = id != 0 ? inventory.ops().at(id) : open_op(fabric.ports[circuit.a].sw, true);
        id = op.id;
        op.speculation = s.gang.id;
        connect(op, edge, circuit);
    }
    for (const auto& [p, b] : bets) spec.bets[p] = b;
}

// What it is about to turn was made for what a rank of its own has said to want first: both are due at about the same
// time, and one that is a moment early would cost two moves. So it lets that light be for a moment, which is lost with
// the bet if nothing comes. Not so a rank that is to send, for a collective of its own: the peer that waits for what it
// sends has nothing else to do.
TimeNs Core::Impl::spares_until(const Gang& gang, const Plan& plan) const {
    std::set<std::uint64_t> said;  // what its ranks have said that they want first
    bool asked = false;
    for (const auto& [edge, circuit] : plan.fresh)
        for (const PortId p : {circuit.a, circuit.b}) {
            const Bet& bet = spec.bets[p];
            const auto s = spec.open.find(bet.speculation);
            if (bet.made == kNone || bet.made != inventory.port(p).peer || s == spec.open.end() ||
                !s->second.gang.sure || inventory.port(p).edge == edge)
                continue;
            const TimeNs moment = moment_of(fabric.switch_of(p));
            for (const Launch* l : std::exchange(asked, true) ? std::vector<Launch*>{} : gang.launches) {
                const auto word = spec.words.find({l->id.node, l->id.rank});
                if (word != spec.words.end() && !(word->second.collective && sends(*l)))
                    said.insert(word->second.speculation);
            }
            if (said.count(s->first) != 0) return complete_since(gang) + moment;
        }
    return 0;
}

void Core::Impl::spare(Gang& gang, TimeNs until) {
    block(gang);  // its ports are reserved meanwhile; only what is lit may pass it
    gang.offline = true;
    arm(until, TimerKind::gang_retry, gang.id);
}

void Core::Impl::bet_settled(const Op& op, TimeNs took) {
    const auto settle = [&](PortId p) {
        Bet& bet = spec.bets[p];
        if (bet.speculation != op.speculation || bet.took_ns >= 0) return;
        bet.took_ns = took;
        bet.end_ns = now;
    };
    for (const auto& entry : op.connect) {
        settle(entry.second.a);
        settle(entry.second.b);
    }
    for (const PortId p : op.dark) settle(p);
}

// A change set failed: what it was to make is no bet any more, and is not tried again unasked.
void Core::Impl::bet_failed(const Op& op) {
    for (const auto& entry : op.connect) spec.bets[entry.second.a] = spec.bets[entry.second.b] = {};
    for (const PortId p : op.dark)
        if (spec.bets[p].speculation == op.speculation) spec.bets[p] = {};
    close_speculation(op.speculation, false);
}

// Asked for each port of another gang: what has been found holds until a launch joins or leaves.
TimeNs Core::Impl::complete_since(const Gang& gang) const {
    Gang::Since& known = gang.since;
    if (known.stamp == gang.stamp && known.launches == gang.launches.size() && known.last_ns >= 0) return known.last_ns;
    known = {gang.stamp, gang.launches.size(), gang.complete_ns};
    for (const Launch* launch : gang.launches) known.last_ns = std::max(known.last_ns, launch->complete_ns);
    return known.last_ns;
}

// A gang is to turn these ports: what a speculation did to them was in vain, and what it cost is what the gang
// would not have waited without it.
void Core::Impl::lose_bets(TimeNs since, EdgeId edge, const Circuit& circuit) {
    for (const PortId p : {circuit.a, circuit.b}) {
        const Bet bet = spec.bets[p];
        spec.bets[p] = {};
        if (bet.speculation == 0) continue;
        if (bet.speculation == Bet::kPlanned) {
            ++counters.speculations_wrong;
            if (bet.made < fabric.ports.size()) spec.bets[bet.made] = {};
            continue;
        }
        TimeNs lost = std::max<TimeNs>(0, bet.end_ns - std::max(since, bet.begun_ns));
        lost = std::max(lost, std::min(now - since, moment_of(fabric.switch_of(p))));
        if (bet.before < fabric.ports.size() &&
            inventory.edge_between(fabric.ports[p].gpu, fabric.ports[bet.before].gpu) == edge)
            lost += std::max(bet.took_ns, fabric.switch_of(p).dark_ns);
        note_lost(p, lost);
    }
}

void Core::Impl::note_lost(PortId p, TimeNs lost) {
    if (lost <= 0) return;
    inventory.port(p).lost_ns += lost;
    inventory.port(p).amends = 0;
    log(LogLevel::debug, fabric.ports[p].name + " was moved in vain: " + std::to_string(lost / 1000) + " us lost");
}

// A bet that comes true has cost the port that it was taken from nothing: without it the gang that starts now
// would have taken it.
void Core::Impl::forget_cost(const Bet& bet) {
    if (bet.before >= fabric.ports.size()) return;
    Bet& left = spec.bets[bet.before];
    if (left.speculation == bet.speculation && left.made == kNone) left = {};
}

// A gang starts on these circuits: which of them were there because of a speculation, and since when? One that
// moves circuits itself has waited as long as it would have without. Returns what it waited for light.
TimeNs Core::Impl::win_bets(const Gang& gang) {
    const TimeNs since = complete_since(gang);
    const bool moved = gang.state == Gang::State::programming;
    TimeNs took = 0, waited = 0;
    for (const EdgeId e : gang.edges)
        for (const Circuit& c : inventory.edge(e).up)
            for (const PortId p : {c.a, c.b}) {
                const Bet bet = spec.bets[p];
                if (bet.speculation == 0 || bet.made != inventory.port(p).peer || bet.took_ns < 0) continue;
                spec.bets[p] = {};
                forget_cost(bet);
                const TimeNs late = std::min(bet.took_ns, std::max<TimeNs>(0, bet.end_ns - since));
                if (bet.made == bet.before) {  // taken away and brought back
                    note_lost(p, late);
                    continue;
                }
                counters.speculations_used += bet.speculation == Bet::kPlanned && p == c.a;
                took = std::max(took, bet.took_ns);
                waited = std::max(waited, late);
                if (!moved) inventory.port(p).saved_ns += bet.took_ns - late;
            }
    if (!moved) counters.dark_hidden_ns += took - waited;
    const TimeNs exposed = moved ? gang.dark_ns : waited;
    counters.dark_exposed_ns += exposed;
    return exposed;
}

void Core::Impl::note_word(const Speculation& s, bool came_true) {
    for (const EdgeId e : s.gang.edges)
        for (const GpuId gpu : {inventory.edge(e).a, inventory.edge(e).b})
            for (const PortId p : fabric.gpus[gpu].ports) {
                PortState& port = inventory.port(p);
                port.foretold = came_true ? port.foretold + 1 : 0;
                port.misled |= !came_true;
                make_amends(p, came_true);
            }
}

// A port in debt may not bet, so it cannot save either: one loss while a job finds its rhythm would be for good. Its
// debt is forgiven when enough words have come true one after the other, twice as many each time.
void Core::Impl::make_amends(PortId p, bool came_true) {
    PortState& port = inventory.port(p);
    port.amends = came_true && port.lost_ns > port.saved_ns ? port.amends + 1 : 0;
    if (port.amends < kAmends << std::min(port.amnesties, kMostDoubled)) return;
    ++port.amnesties;
    port.amends = 0;
    port.lost_ns = port.saved_ns;
    log(LogLevel::debug, fabric.ports[p].name + " may be bet on again");
}

// The ranks of a gang that starts: their words have come true, or not. Those that were to start with them and
// do not go on waiting with what is left.
void Core::Impl::settle_words(const Gang& gang) {
    if (gang.edges.empty() || spec.words.empty()) return;
    std::vector<RankName> left;
    std::map<std::shared_ptr<EdgeList>, bool> served;
    for (const Launch* launch : gang.launches) {
        if (launch->open) continue;
        const RankName who{launch->id.node, launch->id.rank};
        const auto word = spec.words.find(who);
        if (word == spec.words.end()) continue;
        // The gang may be larger than what the rank knew of.
        const auto [at, fresh] = served.try_emplace(word->second.wanted);
        const std::vector<EdgeId>& wanted = at->first->edges;
        if (fresh) at->second = std::includes(gang.edges.begin(), gang.edges.end(), wanted.begin(), wanted.end());
        const bool came_true = at->second;
        if (const auto s = spec.open.find(word->second.speculation); came_true && s != spec.open.end()) {
            counters.speculations_used += s->second.moved;
            note_word(s->second, true);
            left.insert(left.end(), s->second.ranks.begin(), s->second.ranks.end());
            close_speculation(word->second.speculation, true);
        }
        drop_word(who);
    }
    for (const RankName& who : left)
        if (const auto word = spec.words.find(who); word != spec.words.end() && word->second.speculation == 0)
            join_words(who);
}

// Who loses circuits in this step and gets none may be in the midst of a phase, and idle: it is told, and says in
// Next what it will want them for.
void Core::Impl::tell_losers() {
    if (!options.provision) return;
    for (const OpId id : new_ops) {
        const auto at = inventory.ops().find(id);
        if (at == inventory.ops().end()) continue;
        const Op& op = at->second;
        const std::vector<PortId> turned = op.turned();
        for (const PortId p : op.dark) {
            if (std::binary_search(turned.begin(), turned.end(), p)) continue;
            const NodeIndex node = fabric.gpus[fabric.ports[p].gpu].node;
            nodes[node].tell = true;
            owed.insert(node);
        }
    }
}

// Invariants, for Core::check().
std::string Core::Impl::check_speculations() {
    std::size_t listed = 0;
    for (const auto& ranks : spec.by_gpu) listed += ranks.size();
    if (listed != spec.words.size()) return "words are listed that nobody has said";
    for (const auto& [who, word] : spec.words)
        if (const auto& ranks = spec.by_gpu[word.gpu]; std::find(ranks.begin(), ranks.end(), who) == ranks.end())
            return "a word of " + fabric.nodes[who.first].name + " is not listed";
    for (const auto& [id, s] : spec.open) {
        for (const RankName& who : s.ranks)
            if (const auto word = spec.words.find(who); word == spec.words.end() || word->second.speculation != id)
                return "a speculation of a rank that has said nothing of it";
        for (const GpuId gpu : s.lenders)
            if (spec.of_gpu[gpu] != id) return "light is lent twice";
    }
    for (PortId p = 0; p < fabric.ports.size(); ++p) {
        const Bet& bet = spec.bets[p];
        if (bet.speculation != 0 && bet.took_ns < 0 && inventory.port(p).op == 0 && inventory.port(p).leaves == 0)
            return fabric.ports[p].name + " is bet on as moving and stands still";
    }
    return {};
}

}  // namespace opus::controller
