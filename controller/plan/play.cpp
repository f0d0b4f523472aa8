#include "controller/plan/play.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace opus::controller::plan {
namespace {

constexpr std::uint32_t kMostCircuits = 16;  // of a pair

}  // namespace

Play::Play(const Lap& lap, const Fabric& fabric, const std::vector<bool>& usable)
    : lap_(lap), fabric_(fabric), uses_(static_cast<std::uint32_t>(lap.uses.size())) {
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
                            g.ports.push_back(static_cast<std::uint32_t>(id_.size()));
                            id_.push_back(p);
                        }
                }
                ends[i] = at->second;
            }
            pairs.emplace_back(ends[0], ends[1]);
        }
    }
    next_.resize(uses_);
    for (std::uint32_t u = 0; u < uses_; ++u)
        for (const Before& b : lap.uses[u].before) next_[b.use].push_back({u, b.laps, b.ns});
    chosen_.resize(uses_);
    longer_.resize(uses_);
    for (std::uint32_t u = 0; u < uses_; ++u)
        for (std::uint32_t n = 1; n <= most_circuits(u); ++n) longer_[u].push_back(lap.uses[u].longer_ns(n));
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
    list_uses();
    const std::uint32_t all = uses_ * kLaps;
    begun_.assign(all, {});
    waits_.assign(all, 0);
    for (std::uint32_t k = 0; k < kLaps; ++k)
        for (std::uint32_t u = 0; u < uses_; ++u)
            for (const Before& b : lap_.uses[u].before) waits_[k * uses_ + u] += b.laps <= k;
    port_.assign(id_.size(), {});
    held_.assign(all, {});
    for (std::uint32_t u = 0; u < uses_; ++u)
        chosen_[u].assign(pairs_[u].size() * way.circuits[u], {kNone32, kNone32});
    delayed_.assign(all, {});
    short_of_ports_ = false;
    order_.clear();
    due_.clear();
    const auto later = [&](std::uint32_t x, std::uint32_t y) {
        return std::make_tuple(x / uses_, rank[x % uses_], x) > std::make_tuple(y / uses_, rank[y % uses_], y);
    };
    for (std::uint32_t x = 0; x < all; ++x)
        if (waits_[x] == 0) due_.push_back(x);
    std::make_heap(due_.begin(), due_.end(), later);
    while (!due_.empty()) {
        std::pop_heap(due_.begin(), due_.end(), later);
        const std::uint32_t x = due_.back();
        due_.pop_back();
        if (!serve(x)) continue;
        order_.push_back(x);
        for (const std::uint32_t y : delayed_[x]) {
            due_.push_back(y);
            std::push_heap(due_.begin(), due_.end(), later);
        }
        const std::uint32_t k = x / uses_;
        for (const Next& n : next_[x % uses_]) {
            if (k + n.laps >= kLaps) continue;
            const std::uint32_t y = (k + n.laps) * uses_ + n.use;
            begun_[y].full_ns = std::max(begun_[y].full_ns, begun_[x].begin_ns + n.ns + begun_[x].longer_ns);
            if (--waits_[y] != 0) continue;
            due_.push_back(y);
            std::push_heap(due_.begin(), due_.end(), later);
        }
    }
}

std::vector<std::pair<PortId, PortId>> Play::ports_of(std::uint32_t use) const {
    std::vector<std::pair<PortId, PortId>> ports;
    for (const auto& [p, q] : chosen_[use])
        if (p != kNone32) ports.emplace_back(id_[p], id_[q]);
    return ports;
}

std::uint32_t Play::circuits_of(std::uint32_t use) const {
    if (chosen_[use].size() == pairs_[use].size()) return 1;
    std::vector<std::uint32_t> of_pair(pairs_[use].size(), 0);
    for (std::size_t i = 0; i < chosen_[use].size(); ++i)
        of_pair[i % of_pair.size()] += chosen_[use][i].first != kNone32;
    return of_pair.empty() ? 1 : std::max(1u, *std::ranges::min_element(of_pair));
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

// Light that is there; else the ports that are free first, or in time, and of these the ones whose light is needed last.
Play::Choice Play::choose(std::uint32_t u, std::size_t i, TimeNs in_time) {
    const std::size_t pair = i % pairs_[u].size();
    const auto [a, c] = pairs_[u][pair];
    for (const std::uint32_t p : gpus_[a].ports)
        if (port_[p].peer != kNone32 && port_[p].gpu == c && !is_taken(p) && !is_taken(port_[p].peer)) {
            chosen_[u][i] = {p, port_[p].peer};
            return Choice::made;
        }
    if (as_it_ends(u, i)) return Choice::made;
    TimeNs best_free = 0;
    std::size_t best_needed = 0;
    bool found = false, open = false;
    for (const std::uint32_t p : gpus_[a].ports)
        for (const std::uint32_t q : gpus_[c].ports) {
            if (is_taken(p) || is_taken(q) || !fabric_.can_join(id_[p], id_[q])) continue;
            if (is_open(p) || is_open(q)) {
                open = true;
                continue;
            }
            const TimeNs free = std::max({port_[p].free_ns, port_[q].free_ns, in_time});
            const auto needed = [&](std::uint32_t gpu, std::uint32_t port) {
                return port_[port].peer == kNone32 ? gpus_[gpu].peers.size() : needed_after(gpu, port_[port].gpu, (*rank_)[u]);
            };
            const std::size_t both = needed(a, p) + needed(c, q);
            if (found && (free > best_free || (free == best_free && both <= best_needed))) continue;
            chosen_[u][i] = {p, q};
            best_free = free, best_needed = both, found = true;
        }
    return found ? Choice::made : open ? Choice::later : Choice::none;
}

// By the ports with which its launches end in the laps before.
bool Play::as_it_ends(std::uint32_t u, std::size_t i) {
    const std::size_t pair = i % pairs_[u].size();
    for (const Until& until : lap_.uses[u].until) {
        if (until.laps == 0) continue;
        const auto& pairs = pairs_[until.use];
        const auto same = std::ranges::find(pairs, pairs_[u][pair]);
        if (same == pairs.end()) continue;
        const std::size_t there = i - pair + static_cast<std::size_t>(same - pairs.begin());
        if (pairs.size() != pairs_[u].size() && i != pair) continue;
        if (there >= chosen_[until.use].size()) continue;
        const auto ports = chosen_[until.use][there];
        if (ports.first == kNone32 || is_taken(ports.first) || is_taken(ports.second)) continue;
        if (is_open(ports.first) || is_open(ports.second)) continue;
        chosen_[u][i] = ports;
        return true;
    }
    return false;
}

// False: it comes after a use for whose end it waits.
bool Play::serve(std::uint32_t x) {
    if (!take_ports(x)) return false;
    turn_ports(x);
    Begun& b = begun_[x];
    const Use& use = lap_.uses[x % uses_];
    b.longer_ns = longer_ns(x % uses_, circuits_of(x % uses_));
    b.ns = use.ns + b.longer_ns;
    for (const std::vector<std::uint32_t>* ports : {&taken_, &held_[x]})
        for (const std::uint32_t p : *ports) {
            port_[p].last = x;
            port_[p].free_ns = std::max(port_[p].free_ns, b.begin_ns + b.ns);
        }
    b.done = true;
    for (const std::uint32_t p : held_[x])
        if (--port_[p].open > 0 && port_[p].until == x) port_[p].until = who_holds(p);
    for (const Until& until : use.until) {
        const std::uint32_t k = x / uses_ + until.laps, y = k * uses_ + until.use;
        if (k >= kLaps || begun_[y].done) continue;
        for (const std::uint32_t p : taken_) {
            ++port_[p].open;
            port_[p].until = y;
            held_[y].push_back(p);
        }
    }
    return true;
}

bool Play::take_ports(std::uint32_t x) {
    const std::uint32_t u = x % uses_;
    taken_.clear();
    ++serving_;
    for (std::size_t i = 0; i < chosen_[u].size(); ++i) {
        const auto& pair = pairs_[u][i % pairs_[u].size()];
        const Gpu &a = gpus_[pair.first], &c = gpus_[pair.second];
        const bool first = i < pairs_[u].size();  // of the pair's circuits: what it cannot be without
        if (x / uses_ > kChosen) {
            if (first || chosen_[u][i].first != kNone32) go_on(u, i);
        } else if (const Choice choice = choose(u, i, begun_[x].full_ns - a.dark_ns); choice != Choice::made) {
            if (!first) {
                chosen_[u][i] = {kNone32, kNone32};
                continue;
            }
            if (choice == Choice::later) return !(delay(x, a.ports) || delay(x, c.ports));
            short_of_ports_ = true;
            chosen_[u][i] = {kNone32, kNone32};
        }
        const auto [p, q] = chosen_[u][i];
        if (p == kNone32) continue;
        if (port_[p].peer != q && (is_open(p) || is_open(q))) return !delay(x, {p, q});
        take(p);
        take(q);
    }
    return true;
}

void Play::turn_ports(std::uint32_t x) {
    const std::uint32_t u = x % uses_;
    Begun& b = begun_[x];
    b.begin_ns = b.full_ns;
    for (std::size_t i = 0; i < chosen_[u].size(); ++i) {
        const auto& pair = pairs_[u][i % pairs_[u].size()];
        const TimeNs dark = gpus_[pair.first].dark_ns;
        const auto [p, q] = chosen_[u][i];
        if (p == kNone32) continue;
        if (port_[p].peer != q) {
            const TimeNs turned = std::max(port_[p].free_ns, port_[q].free_ns);
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
}

// Is one of the ports kept for a use to come? Then this one is served again after it.
bool Play::delay(std::uint32_t x, const std::vector<std::uint32_t>& ports) {
    const auto open = std::ranges::find_if(ports, [this](std::uint32_t p) { return is_open(p); });
    if (open == ports.end()) return false;
    delayed_[port_[*open].until].push_back(x);
    return true;
}

}  // namespace opus::controller::plan
