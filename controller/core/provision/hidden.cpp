// What moving circuits ahead of demand has brought: dark time that nobody waited for, and what was waited for.
#include <algorithm>

#include "controller/core/gangs/gangs.h"
#include "controller/core/provision/hidden.h"

namespace opus::controller {

void Hidden::begin(PortId p, PortId q) {
    made_[p].peer = q;
    made_[q].peer = p;
}

void Hidden::made(const Op& op, TimeNs took) {
    for (const auto& [pair, circuit] : op.connect)
        for (const PortId p : {circuit.a, circuit.b}) {
            made_[p].took_ns = took;
            made_[p].end_ns = now_;
        }
}

// It was to be turned for a use of its plan, and is turned elsewhere.
void Hidden::lose(const Circuit& circuit) {
    for (const PortId p : {circuit.a, circuit.b}) {
        const PortId peer = std::exchange(made_[p], {}).peer;
        if (peer == kNone) continue;
        ++counters_.speculations_wrong;
        made_[peer] = {};
    }
}

// A gang starts on these circuits: which of them were there before it asked, and since when? One that
// moves circuits itself has waited as long as it would have without. Returns what it waited for light.
TimeNs Hidden::use(const Gang& gang) {
    const TimeNs since = gangs_.complete_since(gang);
    const bool moved = gang.state == Gang::State::programming;
    TimeNs took = 0, waited = 0;
    for (const PairId e : gang.pairs)
        for (const Circuit& c : inventory_.pair(e).up)
            for (const PortId p : {c.a, c.b}) {
                if (made_[p].peer == kNone || made_[p].took_ns < 0) continue;
                const Made made = std::exchange(made_[p], {});
                counters_.speculations_used += p == c.a;
                took = std::max(took, made.took_ns);
                waited = std::max(waited, std::min(made.took_ns, std::max<TimeNs>(0, made.end_ns - since)));
            }
    if (!moved) counters_.dark_hidden_ns += took - waited;
    const TimeNs exposed = moved ? gang.dark_ns : waited;
    counters_.dark_exposed_ns += exposed;
    return exposed;
}

// An invariant, for Core::check().
std::string Hidden::check() const {
    for (PortId p = 0; p < fabric_.ports.size(); ++p)
        if (made_[p].peer != kNone && made_[p].took_ns < 0 && inventory_.port(p).op == 0)
            return fabric_.ports[p].name + " is being turned for its plan, and stands still";
    return {};
}

}  // namespace opus::controller
