// Ranks and communicators that come and go, and what is thought of them.
#include <algorithm>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/cuts.h"
#include "controller/core/leases/runs.h"
#include "controller/core/membership/creation.h"
#include "controller/core/membership/joined.h"
#include "controller/core/membership/registration.h"
#include "controller/core/provision/jobs.h"
#include "controller/core/recovery/adoption.h"
#include "controller/core/recovery/holds.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/schedule/schedule.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

constexpr std::uint32_t kMaxPlaces = 512;  // every node is told of every member: so far, and no further

}  // namespace

void Registration::register_ranks(NodeIndex node, const std::vector<wire::RankInfo>& infos) {
    for (const wire::RankInfo& info : infos) {
        Rank& rank = nodes_[node].ranks[info.rank];
        if (rank.job != nullptr && rank.info.job != info.job) jobs_.leave(node, rank);
        rank.info = info;
        jobs_.join(node, rank);
    }
}

void Registration::register_member(NodeIndex node, const wire::CommMember& m) {
    if (joined_.is_joined(node, m)) return;
    joined_.join(m.also, m.comm);
    Comm* comm = comms_.find(m.comm);
    if (comm == nullptr) comm = &comms_.create(m.comm, m.size, now_);
    if (m.size != comm->size) {
        const std::string why = fabric_.nodes[node].name + " says that it has " + std::to_string(m.size) +
                                " ranks, others say " + std::to_string(comm->size);
        log(LogLevel::error, "a communicator passes: " + why);
        comm->conflict = true;
        set_verdict(*comm, judge(*comm, fabric_), why);
        nodes_[node].verdicts.push_back({m.comm, comm->verdict, {}, comm->reason, comm->reason_rank, comm->why});
        world_.owe(node);
        return;
    }
    take_place(*comm, node, m);
    holds_.look_at_hold(node, m);
    for (const wire::KeyRange& range : m.done) {
        const Key sequence = sequence_of(range.first);
        const std::uint32_t place = place_of(sequence, m.rank_in_comm);
        if (place == kNone) continue;
        auto& finished = comm->finished_of(sequence);
        OPUS_ASSERT(place < finished.size());
        std::uint64_t& upto = finished[place];
        upto = std::max(upto, range.first.n + range.count);
    }
    if (!m.done.empty()) cuts_.tell_finished(*comm, m.rank_in_comm);
    comm->was_held |= m.verdict == Verdict::enforced || m.verdict == Verdict::degraded;
    // All on one node, too: others of it may have left before this controller, or any, heard of them.
    if (comm->verdict == Verdict::unknown && m.verdict != Verdict::unknown && m.verdict != Verdict::enforced)
        comm->inherited = comm->inherited == Verdict::degraded ? comm->inherited : m.verdict;

    // One that is no longer held stays so: what its members have launched since, nobody here has seen.
    if (comm->verdict != Verdict::unknown) {
        tell_verdict(verdict_of(*comm), node);
    } else {
        evaluate(*comm);
        creation_.await_members(*comm, m);
    }
    adoption_.look_due();
}

// The process becomes that member; told again, nothing changes.
void Registration::take_place(Comm& comm, NodeIndex node, const wire::CommMember& m) {
    Member& member = comm.members[m.rank_in_comm];
    const bool first = !member.registered;
    const bool same = !first && member.node == node && member.rank == m.rank && member.generation == m.generation;
    if (same && !member.gone) return;
    const bool late = first && comm.settled;  // it counted as one who has left
    if (same || late) revive(comm, m.rank_in_comm);
    if (late || (!first && !same))
        for (auto& [sequence, finished] : comm.finished)
            if (const std::uint32_t place = place_of(sequence, m.rank_in_comm); place != kNone) finished[place] = 0;
    if (!first) {
        if (Rank* old = rank_of(member.node, member.rank)) {
            auto it = old->comms.find(comm.id);
            if (it != old->comms.end()) std::erase(it->second.slots, m.rank_in_comm);
        }
        comm.gone -= member.gone;
    } else {
        ++comm.registered;
    }
    const auto& gpus = fabric_.nodes[node].gpus;
    const GpuId gpu = m.gpu < gpus.size() ? gpus[m.gpu] : kNone;
    const bool other = member.gpu != gpu || member.own_nic != m.own_nic || member.own_host != m.own_host;
    if (late || (!first && other)) let_go(comm);
    member = {};
    member.node = node;
    member.rank = m.rank;
    member.gpu = gpu;
    member.mode = m.mode;
    member.generation = m.generation;
    member.own_nic = m.own_nic;
    member.own_host = m.own_host;
    member.at_once = m.at_once;
    member.registered = true;
    creation_.leave(node, m.rank, comm.id);
    if (member.gpu == kNone && m.mode == Mode::enforce)
        log(LogLevel::error, fabric_.nodes[node].name + ": rank " + std::to_string(m.rank_in_comm) +
                                 " of a communicator runs on " +
                                 (m.gpu == kNone ? "a GPU" : "local GPU " + std::to_string(m.gpu)) +
                                 " that the fabric file does not have: the communicator passes");
    Membership& membership = nodes_[node].ranks[m.rank].comms[comm.id];
    membership.comm = &comm;
    membership.slots.push_back(m.rank_in_comm);
    std::sort(membership.slots.begin(), membership.slots.end());
    comm.places.clear();
    comm.ring_known = comm.mesh_known = false;
    comm.overdue_at = 0;
    hold_again(comm);
    if (first && comm.all_came()) ask_again(comm);
    if (comm.unsettled > 0) comm.came.push_back(m.rank_in_comm);
    if (comm.verdict != Verdict::unknown) adoption_.look_again(comm);
}

// Its node was given up, or it counted as one who had left, and it is back: what it has under way will be told.
void Registration::revive(Comm& comm, std::uint32_t slot) {
    for (auto& entry : comm.keys) {
        KeyState& key = *entry.second;
        const std::uint32_t place = place_of(key.key, slot);
        if (place == kNone) continue;
        const Presence before = key.members[place].presence;
        const bool counted = before == Presence::done && key.finished->at(place) == kAllFinished;
        if (before != Presence::dead && !counted) continue;
        key.members[place].presence = Presence::absent;
        ++key.left;
        key.missing += counted;
        key.done -= counted;
    }
}

// Those that run without circuits may have them to those that are there.
void Registration::settle(Comm& comm) {
    comm.settled = true;
    for (std::uint32_t slot = 0; slot < comm.size; ++slot) {
        if (comm.members[slot].registered) continue;
        for (auto& [sequence, finished] : comm.finished)
            if (const std::uint32_t place = place_of(sequence, slot); place != kNone) finished[place] = kAllFinished;
        cuts_.tell_finished(comm, slot);
    }
    ask_again(comm);
}

// A member is known, or is another GPU now: so are the circuits of what it takes part in. What waits needs them too;
// what is in flight without them is as good as suspended.
void Registration::hold_again(Comm& comm) {
    if (comm.verdict == Verdict::unknown && !comm.complete())
        return;  // nothing of it is in flight or waits for ports yet
    std::vector<KeyState*> keys;
    for (auto& entry : comm.keys) {
        if (entry.second->in_flight > 0 && !entry.second->held) keys.push_back(entry.second.get());
        for (const KeyMember& m : entry.second->members)
            if (m.launch != nullptr && m.launch->waits() && m.launch->gang != nullptr) {
                gangs_.restamp(*m.launch->gang);
                schedule_.queue(*m.launch->gang, true);
            }
    }
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    std::vector<Launch*> dark;
    const std::uint64_t m = next_mark();
    for (KeyState* key : keys) {
        launches_.update_hold(*key);
        if (launches_.is_lit(*key)) continue;
        for (const KeyMember& member : key->members)
            if (member.launch != nullptr && member.launch->stage == Stage::in_flight &&
                std::exchange(member.launch->mark, m) != m)
                dark.push_back(member.launch);
    }
    suspension_.suspend(dark, "its peer is known only now, and is not joined to it");
}

// It may be known now which circuits they use.
void Registration::ask_again(const Comm& comm) {
    std::vector<Launch*> open;
    for (const auto& entry : comm.keys)
        for (const KeyMember& m : entry.second->members)
            if (m.launch != nullptr && m.launch->open() && m.launch->waits()) open.push_back(m.launch);
    std::sort(open.begin(), open.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    gangs_.regather(open);
}

void Registration::let_go(Comm& comm) {
    for (auto& entry : comm.keys) {
        KeyState& key = *entry.second;
        if (key.held) {
            const auto [begin, end] = launches_.pairs_of(key);
            for (const PairId* e = begin; e != end; ++e) {
                std::erase(inventory_.pair(*e).holders, &key);
                if (!inventory_.pair(*e).busy()) schedule_.wake_pair(*e);
            }
            key.held = false;
        }
        key.pair = kNone;
    }
}

void Registration::evaluate(Comm& comm) {
    Judgement judged = judge(comm, fabric_);
    if (options_.observe && judged.verdict == Verdict::enforced) judged = {Verdict::passes, Reason::observe};
    if (judged.verdict == Verdict::unknown) return;
    std::string words = words_of(comm, judged);
    if (judged.reason == Reason::claimed) log(LogLevel::error, "a communicator passes: " + words);
    set_verdict(comm, judged, std::move(words));
}

std::string Registration::words_of(const Comm& comm, const Judgement& judged) const {
    const std::string who = judged.rank < comm.size ? name_of_member(comm, judged.rank) : "a member";
    switch (judged.reason) {
        case Reason::mode: return who + " does not run with OPUS_MODE=enforce";
        case Reason::gpu: return who + " runs on a GPU that the fabric file does not have";
        case Reason::claimed: return words_of_claim(comm, judged.rank);
        case Reason::connects:
            return "NCCL of " + who +
                   " connects it while it is made, when no circuits can be asked for "
                   "(NCCL before 2.22.3, NCCL_RUNTIME_CONNECT=0, NCCL_CUMEM_ENABLE=0, or a GPU without cuMem)";
        case Reason::left: return who + " left before all had come";
        case Reason::observe: return "the controller runs with --observe";
        default:
            return comm.inherited == judged.verdict && judged.verdict != Verdict::intra
                       ? "an earlier controller, or its manager, decided so"
                       : "";
    }
}

// NCCL itself refuses two members on one GPU: so at most one of them is where it is said to be.
std::string Registration::words_of_claim(const Comm& comm, std::uint32_t slot) const {
    const Member& second = comm.members[slot];
    const auto first = std::find_if(comm.members.begin(), comm.members.end(),
                                    [&](const Member& m) { return m.gpu == second.gpu && m.rank != second.rank; });
    const auto pid = [this](const Member& m) { return std::to_string(must_find(nodes_[m.node].ranks, m.rank).info.pid); };
    return "pids " + pid(*first) + " and " + pid(second) + " (ranks " + std::to_string(first - comm.members.begin()) +
           " and " + std::to_string(slot) + " of " + std::to_string(comm.size) + ") both claim " +
           fabric_.gpus[second.gpu].name + ": name the node's GPUs in the fabric file (pci, uuid), or set OPUS_GPU";
}

wire::CommVerdict Registration::verdict_of(Comm& comm) const {
    wire::CommVerdict verdict{comm.id, comm.verdict, {}, comm.reason, comm.reason_rank, comm.why};
    verdict.why.resize(std::min(verdict.why.size(), wire::kMaxText));
    if (comm.verdict == Verdict::enforced && comm.size <= kMaxPlaces) verdict.places = member_places(comm, fabric_);
    return verdict;
}

void Registration::tell_verdict(const wire::CommVerdict& verdict, NodeIndex node) {
    nodes_[node].verdicts.push_back(verdict);
    world_.owe(node);
}

void Registration::set_verdict(Comm& comm, Judgement judged, std::string why) {
    const Verdict verdict = judged.verdict;
    if (comm.verdict == verdict) return;
    if (comm.verdict == Verdict::unknown)
        for (auto& entry : comm.keys)
            for (const KeyMember& m : entry.second->members)
                if (m.launch != nullptr && m.launch->gang != nullptr) schedule_.queue(*m.launch->gang, true);
    comm.verdict = verdict;
    comm.reason = judged.reason;
    comm.reason_rank = judged.rank;
    comm.why = std::move(why);
    adoption_.look_again(comm);
    if (!comm.complete()) ask_again(comm);
    const wire::CommVerdict told = verdict_of(comm);  // the same to all
    std::set<NodeIndex> of_it;
    for (const Member& m : comm.members)
        if (m.registered && of_it.insert(m.node).second) tell_verdict(told, m.node);
    adoption_.look_due();
    if (verdict == Verdict::enforced || verdict == Verdict::unknown) return;
    runs_.revoke_of(comm, "its communicator is no longer held");
    // Nobody knows any more who is where: a member that is done alone no longer holds circuits.
    std::vector<KeyState*> keys;
    for (auto& entry : comm.keys) keys.push_back(entry.second.get());
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    for (KeyState* key : keys) suspension_.drop_drained(*key);
}

// No launch of it is held any more; those that wait are opened.
void Registration::degrade(Comm& comm, Policy how, Reason reason, const std::string& why, std::uint32_t slot) {
    if (comm.open()) return;
    set_verdict(comm, {comm.complete() || comm.was_held ? Verdict::degraded : Verdict::passes, reason, slot}, why);
    std::vector<Launch*> waiting;
    std::set<std::pair<NodeIndex, RankId>> seen;
    for (const Member& m : comm.members) {
        if (!m.registered || !seen.insert({m.node, m.rank}).second) continue;
        Rank* rank = rank_of(m.node, m.rank);
        if (rank == nullptr) continue;
        for (auto& [seq, launch] : rank->launches)
            if (!launch->open() && std::any_of(launch->keys.begin(), launch->keys.end(),
                                               [&](const KeyRef& r) { return r.key->comm == &comm; }))
                waiting.push_back(launch.get());
    }
    const bool ends = reason == Reason::died || reason == Reason::left;  // each of a job's ranks does once
    log(waiting.empty() && ends ? LogLevel::info : LogLevel::warn,
        "a communicator of " + std::to_string(comm.size) + " ranks is no longer held: " + why);
    holds_.pass_launches(waiting, how, why, false);
}

void Registration::member_gone(NodeIndex node, RankId id, const CommId& comm_id) {
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
void Registration::comm_lost_member(Comm& comm) {
    // It has destroyed it, so NCCL had made it: the others register yet, or are missed (look_for_missing), and may meet without it.
    if (comm.verdict == Verdict::unknown && !comm.complete() && comm.judge_at_ns != 0) return;
    if (comm.gone == comm.registered) return erase_comm_if_gone(comm);
    if (comm.open()) return;
    if (comm.verdict == Verdict::unknown)
        return degrade(comm, Policy::proceed, Reason::left, "a member left before all had come");
    const std::uint64_t m = next_mark();
    for (auto& entry : comm.keys)
        for (const KeyMember& member : entry.second->members) {
            if (member.launch == nullptr || member.launch->open()) continue;
            for (const KeyRef& r : member.launch->keys)
                if (std::exchange(r.key->mark, m) != m && launches_.misses_gone_member(*r.key))
                    return degrade(comm, Policy::proceed, Reason::died, "a launch waits for a rank that left");
        }
}

void Registration::erase_comm_if_gone(Comm& comm) {
    if (comm.gone != comm.registered) return;
    runs_.end_of(comm);
    std::vector<Launch*> left;
    const std::uint64_t m = next_mark();
    std::vector<KeyState*> keys;
    for (auto& entry : comm.keys) keys.push_back(entry.second.get());
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    for (const KeyState* key : keys)
        for (const KeyMember& member : key->members)
            if (member.launch != nullptr && std::exchange(member.launch->mark, m) != m) left.push_back(member.launch);
    for (Launch* launch : left) launches_.finish(*launch, Presence::done);
    keys.clear();
    for (auto& entry : comm.keys) keys.push_back(entry.second.get());
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    for (KeyState* key : keys) {
        key->left = 0;
        launches_.erase_key_if_done(*key);
    }
    for (const Member& member : comm.members)
        if (member.registered)
            if (Rank* rank = rank_of(member.node, member.rank)) rank->comms.erase(comm.id);
    joined_.forget(comm.id);
    comms_.erase(comm);
}

// Its launches are cancelled; what others run with it goes on as NCCL makes of it.
void Registration::end_rank(NodeIndex node, RankId id, const char* how) {
    Rank* rank = rank_of(node, id);
    if (rank == nullptr) return;
    log(LogLevel::info, fabric_.nodes[node].name + ": rank process " + std::to_string(id) + " " + how + " with " +
                            std::to_string(rank->launches.size()) + " launches not done");
    while (!rank->launches.empty()) launches_.finish(*rank->launches.begin()->second, Presence::dead);
    std::vector<Comm*> concerned;
    for (auto& [comm_id, membership] : rank->comms) {
        Comm& comm = *membership.comm;
        bool stayed = false;  // a communicator that it destroyed before it ended is none of this
        for (const std::uint32_t slot : membership.slots) {
            stayed |= !comm.members[slot].gone;
            comm.gone += !comm.members[slot].gone;
            comm.members[slot].gone = true;
        }
        // All who had registered may have destroyed it before it was judged.
        const bool left_over = comm.gone == comm.registered && comm.verdict != Verdict::unknown;
        if (stayed || left_over) concerned.push_back(&comm);
    }
    creation_.end_rank(node, id);
    for (Comm* comm : concerned) {
        if (comm->gone == comm->registered)
            erase_comm_if_gone(*comm);
        else
            degrade(*comm, Policy::proceed, Reason::died,
                    fabric_.nodes[node].name + ": a rank of it " + how + "; its peers see what NCCL makes of that");
    }
    jobs_.leave(node, *rank);
    nodes_[node].ranks.erase(id);
}

}  // namespace opus::controller
