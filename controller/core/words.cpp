// What ranks say that they want next: whose words meet, and who may have what meanwhile.
#include <algorithm>
#include <limits>

#include "controller/core/impl.h"

namespace opus::controller {
namespace {

constexpr std::size_t kMaxRangesPerWord = 256;
constexpr TimeNs kSoon = 5;  // dark times; managers know times to a factor of five

void sort_once(std::vector<EdgeId>& edges) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
}

}  // namespace

void Core::Impl::hear(NodeIndex node, const wire::Next& m) {
    if (!options.provision) return;
    for (const wire::Expectation& e : m.ranks) take_word(node, e);
}

void Core::Impl::take_word(NodeIndex node, const wire::Expectation& e) {
    const RankName who{node, e.rank};
    drop_word(who);
    Rank* rank = rank_of(node, e.rank);
    if (rank == nullptr || e.keys.empty() || e.keys.size() > kMaxRangesPerWord) return;
    Word word;
    word.sure = e.sure;
    if (e.due_ms != 0) word.due_ns = now + TimeNs(e.due_ms) * 1'000'000;
    std::vector<const wire::KeyRange*> taken;
    bool alike = true;  // all of it is what one collective needs
    for (const wire::KeyRange& range : e.keys) {
        const auto member = rank->comms.find(range.first.comm);
        if (member == rank->comms.end() || member->second.slots.size() != 1) continue;
        const Comm& comm = *member->second.comm;
        const std::uint32_t slot = member->second.slots.front();
        const Key& key = range.first;
        if (comm.verdict != Verdict::enforced || !comm.complete()) continue;
        const bool directed = is_directed(key.kind);
        if (directed && (key.src >= comm.size || key.dst >= comm.size || place_of(key, slot) == kNone)) continue;
        if (const auto known = comm.keys.find(key); known != comm.keys.end())
            if (const Launch* l = known->second->members[place_of(key, slot)].launch; l != nullptr && !l->waits())
                return;  // said before it heard that this is granted
        word.gpu = comm.members[slot].gpu;
        word.collective |= !directed;
        taken.push_back(&range);
        alike &= !directed && taken.front()->first.comm == comm.id && taken.front()->mesh == range.mesh;
    }
    if (taken.empty() || word.gpu == kNone) return;
    word.wanted = alike ? list_of(*comms.find(taken.front()->first.comm), taken.front()->mesh) : list_of(taken);
    if (word.wanted == nullptr || word.wanted->edges.empty()) return;
    spec.by_gpu[word.gpu].push_back(who);
    spec.words[who] = std::move(word);
    join_words(who);
}

// It has started something, has said something else, or is gone.
void Core::Impl::drop_word(const RankName& who) {
    const auto at = spec.words.find(who);
    if (at == spec.words.end()) return;
    if (at->second.speculation != 0) close_speculation(at->second.speculation, false);
    std::erase(spec.by_gpu[at->second.gpu], who);
    spec.words.erase(at);
}

bool Core::Impl::wants_too(GpuId gpu, EdgeId e) const {
    const auto& ranks = spec.by_gpu[gpu];
    return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [&](const RankName& who) {
        const auto& edges = spec.words.at(who).wanted->edges;
        return std::binary_search(edges.begin(), edges.end(), e);
    });
}

// Some of them want something else first, which they cannot have yet: whom they want it with has something else to do.
// What others send them can be served meanwhile, if it is to come before long. Until then nobody else gets their light.
bool Core::Impl::lends(GpuId gpu, EdgeId e) {
    const auto& ranks = spec.by_gpu[gpu];
    return !ranks.empty() && !spec.open.contains(spec.of_gpu[gpu]) &&
           std::all_of(ranks.begin(), ranks.end(), [&](const RankName& who) { return can_do_without(who, e); });
}

bool Core::Impl::can_do_without(const RankName& who, EdgeId e) {
    const Word& word = spec.words.at(who);
    for (const EdgeId wanted : word.wanted->edges)
        for (const GpuId end : {inventory.edge(wanted).a, inventory.edge(wanted).b})
            if (end != word.gpu && (spec.by_gpu[end].empty() || wants_too(end, wanted))) return false;
    const Rank* rank = rank_of(who.first, who.second);
    return rank != nullptr && std::any_of(rank->launches.begin(), rank->launches.end(), [&](const auto& entry) {
               const Launch& l = *entry.second;
               if (!l.waits() || l.op != OpKind::recv || l.keys.size() != 1) return false;
               const auto [begin, end] = edges_of(*l.keys.front().key);
               return begin != end && *begin == e;
           });
}

bool Core::Impl::is_lent(GpuId gpu) const {
    const auto s = spec.open.find(spec.of_gpu[gpu]);
    return s != spec.open.end() && !s->second.lenders.empty();
}

bool Core::Impl::is_due_soon(const Word& word) const {
    const TimeNs dark = fabric.switch_of(fabric.gpus[word.gpu].ports.front()).dark_ns;
    return word.sure && word.due_ns <= now + kSoon * dark;
}

// Somebody does not want what the rank wants, and lends nothing. A collective's list remembers where it was looked at
// last: each of its ranks asks.
bool Core::Impl::not_yet(const Word& word) {
    EdgeList& wanted = *word.wanted;
    const bool soon = is_due_soon(word);
    for (std::size_t i = 0; i < wanted.edges.size(); ++i) {
        const EdgeId e = wanted.edges[wanted.in_the_way];
        for (const GpuId gpu : {inventory.edge(e).a, inventory.edge(e).b})
            if (!wants_too(gpu, e) && (!soon || !lends(gpu, e))) return true;
        wanted.in_the_way = (wanted.in_the_way + 1) % wanted.edges.size();
    }
    return false;
}

// Those that want it, those that they want besides, and so on: all of them, or nothing. Takes the place of
// smaller ones.
void Core::Impl::join_words(const RankName& who) {
    if (not_yet(spec.words.at(who))) return;
    std::vector<RankName> ranks{who};
    std::set<RankName> seen{who};
    std::set<const EdgeList*> looked;
    Speculation s;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const EdgeList& wanted = *spec.words.at(ranks[i]).wanted;
        if (!looked.insert(&wanted).second) continue;
        s.gang.edges.insert(s.gang.edges.end(), wanted.edges.begin(), wanted.edges.end());
        for (const EdgeId e : wanted.edges)
            for (const GpuId gpu : {inventory.edge(e).a, inventory.edge(e).b}) {
                if (!wants_too(gpu, e)) {
                    if (!is_due_soon(spec.words.at(who)) || !lends(gpu, e)) return;
                    s.lenders.push_back(gpu);
                    continue;
                }
                for (const RankName& other : spec.by_gpu[gpu])
                    if (seen.insert(other).second) ranks.push_back(other);
            }
    }
    // Also where light goes by another GPU than the rank's own.
    if (std::any_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return is_lent(spec.words.at(rank).gpu); }))
        return;
    const std::uint64_t id = spec.next++;
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
    }
    sort_once(s.gang.edges);
    s.ranks = std::move(ranks);
    for (const RankName& rank : s.ranks) {
        Word& word = spec.words.at(rank);
        word.speculation = id;
        spec.of_gpu[word.gpu] = id;
    }
    for (const GpuId gpu : s.lenders) spec.of_gpu[gpu] = id;
    counters.lendings += s.lenders.size();
    spec.open.emplace(id, std::move(s));
    spec.due.insert(id);
}

void Core::Impl::add_edges(Comm& comm, const wire::KeyRange& range, std::vector<EdgeId>& edges) {
    KeyState state;
    state.key = range.first;
    state.comm = &comm;
    state.mesh = range.mesh;
    const auto [begin, end] = edges_of(state);
    edges.insert(edges.end(), begin, end);
}

// Null: more than is believed.
std::shared_ptr<EdgeList> Core::Impl::list_of(const std::vector<const wire::KeyRange*>& ranges) {
    auto list = std::make_shared<EdgeList>();
    for (const wire::KeyRange* range : ranges) {
        if (list->edges.size() > kMaxRangesPerWord * fabric.gpus.size()) return nullptr;
        add_edges(*comms.find(range->first.comm), *range, list->edges);
    }
    sort_once(list->edges);
    return list;
}

std::shared_ptr<EdgeList> Core::Impl::list_of(Comm& comm, bool mesh) {
    KeyState state;
    state.key.comm = comm.id;
    state.comm = &comm;
    state.mesh = mesh;
    const auto [begin, end] = edges_of(state);
    auto& list = mesh ? comm.mesh_list : comm.ring_list;
    if (list == nullptr) list = std::make_shared<EdgeList>(EdgeList{std::vector<EdgeId>(begin, end), 0});
    return list;
}

// `replaced`: by a larger one, which goes on.
void Core::Impl::close_speculation(std::uint64_t id, bool replaced) {
    const auto at = spec.open.find(id);
    if (at == spec.open.end()) return;
    const Speculation& s = at->second;
    if (!replaced) note_word(s, false);
    if (s.moved && !replaced) {
        ++counters.speculations_wrong;
        log(LogLevel::debug, "speculation of " + std::to_string(s.ranks.size()) +
                                 " ranks came to nothing: " + fabric.nodes[s.ranks.front().first].name + ".r" +
                                 std::to_string(s.ranks.front().second) + " does not do what it expected");
    }
    for (const RankName& rank : s.ranks)
        if (const auto word = spec.words.find(rank); word != spec.words.end() && word->second.speculation == id) {
            word->second.speculation = 0;
            if (spec.of_gpu[word->second.gpu] == id) spec.of_gpu[word->second.gpu] = 0;
        }
    for (const GpuId gpu : s.lenders) {
        if (spec.of_gpu[gpu] == id) spec.of_gpu[gpu] = 0;
        spec.again.insert(spec.by_gpu[gpu].begin(), spec.by_gpu[gpu].end());
    }
    spec.due.erase(id);
    spec.open.erase(at);
}

void Core::Impl::join_again() {
    for (const RankName& who : std::exchange(spec.again, {}))
        if (const auto word = spec.words.find(who); word != spec.words.end() && word->second.speculation == 0)
            join_words(who);
}

}  // namespace opus::controller
