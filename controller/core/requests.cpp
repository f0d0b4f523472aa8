// What an operator does by hand (opus-ctl connect, disconnect).
#include "controller/core/requests.h"
#include "controller/core/holders.h"
#include "controller/core/program/change_sets.h"
#include "controller/core/recovery/suspension.h"

namespace opus::controller {

bool Requests::may_turn(PortId p, bool force, std::string& why) {
    HolderTable table(world_);
    const PortState& port = inventory_.port(p);
    const std::string& name = fabric_.ports[p].name;
    const std::string& sw = fabric_.switch_of(p).name;
    if (!inventory_.sw(fabric_.ports[p].sw).session) {
        why = sw + " has no session";
    } else if (port.op != 0) {
        why = name + " is moving; try again";
    } else if (!inventory_.known(p)) {
        why = name + " is unknown until " + sw + " is read back; try again";
    } else if (port.pair != kNone && inventory_.pair(port.pair).claims > 0) {
        why = name + " is taken by a gang whose other circuits are being made; try again";
    } else if (!force && port.pair != kNone && inventory_.pair(port.pair).held()) {
        why = name + " is busy: " + table.text(port.pair) + "; --force breaks it under them";
    } else if (!force && port.absent && port.peer != kNone) {
        why = name + " is kept for its node, whose manager has not reported; --force breaks it";
    }
    return why.empty();
}

// Launches in flight on it are as good as suspended, and will want it back.
void Requests::clear_port(PortId p) {
    if (const PairId e = inventory_.port(p).pair; e != kNone)
        suspension_.lost_light(e, "an operator broke its circuit at " + fabric_.ports[p].name);
}

void Requests::handle(const CtlConnect& e) {
    std::string why;
    if (e.a >= fabric_.ports.size() || e.b >= fabric_.ports.size())
        why = "no such port";
    else if (!fabric_.can_join(e.a, e.b))
        why = fabric_.ports[e.a].name + " and " + fabric_.ports[e.b].name +
              " cannot be joined: not on one switch, or on the same side";
    else if (inventory_.port(e.a).peer == e.b && inventory_.known(e.a) && !inventory_.port(e.a).no_light)
        return act(CtlDone{e.id, true, "joined already"});
    for (const PortId p : {e.a, e.b})  // first: that passes by no waiting
        if (why.empty() && inventory_.port(p).fenced_by == FencedBy::hand)
            why = fabric_.ports[p].name + " is fenced by hand: opus-ctl unfence it first";
    if (!why.empty() || !may_turn(e.a, e.force, why) || !may_turn(e.b, e.force, why))
        return act(CtlDone{e.id, false, why});
    clear_port(e.a);
    clear_port(e.b);
    Op& op = change_sets_.open(fabric_.ports[e.a].sw, true);
    op.has_ctl = true;
    op.ctl = e.id;
    change_sets_.connect(op, inventory_.pair_between(fabric_.ports[e.a].gpu, fabric_.ports[e.b].gpu),
                         make_circuit(e.a, e.b));
}

void Requests::handle(const CtlDisconnect& e) {
    std::string why;
    if (e.port >= fabric_.ports.size()) why = "no such port";
    if (!why.empty() || !may_turn(e.port, e.force, why)) return act(CtlDone{e.id, false, why});
    if (inventory_.port(e.port).peer == kNone) return act(CtlDone{e.id, true, "dark already"});
    clear_port(e.port);
    Op& op = change_sets_.open(fabric_.ports[e.port].sw, true);
    op.has_ctl = true;
    op.ctl = e.id;
    op.disconnect.push_back(e.port);
    change_sets_.turn_dark(op, e.port);
}

}  // namespace opus::controller
