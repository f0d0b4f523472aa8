// What moving circuits ahead of demand has brought: dark time that nobody waited for, and what was waited for.
#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {

void Core::Impl::made_ahead(const Op& op, TimeNs took) {
    for (const auto& [edge, circuit] : op.connect)
        for (const PortId p : {circuit.a, circuit.b}) {
            ahead[p].took_ns = took;
            ahead[p].end_ns = now;
        }
}

// It was to be turned for a use of its plan, and is turned elsewhere.
void Core::Impl::lose_ahead(const Circuit& circuit) {
    for (const PortId p : {circuit.a, circuit.b}) {
        const PortId peer = std::exchange(ahead[p], {}).peer;
        if (peer == kNone) continue;
        ++counters.speculations_wrong;
        ahead[peer] = {};
    }
}

// A gang starts on these circuits: which of them were there before it asked, and since when? One that
// moves circuits itself has waited as long as it would have without. Returns what it waited for light.
TimeNs Core::Impl::use_ahead(const Gang& gang) {
    const TimeNs since = complete_since(gang);
    const bool moved = gang.state == Gang::State::programming;
    TimeNs took = 0, waited = 0;
    for (const EdgeId e : gang.edges)
        for (const Circuit& c : inventory.edge(e).up)
            for (const PortId p : {c.a, c.b}) {
                if (ahead[p].peer == kNone || ahead[p].took_ns < 0) continue;
                const MadeAhead made = std::exchange(ahead[p], {});
                counters.speculations_used += p == c.a;
                took = std::max(took, made.took_ns);
                waited = std::max(waited, std::min(made.took_ns, std::max<TimeNs>(0, made.end_ns - since)));
            }
    if (!moved) counters.dark_hidden_ns += took - waited;
    const TimeNs exposed = moved ? gang.dark_ns : waited;
    counters.dark_exposed_ns += exposed;
    return exposed;
}

// An invariant, for Core::check().
std::string Core::Impl::check_ahead() const {
    for (PortId p = 0; p < fabric.ports.size(); ++p)
        if (ahead[p].peer != kNone && ahead[p].took_ns < 0 && inventory.port(p).op == 0)
            return fabric.ports[p].name + " is being turned for its plan, and stands still";
    return {};
}

}  // namespace opus::controller
