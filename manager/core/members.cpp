// Ranks and communicators that come and go, and what is thought of them.
#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "manager/core/rooms.h"
#include "opus/assert.h"

namespace opus::manager {

Members::Members(World& world, Rooms& rooms)
    : Room(world),
      gpus_(world.options.host_gpus),
      launches_(rooms.launches),
      runs_(rooms.runs),
      early_releases_(rooms.early_releases),
      reports_(rooms.reports),
      session_(rooms.session),
      holds_(rooms.holds) {}

void Members::handle(const RankUp& e) {
    const auto [it, fresh] = ranks_.try_emplace(e.info.rank);
    if (!fresh) {
        ++counters_.rejected;
        return;
    }
    it->second.info = e.info;
    it->second.mode = e.mode;
    it->second.recovered = e.recovered;
    it->second.capacity = e.slots;
    it->second.kept_most = std::min(Rank::kMaxKeptSlots, e.slots / 4);
    reports_.registered().ranks.push_back(it->second.info);
    log(LogLevel::info, "rank " + std::to_string(e.info.rank) + (e.recovered ? " found again" : " came") + ": pid " +
                            std::to_string(e.info.pid) + ", job " + e.info.job);
}

void Members::handle(const RankDown& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr) return;
    std::size_t unfinished = 0;
    rank->each([&](const Launch& l) { unfinished += l.is_under_way(); });
    for (std::size_t i = 0; i < rank->members.size(); ++i)
        // What it had destroyed before it ended is no loss to the other members.
        if (rank->members[i]) release(*rank, static_cast<std::uint16_t>(i), rank->members[i]->retired);
    reports_.forget_expired(e.rank);
    ranks_.erase(e.rank);
    reports_.retired().ranks.push_back(e.rank);
    emit(ForgetRank{e.rank});
    log(LogLevel::info,
        "rank " + std::to_string(e.rank) + " ended with " + std::to_string(unfinished) + " launches not done");
}

void Members::handle(const CommEntering& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || rank->members[e.index]) return;
    rank->entering[e.index] = e.comm;
    reports_.registered().entering.push_back({e.comm, e.rank});
}

void Members::handle(const CommUp& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || rank->members[e.index]) {
        counters_.rejected += rank != nullptr;
        return;
    }
    rank->entering.erase(e.index);
    auto member = std::make_unique<Member>();
    member->info = e.member;
    member->info.comm = known_as(e.member.comm);
    member->renamed = member->info.comm != e.member.comm;
    member->gpu = e.gpu;
    member->gpu_by_ordinal = e.member.gpu;
    member->family = e.family;
    member->since = now_;
    rank->members[e.index] = std::move(member);
    rank->used = std::max(rank->used, e.index + 1);
    if (place(*rank, e.index)) reports_.registered().ranks.push_back(rank->info);
    reports_.registered().comms.push_back(rank->members[e.index]->info);

    const CommId comm = rank->members[e.index]->info.comm;
    enter_group(*rank, static_cast<std::uint16_t>(e.index), e.verdict, e.reason, e.reason_rank);
    judge_intra(comm);
    join(e.member.also, comm);
}

// A process is on the GPU of its first communicator; it may have more.
bool Members::place(Rank& rank, std::uint32_t index) {
    Member& member = *rank.members[index];
    member.info.gpu = gpus_.local_of(member.gpu, member.gpu_by_ordinal);
    if (rank.placed_by == kNone && member.info.gpu != kNone) rank.placed_by = index;
    if (rank.placed_by != index || rank.info.gpu == member.info.gpu) return false;
    rank.info.gpu = member.info.gpu;
    return true;
}

// The controller wants to know only while it waits for others.
void Members::handle(const CommCreated& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || !rank->members[e.index]) return;
    Member& member = *rank->members[e.index];
    member.info.creation = CreationState::returned;
    member.since = now_;
    if (member.verdict == Verdict::unknown) reports_.registered().comms.push_back(member.info);
}

// It has no place in the communicator, and will get none.
bool Members::creation_failed(Rank& rank, std::uint32_t index) {
    const auto it = rank.entering.find(index);
    if (it == rank.entering.end()) return false;
    reports_.retired().failed.push_back({it->second, rank.info.rank});
    rank.entering.erase(it);
    return true;
}

void Members::handle(const CommDown& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || creation_failed(*rank, e.index)) return;
    if (!rank->members[e.index]) return;
    Member& member = *rank->members[e.index];
    member.retired = true;
    if (member.outstanding == 0) release(*rank, static_cast<std::uint16_t>(e.index), true);
}

void Members::handle(const CommLost& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || creation_failed(*rank, e.index)) return;
    if (!rank->members[e.index]) return;
    Member& member = *rank->members[e.index];
    if (member.verdict != Verdict::unknown && member.verdict != Verdict::enforced) return;
    member.lost = true;
    // It has waited as long as others would.
    if (member.verdict == Verdict::unknown) holds_.note_waited();
    reports_.retired().degraded.push_back({member.info.comm, e.rank});
    log(LogLevel::warn, "rank " + std::to_string(e.rank) + ": launches passed unrecorded; its communicator of " +
                            std::to_string(member.info.size) + " ranks is no longer held for circuits");
}

// The entry is free again; its launches are done, or its rank is dead.
void Members::release(Rank& rank, std::uint16_t index, bool tell) {
    const Member& member = *rank.members[index];
    const CommId comm = member.info.comm;
    if (tell) {
        if (const std::uint64_t upto = rank.last_use(index); upto != 0)
            rank.freeing.push_back({index, member.info.generation, upto});
        else
            emit(FreeComm{rank.info.rank, index, member.info.generation});
        reports_.retired().comms.push_back({comm, rank.info.rank});
    }
    rank.sequences -= member.finished.size();
    const auto group = groups_.find(comm);
    if (group != groups_.end()) {
        std::erase(group->second.members, std::pair{rank.info.rank, index});
        if (group->second.members.empty()) {
            groups_.erase(group);
            forget_joined(comm);
        }
        runs_.release(comm, rank.info.rank, index);
    }
    rank.members[index].reset();
}

void Members::set_verdict(const CommId& comm, Verdict verdict, Reason reason, std::uint32_t reason_rank) {
    const auto it = groups_.find(comm);
    if (it == groups_.end() || it->second.verdict == verdict) return;
    it->second.verdict = verdict;
    it->second.reason = reason;
    it->second.reason_rank = reason_rank;
    for (const auto& [id, index] : it->second.members) {
        Member& member = *must_find(ranks_, id).members[index];
        member.verdict = verdict;
        if (verdict != Verdict::unknown && verdict != Verdict::enforced) member.lost = false;
        must_find(ranks_, id).set_all_due();
        emit_verdict(must_find(ranks_, id), index, verdict, reason, reason_rank);
    }
    early_releases_.retract({});
}

// All members are here: what they do never leaves the node.
void Members::judge_intra(const CommId& comm) {
    const Group& group = must_find(groups_, comm);
    std::uint32_t size = 0;
    std::set<std::uint32_t> present;
    for (const auto& [id, index] : group.members) {
        const Member& member = *must_find(ranks_, id).members[index];
        if (member.retired || (size != 0 && member.info.size != size)) return;
        size = member.info.size;
        if (size > group.members.size()) return;
        present.insert(member.info.rank_in_comm);
    }
    if (present.size() != size) return;
    set_verdict(comm, Verdict::intra);
    launches_.decide_all();
}

// Without a controller: hold no more here, and tell it when there is one.
void Members::degrade_here(const CommId& comm) {
    const auto it = groups_.find(comm);
    if (it == groups_.end() || it->second.verdict == Verdict::degraded || it->second.verdict == Verdict::intra) return;
    set_verdict(comm, Verdict::degraded, Reason::unjudged);
    for (const auto& [id, index] : it->second.members) must_find(ranks_, id).members[index]->lost = true;
}

void Members::hear(const wire::Verdicts& m) {
    for (const wire::CommVerdict& v : m.comms) {
        if (v.known_as != CommId{}) {
            join(v.comm, v.known_as);
            if (!session_.is_up()) return;  // what it takes back it says anew
            continue;
        }
        const auto it = groups_.find(v.comm);
        if (it == groups_.end() || it->second.verdict == Verdict::intra) continue;
        if (it->second.verdict != v.verdict && !v.why.empty() && v.reason != Reason::observe)
            log(LogLevel::warn, "a communicator is not held for circuits: " + v.why);
        set_verdict(v.comm, v.verdict, v.reason, v.reason_rank);
    }
    launches_.decide_all();
}

std::uint32_t Members::local_members(const Key& key) const {
    const auto it = groups_.find(key.comm);
    if (it == groups_.end()) return 0;
    if (!is_directed(key.kind)) return static_cast<std::uint32_t>(it->second.members.size());
    std::uint32_t count = 0;
    for (const auto& [id, index] : it->second.members) {
        const std::uint32_t r = must_find(ranks_, id).members[index]->info.rank_in_comm;
        count += r == key.src || (r == key.dst && key.kind != KeyKind::put);
    }
    return count;
}

// The controller says which GPUs its node has.
void Members::place_all(const std::vector<wire::GpuAssignment>& gpus) {
    gpus_.assign(gpus);
    for (auto& entry : ranks_)
        for (std::uint32_t i = 0; i < entry.second.used; ++i)
            if (entry.second.members[i]) place(entry.second, i);
}

std::string Members::check() const {
    for (const auto& [comm, group] : groups_) {
        if (group.members.empty()) return "a communicator without members";
        for (const auto& [id, index] : group.members) {
            const auto rank = ranks_.find(id);
            if (rank == ranks_.end() || !rank->second.members[index]) return "a communicator's member is gone";
            const Member& member = *rank->second.members[index];
            if (member.info.comm != comm) return "a communicator's member belongs to another";
            if (member.verdict != group.verdict) return "members of one communicator with different verdicts";
        }
    }
    return {};
}

}  // namespace opus::manager
