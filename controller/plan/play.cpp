#include "controller/plan/play.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <ranges>
#include <span>
#include <tuple>

namespace opus::controller::plan {
namespace {

constexpr std::uint32_t kMostCircuits = 16;  // of a pair
constexpr std::size_t kMostCompared = 64;    // uses that one waits for, to see which of them imply others
constexpr TimeNs kAsSoon = 16;               // of a dark time: no port is freed so exactly when it was foreseen

}  // namespace

Play::Play(const Lap& lap, const Fabric& fabric, const std::vector<bool>& usable)
    : lap_(lap), fabric_(fabric), uses_(static_cast<std::uint32_t>(lap.uses.size())) {
    use_.resize(uses_);
    again_.resize(uses_);
    list_pairs(usable);
    list_lengths();
    list_instances();
    list_next();
}

void Play::list_pairs(const std::vector<bool>& usable) {
    name_.assign(fabric_.ports.size(), kNone32);
    std::vector<std::uint32_t> names(fabric_.gpus.size(), kNone32);
    const auto name = [&](GpuId gpu) {
        if (names[gpu] == kNone32) {
            names[gpu] = static_cast<std::uint32_t>(gpus_.size());
            name_ports(gpus_.emplace_back(), fabric_.gpus[gpu].ports, usable);
        }
        return names[gpu];
    };
    for (std::uint32_t u = 0; u < uses_; ++u) {
        const Use& use = lap_.uses[u];
        use_[u].pairs.at = static_cast<std::uint32_t>(pairs_.size());
        for (const auto& [a, b] : use.pairs) {
            const std::uint32_t first = name(a);
            pairs_.emplace_back(first, name(b));
        }
        use_[u].pairs.end = static_cast<std::uint32_t>(pairs_.size());
        use_[u].ns = use.ns;
        goes_on_ |= !use.until.empty();
    }
}

void Play::name_ports(Gpu& gpu, const std::vector<PortId>& ports, const std::vector<bool>& usable) {
    gpu.dark_ns = fabric_.switch_of(ports.front()).dark_ns;
    dark_ns_ = std::max(dark_ns_, gpu.dark_ns);
    gpu.ports.at = static_cast<std::uint32_t>(id_.size());
    for (const PortId p : ports) {
        if (!usable[p]) continue;
        name_[p] = static_cast<std::uint32_t>(id_.size());
        id_.push_back(p);
    }
    gpu.ports.end = static_cast<std::uint32_t>(id_.size());
}

// How many circuits the pairs of each use can have, and how much longer than seen it takes with one, with two, and so on.
void Play::list_lengths() {
    std::vector<std::uint32_t> pairs_of(gpus_.size(), 0);  // of a GPU: pairs of this use
    for (std::uint32_t u = 0; u < uses_; ++u) {
        const std::span of_use(pairs_.begin() + use_[u].pairs.at, pairs_.begin() + use_[u].pairs.end);
        for (const auto& [a, b] : of_use) ++pairs_of[a], ++pairs_of[b];
        std::uint32_t most = of_use.empty() ? 1 : kMostCircuits;
        for (const auto& [a, b] : of_use)
            for (const std::uint32_t gpu : {a, b})
                most = std::min(most, (gpus_[gpu].ports.end - gpus_[gpu].ports.at) / pairs_of[gpu]);
        for (const auto& [a, b] : of_use) pairs_of[a] = pairs_of[b] = 0;
        use_[u].most_circuits = std::max(1u, most);
        use_[u].longer.at = static_cast<std::uint32_t>(longer_.size());
        for (std::uint32_t n = 1; n <= use_[u].most_circuits; ++n) longer_.push_back(lap_.uses[u].longer_ns(n));
        use_[u].longer.end = static_cast<std::uint32_t>(longer_.size());
    }
}

// The laps that are played are like those that were seen, one after the other, the last like the last.
void Play::list_instances() {
    for (std::uint32_t k = 0; k < kLaps; ++k)
        for (std::uint32_t u = 0; u < uses_; ++u) {
            const auto& laps = lap_.uses[u].in_laps;
            instance_.push_back({u, k, laps.empty() ? Use::InLap{} : laps[(kLaps - 1 - k) % laps.size()]});
        }
}

void Play::list_next() {
    std::vector<std::vector<Next>> next(uses_);
    waits_for_.assign(std::size_t{uses_} * kLaps, 0);
    for (std::uint32_t u = 0; u < uses_; ++u)
        for (const Before& b : lap_.uses[u].before) {
            if (lap_.uses[u].before.size() <= kMostCompared && is_implied(u, b)) continue;
            next[b.use].push_back({u, b.laps, b.ns});
            for (std::uint32_t k = b.laps; k < kLaps; ++k) ++waits_for_[k * uses_ + u];
        }
    for (std::uint32_t u = 0; u < uses_; ++u) {
        use_[u].next.at = static_cast<std::uint32_t>(next_.size());
        next_.insert(next_.end(), next[u].begin(), next[u].end());
        use_[u].next.end = static_cast<std::uint32_t>(next_.size());
    }
}

// It waits for another use as well, which waits for that one, and by both together for as long.
bool Play::is_implied(std::uint32_t use, const Before& before) const {
    return std::ranges::any_of(lap_.uses[use].before, [&](const Before& last) {
        const auto completes = [&](const Before& first) {
            return first.use == before.use && first.laps + last.laps == before.laps && first.ns + last.ns >= before.ns;
        };
        return last.laps <= before.laps && std::ranges::any_of(lap_.uses[last.use].before, completes) &&
               std::all_of(longer_.begin() + use_[last.use].longer.at, longer_.begin() + use_[last.use].longer.end,
                           [](TimeNs longer) { return longer >= 0; });
    });
}

void Play::play(const Way& way) {
    rank_ = &way.rank;
    first_free_ = way.first_free;
    list_places();
    list_peers();
    list_circuits(way);
    const std::uint32_t all = uses_ * kLaps;
    begun_.assign(all, {});
    waits_ = waits_for_;
    port_.assign(id_.size(), {});
    if (goes_on_) had_.assign(all, {}), again_.assign(uses_, {});
    short_of_ports_ = false;
    order_.clear();
    due_.clear();
    // Those of a lap before those of the next, and by rank.
    const auto due = [&](std::uint32_t x) {
        const Instance& i = instance_[x];
        return std::uint64_t{i.lap * uses_ + place_[i.use]} << 32 | x;
    };
    for (std::uint32_t x = 0; x < all; ++x)
        if (waits_[x] == 0) due_.push_back(due(x));
    std::ranges::make_heap(due_, std::greater{});
    while (!due_.empty()) {
        std::ranges::pop_heap(due_, std::greater{});
        const auto x = static_cast<std::uint32_t>(due_.back());
        due_.pop_back();
        serve(x);
        order_.push_back(x);
        const auto& [use, k, in_lap] = instance_[x];
        const auto [first, last] = use_[use].next;
        for (std::uint32_t i = first; i < last; ++i) {
            const Next& n = next_[i];
            if (k + n.laps >= kLaps) continue;
            const std::uint32_t y = (k + n.laps) * uses_ + n.use;
            begun_[y].full_ns = std::max(begun_[y].full_ns, begun_[x].begin_ns + n.ns + begun_[x].longer_ns);
            if (--waits_[y] != 0) continue;
            due_.push_back(due(y));
            std::ranges::push_heap(due_, std::greater{});
        }
    }
}

std::vector<std::pair<PortId, PortId>> Play::ports_of(std::uint32_t use) const {
    std::vector<std::pair<PortId, PortId>> ports;
    for (std::uint32_t i = use_[use].circuits.at; i < use_[use].circuits.end; ++i)
        if (const auto [p, q] = circuits_[i].ports; p != kNone32) ports.emplace_back(id_[p], id_[q]);
    for (const auto& [p, q] : again_[use]) ports.emplace_back(id_[p], id_[q]);
    return ports;
}

std::vector<std::vector<Ports>> Play::named(const std::vector<std::vector<std::pair<PortId, PortId>>>& ports) const {
    std::vector<std::vector<Ports>> all;
    for (const auto& of_use : ports) {
        auto& names = all.emplace_back();
        for (const auto& [p, q] : of_use) {
            if (name_[p] == kNone32 || name_[q] == kNone32) return {};
            names.emplace_back(name_[p], name_[q]);
        }
    }
    return all;
}

std::uint32_t Play::circuits_of(std::uint32_t use) const {
    const auto [at, end] = use_[use].circuits;
    const std::uint32_t pairs = use_[use].pairs.end - use_[use].pairs.at;
    if (end - at == pairs) return 1;
    std::vector<std::uint32_t> of_pair(pairs, 0);
    for (std::uint32_t i = at; i < end; ++i) of_pair[(i - at) % pairs] += circuits_[i].ports.first != kNone32;
    return std::max(1u, *std::ranges::min_element(of_pair));
}

void Play::list_places() {
    by_rank_.resize(uses_), place_.resize(uses_);
    for (std::uint32_t u = 0; u < uses_; ++u) by_rank_[u] = u;
    std::ranges::sort(by_rank_, [this](std::uint32_t u, std::uint32_t v) {
        return std::tie((*rank_)[u], u) < std::tie((*rank_)[v], v);
    });
    for (std::uint32_t i = 0; i < uses_; ++i) place_[by_rank_[i]] = i;
}

void Play::list_peers() {
    for (Gpu& g : gpus_) g.peers.clear();
    for (std::uint32_t u = 0; u < uses_; ++u)
        for (std::uint32_t i = use_[u].pairs.at; i < use_[u].pairs.end; ++i) {
            const auto [a, b] = pairs_[i];
            gpus_[a].peers.emplace_back((*rank_)[u], b);
            gpus_[b].peers.emplace_back((*rank_)[u], a);
        }
    for (Gpu& g : gpus_) std::sort(g.peers.begin(), g.peers.end());
}

void Play::list_circuits(const Way& way) {
    circuits_.clear();
    given_.assign(uses_, false);
    for (std::uint32_t u = 0; u < uses_; ++u) {
        const auto [at, end] = use_[u].pairs;
        const std::uint32_t count = (end - at) * way.circuits[u];
        given_[u] = u < way.ports.size() && way.ports[u].size() >= count;
        use_[u].circuits.at = static_cast<std::uint32_t>(circuits_.size());
        for (std::uint32_t i = 0, pair = at; i < count; ++i, pair = pair + 1 == end ? at : pair + 1)
            circuits_.push_back({pairs_[pair], given_[u] ? way.ports[u][i] : Ports{kNone32, kNone32}});
        use_[u].circuits.end = static_cast<std::uint32_t>(circuits_.size());
    }
}

// After how many uses of the GPU light to that peer is needed again.
std::size_t Play::needed_after(std::uint32_t gpu, std::uint32_t peer, double now) const {
    const auto& list = gpus_[gpu].peers;
    auto at = static_cast<std::size_t>(
        std::upper_bound(list.begin(), list.end(), std::make_pair(now, kNone32)) - list.begin());
    for (std::size_t i = 0; i < list.size(); ++i, ++at)
        if (list[at % list.size()].second == peer) return i;
    return list.size();
}

// Light that is there; else the ports that are free first (Way::first_free: even among those that are free in time). Of
// ports that are free about as soon, the ones whose light is needed last.
Ports Play::choose(const Gpus& pair, double now, TimeNs in_time) const {
    const auto [a, c] = pair;
    const Slice of_a = gpus_[a].ports, of_c = gpus_[c].ports;
    for (std::uint32_t p = of_a.at; p < of_a.end; ++p)
        if (leads_to(p, c) && !is_taken(p) && !is_taken(port_[p].peer)) return {p, port_[p].peer};
    constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
    if (first_free_) in_time = std::numeric_limits<TimeNs>::min();
    const auto free_ns = [&](std::uint32_t p, std::uint32_t q) {
        if (is_taken(p) || is_taken(q) || !fabric_.can_join(id_[p], id_[q])) return kNever;
        const TimeNs again = port_[p].open + port_[q].open > 0 ? gpus_[a].dark_ns : 0;  // it is to be turned back
        return std::max({port_[p].free_ns, port_[q].free_ns, in_time}) + again;
    };
    TimeNs soonest = kNever;
    for (std::uint32_t p = of_a.at; p < of_a.end; ++p)
        for (std::uint32_t q = of_c.at; q < of_c.end; ++q) soonest = std::min(soonest, free_ns(p, q));
    Ports best{kNone32, kNone32};
    std::size_t best_needed = 0;
    for (std::uint32_t p = of_a.at; p < of_a.end; ++p)
        for (std::uint32_t q = of_c.at; q < of_c.end; ++q) {
            const TimeNs free = free_ns(p, q);
            if (free == kNever || free > soonest + gpus_[a].dark_ns / kAsSoon) continue;
            const auto needed = [&](std::uint32_t gpu, std::uint32_t port) {
                return port_[port].peer == kNone32 ? gpus_[gpu].peers.size() : needed_after(gpu, port_[port].gpu, now);
            };
            const std::size_t both = needed(a, p) + needed(c, q);
            if (best.first != kNone32 && both <= best_needed) continue;
            best = {p, q}, best_needed = both;
        }
    return best;
}

void Play::serve(std::uint32_t x) {
    const auto& [u, lap, in_lap] = instance_[x];
    begun_[x].full_ns += in_lap.late_ns;
    take_ports(x);
    turn_ports(x);
    if (goes_on_) have_again(x);
    Begun& b = begun_[x];
    b.done = true;
    b.longer_ns = longer_ns(u, circuits_of(u)) + in_lap.longer_ns;
    b.ns = use_[u].ns + b.longer_ns;
    for (const std::uint32_t p : taken_) {
        port_[p].last = x;
        port_[p].free_ns = std::max(port_[p].free_ns, b.begin_ns + b.ns);
    }
    if (goes_on_) note_had(x);
}

// Launches that go on with later uses are to have its circuits again then.
void Play::note_had(std::uint32_t x) {
    const auto& [u, lap, in_lap] = instance_[x];
    for (const Until& until : lap_.uses[u].until) {
        const std::uint32_t k = lap + until.laps, y = k * uses_ + until.use;
        if (k >= kLaps || begun_[y].done) continue;
        for (std::uint32_t i = use_[u].circuits.at; i < use_[u].circuits.end; ++i) {
            const auto [p, q] = circuits_[i].ports;
            if (p == kNone32) continue;
            had_[y].push_back(circuits_[i]);
            ++port_[p].open, ++port_[q].open;
        }
    }
}

void Play::take_ports(std::uint32_t x) {
    const std::uint32_t u = instance_[x].use;
    const bool chooses = instance_[x].lap <= kChosen && !given_[u];
    const Slice of_use = use_[u].circuits;
    const std::uint32_t pairs = use_[u].pairs.end - use_[u].pairs.at;
    taken_.clear();
    ++serving_;
    for (std::uint32_t i = of_use.at; i < of_use.end; ++i) {
        auto& [pair, ports] = circuits_[i];
        if (chooses) {
            ports = choose(pair, (*rank_)[u], begun_[x].full_ns - gpus_[pair.first].dark_ns);
            short_of_ports_ |= ports.first == kNone32 && i - of_use.at < pairs;  // what the pair cannot be without
        }
        if (ports.first != kNone32) take(ports);
    }
}

void Play::turn_ports(std::uint32_t x) {
    begun_[x].begin_ns = begun_[x].full_ns;
    const Slice of_use = use_[instance_[x].use].circuits;
    for (std::uint32_t i = of_use.at; i < of_use.end; ++i)
        if (circuits_[i].ports.first != kNone32) turn(begun_[x], circuits_[i]);
}

void Play::turn(Begun& b, const Circuit& circuit) {
    const auto& [pair, ports] = circuit;
    const auto [p, q] = ports;
    if (port_[p].peer != q) {
        const TimeNs turned = std::max(port_[p].free_ns, port_[q].free_ns), dark = gpus_[pair.first].dark_ns;
        if (turned + dark > std::max(b.begin_ns, b.blocked_ns)) {
            b.blocked_ns = turned + dark;
            b.blocker = port_[port_[p].free_ns >= port_[q].free_ns ? p : q].last;
        }
        for (const std::uint32_t end : {p, q})
            if (port_[end].peer != kNone32) port_[port_[end].peer].peer = kNone32;
        port_[p].peer = q, port_[q].peer = p;
        port_[p].gpu = pair.second, port_[q].gpu = pair.first;
        port_[p].lit_ns = port_[q].lit_ns = turned + dark;
    }
    b.begin_ns = std::max(b.begin_ns, port_[p].lit_ns);
}

// Its launches keep what they had before, or get it back where others had it meanwhile: as far as there are ports.
void Play::have_again(std::uint32_t x) {
    for (const Circuit& had : had_[x]) {
        const auto [p, q] = had.ports;
        --port_[p].open, --port_[q].open;
        if (port_[p].peer == q && !is_taken(p)) take(had.ports), turn(begun_[x], had);
    }
    std::vector<Ports> again;
    for (const Circuit& had : had_[x]) {
        const auto is_theirs = [&](std::uint32_t p) { return leads_to(p, had.pair.second) && is_taken(p); };
        const Slice of_first = gpus_[had.pair.first].ports;
        if (std::ranges::any_of(std::views::iota(of_first.at, of_first.end), is_theirs)) continue;
        const Ports ports = choose(had.pair, (*rank_)[instance_[x].use], 0);
        if (ports.first == kNone32) continue;
        turn(begun_[x], {had.pair, ports});
        take(ports);
        again.push_back(ports);
    }
    if (instance_[x].lap == kTypical) again_[instance_[x].use] = std::move(again);
}

}  // namespace opus::controller::plan
