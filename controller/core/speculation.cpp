// Speculation: circuits are moved while their ranks compute, as soon as all members of a key have said that it
// comes next. It takes idle ports only and stands in nobody's way: any gang may turn what it has made, and
// waits only for a switch that is at work. Each port keeps an account of the dark time that was saved and lost
// on it; one that has lost more than was saved is not bet on again.
#include "controller/core/speculation.h"

#include <algorithm>
#include <limits>

#include "controller/core/impl.h"

namespace opus::controller {
namespace {

constexpr std::size_t kMaxKeysPerWord = 4096;

}  // namespace

// --- words ----------------------------------------------------------------------------------------

void Core::Impl::hear(NodeIndex node, const wire::Next& m) {
    if (!options.provision) return;
    for (const wire::Expectation& e : m.ranks) take_word(node, e);
}

void Core::Impl::take_word(NodeIndex node, const wire::Expectation& e) {
    const RankName who{node, e.rank};
    drop_word(who);
    Rank* rank = rank_of(node, e.rank);
    if (rank == nullptr || e.keys.empty()) return;
    Word word;
    word.sure = e.sure;
    for (const wire::KeyRange& range : e.keys) {
        const auto member = rank->comms.find(range.first.comm);
        if (member == rank->comms.end() || member->second.slots.size() != 1) continue;
        const Comm& comm = *member->second.comm;
        const std::uint32_t slot = member->second.slots.front();
        const Key& key = range.first;
        if (comm.verdict != Verdict::enforced || !comm.complete()) continue;
        const bool directed = key.kind == KeyKind::p2p || key.kind == KeyKind::conn_p2p;
        if (directed && (key.src >= comm.size || key.dst >= comm.size || (key.src != slot && key.dst != slot))) continue;
        if (word.keys.size() + range.count > kMaxKeysPerWord) return;
        word.gpu = comm.members[slot].gpu;
        Key one = key;
        for (std::uint32_t i = 0; i < range.count; ++i, ++one.n) word.keys.emplace_back(one, range.mesh);
    }
    if (word.keys.empty() || word.gpu == kNone) return;
    for (const auto& [key, mesh] : word.keys) spec.said[key].push_back(who);
    spec.words[who] = std::move(word);
    join_words(who);
}

// It has started something, has said something else, or is gone.
void Core::Impl::drop_word(const RankName& who) {
    const auto at = spec.words.find(who);
    if (at == spec.words.end()) return;
    if (at->second.speculation != 0) close_speculation(at->second.speculation, false);
    for (const auto& entry : at->second.keys) {
        const auto said = spec.said.find(entry.first);
        if (said == spec.said.end()) continue;
        std::erase(said->second, who);
        if (said->second.empty()) spec.said.erase(said);
    }
    spec.words.erase(at);
}

bool Core::Impl::all_have_said(const Key& key) {
    const auto said = spec.said.find(key);
    const Comm* comm = comms.find(key.comm);
    if (said == spec.said.end() || comm == nullptr || comm->verdict != Verdict::enforced) return false;
    const bool collective = key.kind == KeyKind::coll || key.kind == KeyKind::conn;
    return said->second.size() == (collective ? comm->size : 2u);
}

// The component of its words over keys that all members have said; it takes the place of smaller ones.
void Core::Impl::join_words(const RankName& who) {
    std::vector<RankName> ranks{who};
    std::set<RankName> seen{who};
    std::set<Key> keys;
    for (std::size_t i = 0; i < ranks.size(); ++i)
        for (const auto& entry : spec.words.at(ranks[i]).keys) {
            if (!all_have_said(entry.first) || !keys.insert(entry.first).second) continue;
            for (const RankName& other : spec.said.at(entry.first))
                if (seen.insert(other).second) ranks.push_back(other);
        }
    if (keys.empty()) return;
    const std::uint64_t id = spec.next++;
    Speculation s;
    s.gang.id = id;
    s.gang.ticket = std::numeric_limits<std::uint64_t>::max();
    s.gang.speculative = true;
    for (const RankName& rank : ranks) {
        Word& word = spec.words.at(rank);
        s.gang.sure &= word.sure;
        if (const auto old = spec.open.find(word.speculation); old != spec.open.end()) {
            s.moved |= old->second.moved;
            close_speculation(word.speculation, true);
        }
        for (const auto& [key, mesh] : word.keys) add_edges(key, mesh, s.gang.edges);
    }
    std::sort(s.gang.edges.begin(), s.gang.edges.end());
    s.gang.edges.erase(std::unique(s.gang.edges.begin(), s.gang.edges.end()), s.gang.edges.end());
    s.keys.assign(keys.begin(), keys.end());
    s.ranks = std::move(ranks);
    for (const RankName& rank : s.ranks) {
        Word& word = spec.words.at(rank);
        word.speculation = id;
        spec.of_gpu[word.gpu] = id;
    }
    spec.open.emplace(id, std::move(s));
    spec.due.insert(id);
}

void Core::Impl::add_edges(const Key& key, bool mesh, std::vector<EdgeId>& edges) {
    Comm* comm = comms.find(key.comm);
    if (comm == nullptr) return;
    KeyState state;
    state.key = key;
    state.comm = comm;
    state.mesh = mesh;
    const auto [begin, end] = edges_of(state);
    edges.insert(edges.end(), begin, end);
}

// `replaced`: by a larger one, which goes on.
void Core::Impl::close_speculation(std::uint64_t id, bool replaced) {
    const auto at = spec.open.find(id);
    if (at == spec.open.end()) return;
    const Speculation& s = at->second;
    if (!replaced) note_word(s, false);
    if (s.moved && !replaced) {
        ++counters.speculations_wrong;
        log(LogLevel::debug, "speculation of " + std::to_string(s.ranks.size()) + " ranks came to nothing: " +
                                 fabric.nodes[s.ranks.front().first].name + ".r" + std::to_string(s.ranks.front().second) +
                                 " does not do what it expected");
    }
    for (const RankName& rank : s.ranks)
        if (const auto word = spec.words.find(rank); word != spec.words.end() && word->second.speculation == id) {
            word->second.speculation = 0;
            if (spec.of_gpu[word->second.gpu] == id) spec.of_gpu[word->second.gpu] = 0;
        }
    spec.due.erase(id);
    spec.open.erase(at);
}

// --- bets -----------------------------------------------------------------------------------------

// At the end of a step, when every gang has had its turn.
void Core::Impl::speculate() {
    while (!spec.due.empty()) {
        const std::uint64_t id = *spec.due.begin();
        spec.due.erase(spec.due.begin());
        const auto at = spec.open.find(id);
        if (at == spec.open.end()) continue;
        const auto& keys = at->second.keys;
        const bool holds = std::all_of(keys.begin(), keys.end(), [this](const Key& key) { return all_have_said(key); });
        holds ? speculate(at->second) : close_speculation(id, false);
    }
}

// Only where the ranks at both ends have spoken: others may be in the midst of their phase.
bool Core::Impl::may_speculate(const Speculation& s) const {
    const auto spoken = [&](GpuId gpu) { return spec.of_gpu[gpu] == s.gang.id; };
    for (const EdgeId e : s.gang.edges)
        if (!spoken(inventory.edge(e).a) || !spoken(inventory.edge(e).b)) return false;
    return std::all_of(s.ranks.begin(), s.ranks.end(), [this](const RankName& r) { return nodes[r.first].up(); });
}

void Core::Impl::speculate(Speculation& s) {
    if (s.gang.edges.empty() || !may_speculate(s)) return;
    Plan plan;
    if (!planner.place(s.gang, plan)) return;
    std::erase_if(plan.fresh, [this](const auto& f) {
        return inventory.port(f.second.a).peer == f.second.b && inventory.usable(f.second);
    });
    if (plan.fresh.empty()) return;
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

void Core::Impl::bet_settled(const Op& op, TimeNs took) {
    const auto settle = [&](PortId p) {
        Bet& bet = spec.bets[p];
        if (bet.speculation == 0 || bet.took_ns >= 0) return;
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
    for (const PortId p : op.dark) spec.bets[p] = {};
    close_speculation(op.speculation, false);
}

TimeNs Core::Impl::complete_since(const Gang& gang) const {
    TimeNs last = gang.complete_ns;
    for (const Launch* launch : gang.launches) last = std::max(last, launch->complete_ns);
    return last;
}

// A gang is to turn these ports: what a speculation did to them was in vain, and what it cost is what the gang
// would not have waited without it.
void Core::Impl::lose_bets(const Gang& gang, EdgeId edge, const Circuit& circuit) {
    const TimeNs since = complete_since(gang);
    for (const PortId p : {circuit.a, circuit.b}) {
        const Bet bet = spec.bets[p];
        spec.bets[p] = {};
        if (bet.speculation == 0) continue;
        TimeNs lost = std::max<TimeNs>(0, bet.end_ns - std::max(since, bet.begun_ns));
        if (bet.before < fabric.ports.size() &&
            inventory.edge_between(fabric.ports[p].gpu, fabric.ports[bet.before].gpu) == edge)
            lost += std::max(bet.took_ns, fabric.switches[fabric.ports[p].sw].dark_ns);
        note_lost(p, lost);
    }
}

void Core::Impl::note_lost(PortId p, TimeNs lost) {
    if (lost <= 0) return;
    inventory.port(p).lost_ns += lost;
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
// moves circuits itself has waited as long as it would have without.
void Core::Impl::win_bets(const Gang& gang) {
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
                took = std::max(took, bet.took_ns);
                waited = std::max(waited, late);
                if (!moved) inventory.port(p).saved_ns += bet.took_ns - late;
            }
    if (!moved) counters.dark_hidden_ns += took - waited;
    counters.dark_exposed_ns += moved ? gang.dark_ns : waited;
}

void Core::Impl::note_word(const Speculation& s, bool came_true) {
    for (const EdgeId e : s.gang.edges)
        for (const GpuId gpu : {inventory.edge(e).a, inventory.edge(e).b})
            for (const PortId p : fabric.gpus[gpu].ports) {
                std::uint32_t& foretold = inventory.port(p).foretold;
                foretold = came_true ? foretold + 1 : 0;
            }
}

// The ranks of a gang that starts: their words have come true, or not. Those that were to start with them and
// do not go on waiting with what is left.
void Core::Impl::settle_words(const Gang& gang) {
    if (gang.edges.empty() || spec.words.empty()) return;
    std::vector<RankName> left;
    for (const Launch* launch : gang.launches) {
        if (launch->open) continue;
        const RankName who{launch->id.node, launch->id.rank};
        const auto word = spec.words.find(who);
        if (word == spec.words.end()) continue;
        const bool came_true = std::any_of(launch->keys.begin(), launch->keys.end(), [&](const KeyRef& r) {
            return std::any_of(word->second.keys.begin(), word->second.keys.end(),
                               [&](const auto& entry) { return entry.first == r.key->key; });
        });
        if (const auto s = spec.open.find(word->second.speculation); came_true && s != spec.open.end()) {
            counters.speculations_used += s->second.moved;
            note_word(s->second, true);
            left.insert(left.end(), s->second.ranks.begin(), s->second.ranks.end());
            close_speculation(word->second.speculation, true);
        }
        drop_word(who);
    }
    for (const RankName& who : left)
        if (const auto word = spec.words.find(who); word != spec.words.end() && word->second.speculation == 0) join_words(who);
}

// Invariants, for Core::check().
std::string Core::Impl::check_speculations() {
    for (const auto& [who, word] : spec.words)
        for (const auto& entry : word.keys)
            if (const auto said = spec.said.find(entry.first); said == spec.said.end() ||
                std::find(said->second.begin(), said->second.end(), who) == said->second.end())
                return "a word of " + fabric.nodes[who.first].name + " is not listed";
    std::size_t listed = 0, words = 0;
    for (const auto& [key, by] : spec.said) listed += by.size();
    for (const auto& [who, word] : spec.words) words += word.keys.size();
    if (listed != words) return "words are listed that nobody has said";
    for (const auto& [id, s] : spec.open) {
        for (const RankName& who : s.ranks)
            if (const auto word = spec.words.find(who); word == spec.words.end() || word->second.speculation != id)
                return "a speculation of a rank that has said nothing of it";
    }
    for (PortId p = 0; p < fabric.ports.size(); ++p) {
        const Bet& bet = spec.bets[p];
        if (bet.speculation != 0 && bet.took_ns < 0 && inventory.port(p).op == 0)
            return fabric.ports[p].name + " is bet on as moving and stands still";
    }
    return {};
}

}  // namespace opus::controller
