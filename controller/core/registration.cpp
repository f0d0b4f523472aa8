// Ranks and communicators that come and go, and what is thought of them.
#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {
namespace {

constexpr std::uint32_t kMaxPlaces = 512;  // every node is told of every member: so far, and no further

}  // namespace

void Core::Impl::register_ranks(NodeIndex node, const std::vector<wire::RankInfo>& infos) {
    for (const wire::RankInfo& info : infos) nodes[node].ranks[info.rank].info = info;
}

void Core::Impl::register_member(NodeIndex node, const wire::CommMember& m) {
    Comm* comm = comms.find(m.comm);
    if (comm == nullptr) {
        comm = &comms.create(m.comm, m.parent, m.size, now);
        arm(now + options.register_timeout_ns, TimerKind::comm_register, comm->number);
    }
    if (m.size != comm->size) {
        log(LogLevel::error, fabric.nodes[node].name + " says that a communicator has " + std::to_string(m.size) +
                                 " ranks, others say " + std::to_string(comm->size) + ": it passes");
        comm->conflict = true;
        set_verdict(*comm, Verdict::passes);
        nodes[node].verdicts.push_back({m.comm, Verdict::passes});
        owed.insert(node);
        return;
    }
    take_place(*comm, node, m);
    for (const wire::KeyRange& range : m.done) {
        const Key sequence = sequence_of(range.first);
        const std::uint32_t place = place_of(sequence, m.rank_in_comm);
        if (place == kNone) continue;
        std::uint64_t& upto = comm->finished_of(sequence).at(place);
        upto = std::max(upto, range.first.n + range.count);
    }
    if (!m.done.empty()) tell_finished(*comm, m.rank_in_comm);
    if (comm->verdict == Verdict::unknown && (m.verdict == Verdict::degraded || m.verdict == Verdict::passes))
        comm->inherited = comm->inherited == Verdict::degraded ? comm->inherited : m.verdict;

    // One that is no longer held stays so: what its members have launched since, nobody here has seen.
    if (comm->verdict != Verdict::unknown) {
        tell_verdict(*comm, node);
    } else {
        evaluate(*comm);
    }
    adoption_due |= !adopted.empty() || !runs.empty();
}

// The process becomes that member; told again, nothing changes.
void Core::Impl::take_place(Comm& comm, NodeIndex node, const wire::CommMember& m) {
    Member& member = comm.members[m.rank_in_comm];
    const bool same = member.registered && member.node == node && member.rank == m.rank && member.generation == m.generation;
    if (same && !member.gone) return;
    if (same) revive(comm, m.rank_in_comm);
    if (member.registered && !same)
        for (auto& [sequence, finished] : comm.finished)
            if (const std::uint32_t place = place_of(sequence, m.rank_in_comm); place != kNone) finished[place] = 0;
    if (member.registered) {
        if (Rank* old = rank_of(member.node, member.rank)) {
            auto it = old->comms.find(comm.id);
            if (it != old->comms.end()) std::erase(it->second.slots, m.rank_in_comm);
        }
        comm.gone -= member.gone;
    } else {
        ++comm.registered;
    }
    const auto& gpus = fabric.nodes[node].gpus;
    const GpuId gpu = m.gpu < gpus.size() ? gpus[m.gpu] : kNone;
    if (member.registered && member.gpu != gpu) let_go(comm);
    member = {};
    member.node = node;
    member.rank = m.rank;
    member.gpu = gpu;
    member.mode = m.mode;
    member.generation = m.generation;
    member.registered = true;
    if (member.gpu == kNone && m.mode == Mode::enforce)
        log(LogLevel::error, fabric.nodes[node].name + ": rank " + std::to_string(m.rank_in_comm) +
                                 " of a communicator runs on local GPU " + std::to_string(m.gpu) +
                                 ", which the fabric file does not have: the communicator passes");
    Membership& membership = nodes[node].ranks[m.rank].comms[comm.id];
    membership.comm = &comm;
    membership.slots.push_back(m.rank_in_comm);
    std::sort(membership.slots.begin(), membership.slots.end());
    comm.ring_known = comm.mesh_known = false;
    hold_again(comm);
}

// Its node was given up, and is back: what it has under way will be told.
void Core::Impl::revive(Comm& comm, std::uint32_t slot) {
    for (auto& entry : comm.keys) {
        KeyState& key = *entry.second;
        const std::uint32_t place = place_of(key.key, slot);
        if (place == kNone || key.members[place].presence != Presence::dead) continue;
        key.members[place].presence = Presence::absent;
        ++key.left;
    }
}

// A member is known, or is another GPU now: so are the circuits of what it takes part in. What waits needs them too;
// what is in flight without them is as good as suspended.
void Core::Impl::hold_again(Comm& comm) {
    std::vector<KeyState*> keys;
    for (auto& entry : comm.keys) {
        if (entry.second->flying > 0 && !entry.second->held) keys.push_back(entry.second.get());
        for (const KeyMember& m : entry.second->members)
            if (m.launch != nullptr && m.launch->waits() && m.launch->gang != nullptr) {
                restamp(*m.launch->gang);
                queue(*m.launch->gang, true);
            }
    }
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    std::vector<Launch*> dark;
    for (KeyState* key : keys) {
        update_hold(*key);
        if (is_lit(*key)) continue;
        for (const KeyMember& m : key->members)
            if (m.launch != nullptr && m.launch->stage == Stage::in_flight &&
                std::find(dark.begin(), dark.end(), m.launch) == dark.end())
                dark.push_back(m.launch);
    }
    for (Launch* launch : dark) suspend(*launch, "its peer is known only now, and is not joined to it");
}

void Core::Impl::let_go(Comm& comm) {
    for (auto& entry : comm.keys) {
        KeyState& key = *entry.second;
        if (key.held) {
            const auto [begin, end] = edges_of(key);
            for (const EdgeId* e = begin; e != end; ++e) {
                std::erase(inventory.edge(*e).holders, &key);
                if (!inventory.edge(*e).busy()) touch_edge(*e);
            }
            key.held = false;
        }
        key.edge = kNone;
    }
}

void Core::Impl::evaluate(Comm& comm) {
    const Verdict judged = judge(comm);
    const Verdict verdict = options.observe && judged == Verdict::enforced ? Verdict::passes : judged;
    if (verdict != Verdict::unknown && verdict != comm.verdict) set_verdict(comm, verdict);
}

void Core::Impl::tell_verdict(const Comm& comm, NodeIndex node) {
    wire::CommVerdict verdict{comm.id, comm.verdict};
    const bool placed =
        std::all_of(comm.members.begin(), comm.members.end(), [](const Member& m) { return m.gpu != kNone; });
    if (comm.verdict == Verdict::enforced && placed && comm.size <= kMaxPlaces)
        for (const Member& m : comm.members) verdict.places.push_back({m.node, fabric.gpus[m.gpu].local});
    nodes[node].verdicts.push_back(std::move(verdict));
    owed.insert(node);
}

void Core::Impl::set_verdict(Comm& comm, Verdict verdict) {
    if (comm.verdict == verdict) return;
    if (comm.verdict == Verdict::unknown)
        for (auto& entry : comm.keys)
            for (const KeyMember& m : entry.second->members)
                if (m.launch != nullptr && m.launch->gang != nullptr) queue(*m.launch->gang, true);
    comm.verdict = verdict;
    std::set<NodeIndex> told;
    for (const Member& m : comm.members)
        if (m.registered && told.insert(m.node).second) tell_verdict(comm, m.node);
    adoption_due |= !adopted.empty() || !runs.empty();
    if (verdict == Verdict::enforced || verdict == Verdict::unknown) return;
    revoke_runs_of(comm, "its communicator is no longer held");
    // Nobody knows any more who is where: a member that is done alone no longer holds circuits.
    std::vector<KeyState*> keys;
    for (auto& entry : comm.keys) keys.push_back(entry.second.get());
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    for (KeyState* key : keys) drop_drained(*key);
}

void Core::Impl::register_timeout(Comm& comm) {
    if (comm.verdict != Verdict::unknown || comm.complete()) return;
    std::string missing;
    for (std::uint32_t slot = 0; slot < comm.size && missing.empty(); ++slot)
        if (!comm.members[slot].registered)
            missing = "rank " + std::to_string(slot) + " of " + std::to_string(comm.size);
    degrade(comm, Policy::proceed,
            "not all ranks of the communicator registered (" + missing + " never did); is the shim loaded everywhere?");
}

// No launch of it is held any more; those that wait are opened.
void Core::Impl::degrade(Comm& comm, Policy how, const std::string& why) {
    if (comm.open()) return;
    const bool whole = comm.complete();
    set_verdict(comm, whole ? Verdict::degraded : Verdict::passes);
    std::vector<Launch*> waiting;
    std::set<std::pair<NodeIndex, RankId>> seen;
    for (const Member& m : comm.members) {
        if (!m.registered || !seen.insert({m.node, m.rank}).second) continue;
        Rank* rank = rank_of(m.node, m.rank);
        if (rank == nullptr) continue;
        for (auto& [seq, launch] : rank->launches)
            if (!launch->open && std::any_of(launch->keys.begin(), launch->keys.end(),
                                             [&](const KeyRef& r) { return r.key->comm == &comm; }))
                waiting.push_back(launch.get());
    }
    log(waiting.empty() ? LogLevel::info : LogLevel::warn,
        "a communicator of " + std::to_string(comm.size) + " ranks is no longer held: " + why);
    pass_launches(waiting, how, why, false);
}

void Core::Impl::member_gone(NodeIndex node, RankId id, const CommId& comm_id) {
    Rank* rank = rank_of(node, id);
    if (rank == nullptr) return;
    const auto it = rank->comms.find(comm_id);
    if (it == rank->comms.end()) return;
    Comm& comm = *it->second.comm;
    for (const std::uint32_t slot : it->second.slots) {
        if (comm.members[slot].gone) continue;
        comm.members[slot].gone = true;
        ++comm.gone;
        break;  // a process with several members says so once for each
    }
    comm_lost_member(comm);
}

// Whoever waits for a member that is gone waits for ever: NCCL is to see what it would see without Opus.
void Core::Impl::comm_lost_member(Comm& comm) {
    if (comm.gone == comm.registered) return erase_comm_if_gone(comm);
    if (comm.open()) return;
    if (comm.verdict == Verdict::unknown) return degrade(comm, Policy::proceed, "a member left before all had come");
    for (auto& entry : comm.keys)
        for (const KeyMember& m : entry.second->members)
            if (m.launch != nullptr && !m.launch->open && misses_gone_member(*m.launch))
                return degrade(comm, Policy::proceed, "a launch waits for a rank that left");
}

void Core::Impl::erase_comm_if_gone(Comm& comm) {
    if (comm.gone != comm.registered) return;
    end_runs_of(comm);
    std::vector<Launch*> left;
    const std::uint64_t m = next_mark();
    std::vector<KeyState*> keys;
    for (auto& entry : comm.keys) keys.push_back(entry.second.get());
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    for (KeyState* key : keys) {
        key->mark = m;
        for (KeyMember& member : key->members)
            if (member.launch != nullptr && std::find(left.begin(), left.end(), member.launch) == left.end())
                left.push_back(member.launch);
    }
    for (Launch* launch : left) finish(*launch, Presence::done);
    keys.clear();
    for (auto& entry : comm.keys) keys.push_back(entry.second.get());
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    for (KeyState* key : keys) {
        key->left = 0;
        erase_key_if_done(*key);
    }
    for (const Member& member : comm.members)
        if (member.registered)
            if (Rank* rank = rank_of(member.node, member.rank)) rank->comms.erase(comm.id);
    comms.erase(comm);
}

// Its launches are cancelled; what others run with it goes on as NCCL makes of it.
void Core::Impl::end_rank(NodeIndex node, RankId id, const char* how) {
    Rank* rank = rank_of(node, id);
    if (rank == nullptr) return;
    log(LogLevel::info, fabric.nodes[node].name + ": rank process " + std::to_string(id) + " " + how + " with " +
                            std::to_string(rank->launches.size()) + " launches not done");
    drop_word({node, id});
    while (!rank->launches.empty()) finish(*rank->launches.begin()->second, Presence::dead);
    std::vector<Comm*> concerned;
    for (auto& [comm_id, membership] : rank->comms) {
        Comm& comm = *membership.comm;
        bool stayed = false;  // a communicator that it destroyed before it ended is none of this
        for (const std::uint32_t slot : membership.slots) {
            stayed |= !comm.members[slot].gone;
            comm.gone += !comm.members[slot].gone;
            comm.members[slot].gone = true;
        }
        if (stayed) concerned.push_back(&comm);
    }
    for (Comm* comm : concerned) {
        if (comm->gone == comm->registered)
            erase_comm_if_gone(*comm);
        else
            degrade(*comm, Policy::proceed,
                    fabric.nodes[node].name + ": a rank of it " + how + "; its peers see what NCCL makes of that");
    }
    nodes[node].ranks.erase(id);
}

}  // namespace opus::controller
