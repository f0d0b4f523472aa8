#include "manager/observer/observation.h"

#include <algorithm>
#include <utility>

#include "manager/core/keys.h"

namespace opus::manager {

using controller::LaunchPart;

Observation::Observation(controller::RecordingWriter& writer, std::string node, std::vector<PciAddress> host_gpus)
    : writer_(writer), node_(std::move(node)), places_(std::move(host_gpus)) {}

Observation::Observed* Observation::find(RankId rank) {
    const auto at = ranks_.find(rank);
    return at == ranks_.end() ? nullptr : &at->second;
}

void Observation::on(const Event& event, TimeNs now, Actions& out) {
    if (const auto* recorded = std::get_if<Recorded>(&event)) {
        on_record(*recorded, now);
    } else if (const auto* ready = std::get_if<Ready>(&event)) {
        Observed* rank = find(ready->rank);
        if (rank == nullptr) return;
        const auto at = rank->pending.find(ready->seq);
        if (at == rank->pending.end() || std::exchange(at->second.ready, true)) return;
        at->second.launch.ready_ns = now;
    } else if (const auto* done = std::get_if<DoneSeen>(&event)) {
        on_done(*done, now, out);
    } else if (const auto* comm = std::get_if<CommUp>(&event)) {
        on_comm(*comm, out);
    } else if (const auto* gone = std::get_if<CommDown>(&event)) {
        Observed* rank = find(gone->rank);
        if (rank == nullptr) return;
        const auto index = static_cast<std::uint16_t>(gone->index);
        const auto member = rank->members.find(index);
        if (member == rank->members.end()) return;  // it entered, and never had a place: its entry is free already
        out.emplace_back(FreeComm{gone->rank, gone->index, member->second.generation});
        rank->members.erase(member);
    } else if (const auto* up = std::get_if<RankUp>(&event)) {
        on_up(*up);
    } else if (const auto* down = std::get_if<RankDown>(&event)) {
        on_down(down->rank, now);
    }
}

void Observation::on_up(const RankUp& e) {
    Observed& rank = ranks_[e.info.rank];
    rank.slots.info = e.info;
    rank.slots.capacity = e.slots;
    rank.job = e.info.job;
    ++totals_.ranks;
    name(e.info.rank, rank, kNone);
    jobs_.try_emplace(rank.job, 0);
}

void Observation::name(RankId id, Observed& rank, std::uint32_t gpu) {
    rank.gpu = gpu;
    writer_.name_rank(id, node_ + ".r" + std::to_string(id), gpu == kNone ? "" : node_ + ".g" + std::to_string(gpu),
                      rank.job);
}

void Observation::on_down(RankId id, TimeNs now) {
    Observed* rank = find(id);
    if (rank == nullptr) return;
    const std::uint64_t left = rank->pending.size();
    writer_.rank_gone(id, now, left);
    totals_.under_way += left;
    pending_ -= left;
    ranks_.erase(id);
}

// Nothing is held, so nobody need wait to hear it.
void Observation::on_comm(const CommUp& e, Actions& out) {
    out.emplace_back(SetVerdict{e.rank, e.index, Verdict::passes, Reason::observe, kNone, {}});
    Observed* rank = find(e.rank);
    if (rank == nullptr) return;
    rank->members.insert_or_assign(static_cast<std::uint16_t>(e.index), e.member);
    if (rank->gpu == kNone) {
        std::uint32_t gpu = places_.local_of(e.gpu, e.member.gpu);
        // Each process sees one GPU, as number 0, and the driver does not say which: then they are counted as they come.
        const auto taken = [this](std::uint32_t g) {
            return std::any_of(ranks_.begin(), ranks_.end(), [g](const auto& r) { return r.second.gpu == g; });
        };
        if (gpu == kNone || (e.gpu.pci == 0 && taken(gpu)))
            for (gpu = 0; taken(gpu);) ++gpu;
        name(e.rank, *rank, gpu);
    }
    if (!writer_.knows_group(e.member.comm))
        writer_.name_group(e.member.comm, controller::group_name(e.member.comm), e.member.size,
                           e.member.also == CommId{} ? "" : controller::group_name(e.member.also));
    writer_.member(e.rank, e.member.comm, e.member.rank_in_comm);
}

void Observation::on_record(const Recorded& e, TimeNs now) {
    Observed* rank = find(e.rank);
    if (rank == nullptr) return;
    Launch slots;
    slots.seq = e.seq;
    slots.slots = e.slots;
    slots.flags = e.flags;
    slots.gate = e.gate;
    if (!rank->slots.append(std::move(slots))) return;
    Pending made;
    made.launch.called_ns = now;
    made.launch.ready_ns = now;  // where its stream will not say
    made.ready = (e.flags & ring::kLaunchMarksReady) == 0;
    const MemberLookup lookup = [rank](std::uint16_t index) {
        const auto at = rank->members.find(index);
        return at == rank->members.end() ? nullptr : &at->second;
    };
    // Operation by operation: each has its own bytes.
    for (const ring::OpEntry& op : e.ops)
        for (const LaunchKey& key : keys_of({op}, e.flags, e.gate, lookup)) {
            if (is_connection(key.range.first.kind)) continue;
            made.keys.push_back(key.range);
            made.parts.push_back({static_cast<OpKind>(op.kind), op.bytes});
        }
    if (!made.keys.empty()) {
        controller::RecordedLaunch& l = made.launch;
        l.rank = e.rank;
        l.group = made.keys.front().first.comm;
        l.op = made.parts.front().op;
        for (const LaunchPart& part : made.parts) l.bytes += part.bytes;
        l.held = false;
    }
    pending_ += rank->pending.insert_or_assign(e.seq, std::move(made)).second;
}

void Observation::on_done(const DoneSeen& e, TimeNs now, Actions& out) {
    Observed* rank = find(e.rank);
    if (rank == nullptr) return;
    if (Launch* slots = rank->slots.find(e.seq); slots != nullptr && slots->phase != Phase::done) {
        rank->slots.set_done(*slots);
        if (Retired retired = rank->slots.retire(false); retired.upto != 0 || !retired.freed.empty())
            out.emplace_back(std::move(retired));
    }
    const auto at = rank->pending.find(e.seq);
    if (at == rank->pending.end()) return;
    Pending launch = std::move(at->second);
    rank->pending.erase(at);
    --pending_;
    if (launch.keys.empty()) return;  // of one rank: nothing leaves it
    launch.launch.done_ns = now;
    ++totals_.launches;
    ++jobs_[rank->job];
    writer_.launch(launch.launch, e.seq, launch.keys, launch.parts);
}

void Observation::counted(RankId id, const ShimCounts& counts) {
    Observed* rank = find(id);
    if (rank == nullptr || rank->counts == counts) return;
    totals_.losing += rank->counts.lost == 0 && counts.lost != 0;
    totals_.lost += counts.lost - rank->counts.lost;
    totals_.passed += counts.passed - rank->counts.passed;
    rank->counts = counts;
    writer_.lost(id, counts.lost, counts.passed);
}

void Observation::end() {
    for (const auto& [job, launches] : jobs_) writer_.job_ended(job);
}

}  // namespace opus::manager
