// What an operator does by hand (opus-ctl connect, disconnect).
#include "controller/core/impl.h"

namespace opus::controller {

bool Core::Impl::may_turn(PortId p, bool force, std::string& why) {
    HolderTable table(inventory, mark);
    const PortState& port = inventory.port(p);
    const std::string& name = fabric.ports[p].name;
    const std::string& sw = fabric.switch_of(p).name;
    if (!inventory.sw(fabric.ports[p].sw).session) {
        why = sw + " has no session";
    } else if (port.op != 0) {
        why = name + " is moving; try again";
    } else if (!inventory.known(p)) {
        why = name + " is unknown until " + sw + " is read back; try again";
    } else if (port.edge != kNone && inventory.edge(port.edge).claims > 0) {
        why = name + " is taken by a gang whose other circuits are being made; try again";
    } else if (!force && port.edge != kNone && inventory.edge(port.edge).held()) {
        why = name + " is busy: " + holders_text(port.edge, table) + "; --force breaks it under them";
    } else if (!force && port.absent && port.peer != kNone) {
        why = name + " is kept for its node, whose manager has not reported; --force breaks it";
    }
    return why.empty();
}

// Launches in flight on it are as good as suspended, and will want it back.
void Core::Impl::clear_port(PortId p) {
    if (const EdgeId e = inventory.port(p).edge; e != kNone)
        lost_light(e, "an operator broke its circuit at " + fabric.ports[p].name);
}

void Core::Impl::handle(const CtlConnect& e) {
    std::string why;
    if (e.a >= fabric.ports.size() || e.b >= fabric.ports.size())
        why = "no such port";
    else if (!fabric.can_join(e.a, e.b))
        why = fabric.ports[e.a].name + " and " + fabric.ports[e.b].name +
              " cannot be joined: not on one switch, or on the same side";
    else if (inventory.port(e.a).peer == e.b && inventory.known(e.a) && !inventory.port(e.a).no_light)
        return out->push_back(CtlDone{e.id, true, "joined already"});
    for (const PortId p : {e.a, e.b})  // first: that passes by no waiting
        if (why.empty() && inventory.port(p).fenced_by == FencedBy::hand)
            why = fabric.ports[p].name + " is fenced by hand: opus-ctl unfence it first";
    if (!why.empty() || !may_turn(e.a, e.force, why) || !may_turn(e.b, e.force, why))
        return out->push_back(CtlDone{e.id, false, why});
    clear_port(e.a);
    clear_port(e.b);
    Op& op = open_op(fabric.ports[e.a].sw, true);
    op.has_ctl = true;
    op.ctl = e.id;
    connect(op, inventory.edge_between(fabric.ports[e.a].gpu, fabric.ports[e.b].gpu), make_circuit(e.a, e.b));
}

void Core::Impl::handle(const CtlDisconnect& e) {
    std::string why;
    if (e.port >= fabric.ports.size()) why = "no such port";
    if (!why.empty() || !may_turn(e.port, e.force, why)) return out->push_back(CtlDone{e.id, false, why});
    if (inventory.port(e.port).peer == kNone) return out->push_back(CtlDone{e.id, true, "dark already"});
    clear_port(e.port);
    Op& op = open_op(fabric.ports[e.port].sw, true);
    op.has_ctl = true;
    op.ctl = e.id;
    op.disconnect.push_back(e.port);
    turn_dark(op, e.port);
}

}  // namespace opus::controller
