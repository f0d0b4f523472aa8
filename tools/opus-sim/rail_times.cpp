#include <algorithm>
#include <map>

#include "tools/opus-sim/circuit_uses.h"

namespace opus::job {
namespace {

using Spans = std::vector<Span>;

// What a port does, from turn to turn.
class PortClock {
public:
    PortClock(const JobLaunches& launches, const std::vector<CircuitUse>& uses, Span counted)
        : fabric_(launches.map().fabric()), counted_(counted) {
        for (const CircuitUse& use : uses)
            for (const sim::GpuPair& pair : launches.all_pairs()[use.pairs].pairs)
                busy_[pair].emplace_back(use.begin_ns, use.end_ns);
        for (auto& [pair, spans] : busy_) spans = joined(std::move(spans));
    }

    void play(const std::vector<sim::Turn>& turns, RailTimes& out) {
        struct Port {
            PortId peer = kNone;
            std::int64_t since_ns = 0;  // the beginning of its turn, or of its being unlit
            std::int64_t lit_ns = 0;
        };
        std::vector<Port> ports(fabric_.ports.size());
        out.rails.resize(fabric_.rails.size());
        const auto settle = [&](PortId p, std::int64_t now) {
            const Port& port = ports[p];
            PortShares& shares = out.rails[fabric_.gpus[fabric_.ports[p].gpu].rail];
            if (port.peer == kNone) {
                shares.unlit += length({port.since_ns, now});
                return;
            }
            shares.dark += length({port.since_ns, std::min(port.lit_ns, now)});
            const Span lit{std::max(port.lit_ns, counted_.first), std::min(now, counted_.second)};
            if (lit.second <= lit.first) return;
            const auto used = busy_.find(std::minmax(fabric_.ports[p].gpu, fabric_.ports[port.peer].gpu));
            const double busy = used == busy_.end() ? 0 : static_cast<double>(covered(used->second, lit));
            shares.busy += busy;
            shares.idle += static_cast<double>(lit.second - lit.first) - busy;
        };
        for (const sim::Turn& t : turns) {
            for (const PortId p : {t.a, t.b}) {
                settle(p, t.from_ns);
                const PortId other = ports[p].peer;
                if (other != kNone && other != t.a && other != t.b) {
                    settle(other, t.from_ns);
                    ports[other] = {kNone, t.from_ns, 0};
                }
            }
            ports[t.a] = {t.b, t.from_ns, t.lit_ns}, ports[t.b] = {t.a, t.from_ns, t.lit_ns};
        }
        for (PortId p = 0; p < ports.size(); ++p) settle(p, counted_.second);
    }

private:
    double length(Span s) const {
        return static_cast<double>(
            std::max<std::int64_t>(0, std::min(s.second, counted_.second) - std::max(s.first, counted_.first)));
    }

    const Fabric& fabric_;
    Span counted_;
    std::map<sim::GpuPair, Spans> busy_;
};

void to_shares(PortShares& s) {
    const double sum = s.busy + s.idle + s.dark + s.unlit;
    if (sum > 0) s.busy /= sum, s.idle /= sum, s.dark /= sum, s.unlit /= sum;
}

// Each move goes to the first operation of its pair of GPUs that ends after it began.
void add_phases(const JobLaunches& launches, const std::vector<CircuitUse>& uses, const std::vector<sim::Turn>& turns,
                std::int64_t from_ns, RailTimes& out) {
    struct Moves {
        Spans spans;
        std::size_t next = 0;
    };
    std::map<sim::GpuPair, Moves> moves;
    const Fabric& fabric = launches.map().fabric();
    for (const sim::Turn& t : turns)
        if (t.lit_ns > from_ns)
            moves[std::minmax(fabric.ports[t.a].gpu, fabric.ports[t.b].gpu)].spans.emplace_back(t.from_ns, t.lit_ns);
    out.phases.resize(launches.labels().size());
    for (std::uint32_t i = 0; i < out.phases.size(); ++i) out.phases[i].label = i;
    for (const CircuitUse& use : uses) {
        DarkPhase& phase = out.phases[use.label];
        ++phase.operations;
        phase.held_ms += static_cast<double>(use.begin_ns - use.full_ns) / 1e6;
        Spans dark;
        for (const sim::GpuPair& pair : launches.all_pairs()[use.pairs].pairs) {
            const auto at = moves.find(pair);
            if (at == moves.end()) continue;
            Moves& m = at->second;
            for (; m.next < m.spans.size() && m.spans[m.next].first < use.end_ns; ++m.next)
                dark.push_back(m.spans[m.next]);
        }
        if (dark.empty()) continue;
        dark = joined(std::move(dark));
        ++phase.moved;
        for (const Span& s : dark) phase.dark_ms += static_cast<double>(s.second - s.first) / 1e6;
        phase.exposed_ms += static_cast<double>(covered(dark, {use.full_ns, use.begin_ns})) / 1e6;
    }
    for (const auto& [pair, m] : moves)
        for (std::size_t i = m.next; i < m.spans.size(); ++i) {
            ++out.unused;
            out.unused_dark_ms += static_cast<double>(m.spans[i].second - m.spans[i].first) / 1e6;
        }
}

}  // namespace

RailTimes rail_times(const JobLaunches& launches, const std::vector<CircuitUse>& uses,
                     const std::vector<sim::Turn>& turns, std::int64_t from_ns, std::int64_t to_ns) {
    RailTimes out;
    PortClock(launches, uses, {from_ns, to_ns}).play(turns, out);
    for (PortShares& rail : out.rails) {
        out.all.busy += rail.busy, out.all.idle += rail.idle, out.all.dark += rail.dark, out.all.unlit += rail.unlit;
        to_shares(rail);
    }
    to_shares(out.all);
    add_phases(launches, uses, turns, from_ns, out);
    return out;
}

}  // namespace opus::job
