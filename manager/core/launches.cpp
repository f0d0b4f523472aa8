// What a launch goes through on its node: recorded, ready, waiting, started, done.
#include <algorithm>
#include <utility>

#include "manager/core/rooms.h"

namespace opus::manager {
namespace {

// A family that no communicator has (their numbers are small, or have the top bit); if two streams share one,
// their launches only take turns.
std::uint32_t stream_family(std::uint64_t stream) {
    return 0x4000'0000u | static_cast<std::uint32_t>(hash_mix(0, stream) & 0x3fff'ffffu);
}

}  // namespace

Launches::Launches(World& world, Rooms& rooms)
    : Room(world),
      members_(rooms.members),
      runs_(rooms.runs),
      early_releases_(rooms.early_releases),
      reports_(rooms.reports),
      session_(rooms.session) {}

void Launches::handle(const Recorded& e) {
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
        if (!rank->append(std::move(launch))) ++counters_.rejected;
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
        ++counters_.rejected;
        return;
    }
    ++counters_.recorded;
    Launch& taken = *rank->find(e.seq);
    if (e.go && !is_replay(e.seq)) early_releases_.recovered(*rank, taken);
    rank->early_release_due = true;
    early_releases_.recorded(*rank, taken);
    consider(*rank, taken);
    if (rank->is_short()) retire(*rank);
}

void Launches::handle(const Ready& e) {
    Rank* rank = nullptr;
    Launch* launch = launch_of({e.rank, e.seq}, &rank);
    if (launch == nullptr) {
        ++counters_.rejected;
        return;
    }
    if (launch->ready_ns == 0) launch->ready_ns = realtime_;
    if (launch->reached) return;
    launch->reached = true;
    if (is_replay(e.seq)) rank->replay_has_come();
    consider(*rank, *launch);
}

void Launches::handle(const DoneSeen& e) {
    Rank* rank = nullptr;
    Launch* launch = launch_of({e.rank, e.seq}, &rank);
    if (launch == nullptr || launch->phase == Phase::done) {
        ++counters_.rejected;
        return;
    }
    if (launch->early != EarlyRelease::no) early_releases_.started(*rank, *launch);
    if (launch->phase == Phase::captured) rank->forget_replays(*launch);
    finish(*rank, *launch);
}

void Launches::consider(Rank& rank, Launch& launch) {
    if (launch.phase != Phase::recorded || !launch.reached) return;
    if (launch.ungated()) {
        launch.phase = Phase::started;
        return;
    }
    if (!rank.has_turn(launch)) return;
    ++counters_.ready;
    if (launch.ready_ns == 0) launch.ready_ns = realtime_;
    launch.phase = Phase::waiting;
    launch.waiting_since = now_;
    rank.waiting.push_back(launch.seq);
    decide(rank, launch);
}

void Launches::decide(Rank& rank, Launch& launch) {
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
    if (const std::uint64_t grant = runs_.cover(rank, launch, {}); grant != 0) {
        launch.grant = grant;
        return start(rank, launch, Phase::started);
    }
    if (!session_.is_up() || launch.asked) return;
    launch.asked = true;
    reports_.demand({rank.info.rank, launch.seq});
}

void Launches::decide_all() {
    for (auto& entry : ranks_) {
        const auto waiting = entry.second.waiting;
        for (const std::uint64_t seq : waiting)
            if (Launch* launch = entry.second.find(seq); launch != nullptr && launch->phase == Phase::waiting)
                decide(entry.second, *launch);
    }
}

void Launches::start(Rank& rank, Launch& launch, Phase phase, bool abort) {
    if (launch.phase == Phase::waiting) rank.stop_waiting(launch);
    launch.phase = phase;
    launch.early = EarlyRelease::no;
    launch.go_ns = realtime_;
    emit(SetGo{rank.info.rank, launch.seq, abort, launch.go_comm()});
    ++counters_.gone;
    counters_.passed += phase == Phase::passed;
    runs_.started(launch);
    rank.early_release_due = true;
    pass_turn(rank, launch.families, launch.seq);
}

// To those behind it: it has started, or is done.
void Launches::pass_turn(Rank& rank, const std::vector<std::uint32_t>& families, std::uint64_t seq) {
    for (const std::uint32_t family : families)
        for (Launch* next = rank.find(rank.next_of(family, seq)); next != nullptr;
             next = rank.find(rank.next_of(family, next->seq))) {
            consider(rank, *next);
            if (!next->lets_pass()) break;
        }
}

// Not where its run has no end (a plan is made of when launches end), and what comes after it on its communicators has been let go, or is not there yet.
bool Launches::awaits_end(const wire::LocalLaunch& id) const {
    const auto rank = ranks_.find(id.rank);
    const Launch* launch = rank != ranks_.end() ? rank->second.find(id.seq) : nullptr;
    if (launch == nullptr || !runs_.is_endless(*launch, launch->grant)) return true;
    return std::any_of(launch->families.begin(), launch->families.end(), [&](std::uint32_t family) {
        const Launch* next = rank->second.find(rank->second.next_of(family, id.seq));
        return next != nullptr && !next->running() && next->early != EarlyRelease::released;
    });
}

bool Launches::is_intra(const Rank& rank, const Launch& launch) {
    return std::all_of(launch.members.begin(), launch.members.end(),
                       [&rank](std::uint16_t m) { return rank.members[m] && rank.members[m]->verdict == Verdict::intra; });
}

// The ring keeps what has not been reported: a manager that starts anew reads that it is done, and its peers do
// not wait for it.
void Launches::retire(Rank& rank) {
    Retired retired = rank.retire(session_.is_up());
    if (session_.is_up() && (rank.kept_slots() > rank.kept_most || rank.is_crowded())) reports_.report_soon();
    if (retired.upto == 0 && retired.freed.empty()) return;
    emit(std::move(retired));
    const auto free =
        std::partition(rank.freeing.begin(), rank.freeing.end(), [&rank](const Freeing& f) { return rank.is_named(f); });
    for (auto f = free; f != rank.freeing.end(); ++f) emit(FreeComm{rank.info.rank, f->index, f->generation});
    rank.freeing.erase(free, rank.freeing.end());
}

void Launches::finish(Rank& rank, Launch& launch) {
    const bool passed = launch.phase == Phase::passed || !launch.running() || launch.ungated();
    if (launch.phase == Phase::waiting) rank.stop_waiting(launch);
    if (launch.go_ns != 0) {  // it may have been let go before it came to its gate, and no look may have found it there
        if (launch.ready_ns == 0) launch.ready_ns = realtime_;
        launch.go_ns = std::max(launch.go_ns, launch.ready_ns);
    }
    rank.set_done(launch);
    rank.early_release_due = true;
    launch.done_ns = realtime_;
    ++counters_.done;
    reports_.tell_done(rank, launch, passed);
    rank.note_finished(launch);
    runs_.finished(rank, launch);

    rank.leave(launch);
    const std::vector<std::uint16_t> touched = launch.members;
    const std::vector<std::uint32_t> families = launch.families;
    const std::uint64_t seq = launch.seq;
    retire(rank);
    for (const std::uint16_t m : touched)
        if (rank.members[m] && rank.members[m]->retired && rank.members[m]->outstanding == 0)
            members_.release(rank, m, true);
    pass_turn(rank, families, seq);
}

void Launches::hear(const wire::Pass& m) {
    const bool abort = m.how == Policy::abort;
    for (const wire::LocalLaunch& id : m.launches) {
        Rank* rank = nullptr;
        Launch* launch = launch_of(id, &rank);
        if (launch == nullptr || launch->phase == Phase::done || launch->running()) continue;
        launch->reported = true;
        start(*rank, *launch, Phase::passed, abort);
        log(LogLevel::warn, name_of(id) + (abort ? " aborted: " : " passes without circuits: ") + m.why);
    }
}

void Launches::hear(const wire::Suspended& m) {
    for (const wire::LocalLaunch& id : m.launches) {
        Launch* launch = launch_of(id);
        if (launch == nullptr) continue;
        if (!m.back && launch->phase == Phase::started) launch->phase = Phase::suspended;
        if (m.back && launch->phase == Phase::suspended) launch->phase = Phase::started;
        log(LogLevel::info, name_of(id) + (m.back ? ": circuits are back" : ": suspended, its circuits are moved"));
    }
}

void Launches::hear(const wire::Waiting& m) {
    for (const wire::WaitingLaunch& w : m.launches) {
        Launch* launch = launch_of(w.launch);
        if (launch == nullptr || launch->phase == Phase::done || launch->running()) continue;
        // Once for people; what it waits for changes with every second.
        log(launch->misses.empty() ? LogLevel::info : LogLevel::debug, name_of(w.launch) + " is held: " + w.misses);
        launch->misses = w.misses.empty() ? "?" : w.misses;
    }
}

void Launches::hear(const wire::Grant& m) {
    if (!m.steering.empty()) emit(Steer{m.steering});
    runs_.note_light();
    for (const wire::LocalLaunch& id : m.firm) {
        Rank* rank = nullptr;
        Launch* launch = launch_of(id, &rank);
        if (launch == nullptr || launch->phase == Phase::done || launch->running()) continue;
        launch->grant = m.id;
        launch->firm = true;
        if (launch->phase == Phase::waiting) start(*rank, *launch, Phase::started);
    }
    if (m.soft.empty()) return;
    runs_.granted(m.id, m.soft);
    for (auto& entry : ranks_) entry.second.set_all_due();
    decide_all();
}

}  // namespace opus::manager
