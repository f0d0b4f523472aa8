#include "controller/plan/play.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

namespace opus::controller::plan {
namespace {

constexpr std::uint32_t kMostCircuits = 16;  // of a pair
constexpr std::size_t kMostCompared = 64;    // uses that one waits for, to see which of them imply others
constexpr TimeNs kAsSoon = 16;               // of a dark time: no port is freed so exactly when it was foreseen

}  // namespace

Play::Play(const Lap& lap, const Fabric& fabric, const std::vector<bool>& usable)
    : lap_(lap), fabric_(fabric), uses_(static_cast<std::uint32_t>(lap.uses.size())) {
    name_.assign(fabric.ports.size(), kNone32);
    std::map<GpuId, std::uint32_t> names;
    for (const Use& use : lap.uses) {
        auto& pairs = pairs_.emplace_back();
        for (const Pair& pair : use.pairs) {
            std::uint32_t ends[2];
            for (int i = 0; i < 2; ++i) {
                const GpuId gpu = i == 0 ? pair.first : pair.second;
                const auto [at, fresh] = names.try_emplace(gpu, static_cast<std::uint32_t>(gpus_.size()));
                if (fresh) {
                    Gpu& g = gpus_.emplace_back();
                    g.dark_ns = fabric.switch_of(fabric.gpus[gpu].ports.front()).dark_ns;
                    for (const PortId p : fabric.gpus[gpu].ports)
                        if (usable[p]) {
                            g.ports.push_back(name_[p] = static_cast<std::uint32_t>(id_.size()));
                            id_.push_back(p);
                        }
                }
                ends[i] = at->second;
            }
            pairs.emplace_back(ends[0], ends[1]);
        }
    }
    chosen_.resize(uses_);
    longer_.resize(uses_);
    for (std::uint32_t u = 0; u < uses_; ++u)
        for (std::uint32_t n = 1; n <= most_circuits(u); ++n) longer_[u].push_back(lap.uses[u].longer_ns(n));
    list_instances();
    list_next();
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
    next_.resize(uses_);
    waits_for_.assign(std::size_t{uses_} * kLaps, 0);
    for (std::uint32_t u = 0; u < uses_; ++u)
        for (const Before& b : lap_.uses[u].before) {
            if (lap_.uses[u].before.size() <= kMostCompared && is_implied(u, b)) continue;
            next_[b.use].push_back({u, b.laps, b.ns});
            for (std::uint32_t k = b.laps; k < kLaps; ++k) ++waits_for_[k * uses_ + u];
        }
}

// It waits for another use as well, which waits for that one, and by both together for as long.
bool Play::is_implied(std::uint32_t use, const Before& before) const {
    return std::ranges::any_of(lap_.uses[use].before, [&](const Before& last) {
        const auto completes = [&](const Before& first) {
            return first.use == before.use && first.laps + last.laps == before.laps && first.ns + last.ns >= before.ns;
        };
        return last.laps <= before.laps && std::ranges::any_of(lap_.uses[last.use].before, completes) &&
               std::ranges::min(longer_[last.use]) >= 0;
    });
}

// How many circuits each pair of the use can have.
std::uint32_t Play::most_circuits(std::uint32_t use) const {
    std::map<std::uint32_t, std::uint32_t> pairs;
    for (const auto& [a, c] : pairs_[use]) ++pairs[a], ++pairs[c];
    std::uint32_t most = kMostCircuits;
    for (const auto& [gpu, count] : pairs)
        most = std::min(most, static_cast<std::uint32_t>(gpus_[gpu].ports.size()) / count);
    return pairs.empty() ? 1 : std::max(1u, most);
}

void Play::play(const Way& way) {
    const std::vector<double>& rank = way.rank;
    rank_ = &rank;
    first_free_ = way.first_free;
    list_places();
    list_uses();
    const std::uint32_t all = uses_ * kLaps;
    begun_.assign(all, {});
    waits_ = waits_for_;
    port_.assign(id_.size(), {});
    given_.assign(uses_, false);
    for (std::uint32_t u = 0; u < uses_; ++u) {
        chosen_[u].assign(pairs_[u].size() * way.circuits[u], {kNone32, kNone32});
        given_[u] = u < way.ports.size() && way.ports[u].size() >= chosen_[u].size();
        if (given_[u]) std::copy_n(way.ports[u].begin(), chosen_[u].size(), chosen_[u].begin());
    }
    had_.assign(all, {});
    again_.assign(uses_, {});
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
        for (const Next& n : next_[use]) {
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
    for (const auto& [p, q] : chosen_[use])
        if (p != kNone32) ports.emplace_back(id_[p], id_[q]);
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
    if (chosen_[use].size() == pairs_[use].size()) return 1;
    std::vector<std::uint32_t> of_pair(pairs_[use].size(), 0);
    for (std::size_t i = 0; i < chosen_[use].size(); ++i)
        of_pair[i % of_pair.size()] += chosen_[use][i].first != kNone32;
    return of_pair.empty() ? 1 : std::max(1u, *std::ranges::min_element(of_pair));
}

void Play::list_places() {
    by_rank_.resize(uses_), place_.resize(uses_);
    for (std::uint32_t u = 0; u < uses_; ++u) by_rank_[u] = u;
    std::ranges::sort(by_rank_, [this](std::uint32_t u, std::uint32_t v) {
        return std::tie((*rank_)[u], u) < std::tie((*rank_)[v], v);
    });
    for (std::uint32_t i = 0; i < uses_; ++i) place_[by_rank_[i]] = i;
}

void Play::list_uses() {
    for (Gpu& g : gpus_) g.peers.clear();
    for (std::uint32_t u = 0; u < uses_; ++u)
        for (const auto& [a, b] : pairs_[u]) {
            gpus_[a].peers.emplace_back((*rank_)[u], b);
            gpus_[b].peers.emplace_back((*rank_)[u], a);
        }
    for (Gpu& g : gpus_) std::sort(g.peers.begin(), g.peers.end());
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
    for (const std::uint32_t p : gpus_[a].ports)
        if (leads_to(p, c) && !is_taken(p) && !is_taken(port_[p].peer)) return {p, port_[p].peer};
    constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
    if (first_free_) in_time = std::numeric_limits<TimeNs>::min();
    const auto free_ns = [&](std::uint32_t p, std::uint32_t q) {
        if (is_taken(p) || is_taken(q) || !fabric_.can_join(id_[p], id_[q])) return kNever;
        const TimeNs again = port_[p].open + port_[q].open > 0 ? gpus_[a].dark_ns : 0;  // it is to be turned back
        return std::max({port_[p].free_ns, port_[q].free_ns, in_time}) + again;
    };
    TimeNs soonest = kNever;
    for (const std::uint32_t p : gpus_[a].ports)
        for (const std::uint32_t q : gpus_[c].ports) soonest = std::min(soonest, free_ns(p, q));
    Ports best{kNone32, kNone32};
    std::size_t best_needed = 0;
    for (const std::uint32_t p : gpus_[a].ports)
        for (const std::uint32_t q : gpus_[c].ports) {
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
    have_again(x);
    Begun& b = begun_[x];
    b.done = true;
    const Use& use = lap_.uses[u];
    b.longer_ns = longer_ns(u, circuits_of(u)) + in_lap.longer_ns;
    b.ns = use.ns + b.longer_ns;
    for (const std::uint32_t p : taken_) {
        port_[p].last = x;
        port_[p].free_ns = std::max(port_[p].free_ns, b.begin_ns + b.ns);
    }
    for (const Until& until : use.until) {
        const std::uint32_t k = lap + until.laps, y = k * uses_ + until.use;
        if (k >= kLaps || begun_[y].done) continue;
        for (std::size_t i = 0; i < chosen_[u].size(); ++i) {
            const auto [p, q] = chosen_[u][i];
            if (p == kNone32) continue;
            had_[y].push_back({pairs_[u][i % pairs_[u].size()], {p, q}});
            ++port_[p].open, ++port_[q].open;
        }
    }
}

void Play::take_ports(std::uint32_t x) {
    const std::uint32_t u = instance_[x].use;
    taken_.clear();
    ++serving_;
    for (std::size_t i = 0; i < chosen_[u].size(); ++i) {
        const Gpus& pair = pairs_[u][i % pairs_[u].size()];
        if (instance_[x].lap <= kChosen && !given_[u]) {
            chosen_[u][i] = choose(pair, (*rank_)[u], begun_[x].full_ns - gpus_[pair.first].dark_ns);
            short_of_ports_ |= chosen_[u][i].first == kNone32 &&
                               i < pairs_[u].size();  // of the pair's circuits: what it cannot be without
        }
        if (chosen_[u][i].first != kNone32) take(chosen_[u][i]);
    }
}

void Play::turn_ports(std::uint32_t x) {
    const std::uint32_t u = instance_[x].use;
    begun_[x].begin_ns = begun_[x].full_ns;
    for (std::size_t i = 0; i < chosen_[u].size(); ++i)
        if (chosen_[u][i].first != kNone32) turn(begun_[x], pairs_[u][i % pairs_[u].size()], chosen_[u][i]);
}

void Play::turn(Begun& b, const Gpus& pair, const Ports& ports) {
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
    for (const Had& had : had_[x]) {
        const auto [p, q] = had.ports;
        --port_[p].open, --port_[q].open;
        if (port_[p].peer == q && !is_taken(p)) take(had.ports), turn(begun_[x], had.pair, had.ports);
    }
    std::vector<Ports> again;
    for (const Had& had : had_[x]) {
        const auto is_theirs = [&](std::uint32_t p) { return leads_to(p, had.pair.second) && is_taken(p); };
        if (std::ranges::any_of(gpus_[had.pair.first].ports, is_theirs)) continue;
        const Ports ports = choose(had.pair, (*rank_)[instance_[x].use], 0);
        if (ports.first == kNone32) continue;
        turn(begun_[x], had.pair, ports);
        take(ports);
        again.push_back(ports);
    }
    if (instance_[x].lap == kTypical) again_[instance_[x].use] = std::move(again);
}

}  // namespace opus::controller::plan
