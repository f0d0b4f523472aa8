#include "controller/core/schedule/planner.h"

#include <algorithm>
#include <bit>
#include <ranges>
#include <tuple>
#include <utility>

namespace opus::controller {
namespace {

// Cost of a port, place: dark before one that a pair can spare, that before a pair's only light, trusted before
// suspect, unwanted before wanted.
constexpr int kSpareCost = 1, kLitCost = 2, kWantedCost = 4, kFailureCost = 16;
// want: the sooner it can be had, the cheaper.
constexpr int kMovingCost = 1000, kBusyCost = 2000, kReservedCost = 3000, kUnknownCost = 4000;

// What a pair carries for the launch.
double bytes_of(const Launch& launch) {
    for (const KeyRef& r : launch.keys)
        if (r.key->mesh) return Planner::pair_bytes(launch.bytes, r.key->members.size());
    return Planner::pair_bytes(launch.bytes, 0);
}

}  // namespace

int Planner::cost(PortId p) const {
    const PortState& s = inventory_->port(p);
    if (s.fenced()) return -1;
    if (mode_ == Mode::fabric) return 0;
    const bool spare = spares_light_ && s.pair != kNone && inventory_->pair(s.pair).up.size() > 1;
    int lit = s.peer == kNone ? 0 : spare ? kSpareCost : kLitCost;
    if (s.kept_for > 0) lit += kWantedCost;
    int base = static_cast<int>(s.failures) * kFailureCost + lit +
               (inventory_->reserved_by_other(p, *gang_, kNone) ? kWantedCost : 0);
    const Obstacle obstacle = inventory_->obstacle(p, *gang_);
    if (mode_ == Mode::place) return obstacle == Obstacle::none ? base : -1;
    switch (obstacle) {
        case Obstacle::none: return base;
        case Obstacle::moving:
        case Obstacle::claimed: return base + kMovingCost;
        case Obstacle::busy: return base + kBusyCost;
        case Obstacle::reserved: return base + kReservedCost;
        default: return base + kUnknownCost;
    }
}

// Of ports that cost as much, whose light is given up first: that of a pair that is used less often by half. Among
// those that are used about as often it is always the same one, whatever was lit before: what a job does on demand does
// not depend on what plans have left it.
std::pair<int, PairId> Planner::worth(PortId p) const {
    const PortState& s = inventory_->port(p);
    if (!spares_light_ || mode_ == Mode::fabric || s.peer == kNone || s.pair == kNone) return {0, 0};
    return {std::bit_width(inventory_->pair(s.pair).uses), s.pair};
}

Planner::GpuScratch& Planner::at(GpuId gpu) {
    if (scratch_.empty()) scratch_.resize(inventory_->fabric().gpus.size());
    GpuScratch& g = scratch_[gpu];
    if (g.stamp == stamp_) return g;
    g.stamp = stamp_;
    g.candidates.clear();
    g.todo.clear();
    for (const PortId p : inventory_->fabric().gpus[gpu].ports)
        if (const int c = cost(p); c >= 0) g.candidates.push_back({c, worth(p), p, false});
    std::stable_sort(g.candidates.begin(), g.candidates.end(), [](const Candidate& x, const Candidate& y) {
        return std::tie(x.cost, x.worth) < std::tie(y.cost, y.worth);
    });
    return g;
}

void Planner::use(PortId p) {
    for (Candidate& c : at(inventory_->fabric().ports[p].gpu).candidates)
        if (c.port == p) c.used = true;
}

// A pair that light joins already. Circuits of a busy pair cannot be turned, so they are kept in any case.
bool Planner::keep(PairId e, bool keep_idle, Plan& plan) {
    if (mode_ == Mode::fabric) return false;
    const GpuPair& pair = inventory_->pair(e);
    const bool busy = pair.busy();
    if (!busy && !keep_idle) return false;
    bool kept = false;
    for (const Circuit& c : pair.up) {
        if (kept && !busy) break;
        if (!inventory_->usable(c)) continue;
        use(c.a);
        use(c.b);
        if (!kept) plan.kept.emplace_back(e, c);
        kept = true;
    }
    // Another gang is having the pair joined: wait for it.
    if (!kept && mode_ == Mode::want && !pair.coming.empty()) {
        use(pair.coming.front().a);
        use(pair.coming.front().b);
        plan.kept.emplace_back(e, pair.coming.front());
        kept = true;
    }
    return kept;
}

bool Planner::degrees_fit(Plan& plan) {
    for (const Todo& t : todo_)
        for (const GpuId gpu : {t.a, t.b}) {
            const GpuScratch& g = at(gpu);
            const auto free = std::count_if(g.candidates.begin(), g.candidates.end(), [](auto& c) { return !c.used; });
            if (g.todo.size() > static_cast<std::size_t>(free)) {
                plan.stuck = gpu;
                return false;
            }
        }
    return true;
}

// Along paths, so that a choice is next to the choices it constrains; one component after the other.
void Planner::order() {
    order_.clear();
    component_begin_.clear();
    std::vector<std::uint32_t> stack;
    for (std::uint32_t i = 0; i < todo_.size(); ++i) {
        if (todo_[i].ordered) continue;
        const std::size_t begin = order_.size();
        stack.push_back(i);
        while (!stack.empty()) {
            const std::uint32_t t = stack.back();
            stack.pop_back();
            if (todo_[t].ordered) continue;
            todo_[t].ordered = true;
            order_.push_back(t);
            component_begin_.push_back(begin);
            for (const GpuId gpu : {todo_[t].a, todo_[t].b})
                for (const std::uint32_t next : at(gpu).todo)
                    if (!todo_[next].ordered) stack.push_back(next);
        }
    }
}

void Planner::undo(Todo& t) {
    auto &x = at(t.a).candidates, &y = at(t.b).candidates;
    x[t.choice / y.size()].used = false;
    y[t.choice % y.size()].used = false;
}

// Ports of a GPU on one side of one switch lead to the same places: what fails with one fails with the others.
bool Planner::is_like_one_before(const std::vector<Candidate>& candidates, const Candidate& c) const {
    const Fabric& fabric = inventory_->fabric();
    const Port& port = fabric.ports[c.port];
    const Switch& sw = fabric.switches[port.sw];
    return std::any_of(candidates.data(), &c, [&](const Candidate& before) {
        const Port& other = fabric.ports[before.port];
        return !before.used && other.sw == port.sw &&
               (sw.sidedness == Sidedness::any_to_any || (other.sw_port <= sw.ingress) == (port.sw_port <= sw.ingress));
    });
}

bool Planner::advance(Todo& t) {
    auto &x = at(t.a).candidates, &y = at(t.b).candidates;
    for (++t.choice; t.choice < static_cast<int>(x.size() * y.size()); ++t.choice) {
        Candidate &p = x[t.choice / y.size()], &q = y[t.choice % y.size()];
        if (p.used || q.used || !inventory_->fabric().can_join(p.port, q.port)) continue;
        if (is_like_one_before(x, p) || is_like_one_before(y, q)) continue;
        p.used = q.used = true;
        return true;
    }
    t.choice = -1;
    return false;
}

// Depth first, each component for itself. With one any-to-any switch a rail the first descent succeeds;
// planes and sides make it turn back, mostly along forced moves. The budget bounds odd wirings.
bool Planner::search(Plan& plan) {
    std::size_t budget = 64 * order_.size() + 4096;
    std::size_t depth = 0, deepest = 0;
    while (depth < order_.size()) {
        Todo& t = todo_[order_[depth]];
        if (budget-- == 0) break;
        if (advance(t)) {
            deepest = std::max(deepest, ++depth);
            continue;
        }
        if (depth == component_begin_[depth]) break;
        undo(todo_[order_[--depth]]);
    }
    if (depth == order_.size()) return true;
    plan.stuck = todo_[order_[std::min(deepest, order_.size() - 1)]].a;
    return false;
}

bool Planner::solve(const std::vector<PairId>& pairs, bool keep_idle, Plan& plan) {
    ++stamp_;
    plan = {};
    todo_.clear();
    for (const PairId e : pairs) {
        if (keep(e, keep_idle, plan)) continue;
        const GpuPair& pair = inventory_->pair(e);
        if (mode_ == Mode::place && !pair.coming.empty()) {
            plan.stuck = pair.a;
            return false;
        }
        const auto index = static_cast<std::uint32_t>(todo_.size());
        todo_.push_back({e, pair.a, pair.b, -1, false});
        at(pair.a).todo.push_back(index);
        if (pair.b != pair.a) at(pair.b).todo.push_back(index);
    }
    if (!degrees_fit(plan)) return false;
    order();
    if (!search(plan)) return false;
    for (const Todo& t : todo_) {
        const auto &x = at(t.a).candidates, &y = at(t.b).candidates;
        plan.fresh.emplace_back(t.pair, make_circuit(x[t.choice / y.size()].port, y[t.choice % y.size()].port));
    }
    return true;
}

bool Planner::solve(const std::vector<PairId>& pairs, Plan& plan) {
    return solve(pairs, true, plan) || solve(pairs, false, plan);
}

// What the bytes take less with one circuit more.
double Planner::saved_ns(PairId e, double bytes, std::size_t circuits) const {
    const auto n = static_cast<double>(circuits);
    return bytes_ns(inventory_->pair(e).a, bytes) * (1 / n - 1 / (n + 1));
}

bool Planner::are_dark(PortId p, PortId q) const {
    return inventory_->port(p).peer == kNone && inventory_->port(q).peer == kNone;
}

// A port whose light a fault took is to get light again, unless it is known to fail or nothing is known of it.
bool Planner::is_owed(PortId p, PortId q) const {
    const auto works = [this](PortId end) { return inventory_->known(end) && inventory_->port(end).failures == 0; };
    return are_dark(p, q) && works(p) && works(q) &&
           (inventory_->port(p).dark_by_fault || inventory_->port(q).dark_by_fault);
}

// Whoever loses light to a parallel circuit may come back for it, and a gang whose pairs are lit would wait for no
// other reason: so it has to save a dark time. It costs nothing where both ports are dark and the gang moves circuits
// anyway. Where `sparing` nothing is added but what is owed.
void Planner::add_parallels(const std::vector<PairId>& pairs, bool sparing, Plan& plan) {
    const Fabric& fabric = inventory_->fabric();
    const bool moves = !sparing && !plan.fresh.empty();
    for (const PairId e : pairs)
        for (const Circuit& c : inventory_->pair(e).up) {  // in place already: leave them
            use(c.a);
            use(c.b);
        }
    // What another gang waits for is left to it, unless it wants the port for the same pair: it has that, too.
    const auto free = [this](const Candidate& c, PairId e) {
        return !c.used && c.cost < kFailureCost && !inventory_->reserved_by_other(c.port, *gang_, e);
    };
    std::size_t round = 0;
    for (bool added = true; added; ++round) {
        added = false;
        for (const PairId e : pairs) {
            const auto worth = [&](const Candidate& p, const Candidate& q) {
                if (is_owed(p.port, q.port) || (moves && are_dark(p.port, q.port))) return true;
                if (sparing) return false;
                const std::size_t circuits = std::max<std::size_t>(1, inventory_->pair(e).up.size()) + round;
                return saved_ns(e, bytes_, circuits) > static_cast<double>(fabric.switch_of(p.port).dark_ns);
            };
            auto &x = at(inventory_->pair(e).a).candidates, &y = at(inventory_->pair(e).b).candidates;
            const auto join = [&] {
                for (Candidate& p : x)
                    for (Candidate& q : y)
                        if (free(p, e) && free(q, e) && fabric.can_join(p.port, q.port) && worth(p, q)) {
                            p.used = q.used = true;
                            plan.fresh.emplace_back(e, make_circuit(p.port, q.port));
                            return true;
                        }
                return false;
            };
            added |= join();
        }
    }
}

bool Planner::place(const Gang& gang, Plan& plan, bool sparing) {
    mode_ = Mode::place;
    gang_ = &gang;
    // Whoever uses a pair holds all its circuits: none of them may be what an earlier gang waits for.
    for (const PairId e : gang.pairs)
        for (const Circuit& c : inventory_->pair(e).up)
            if (inventory_->reserved_earlier(c.a, gang, e) || inventory_->reserved_earlier(c.b, gang, e)) {
                plan.stuck = inventory_->pair(e).a;
                return false;
            }
    // By an order of ports that spares light the bounded search may miss what it finds by the plain one.
    spares_light_ = true;
    bool found = solve(gang.pairs, true, plan);
    const GpuId stuck = plan.stuck;
    found = found || solve(gang.pairs, false, plan);
    spares_light_ = false;
    found = found || solve(gang.pairs, plan);
    if (!found) {
        plan.stuck = stuck;
        return false;
    }
    bytes_ = bytes_of(gang);
    add_parallels(gang.pairs, sparing, plan);
    return true;
}

double Planner::pair_bytes(std::uint64_t bytes, std::size_t mesh) {
    return static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(mesh, 1));
}

double Planner::bytes_ns(GpuId gpu, double bytes) const {
    const Fabric& fabric = inventory_->fabric();
    return bytes * 8 / fabric.rails[fabric.gpus[gpu].rail].gbps;
}

double Planner::bytes_of(const Gang& gang) {
    double bytes = 0;
    for (const Launch* launch : gang.launches) bytes = std::max(bytes, controller::bytes_of(*launch));
    return bytes;
}

bool Planner::wants_more(const std::vector<PairId>& pairs) {
    ++stamp_;
    mode_ = Mode::fabric;
    for (const PairId e : pairs)
        for (const Circuit& c : inventory_->pair(e).up) {
            use(c.a);
            use(c.b);
        }
    const Fabric& fabric = inventory_->fabric();
    return std::ranges::any_of(pairs, [&](PairId e) {
        const GpuPair& pair = inventory_->pair(e);
        const double saved = saved_ns(e, pair.most_bytes, std::max<std::size_t>(1, pair.up.size()));
        const auto free = [](const Candidate& c) { return !c.used; };
        auto &x = at(pair.a).candidates, &y = at(pair.b).candidates;
        return std::ranges::any_of(x | std::views::filter(free), [&](const Candidate& p) {
            const bool pays = saved > static_cast<double>(fabric.switch_of(p.port).dark_ns);
            return std::ranges::any_of(y | std::views::filter(free), [&](const Candidate& q) {
                return fabric.can_join(p.port, q.port) && (pays || is_owed(p.port, q.port));
            });
        });
    });
}

bool Planner::want(const Gang& gang, Plan& plan) {
    mode_ = Mode::want;
    gang_ = &gang;
    spares_light_ = true;
    const bool found = solve(gang.pairs, plan);
    spares_light_ = false;
    return found || solve(gang.pairs, plan) || [&] {
        // Busy pairs are in the way of any layout: the ports it would have with nobody there.
        mode_ = Mode::fabric;
        return solve(gang.pairs, false, plan);
    }();
}

bool Planner::routable(const std::vector<PairId>& pairs) {
    mode_ = Mode::fabric;
    Plan plan;
    return solve(pairs, false, plan);
}

// Why two GPUs on different rails cannot be joined; empty: they are on one, or a switch of both joins them.
std::string Planner::explain_crossing(const Gpu& a, const Gpu& b) const {
    const Fabric& fabric = inventory_->fabric();
    const bool joined = std::any_of(a.ports.begin(), a.ports.end(), [&](PortId p) {
        return std::any_of(b.ports.begin(), b.ports.end(), [&](PortId q) { return fabric.can_join(p, q); });
    });
    if (a.rail == b.rail || joined) return {};
    return "NCCL sends between " + a.name + " on rail " + fabric.rails[a.rail].name + " and " + b.name + " on rail " +
           fabric.rails[b.rail].name +
           ", which no switch joins: its communicator has no rank on the sender's node with the "
           "receiver's local index, or PXN is off (NCCL_PXN_DISABLE) and NCCL_CROSS_NIC not 0; send between GPUs of "
           "one rail";
}

std::string Planner::explain(const std::vector<PairId>& pairs) {
    const Fabric& fabric = inventory_->fabric();
    mode_ = Mode::fabric;
    Plan plan;
    if (solve(pairs, false, plan)) return {};
    for (const PairId e : pairs)
        if (std::string why = explain_crossing(fabric.gpus[inventory_->pair(e).a], fabric.gpus[inventory_->pair(e).b]);
            !why.empty())
            return why;
    const Gpu& gpu = fabric.gpus[plan.stuck];
    const GpuScratch& g = at(plan.stuck);
    const std::size_t fenced = gpu.ports.size() - g.candidates.size();
    const std::string ports = std::to_string(g.candidates.size()) + (g.candidates.size() == 1 ? " port" : " ports") +
                              (fenced > 0 ? " (" + std::to_string(fenced) + " fenced)" : "");
    if (g.todo.size() > g.candidates.size())
        return gpu.name + " needs " + std::to_string(g.todo.size()) + " neighbours at a time and has " + ports +
               "; use GPUs with more ports, or fewer peers in one group";
    const Todo& t = todo_[g.todo.front()];
    return "no switch can join a free port of " + fabric.gpus[t.a].name + " to one of " + fabric.gpus[t.b].name +
           "; look at the cabling (opus-ctl fabric check)";
}

}  // namespace opus::controller
