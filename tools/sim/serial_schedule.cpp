#include "tools/sim/serial_schedule.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace opus::sim {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 2;

}  // namespace

SerialSchedule::SerialSchedule(const TaskGraph& graph, std::int64_t dark_ns) : graph_(graph), dark_ns_(dark_ns) {}

void SerialSchedule::play(const std::vector<double>& rank) {
    const auto& moments = graph_.moments();
    time_.assign(moments.size(), 0);
    waits_.resize(moments.size());
    ports_.assign(std::size_t{graph_.gpus()} * graph_.ports(), {});
    begun_.assign(graph_.uses().size(), {});
    order_.clear();
    due_.clear();
    done_.clear();
    for (std::uint32_t m = 0; m < moments.size(); ++m)
        if ((waits_[m] = moments[m].waits) == 0) done_.push_back(m);
    const auto later = [&](std::uint32_t x, std::uint32_t y) {
        const auto key = [&](std::uint32_t u) {
            const TaskGraph::Use& use = graph_.uses()[u];
            return std::make_tuple(use.iteration, rank[use.number], u);
        };
        return key(x) > key(y);
    };
    while (!done_.empty() || !due_.empty()) {
        while (!done_.empty()) {
            const std::uint32_t m = done_.back();
            done_.pop_back();
            if (moments[m].use == kNoUse) {
                pass(m, time_[m]);
                continue;
            }
            due_.push_back(moments[m].use);
            std::push_heap(due_.begin(), due_.end(), later);
        }
        if (due_.empty()) break;
        std::pop_heap(due_.begin(), due_.end(), later);
        const std::uint32_t u = due_.back();
        due_.pop_back();
        begun_[u].place = static_cast<std::uint32_t>(order_.size());
        order_.push_back(u);
        serve(u, time_[graph_.uses()[u].moment]);
    }
}

void SerialSchedule::pass(std::uint32_t moment, std::int64_t ns) {
    time_[moment] = ns;
    for (const TaskGraph::Edge& edge : graph_.edges(moment)) {
        time_[edge.to] = std::max(time_[edge.to], ns + edge.ns);
        if (--waits_[edge.to] == 0) done_.push_back(edge.to);
    }
}

void SerialSchedule::serve(std::uint32_t u, std::int64_t full) {
    const TaskGraph::Use& use = graph_.uses()[u];
    Begun& b = begun_[u];
    b.full_ns = b.begin_ns = full;
    taken_.clear();
    missing_.clear();
    const auto take = [this](std::uint32_t port) {
        ports_[port].taken = true;
        taken_.push_back(port);
    };
    for (const TaskGraph::Need& need : use.needs) {
        Missing m{&need, need.circuits, kNever};
        for (std::uint32_t i = 0; i < graph_.ports() && m.circuits > 0; ++i) {
            const std::uint32_t p = need.pair.first * graph_.ports() + i;
            const std::uint32_t q = ports_[p].peer;
            if (q == kNoUse || q / graph_.ports() != need.pair.second) continue;
            take(p), take(q);
            m.lit_ns = std::min(m.lit_ns, ports_[p].lit_ns);
            --m.circuits;
        }
        missing_.push_back(m);
    }
    for (Missing& m : missing_)
        for (; m.circuits > 0; --m.circuits) {
            const std::int64_t begun = turn(*m.need, b, m.lit_ns == kNever);
            m.lit_ns = std::min(m.lit_ns, begun + dark_ns_);
            b.begin_ns = std::max(b.begin_ns, begun);
        }
    for (const Missing& m : missing_) b.begin_ns = std::max(b.begin_ns, m.lit_ns);
    for (const std::uint32_t p : taken_) {
        ports_[p].taken = false;
        ports_[p].last = u;
        ports_[p].free_ns = std::max({ports_[p].free_ns, ports_[p].lit_ns, b.begin_ns + use.ns});
    }
    pass(use.moment, b.begin_ns);
}

std::uint32_t SerialSchedule::earliest(GpuId gpu) const {
    std::uint32_t best = kNoUse;
    for (std::uint32_t i = 0; i < graph_.ports(); ++i) {
        const std::uint32_t p = gpu * graph_.ports() + i;
        if (!ports_[p].taken && (best == kNoUse || ports_[p].free_ns < ports_[best].free_ns)) best = p;
    }
    return best;
}

// Another circuit for the pair; when it begins to move.
std::int64_t SerialSchedule::turn(const TaskGraph::Need& need, Begun& b, bool first) {
    const std::uint32_t p = earliest(need.pair.first), q = earliest(need.pair.second);
    const std::int64_t begin = std::max(ports_[p].free_ns, ports_[q].free_ns);
    const std::int64_t in_time = first ? begin + dark_ns_ : begin;
    if (in_time > std::max(b.begin_ns, b.blocked_ns)) {
        b.blocked_ns = in_time;
        b.blocker = ports_[ports_[p].free_ns >= ports_[q].free_ns ? p : q].last;
    }
    for (const std::uint32_t end : {p, q}) {
        if (ports_[end].peer != kNoUse) ports_[ports_[end].peer].peer = kNoUse;
        ports_[end].lit_ns = begin + dark_ns_;
        ports_[end].taken = true;
        taken_.push_back(end);
    }
    ports_[p].peer = q;
    ports_[q].peer = p;
    return begin;
}

std::int64_t SerialSchedule::end_of(std::uint32_t iteration) const {
    std::int64_t end = 0;
    for (const std::uint32_t m : graph_.ends()[iteration]) end = std::max(end, time_[m]);
    return end;
}

std::int64_t SerialSchedule::held_ns(std::uint32_t from_iteration) const {
    std::int64_t sum = 0;
    for (std::size_t u = 0; u < begun_.size(); ++u)
        if (graph_.uses()[u].iteration >= from_iteration) sum += begun_[u].begin_ns - begun_[u].full_ns;
    return sum;
}

}  // namespace opus::sim
