// Communicators: who is a member, where its GPU is, and which circuits its keys need.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/core/gangs/launch.h"
#include "opus/fabric.h"
#include "opus/ways.h"
#include "opus/wire.h"

namespace opus::controller {

class Inventory;

struct Member {
    NodeIndex node = kNone;
    RankId rank = kNone;  // the process
    GpuId gpu = kNone;
    Mode mode = Mode::enforce;
    std::uint32_t generation = 0;
    bool own_nic = false, own_host = false, at_once = false;  // as of wire::CommMember
    bool registered = false;
    bool gone = false;  // destroyed it, or died
};

struct Comm {
    CommId id;
    std::uint64_t number = 0;  // order of appearance
    std::uint32_t size = 0;
    std::uint32_t registered = 0;
    std::uint32_t gone = 0;
    Verdict verdict = Verdict::unknown;
    Reason reason = Reason::none;       // why it is not held
    std::uint32_t reason_rank = kNone;  // the member that it is about
    std::string why;                    // the same in words
    TimeNs judge_at_ns = 0;  // who has not registered, nor entered NCCL's creation, by then has no shim; 0: not known yet
    Verdict inherited = Verdict::unknown;  // by the word of a manager, or of an older controller; never enforced
    bool was_held = false;                 // by the word of a manager: launches of it may be under way
    bool conflict = false;                 // members disagree about its size
    bool settled = false;  // who has not come by now has left, and counts as done with all that it had to do
    TimeNs since_ns = 0;
    std::vector<Member> members;  // by rank in the communicator
    std::unordered_map<Key, std::unique_ptr<KeyState>> keys;
    std::unordered_map<Key, Finished> finished;  // by sequence (n = 0): all that is known of it, told or concluded
    std::unordered_map<Key, std::uint64_t> counted;  // by sequence: so many of its keys are in GpuPair::uses
    std::vector<std::uint64_t> runs;             // grants whose run covers keys of it
    std::uint32_t cuts = 0;                      // keys of a cut
    std::uint32_t unsettled = 0;                 // keys of it in adopted launches whose circuits are not known yet
    std::set<NodeIndex> kept;                    // whose lit ports stay until then
    std::vector<std::uint32_t> came;             // members that have come meanwhile: their nodes are to be kept
    std::uint64_t overdue_at = 0;                // NodeSessions::overdue_changes_ + 1 when `overdue` was looked up
    bool overdue = false;                        // a member's node is
    std::uint64_t mark = 0;                      // of the current walk (World::mark)
    bool pins = false, replays = false;          // members have asked for circuits for a graph's life; for a replay

    Places places;  // of all members, once these are known and have GPUs; empty: not yet looked up

    // Circuits of a collective, once all members are known that will come (PairIds, in ring order).
    bool ring_known = false, mesh_known = false;
    std::vector<PairId> ring, mesh;
    std::uint64_t ring_routable = 0, mesh_routable = 0;  // Inventory::fence_generation + 1 when found routable

    bool complete() const { return registered == size; }
    bool all_came() const { return complete() || settled; }  // who will come
    // Which its keys use, if any: without all of its members where it has none.
    bool knows_circuits() const { return complete() || conflict || verdict == Verdict::intra; }
    Finished& finished_of(const Key& sequence) {
        Finished& f = finished[sequence];
        if (!f.empty()) return f;
        f.resize(places_of(sequence.kind, size));
        for (std::uint32_t i = 0; settled && i < f.size(); ++i)
            if (!members[slot_of(sequence, i)].registered) f[i] = kAllFinished;
        return f;
    }
    bool open() const { return verdict != Verdict::enforced && verdict != Verdict::unknown; }
};

// Of a member's launch: there are circuits for it, or there will be when more is known.
inline bool may_need_light(const Comm& comm) {
    return comm.verdict != Verdict::intra && comm.verdict != Verdict::passes;
}

// Does it wait for circuits? Not where there are none for it, or it is not known which.
bool asks(const Launch& launch);

class CommTable {
public:
    Comm* find(const CommId& id);
    Comm& create(const CommId& id, std::uint32_t size, TimeNs now);
    void erase(Comm& comm);
    Comm* by_number(std::uint64_t number);
    const std::map<std::uint64_t, Comm*>& in_order() const { return in_order_; }

private:
    std::unordered_map<CommId, std::unique_ptr<Comm>> comms_;
    std::map<std::uint64_t, Comm*> in_order_;
    std::uint64_t next_number_ = 1;
};

struct Judgement {
    Verdict verdict = Verdict::unknown;
    Reason reason = Reason::none;
    std::uint32_t rank = kNone;  // the member that the reason is about
};

// What the members that are there make of a communicator; `unknown` until all are.
Judgement judge(const Comm& comm, const Fabric& fabric);

// Where its members are; empty until all that will come are known and have GPUs.
const Places& member_places(Comm& comm, const Fabric& fabric);

// The circuits of a collective, or of a transfer, by NCCL's ways (opus/ways.h). What is on different rails no switch
// joins, and the planner says so by name.
std::vector<PairId> collective_pairs(Comm& comm, bool mesh, const Fabric& fabric, Inventory& inventory);
PairId transfer_pair(Comm& comm, std::uint32_t src, std::uint32_t dst, const Fabric& fabric, Inventory& inventory);

}  // namespace opus::controller
