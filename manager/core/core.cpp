#include "manager/core/core.h"

#include <algorithm>
#include <set>

#include "manager/core/state.h"
#include "opus/assert.h"

namespace opus::manager {

Core::Core(std::string node_name, CoreOptions options) : impl_(std::make_unique<Impl>(std::move(node_name), options)) {}
Core::~Core() = default;

void Core::on(const Event& event, TimeNs now, TimeNs realtime_ns, Actions& out) {
    impl_->now = now;
    impl_->realtime = realtime_ns;
    impl_->out = &out;
    if (!impl_->has_controller() && !impl_->alone_since) impl_->alone_since = now;
    std::visit([this](const auto& e) { impl_->handle(e); }, event);
}

bool Core::flush(TimeNs now, Actions& out) {
    impl_->now = now;
    impl_->out = &out;
    return impl_->flush();
}

bool Core::pending() const {
    return std::any_of(impl_->ranks.begin(), impl_->ranks.end(), [](const auto& entry) {
        bool any = false;
        entry.second.each([&any](const Launch& launch) { any |= launch.phase != Phase::done; });
        return any;
    });
}

const Counters& Core::counters() const { return impl_->counters; }

std::string Core::check() const {
    for (const auto& [id, rank] : impl_->ranks) {
        if (rank.info.rank != id) return "rank " + std::to_string(id) + " is filed under another number";
        if (auto fault = rank.check(); !fault.empty()) return fault;
        for (const Launch& launch : rank.launches)
            if (launch.early == EarlyRelease::released && impl_->cover(rank, launch, {}) == 0)
                return name_of({id, launch.seq}) + " is released early, and no run covers it";
    }
    for (const auto& [comm, group] : impl_->groups) {
        if (group.members.empty()) return "a communicator without members";
        for (const auto& [id, index] : group.members) {
            const auto rank = impl_->ranks.find(id);
            if (rank == impl_->ranks.end() || !rank->second.members[index]) return "a communicator's member is gone";
            const Member& member = *rank->second.members[index];
            if (member.info.comm != comm) return "a communicator's member belongs to another";
            if (member.verdict != group.verdict) return "members of one communicator with different verdicts";
        }
    }
    if (impl_->has_controller() == impl_->alone_since.has_value() && impl_->has_controller())
        return "alone, and with a controller";
    return {};
}

std::string name_of(const wire::LocalLaunch& launch) {
    return "launch " + std::to_string(launch.seq) + " of rank " + std::to_string(launch.rank);
}

// A family that no communicator has (their numbers are small, or have the top bit); if two streams share one,
// their launches only take turns.
static std::uint32_t stream_family(std::uint64_t stream) {
    return 0x4000'0000u | static_cast<std::uint32_t>(hash_mix(0, stream) & 0x3fff'ffffu);
}

Rank* Core::Impl::rank_of(RankId id) {
    const auto it = ranks.find(id);
    if (it != ranks.end()) return &it->second;
    ++counters.rejected;
    return nullptr;
}

Launch* Core::Impl::launch_of(const wire::LocalLaunch& id, Rank** rank) {
    const auto it = ranks.find(id.rank);
    if (it == ranks.end()) return nullptr;
    if (rank != nullptr) *rank = &it->second;
    return it->second.find(id.seq);
}

// --- ranks and communicators ----------------------------------------------------------------------

void Core::Impl::handle(const RankUp& e) {
    const auto [it, fresh] = ranks.try_emplace(e.info.rank);
    if (!fresh) {
        ++counters.rejected;
        return;
    }
    it->second.info = e.info;
    it->second.mode = e.mode;
    it->second.recovered = e.recovered;
    it->second.capacity = e.slots;
    it->second.kept_most = std::min(Rank::kMaxKeptSlots, e.slots / 4);
    outbox.registered.ranks.push_back(it->second.info);
    log(LogLevel::info, "rank " + std::to_string(e.info.rank) + (e.recovered ? " found again" : " came") + ": pid " +
                            std::to_string(e.info.pid) + ", job " + e.info.job);
}

void Core::Impl::handle(const RankDown& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr) return;
    std::size_t unfinished = 0;
    rank->each([&](const Launch& l) { unfinished += l.phase != Phase::done && l.phase != Phase::captured; });
    for (std::size_t i = 0; i < rank->members.size(); ++i)
        // What it had destroyed before it ended is no loss to the other members.
        if (rank->members[i]) release_member(*rank, static_cast<std::uint16_t>(i), rank->members[i]->retired);
    std::erase_if(expired, [&e](const auto& launch) { return launch.rank == e.rank; });
    ranks.erase(e.rank);
    outbox.retire.ranks.push_back(e.rank);
    emit(ForgetRank{e.rank});
    log(LogLevel::info,
        "rank " + std::to_string(e.rank) + " ended with " + std::to_string(unfinished) + " launches not done");
}

void Core::Impl::handle(const CommEntering& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || rank->members[e.index]) return;
    rank->entering[e.index] = e.comm;
    outbox.registered.entering.push_back({e.comm, e.rank});
}

void Core::Impl::handle(const CommUp& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || rank->members[e.index]) {
        counters.rejected += rank != nullptr;
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
    member->since = now;
    rank->members[e.index] = std::move(member);
    rank->used = std::max(rank->used, e.index + 1);
    if (place(*rank, e.index)) outbox.registered.ranks.push_back(rank->info);
    outbox.registered.comms.push_back(rank->members[e.index]->info);

    const CommId comm = rank->members[e.index]->info.comm;
    enter_group(*rank, static_cast<std::uint16_t>(e.index), e.verdict, e.reason, e.reason_rank);
    judge_intra(comm);
    join(e.member.also, comm);
}

// A process is on the GPU of its first communicator; it may have more.
bool Core::Impl::place(Rank& rank, std::uint32_t index) {
    Member& member = *rank.members[index];
    member.info.gpu = gpus.local_of(member.gpu, member.gpu_by_ordinal);
    if (rank.placed_by == kNone && member.info.gpu != kNone) rank.placed_by = index;
    if (rank.placed_by != index || rank.info.gpu == member.info.gpu) return false;
    rank.info.gpu = member.info.gpu;
    return true;
}

// The controller wants to know only while it waits for others.
void Core::Impl::handle(const CommCreated& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || !rank->members[e.index]) return;
    Member& member = *rank->members[e.index];
    member.info.creation = CreationState::returned;
    member.since = now;
    if (member.verdict == Verdict::unknown) outbox.registered.comms.push_back(member.info);
}

// It has no place in the communicator, and will get none.
bool Core::Impl::creation_failed(Rank& rank, std::uint32_t index) {
    const auto it = rank.entering.find(index);
    if (it == rank.entering.end()) return false;
    outbox.retire.failed.push_back({it->second, rank.info.rank});
    rank.entering.erase(it);
    return true;
}

void Core::Impl::handle(const CommDown& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || creation_failed(*rank, e.index)) return;
    if (!rank->members[e.index]) return;
    Member& member = *rank->members[e.index];
    member.retired = true;
    if (member.outstanding == 0) release_member(*rank, static_cast<std::uint16_t>(e.index), true);
}

void Core::Impl::handle(const CommLost& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr || e.index >= ring::kMaxComms || creation_failed(*rank, e.index)) return;
    if (!rank->members[e.index]) return;
    Member& member = *rank->members[e.index];
    if (member.verdict != Verdict::unknown && member.verdict != Verdict::enforced) return;
    member.lost = true;
    // It has waited as long as others would.
    if (alone_since && member.verdict == Verdict::unknown) waited_in_vain = true;
    outbox.retire.degraded.push_back({member.info.comm, e.rank});
    log(LogLevel::warn, "rank " + std::to_string(e.rank) + ": launches passed unrecorded; its communicator of " +
                            std::to_string(member.info.size) + " ranks is no longer held for circuits");
}

// The entry is free again; its launches are done, or its rank is dead.
void Core::Impl::release_member(Rank& rank, std::uint16_t index, bool tell) {
    const Member& member = *rank.members[index];
    const CommId comm = member.info.comm;
    if (tell) {
        if (const std::uint64_t upto = rank.last_use(index); upto != 0)
            rank.freeing.push_back({index, member.info.generation, upto});
        else
            emit(FreeComm{rank.info.rank, index, member.info.generation});
        outbox.retire.comms.push_back({comm, rank.info.rank});
    }
    rank.sequences -= member.finished.size();
    const auto group = groups.find(comm);
    if (group != groups.end()) {
        std::erase(group->second.members, std::pair{rank.info.rank, index});
        if (group->second.members.empty()) {
            groups.erase(group);
            forget_joined(comm);
        }
        soft.release(comm, rank.info.rank, index, [this](const Key& sequence) { return local_members(sequence); });
    }
    rank.members[index].reset();
}

// --- verdicts -------------------------------------------------------------------------------------

void Core::Impl::set_verdict(const CommId& comm, Verdict verdict, Reason reason, std::uint32_t reason_rank) {
    const auto it = groups.find(comm);
    if (it == groups.end() || it->second.verdict == verdict) return;
    it->second.verdict = verdict;
    it->second.reason = reason;
    it->second.reason_rank = reason_rank;
    for (const auto& [id, index] : it->second.members) {
        Member& member = *must_find(ranks, id).members[index];
        member.verdict = verdict;
        if (verdict != Verdict::unknown && verdict != Verdict::enforced) member.lost = false;
        must_find(ranks, id).early_release_due = true;
        emit_verdict(must_find(ranks, id), index, verdict, reason, reason_rank);
    }
    retract({});
}

// All members are here: what they do never leaves the node.
void Core::Impl::judge_intra(const CommId& comm) {
    const Group& group = must_find(groups, comm);
    std::uint32_t size = 0;
    std::set<std::uint32_t> present;
    for (const auto& [id, index] : group.members) {
        const Member& member = *must_find(ranks, id).members[index];
        if (member.retired || (size != 0 && member.info.size != size)) return;
        size = member.info.size;
        if (size > group.members.size()) return;
        present.insert(member.info.rank_in_comm);
    }
    if (present.size() != size) return;
    set_verdict(comm, Verdict::intra);
    decide_all();
}

// Without a controller: hold no more here, and tell it when there is one.
void Core::Impl::degrade_here(const CommId& comm) {
    const auto it = groups.find(comm);
    if (it == groups.end() || it->second.verdict == Verdict::degraded || it->second.verdict == Verdict::intra) return;
    set_verdict(comm, Verdict::degraded, Reason::unjudged);
    for (const auto& [id, index] : it->second.members) must_find(ranks, id).members[index]->lost = true;
}

// --- launches -------------------------------------------------------------------------------------

void Core::Impl::handle(const Recorded& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr) return;
    Launch launch;
    launch.seq = e.seq;
    launch.slots = e.slots;
    launch.flags = e.flags;
    launch.gate = e.gate;
    launch.stream = e.stream;
    launch.overtaken = e.occupied;
    for (const ring::OpEntry& op : e.ops) {
        if (op.comm >= ring::kMaxComms || !rank->members[op.comm]) continue;
        if (std::find(launch.members.begin(), launch.members.end(), op.comm) == launch.members.end())
            launch.members.push_back(op.comm);
        const std::uint32_t family = rank->members[op.comm]->family;
        if (std::find(launch.families.begin(), launch.families.end(), family) == launch.families.end())
            launch.families.push_back(family);
        launch.bytes += op.bytes;
    }
    if ((e.flags & ring::kLaunchLasts) != 0) launch.families.clear();
    if (!e.ops.empty()) launch.op = static_cast<OpKind>(e.ops.front().kind);
    if (!e.keyless) launch.keys = keys_of(e.ops, e.flags, e.gate, rank->lookup());
    if (rank->recovered && (e.flags & ring::kLaunchReplayed) == 0) rank->imply_finished(launch);
    if ((e.flags & ring::kLaunchReplayed) != 0 && !is_replay(e.seq)) {
        if (rank->recovered) rank->imply_replayed(launch, e.replays);
        launch.phase = Phase::captured;  // it has no turn, and nobody asks for it
        launch.keys.clear();
        launch.families.clear();
        if (!rank->append(std::move(launch))) ++counters.rejected;
        return;
    }
    if (e.go) {
        launch.phase = Phase::started;
        launch.reached = launch.reported = true;
    }
    if (e.gate == ring::Gate::none && (e.flags & ring::kLaunchMarksReady) == 0) {
        // Nothing will ever say that it was reached. Not before the launches ahead of it in its stream are done,
        // at any rate: asked for earlier it would hold the ports that they need.
        launch.reached = true;
        if (!launch.ungated()) launch.families.push_back(stream_family(e.stream));
    }
    if (!rank->append(std::move(launch))) {
        ++counters.rejected;
        return;
    }
    ++counters.recorded;
    Launch& taken = *rank->find(e.seq);
    rank->early_release_due = true;
    consider(*rank, taken);
    if (rank->is_short()) retire(*rank);
}

void Core::Impl::handle(const Ready& e) {
    Rank* rank = nullptr;
    Launch* launch = launch_of({e.rank, e.seq}, &rank);
    if (launch == nullptr) {
        ++counters.rejected;
        return;
    }
    if (launch->ready_ns == 0) launch->ready_ns = realtime;
    if (launch->reached) return;
    launch->reached = true;
    consider(*rank, *launch);
}

void Core::Impl::handle(const DoneSeen& e) {
    Rank* rank = nullptr;
    Launch* launch = launch_of({e.rank, e.seq}, &rank);
    if (launch == nullptr || launch->phase == Phase::done) {
        ++counters.rejected;
        return;
    }
    if (launch->early != EarlyRelease::no) started_early(*rank, *launch);
    finish(*rank, *launch);
}

// The gates opened by themselves: the gang's network is decided, whoever decided it.
void Core::Impl::handle(const GaveUp& e) {
    Rank* rank = rank_of(e.rank);
    if (rank == nullptr) return;
    const auto waiting = rank->waiting;
    for (const std::uint64_t seq : waiting)
        if (Launch* launch = rank->find(seq); launch != nullptr && launch->phase == Phase::waiting)
            expire(*rank, *launch);
    log(LogLevel::warn, "rank " + std::to_string(e.rank) + ": gates opened because this manager stood still");
}

void Core::Impl::consider(Rank& rank, Launch& launch) {
    if (launch.phase != Phase::recorded || !launch.reached) return;
    if (launch.ungated()) {
        launch.phase = Phase::started;
        return;
    }
    if (!rank.has_turn(launch)) return;
    ++counters.ready;
    if (launch.ready_ns == 0) launch.ready_ns = realtime;
    launch.phase = Phase::waiting;
    launch.waiting_since = now;
    rank.waiting.push_back(launch.seq);
    decide(rank, launch);
}

void Core::Impl::decide(Rank& rank, Launch& launch) {
    // What was released early has gone.
    if (launch.firm || launch.early != EarlyRelease::no) return start(rank, launch, Phase::started);
    bool enforced = false;
    for (const LaunchKey& key : launch.keys) {
        const Member* member = rank.members[key.member].get();
        if (member == nullptr) continue;
        if (member->verdict == Verdict::unknown) return;  // whether it is held at all is not known yet
        enforced |= member->verdict == Verdict::enforced;
    }
    if (!enforced) return start(rank, launch, Phase::passed);
    if (const std::uint64_t grant = soft_cover(rank, launch, {}); grant != 0) {
        launch.grant = grant;
        return start(rank, launch, Phase::started);
    }
    if (!has_controller() || launch.asked) return;
    launch.asked = true;
    outbox.demand.push_back({rank.info.rank, launch.seq});
}

void Core::Impl::decide_all() {
    for (auto& entry : ranks) {
        const auto waiting = entry.second.waiting;
        for (const std::uint64_t seq : waiting)
            if (Launch* launch = entry.second.find(seq); launch != nullptr && launch->phase == Phase::waiting)
                decide(entry.second, *launch);
    }
}

// Every key of it, or none of it: a launch that is half lit would start in the dark (D1). Nor one of which it is not
// known whether it is held.
std::uint64_t Core::Impl::soft_cover(const Rank& rank, const Launch& launch, const std::vector<std::uint64_t>& without) const {
    return now < runs_end() ? cover(rank, launch, without) : 0;
}

std::uint64_t Core::Impl::cover(const Rank& rank, const Launch& launch, const std::vector<std::uint64_t>& without) const {
    if (soft.empty()) return 0;
    std::uint64_t grant = 0;
    for (const LaunchKey& key : launch.keys) {
        const Member* member = rank.members[key.member].get();
        if (member == nullptr) continue;
        if (member->verdict == Verdict::unknown) return 0;
        if (member->verdict != Verdict::enforced) continue;
        const std::uint64_t by = soft.covers(key.range, without);
        if (by == 0) return 0;
        if (grant == 0) grant = by;
    }
    return grant;
}

std::uint32_t Core::Impl::local_members(const Key& key) const {
    const auto it = groups.find(key.comm);
    if (it == groups.end()) return 0;
    if (!is_directed(key.kind)) return static_cast<std::uint32_t>(it->second.members.size());
    std::uint32_t count = 0;
    for (const auto& [id, index] : it->second.members) {
        const std::uint32_t r = must_find(ranks, id).members[index]->info.rank_in_comm;
        count += r == key.src || (r == key.dst && key.kind != KeyKind::put);
    }
    return count;
}

void Core::Impl::start(Rank& rank, Launch& launch, Phase phase, bool abort) {
    if (launch.phase == Phase::waiting) rank.stop_waiting(launch);
    launch.phase = phase;
    launch.early = EarlyRelease::no;
    launch.go_ns = realtime;
    emit(SetGo{rank.info.rank, launch.seq, abort});
    ++counters.gone;
    counters.passed += phase == Phase::passed;
    if (!soft.empty())
        for (const LaunchKey& key : launch.keys) soft.started(key.range);
    pass_turn(rank, launch.families, launch.seq);
}

// To those behind it: it has started, or is done.
void Core::Impl::pass_turn(Rank& rank, const std::vector<std::uint32_t>& families, std::uint64_t seq) {
    for (const std::uint32_t family : families)
        for (Launch* next = rank.find(rank.next_of(family, seq)); next != nullptr;
             next = rank.find(rank.next_of(family, next->seq))) {
            consider(rank, *next);
            if (!next->lets_pass()) break;
        }
}

bool Core::Impl::is_intra(const Rank& rank, const Launch& launch) const {
    return std::all_of(launch.members.begin(), launch.members.end(),
                       [&rank](std::uint16_t m) { return rank.members[m] && rank.members[m]->verdict == Verdict::intra; });
}

// While a run goes on, the ends of its launches wait for something else to be said (or for its own end): the
// circuits are held in any case.
void Core::Impl::tell_done(Rank& rank, Launch& launch, bool passed) {
    wire::LaunchDone done{{rank.info.rank, launch.seq}, launch.ready_ns, launch.go_ns, launch.done_ns, passed};
    const bool goes_on = launch.grant != 0 && !soft.empty() &&
                         std::all_of(launch.keys.begin(), launch.keys.end(),
                                     [&](const LaunchKey& key) { return soft.continues(launch.grant, key.range.first); });
    if (launch.grant != 0 && !launch.firm && !launch.reported) {
        // Heard of even if there is no controller now.
        wire::LaunchDemand what = demand_of(rank, launch);
        if (what.keys.empty())  // its communicators are no longer held
            for (const LaunchKey& key : launch.keys) what.keys.push_back(key.range);
        if (unreported.ran.size() < kMaxUnreported) unreported.ran.push_back({std::move(what), done});
        rank.set_unreported(launch);
        unreported_due |= !goes_on;
    } else if (has_controller() && launch.reported) {
        (goes_on ? unreported : outbox.done).launches.push_back(done);
    } else if (has_controller() && launch.ungated() && !launch.members.empty() && !is_intra(rank, launch)) {
        outbox.done.seen.push_back({done, rank.members[launch.members.front()]->info.comm, launch.op, launch.bytes});
    }
}

// The ring keeps what has not been reported: a manager that starts anew reads that it is done, and its peers do
// not wait for it.
void Core::Impl::retire(Rank& rank) {
    Retired retired = rank.retire(has_controller());
    unreported_due |= has_controller() && (rank.kept_slots() > rank.kept_most || rank.is_crowded());
    if (retired.upto == 0 && retired.freed.empty()) return;
    emit(std::move(retired));
    const auto free = std::partition(rank.freeing.begin(), rank.freeing.end(),
                                     [&rank](const Freeing& f) { return rank.is_named(f); });
    for (auto f = free; f != rank.freeing.end(); ++f) emit(FreeComm{rank.info.rank, f->index, f->generation});
    rank.freeing.erase(free, rank.freeing.end());
}

void Core::Impl::finish(Rank& rank, Launch& launch) {
    const bool passed = launch.phase == Phase::passed || !launch.running() || launch.ungated();
    if (launch.phase == Phase::waiting) rank.stop_waiting(launch);
    rank.set_done(launch);
    rank.early_release_due = true;
    launch.done_ns = realtime;
    ++counters.done;
    tell_done(rank, launch, passed);
    rank.note_finished(launch);
    if (!soft.empty())
        for (const LaunchKey& key : launch.keys)
            soft.finished(key.range, rank.info.rank, key.member, local_members(key.range.first));

    rank.leave(launch);
    const std::vector<std::uint16_t> touched = launch.members;
    const std::vector<std::uint32_t> families = launch.families;
    const std::uint64_t seq = launch.seq;
    retire(rank);
    for (const std::uint16_t m : touched)
        if (rank.members[m] && rank.members[m]->retired && rank.members[m]->outstanding == 0)
            release_member(rank, m, true);
    pass_turn(rank, families, seq);
}

}  // namespace opus::manager
