#include "controller/plan/search.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

namespace opus::controller::plan {
namespace {

constexpr std::uint32_t kNone32 = 0xffffffffu;
// Laps that are played. In that of kChosen ports are chosen for all that follow.
constexpr std::uint32_t kLaps = 5, kChosen = 1, kTypical = 3;
constexpr std::uint32_t kMostCircuits = 16;  // of a pair
constexpr TimeNs kLeastGain = 10'000;        // of so many parts of a lap one
// With more circuits a pair there are more turns. Not all laps are as they were: of so many turns one is not in time.
constexpr TimeNs kTurnsThatShow = 4;

// How a lap may go: by rank its uses take their light, and each with how many circuits a pair.
struct Way {
    std::vector<double> rank;
    std::vector<std::uint32_t> circuits;
};

// A lap on the ports of its GPUs, played in a way.
class Play {
public:
    struct Begun {
        TimeNs full_ns = 0, begin_ns = 0, blocked_ns = 0, ns = 0, longer_ns = 0;
        std::uint32_t blocker = kNone32;  // instance
        bool done = false;
    };

    Play(const Lap& lap, const Fabric& fabric, const std::vector<bool>& usable)
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
    std::uint32_t most_circuits(std::uint32_t use) const {
        std::map<std::uint32_t, std::uint32_t> pairs;
        for (const auto& [a, c] : pairs_[use]) ++pairs[a], ++pairs[c];
        std::uint32_t most = kMostCircuits;
        for (const auto& [gpu, count] : pairs)
            most = std::min(most, static_cast<std::uint32_t>(gpus_[gpu].ports.size()) / count);
        return pairs.empty() ? 1 : std::max(1u, most);
    }
    // What the use takes longer with so many circuits a pair than as it was seen.
    TimeNs longer_ns(std::uint32_t use, std::uint32_t circuits) const {
        return longer_[use][std::min<std::size_t>(circuits, longer_[use].size()) - 1];
    }

    void play(const Way& way) {
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
        turned_ns_ = 0;
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

    bool whole() const { return !short_of_ports_ && order_.size() == std::size_t{uses_} * kLaps; }
    std::vector<std::pair<PortId, PortId>> ports_of(std::uint32_t use) const {
        std::vector<std::pair<PortId, PortId>> ports;
        for (const auto& [p, q] : chosen_[use])
            if (p != kNone32) ports.emplace_back(id_[p], id_[q]);
        return ports;
    }
    std::uint32_t circuits_of(std::uint32_t use) const {
        if (chosen_[use].size() == pairs_[use].size()) return 1;
        std::vector<std::uint32_t> of_pair(pairs_[use].size(), 0);
        for (std::size_t i = 0; i < chosen_[use].size(); ++i)
            of_pair[i % of_pair.size()] += chosen_[use][i].first != kNone32;
        return of_pair.empty() ? 1 : std::max(1u, *std::ranges::min_element(of_pair));
    }
    TimeNs end_of(std::uint32_t k) const {
        TimeNs end = 0;
        for (std::uint32_t x = 0; x < (k + 1) * uses_; ++x) end = std::max(end, begun_[x].begin_ns + begun_[x].ns);
        return end;
    }
    TimeNs lap_ns() const { return (end_of(kLaps - 1) - end_of(kChosen)) / (kLaps - 1 - kChosen); }
    // For how long a GPU's ports are dark in a lap, in the mean.
    TimeNs turned_ns() const {
        return gpus_.empty() ? 0 : turned_ns_ / static_cast<TimeNs>(gpus_.size() * (kLaps - 1 - kChosen));
    }
    TimeNs held_ns() const {
        TimeNs sum = 0;
        for (std::uint32_t x = uses_; x < uses_ * kLaps; ++x) sum += begun_[x].begin_ns - begun_[x].full_ns;
        return sum;
    }
    const Begun& typical(std::uint32_t use) const { return begun_[kTypical * uses_ + use]; }
    TimeNs dark_ns() const { return gpus_.empty() ? 0 : std::ranges::max(gpus_, {}, &Gpu::dark_ns).dark_ns; }
    const std::vector<std::uint32_t>& order() const { return order_; }
    std::uint32_t uses() const { return uses_; }

private:
    struct Gpu {
        std::vector<std::uint32_t> ports;
        TimeNs dark_ns = 0;
        std::vector<std::pair<double, std::uint32_t>> peers;  // of uses, by rank: whom it is joined to
    };
    struct Port {
        std::uint32_t peer = kNone32, gpu = kNone32;  // where its light leads
        std::uint32_t last = kNone32;
        std::uint64_t taken = 0;  // when serving_ was so
        std::uint32_t open = 0;         // uses that it is kept for once they are over
        std::uint32_t until = kNone32;  // one of those at whose end it goes
        TimeNs free_ns = 0, lit_ns = 0;
    };
    struct Next {
        std::uint32_t use = 0, laps = 0;
        TimeNs ns = 0;
    };

    void list_uses() {
        for (Gpu& g : gpus_) g.peers.clear();
        for (std::uint32_t u = 0; u < uses_; ++u)
            for (const auto& [a, b] : pairs_[u]) {
                gpus_[a].peers.emplace_back((*rank_)[u], b);
                gpus_[b].peers.emplace_back((*rank_)[u], a);
            }
        for (Gpu& g : gpus_) std::sort(g.peers.begin(), g.peers.end());
    }

    // After how many uses of the GPU light to that peer is needed again.
    std::size_t needed_after(std::uint32_t gpu, std::uint32_t peer, double now) const {
        const auto& list = gpus_[gpu].peers;
        auto at = static_cast<std::size_t>(
            std::upper_bound(list.begin(), list.end(), std::make_pair(now, kNone32)) - list.begin());
        for (std::size_t i = 0; i < list.size(); ++i, ++at)
            if (list[at % list.size()].second == peer) return i;
        return list.size();
    }

    bool is_taken(std::uint32_t p) const { return port_[p].taken == serving_; }
    void take(std::uint32_t p) {
        port_[p].taken = serving_;
        taken_.push_back(p);
    }

    enum class Choice { made, none, later };

    // Light that is there; else the ports that are free first, or in time, and of these the ones whose light is needed last.
    Choice choose(std::uint32_t u, std::size_t i, TimeNs in_time) {
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
    bool as_it_ends(std::uint32_t u, std::size_t i) {
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

    // By the light with which its launches have begun.
    void go_on(std::uint32_t u, std::size_t i) {
        const auto [a, c] = pairs_[u][i % pairs_[u].size()];
        for (const std::uint32_t p : gpus_[a].ports)
            if (is_open(p) && port_[p].gpu == c && !is_taken(p)) chosen_[u][i] = {p, port_[p].peer};
    }

    // Its light cannot go: a launch that began with it is not over.
    bool is_open(std::uint32_t p) const { return port_[p].open > 0; }

    // False: it comes after a use for whose end it waits.
    bool serve(std::uint32_t x) {
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

    std::uint32_t who_holds(std::uint32_t port) const {
        for (std::uint32_t y = 0; y < held_.size(); ++y)
            if (!begun_[y].done && std::ranges::find(held_[y], port) != held_[y].end()) return y;
        return kNone32;
    }

    bool take_ports(std::uint32_t x) {
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

    void turn_ports(std::uint32_t x) {
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
                if (x / uses_ > kChosen) turned_ns_ += 2 * dark;
            }
            b.begin_ns = std::max(b.begin_ns, port_[p].lit_ns);
        }
    }

    // Is one of the ports kept for a use to come? Then this one is served again after it.
    bool delay(std::uint32_t x, const std::vector<std::uint32_t>& ports) {
        const auto open = std::ranges::find_if(ports, [this](std::uint32_t p) { return is_open(p); });
        if (open == ports.end()) return false;
        delayed_[port_[*open].until].push_back(x);
        return true;
    }

    const Lap& lap_;
    const Fabric& fabric_;
    std::uint32_t uses_ = 0;
    bool short_of_ports_ = false;
    TimeNs turned_ns_ = 0;
    std::uint64_t serving_ = 0;
    std::vector<PortId> id_;  // of each port
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> chosen_;  // by use: ports of each pair, then of each pair's second circuit
    std::vector<std::vector<TimeNs>> longer_;  // by use: with one circuit a pair, with two
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> pairs_;  // by use: GPUs
    std::vector<Gpu> gpus_;
    std::vector<std::vector<Next>> next_;
    const std::vector<double>* rank_ = nullptr;
    std::vector<Begun> begun_;
    std::vector<std::uint32_t> waits_, order_, due_, taken_;
    std::vector<std::vector<std::uint32_t>> held_, delayed_;  // by instance: ports that are kept until it is over; instances that come after it
    std::vector<Port> port_;
};

class Search {
public:
    Search(const Task& task, const Fabric& fabric)
        : lap_(task.lap),
          play_(task.lap, fabric, task.usable),
          most_(std::max(1u, task.trials)),
          acceptable_ns_(task.acceptable_ns) {
        followed_.rank.assign(task.place.begin(), task.place.end());
        followed_.circuits = task.circuits;
        find_ancestors();
        for (std::uint32_t u = 0; u < play_.uses(); ++u)
            if (gains_ns(u) > 0) wide_.push_back(u);
        std::ranges::stable_sort(wide_, std::greater{}, [this](std::uint32_t u) { return gains_ns(u); });
    }

    Order find() {
        const std::size_t n = lap_.uses.size();
        if (followed_.rank.size() == n && followed_.circuits.size() == n) begin_with(followed_);
        std::vector<std::uint32_t> circuits(n, 1);
        if (!wide_.empty()) circuits = of_shortest(as_seen());
        begin_with({as_seen(), circuits});
        begin_with({critical(), circuits});
        widen();
        shake();
        play_.play(best_);
        Order order;
        if (!play_.whole()) return order;
        if (acceptable_ns_ > 0 && play_.lap_ns() > acceptable_ns_) {
            play_.play({as_seen(), std::vector<std::uint32_t>(n, 1)});
            if (!play_.whole()) play_.play(best_);
        }
        order.lap_ns = play_.lap_ns();
        order.place.resize(play_.uses());
        order.wait.resize(play_.uses());
        std::uint32_t place = 0;
        for (const std::uint32_t x : play_.order())
            if (x / play_.uses() == kTypical) order.place[x % play_.uses()] = place++;
        for (std::uint32_t u = 0; u < play_.uses(); ++u)
            order.ports.push_back(play_.ports_of(u)), order.wait[u] = play_.typical(u).begin_ns - play_.typical(u).full_ns;
        for (std::uint32_t u = 0; u < play_.uses(); ++u) order.circuits.push_back(play_.circuits_of(u));
        return order;
    }

private:
    struct Score {
        bool lacks = true;  // ports, or an end
        TimeNs lap_ns = 0, held_ns = 0;
        auto operator<=>(const Score&) const = default;
    };

    std::vector<double> as_seen() const {
        std::vector<double> rank;
        for (const Use& use : lap_.uses) rank.push_back(static_cast<double>(use.at_ns));
        return rank;
    }

    // Those with the longest way to go come first.
    std::vector<double> critical() const {
        std::vector<TimeNs> tail(lap_.uses.size(), 0);
        for (std::size_t i = sorted_.size(); i-- > 0;) {
            const std::uint32_t u = sorted_[i];
            tail[u] = std::max(tail[u], lap_.uses[u].ns);
            for (const Before& b : lap_.uses[u].before)
                if (b.laps == 0) tail[b.use] = std::max(tail[b.use], b.ns + tail[u]);
        }
        std::vector<double> rank;
        for (const TimeNs t : tail) rank.push_back(-static_cast<double>(t));
        return rank;
    }

    // How much less it takes with all circuits that it can have; 0: too little for the turns that it needs.
    TimeNs gains_ns(std::uint32_t use) const {
        const TimeNs ns = play_.longer_ns(use, 1) - play_.longer_ns(use, play_.most_circuits(use));
        return ns > std::max(lap_.ns / kLeastGain, play_.dark_ns() / 2) ? ns : 0;
    }

    // As few circuits as can be, as many, or as many where they save more than a dark time: whichever is shortest.
    std::vector<std::uint32_t> of_shortest(const std::vector<double>& rank) {
        std::vector<std::uint32_t> best;
        Score least;
        for (const double dark_times : {std::numeric_limits<double>::infinity(), 1.0, 0.0}) {
            std::vector<std::uint32_t> circuits(lap_.uses.size(), 1);
            for (const std::uint32_t u : wide_)
                if (static_cast<double>(gains_ns(u)) > dark_times * static_cast<double>(play_.dark_ns()))
                    circuits[u] = play_.most_circuits(u);
            const Score score = play({rank, circuits});
            if (!best.empty() && !(score < least)) continue;
            best = std::move(circuits), least = score;
        }
        return best;
    }

    // Each use by itself with more circuits or fewer, those first to which it is most.
    void widen() {
        const std::uint32_t upto = trials_ + (most_ - std::min(most_, trials_)) / 2;
        for (bool better = true; better && trials_ < upto;) {
            better = false;
            for (const std::uint32_t u : wide_) {
                if (trials_ >= upto) return;
                Way way = best_;
                way.circuits[u] = way.circuits[u] % play_.most_circuits(u) + 1;
                const Score score = play(way);
                if (!(score < score_)) continue;
                best_ = std::move(way), score_ = score;
                better = true;
            }
        }
    }

    Score play(const Way& way) {
        ++trials_;
        play_.play(way);
        const TimeNs risk = wide_.empty() ? 0 : play_.turned_ns() / kTurnsThatShow;
        return {!play_.whole(), play_.lap_ns() + risk, play_.held_ns()};
    }

    std::vector<double> as_played() const {
        std::vector<double> rank(play_.uses(), 0);
        double n = 0;
        for (const std::uint32_t x : play_.order())
            if (x / play_.uses() == kTypical) rank[x % play_.uses()] = ++n;
        return rank;
    }

    void begin_with(Way way) {
        const Score score = play(way);
        if (best_.rank.empty() || score < score_) best_ = way, score_ = score;
        climb(std::move(way), score);
    }

    void shake() {
        while (trials_ < most_ && !best_.rank.empty()) {
            play(best_);
            Way way{as_played(), best_.circuits};
            for (int i = 0; i < 3; ++i) way.rank[draw() % way.rank.size()] += static_cast<double>(draw() % 41) - 20.5;
            if (!wide_.empty()) {
                const std::uint32_t u = wide_[draw() % wide_.size()];
                way.circuits[u] = way.circuits[u] % play_.most_circuits(u) + 1;
            }
            const Score score = play(way);
            climb(std::move(way), score);
        }
    }

    // What waited for a use of its ports goes before it, with what it waits for itself.
    std::vector<double> moved_before(const std::vector<double>& rank, std::uint32_t use, std::uint32_t blocker) const {
        const double at = rank[blocker], to = rank[use];
        if (at >= to) return {};
        std::vector<double> moved = rank;
        for (std::uint32_t n = 0; n < rank.size(); ++n) {
            if (rank[n] < at || rank[n] > to) continue;
            if (n != use && !is_before(n, use)) continue;
            if (n == blocker || is_before(blocker, n)) return {};
            moved[n] = at - 1 + (rank[n] - at + 0.5) / (to - at + 1);
        }
        return moved;
    }

    void climb(Way way, Score score) {
        while (trials_ < most_) {
            play(way);
            way.rank = as_played();
            struct Wait {
                std::uint32_t use, blocker;
                TimeNs ns;
            };
            std::vector<Wait> waits;
            for (std::uint32_t u = 0; u < play_.uses(); ++u) {
                const Play::Begun& b = play_.typical(u);
                if (b.blocker != kNone32 && b.begin_ns > b.full_ns && b.blocker / play_.uses() == kTypical)
                    waits.push_back({u, b.blocker % play_.uses(), b.begin_ns - b.full_ns});
            }
            std::stable_sort(waits.begin(), waits.end(), [](const Wait& x, const Wait& y) { return x.ns > y.ns; });
            bool better = false;
            for (const Wait& wait : waits) {
                if (trials_ >= most_) break;
                Way moved{moved_before(way.rank, wait.use, wait.blocker), way.circuits};
                if (moved.rank.empty()) continue;
                const Score s = play(moved);
                if (!(s < score)) continue;
                score = s;
                way = std::move(moved);
                better = true;
                break;
            }
            if (score < score_) best_ = way, score_ = score;
            if (!better) return;
        }
    }

    bool is_before(std::uint32_t x, std::uint32_t y) const { return before_[y][x]; }

    // Within a lap.
    void find_ancestors() {
        const std::size_t n = lap_.uses.size();
        std::vector<std::uint32_t> waits(n, 0);
        std::vector<std::vector<std::uint32_t>> next(n);
        for (std::uint32_t u = 0; u < n; ++u)
            for (const Before& b : lap_.uses[u].before)
                if (b.laps == 0) next[b.use].push_back(u), ++waits[u];
        for (std::uint32_t u = 0; u < n; ++u)
            if (waits[u] == 0) sorted_.push_back(u);
        before_.assign(n, std::vector<bool>(n, false));
        for (std::size_t i = 0; i < sorted_.size(); ++i)
            for (const std::uint32_t v : next[sorted_[i]]) {
                const auto& mine = before_[sorted_[i]];
                for (std::size_t j = 0; j < n; ++j)
                    if (mine[j]) before_[v][j] = true;
                before_[v][sorted_[i]] = true;
                if (--waits[v] == 0) sorted_.push_back(v);
            }
    }

    std::uint64_t draw() {
        state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
        return state_;
    }

    const Lap& lap_;
    Play play_;
    std::uint32_t most_, trials_ = 0;
    Way followed_;
    std::vector<std::uint32_t> wide_;  // uses that take less with more circuits, those first to which it is most
    TimeNs acceptable_ns_ = 0;
    std::vector<std::uint32_t> sorted_;
    std::vector<std::vector<bool>> before_;  // what a use waits for
    Way best_;
    Score score_;
    std::uint64_t state_ = 88172645463325252ull;
};

}  // namespace

Order find_order(const Task& task, const Fabric& fabric) { return Search(task, fabric).find(); }

}  // namespace opus::controller::plan
