// Launches that run by an older controller's word, or that started unasked and are told of now. Which circuits they use is
// known when their communicators are judged and their switches are read; each is looked at again when one of these is.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/runs.h"
#include "controller/core/membership/node_sessions.h"
#include "controller/core/recovery/adoption.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {

// Until it is known which circuits it uses all lit ports of its node stay, and of the nodes of all its communicators'
// members: a ring has circuits between others.
void Adoption::adopt(Launch& launch) {
    launch.circuits_known = Known::no;
    adopted_.insert(launch.id);
    again_.insert(launch.id);
    due_ = true;
    gangs_.regather(launch);  // it is present: who waited for it may be complete
}

void Adoption::look_due() { due_ |= !adopted_.empty() || !runs_.empty(); }

void Adoption::keep_node(NodeIndex n) {
    if (++nodes_[n].unsettled == 1) node_sessions_.refresh_absent(n);
}

void Adoption::leave_node(NodeIndex n) {
    if (--nodes_[n].unsettled == 0) node_sessions_.refresh_absent(n);
}

void Adoption::keep_members(Comm& comm) {
    for (const std::uint32_t slot : std::exchange(comm.came, {}))
        if (const Member& m = comm.members[slot]; m.registered && !m.gone && comm.kept.insert(m.node).second)
            keep_node(m.node);
}

void Adoption::keep_ports(Launch& launch) {
    launch.circuits_known = Known::no_and_kept;
    keep_node(launch.id.node);
    for (const KeyRef& r : launch.keys) {
        Comm& comm = *r.key->comm;
        if (comm.unsettled++ > 0) continue;
        unsettled_comms_.insert(comm.number);
        comm.came.resize(comm.size);
        std::iota(comm.came.begin(), comm.came.end(), 0);
        keep_members(comm);
    }
}

// What was kept for a moment, or would have been, is looked at again by those that want it.
void Adoption::wake_nodes(const Launch& launch, std::uint64_t m) {
    const auto wake_ports = [this](NodeIndex n) {
        if (nodes_[n].unsettled > 0 || !nodes_[n].known) return;
        for (const GpuId gpu : fabric_.nodes[n].gpus)
            for (const PortId p : fabric_.gpus[gpu].ports) {
                schedule_.wake(gpu);
                if (inventory_.port(p).peer < fabric_.ports.size())
                    schedule_.wake(fabric_.ports[inventory_.port(p).peer].gpu);
            }
    };
    wake_ports(launch.id.node);
    for (const KeyRef& r : launch.keys)
        if (std::exchange(r.key->comm->mark, m) != m)
            for (const Member& member : r.key->comm->members)
                if (member.registered && !member.gone) wake_ports(member.node);
}

void Adoption::settle(Launch& launch) {
    adopted_.erase(launch.id);
    again_.erase(launch.id);
    if (std::exchange(launch.circuits_known, Known::yes) != Known::no_and_kept) return;
    leave_node(launch.id.node);
    for (const KeyRef& r : launch.keys) {
        Comm& comm = *r.key->comm;
        if (--comm.unsettled > 0) continue;
        unsettled_comms_.erase(comm.number);
        comm.came.clear();
        for (const NodeIndex n : std::exchange(comm.kept, {})) leave_node(n);
    }
}

// It is judged, or its members are others.
void Adoption::look_again(Comm& comm) {
    if (comm.unsettled > 0)
        for (const auto& entry : comm.keys)
            for (const KeyMember& m : entry.second->members)
                if (m.launch != nullptr && m.launch->circuits_known != Known::yes) again_.insert(m.launch->id);
    runs_.look_again(comm);
}

// A switch has said how it is set.
void Adoption::look_again() {
    again_ = adopted_;
    runs_.look_again();
}

// Its switches have said which circuits the pair has: of no port is it in doubt.
bool Adoption::is_read(PairId e) const {
    const auto read = [this](PortId p) {
        return inventory_.sw(fabric_.ports[p].sw).map_known && !inventory_.port(p).unknown;
    };
    const auto &a = fabric_.gpus[inventory_.pair(e).a].ports, &b = fabric_.gpus[inventory_.pair(e).b].ports;
    return std::all_of(a.begin(), a.end(), read) && std::all_of(b.begin(), b.end(), read);
}

bool Adoption::is_read(KeyState& key) {
    const auto [begin, end] = launches_.pairs_of(key);
    return std::all_of(begin, end, [this](PairId e) { return is_read(e); });
}

// What runs has seen the light of its circuits: of those that are known to have some, where there are any.
void Adoption::see_light(KeyState& key) {
    const auto [begin, end] = launches_.pairs_of(key);
    for (const PairId* e = begin; e != end; ++e)
        if (inventory_.lit(*e) == nullptr)
            for (const Circuit& c : inventory_.pair(*e).up) inventory_.see(c);
}

// Those whose circuits are known now. The ports of the others are kept, but for what was given up: nobody has kept them
// for it until now.
std::vector<Launch*> Adoption::known_now() {
    std::vector<Launch*> known;
    std::unordered_map<const KeyState*, bool> read;
    for (const LaunchId& id : std::exchange(again_, {})) {
        Launch* launch = launch_of(id);
        bool is_known = true;
        for (const KeyRef& r : launch->keys) {
            const auto [at, fresh] = read.try_emplace(r.key);
            if (fresh) at->second = is_read(*r.key);
            is_known &= at->second && r.key->comm->verdict != Verdict::unknown;
        }
        if (is_known || launch->given_up)
            known.push_back(launch);
        else if (launch->circuits_known == Known::no)
            keep_ports(*launch);
    }
    for (const std::uint64_t number : unsettled_comms_) keep_members(*comms_.by_number(number));
    return known;
}

void Adoption::settle_known() {
    due_ = false;
    const std::vector<Launch*> known = known_now();
    std::vector<Launch*> dark, lost;
    std::unordered_map<const KeyState*, bool> lit;
    const std::uint64_t m = next_mark();
    for (Launch* launch : known) {
        const bool kept = launch->circuits_known == Known::no_and_kept;
        settle(*launch);
        if (!kept) wake_nodes(*launch, m);
        for (const KeyRef& r : launch->keys)
            if (lit.count(r.key) == 0) see_light(*r.key);
        launches_.start_flight(*launch);
        bool all_lit = true, all_known = true;
        for (const KeyRef& r : launch->keys) {
            const auto [at, fresh] = lit.try_emplace(r.key);
            if (fresh) {
                at->second = launches_.is_lit(*r.key);
                for (const KeyMember& member : r.key->members)
                    if (member.launch != nullptr && member.launch->gang != nullptr && member.launch->waits())
                        schedule_.queue(*member.launch->gang, true);
            }
            all_lit &= at->second;
            all_known &= r.key->comm->verdict != Verdict::unknown && (!r.key->comm->open() || r.key->comm->complete());
        }
        if (!all_lit || !all_known) (all_known ? dark : lost).push_back(launch);
    }
    suspension_.suspend(dark, "found running with its circuits not up");
    suspension_.suspend(lost, "found running, and not all ranks of its communicator have come again");
    std::vector<Launch*> running;
    std::copy_if(known.begin(), known.end(), std::back_inserter(running),
                 [](const Launch* launch) { return launch->stage == Stage::in_flight; });
    gangs_.regather(running);
    runs_.settle_adopted();
}

}  // namespace opus::controller
