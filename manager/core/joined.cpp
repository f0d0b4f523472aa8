// Communicators with two ids (ncclCommGrow): old members derive one from their parent, new ones another from the unique id that
// they were given. A member that was given both says so, or the controller does, which hears of it from another node. From then
// on those here go by the first.
#include <utility>

#include "manager/core/rooms.h"
#include "opus/assert.h"

namespace opus::manager {

// What a member that comes is to be called.
CommId Members::known_as(const CommId& comm) const {
    const auto it = joined_.find(comm);
    return it != joined_.end() ? it->second : comm;
}

void Members::join(const CommId& from, const CommId& to) {
    if (from == CommId{} || to == CommId{} || from == to || !joined_.emplace(from, to).second) return;
    const auto it = groups_.find(from);
    if (it == groups_.end()) return;
    const Group old = std::move(it->second);
    groups_.erase(it);
    bool running = false;
    for (const auto& [id, index] : old.members) {
        Rank& rank = must_find(ranks_, id);
        Member& member = *rank.members[index];
        rename(rank, index, to);
        running |= member.outstanding > 0;
        reports_.registered().comms.push_back(member.info);
        enter_group(rank, index, old.verdict, old.reason, old.reason_rank);
    }
    judge_intra(to);
    early_releases_.retract({});
    // What is in flight the controller knows by keys of nobody: the next snapshot tells it anew.
    if (running && session_.is_up()) session_.end("a communicator has another name");
}

void Members::rename(Rank& rank, std::uint16_t index, const CommId& to) {
    Member& member = *rank.members[index];
    member.info.comm = to;
    member.renamed = true;
    std::unordered_map<Key, std::uint64_t> finished;
    for (const auto& [sequence, upto] : member.finished) {
        Key key = sequence;
        key.comm = to;
        finished[key] = upto;
    }
    member.finished = std::move(finished);
    if (member.next) member.next->comm = to;
    rank.each([index, &to](Launch& launch) {
        for (LaunchKey& key : launch.keys)
            if (key.member == index) key.range.first.comm = to;
    });
}

void Members::enter_group(Rank& rank, std::uint16_t index, Verdict verdict, Reason reason, std::uint32_t reason_rank) {
    Member& member = *rank.members[index];
    Group& group = groups_[member.info.comm];
    group.members.emplace_back(rank.info.rank, index);
    if (group.verdict == Verdict::unknown && verdict != Verdict::unknown) {
        set_verdict(member.info.comm, verdict, reason, reason_rank);
    } else if (group.verdict != Verdict::unknown) {
        member.verdict = group.verdict;
        emit_verdict(rank, index, group.verdict, group.reason, group.reason_rank);
    }
}

void Members::emit_verdict(const Rank& rank, std::uint16_t index, Verdict verdict, Reason reason, std::uint32_t reason_rank) {
    const Member& member = *rank.members[index];
    emit(SetVerdict{rank.info.rank, index, verdict, reason, reason_rank, member.renamed ? member.info.comm : CommId{}});
}

// Its last member here is gone.
void Members::forget_joined(const CommId& comm) {
    std::erase_if(joined_, [&comm](const auto& entry) { return entry.second == comm; });
}

}  // namespace opus::manager
