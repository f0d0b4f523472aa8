#include "activity.h"

#include <algorithm>

#include "transport.h"

namespace opus::standin {

// --- Launch ------------------------------------------------------------------------------------------------

void Launch::start() {
    if (core->broken) Transport::get().fail(core, ncclRemoteError);
    if (core->leaving || core->error != ncclSuccess) return end();
    core->active.insert(shared_from_this());
    for (const KernelCall& call : calls) call.transfer ? add(call.p2p) : add(call.collective);
    for (auto& c : running_collectives_)
        if (!ended_) c->start();
    for (auto& t : running_transfers_)
        if (!ended_) t->start();
    started_ = true;
    check();
}

// Kernels of a communicator run one after another, on every member in the same order: so they are numbered as they
// start, be it for the first time or again.
void Launch::add(TransferCall call) {
    if ((call.n & kOfCollective) == 0) call.n = (call.sending ? core->sent : core->received)[call.peer]++;
    running_transfers_.push_back(std::make_unique<Transfer>(*this, *core, call));
}

void Launch::add(CollectiveCall call) {
    call.n = core->started++;
    if (!is_transfers(call.kind)) {
        running_collectives_.push_back(std::make_unique<Collective>(*this, *core, call));
        return;
    }
    for (const TransferCall& part : transfers_of(call, core->rank, core->size())) add(part);
}

void Launch::check() {
    if (!started_ || ended_ || undelivered != 0) return;
    for (const auto& c : running_collectives_)
        if (!c->done()) return;
    for (const auto& t : running_transfers_)
        if (!t->done()) return;
    end();
}

void Launch::end() {
    if (ended_) return;
    ended_ = true;
    const auto self = shared_from_this();
    for (const auto& c : running_collectives_) {
        core->collectives.erase(c->number());
        c->drop();
    }
    for (const auto& t : running_transfers_)
        (t->call().sending ? core->sends : core->receives).erase({t->call().peer, t->call().n});
    core->active.erase(self);
    complete(op);
}

// The kernel ends without its result; the communicator says why.
void Launch::fail(int) { end(); }

// --- Connecting ----------------------------------------------------------------------------------------------

void Connecting::start() {
    if (core->broken) Transport::get().fail(core, ncclRemoteError);
    if (core->leaving || core->error != ncclSuccess) return fail(core->error);
    core->active.insert(shared_from_this());
    for (Edge& edge : edges) {
        if (edge.id.src != core->rank) {
            if (core->early_connect.erase(edge.id)) answer(edge);
            continue;
        }
        auto frame = std::make_shared<Frame>();
        frame->head.say = Say::connect;
        frame->head.comm = core->key;
        frame->head.src = edge.id.src;
        frame->head.dst = edge.id.dst;
        frame->head.n = edge.id.transfer;
        frame->owner = shared_from_this();
        Transport::get().send(core->members[edge.id.dst], edge.id.way, frame);
    }
    check();
}

void Connecting::answer(Edge& edge) {
    edge.done = true;
    auto frame = std::make_shared<Frame>();
    frame->head.say = Say::connected;
    frame->head.comm = core->key;
    frame->head.src = edge.id.dst;
    frame->head.dst = edge.id.src;
    frame->head.n = edge.id.transfer;
    frame->owner = shared_from_this();
    Transport::get().send(core->members[edge.id.src], edge.id.way.back(), frame);
}

void Connecting::connect_came(const ConnectionId& id) {
    for (Edge& edge : edges)
        if (edge.id == id && !edge.done) {
            answer(edge);
            check();
            return;
        }
    core->early_connect.insert(id);
}

void Connecting::connected_came(const ConnectionId& id) {
    for (Edge& edge : edges)
        if (edge.id == id) edge.done = true;
    check();
}

void Connecting::check() {
    if (ended_ || undelivered != 0) return;
    if (!std::all_of(edges.begin(), edges.end(), [](const Edge& e) { return e.done; })) return;
    ended_ = true;
    const auto self = shared_from_this();
    core->active.erase(self);
    result.set_value(ncclSuccess);
}

void Connecting::fail(int why) {
    if (ended_) return;
    ended_ = true;
    result.set_value(why == ncclSuccess ? ncclInvalidUsage : why);
}

// --- what arrives ------------------------------------------------------------------------------------------

namespace {

void connection_came(CommCore& core, const Head& head) {
    const bool asks = head.say == Say::connect;
    ConnectionId id{head.n != 0, asks ? head.src : head.dst, asks ? head.dst : head.src, asks ? head.way : head.way.back()};
    for (const ActivityRef& a : core.active) {
        const auto making = std::dynamic_pointer_cast<Connecting>(a);
        if (!making) continue;
        for (const auto& edge : making->edges) {
            if (edge.id != id || edge.done) continue;
            asks ? making->connect_came(id) : making->connected_came(id);
            return;
        }
    }
    if (asks) core.early_connect.insert(id);
}

}  // namespace

void dispatch(CommCore& core, const Head& head, const std::byte* data) {
    switch (head.say) {
        case Say::piece:
        case Say::clear: {
            const auto it = core.collectives.find(head.n);
            if (it == core.collectives.end()) {
                if (head.say == Say::clear) core.early_collective_clear.insert(head.n);
                return;
            }
            const auto kept = it->second->launch().shared_from_this();
            if (head.say == Say::clear)
                it->second->clear_came();
            else
                it->second->piece_came(head, data);
            return;
        }
        case Say::clear_transfer: {
            const auto it = core.sends.find({head.src, head.n});
            if (it == core.sends.end()) {
                core.early_clear.insert({head.src, head.n});
                return;
            }
            const auto kept = it->second->launch().shared_from_this();
            it->second->clear_came();
            return;
        }
        case Say::transfer: {
            const auto it = core.receives.find({head.src, head.n});
            if (it == core.receives.end()) return;
            const auto kept = it->second->launch().shared_from_this();
            it->second->part_came(head, data);
            return;
        }
        case Say::connect:
        case Say::connected: connection_came(core, head); return;
        default: return;
    }
}

// --- CommCore ------------------------------------------------------------------------------------------------

}  // namespace opus::standin
