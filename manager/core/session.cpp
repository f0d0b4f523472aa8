// Sessions with the controller, and what time does: heartbeats, silence, the hold.
#include <algorithm>
#include <limits>

#include "manager/core/state.h"
#include "opus/opus.h"

namespace opus::manager {
namespace {

constexpr std::size_t kMaxExpired = 65536;

std::string program_version() {
    return std::to_string(OPUS_VERSION_MAJOR) + "." + std::to_string(OPUS_VERSION_MINOR) + "." +
           std::to_string(OPUS_VERSION_PATCH);
}

}  // namespace

void Core::Impl::handle(const ControllerUp& e) {
    if (session.state != SessionState::down) lose_controller("another connection");
    session = {};
    session.state = SessionState::greeting;
    session.id = e.session;
    session.silence_ns = options.controller_silence_ns;
    session.heartbeat_ns = options.heartbeat_ns;
    session.last_frame = now;
    emit(Send{wire::Hello{node, e.session, known_epoch, program_version(), options.where, options.seat}});
}

void Core::Impl::handle(const ControllerDown&) { lose_controller("connection lost"); }

// Nothing is forgotten: launches go on within their tokens, and the next snapshot tells all.
void Core::Impl::lose_controller(const std::string& why) {
    if (session.state == SessionState::up) log(LogLevel::warn, "controller lost: " + why);
    session.state = SessionState::down;
    if (!alone_since) alone_since = now;
    // The next snapshot reports what was to be reported of launches that the controller knew, and of tokens.
    unreported.ran.insert(unreported.ran.end(), outbox.done.ran.begin(), outbox.done.ran.end());
    unreported.launches.clear();
    unreported.ended.clear();
    soft.take_ended();
    revokes.clear();
    outbox.clear();
    for (auto& entry : ranks) entry.second.each([](Launch& launch) { launch.asked = false; });
}

void Core::Impl::end_session(const std::string& reason) {
    lose_controller(reason);
    emit(EndSession{reason});
}

void Core::Impl::handle(const FromController& e) {
    if (session.state == SessionState::down || e.session != session.id) {
        ++counters.rejected;
        return;
    }
    if (session.state != SessionState::up) {
        if (const auto* m = std::get_if<wire::Welcome>(&e.message)) return welcome(*m);
        if (const auto* m = std::get_if<wire::Refused>(&e.message)) return hear(*m);
        ++counters.rejected;
        return;
    }
    if (e.epoch != session.epoch) {
        ++counters.rejected;
        return;
    }
    session.last_frame = heard_ns = now;
    std::visit([this](const auto& m) { hear(m); }, e.message);
}

// The controller gives up a node of which it has not heard for the grace time, and moves the circuits of its runs.
// Somewhat earlier nothing starts under them any more: its last frame has taken some time to get here.
TimeNs Core::Impl::runs_end() const {
    return soft.empty() || grace_ns == 0 ? std::numeric_limits<TimeNs>::max() : heard_ns + grace_ns / 4 * 3;
}

void Core::Impl::let_go_of_runs() {
    if (now < runs_end() || letting_go) return;
    retract_all();
    letting_go = retractions != 0;
    if (!letting_go) end_runs();
}

void Core::Impl::end_runs() {
    log(LogLevel::warn, "nothing was heard of the controller for " + std::to_string((now - heard_ns) / 1'000'000) +
                            " ms: what was granted ahead is asked for again");
    if (has_controller()) end_session("silent");  // the next snapshot tells it
    soft.revoke({});
}

void Core::Impl::send_heartbeat() {
    session.last_heartbeat = now;
    unreported_due |= !unreported.launches.empty() || !unreported.ran.empty();
    emit(Send{wire::Heartbeat{realtime, {}, {}}});
}

void Core::Impl::handle(const Tick&) {
    if (session.retry_at != 0 && now >= session.retry_at && session.state != SessionState::down) {
        end_session("trying again");
    } else if (session.state == SessionState::greeting && now - session.last_frame >= session.silence_ns) {
        end_session("no answer to hello");
    } else if (session.state == SessionState::up) {
        if (now - session.last_frame >= session.silence_ns) {
            end_session("silent");
        } else if (now - session.last_heartbeat >= session.heartbeat_ns) {
            send_heartbeat();
        }
    }
    let_go_of_runs();
    expire_overdue();
}

// --- the hold -------------------------------------------------------------------------------------
// It runs here only while there is no controller; a late peer never ends it (docs/protocol.md, "Hold").

TimeNs Core::Impl::hold_deadline(const Rank& rank, TimeNs since) const {
    const std::uint32_t hold_ms = rank.info.hold_ms != 0 ? rank.info.hold_ms : options.default_hold_ms;
    return std::max(since, *alone_since) + TimeNs(hold_ms) * 1'000'000;
}

TimeNs Core::Impl::verdict_deadline(const Rank& rank, const Member& member) const {
    return waited_in_vain ? member.since : hold_deadline(rank, member.since);
}

void Core::Impl::expire(Rank& rank, Launch& launch) {
    const bool abort = rank.info.policy == Policy::abort;
    const wire::LocalLaunch id{rank.info.rank, launch.seq};
    launch.reported = true;
    start(rank, launch, Phase::passed, abort);
    ++counters.expired;
    if (has_controller()) {
        outbox.expired.launches.push_back(id);
    } else if (expired.size() < kMaxExpired) {
        expired.push_back(id);
    }
    const std::uint32_t hold_ms = rank.info.hold_ms != 0 ? rank.info.hold_ms : options.default_hold_ms;
    log(LogLevel::error, name_of(id) + ": held for " + std::to_string(hold_ms) +
                             " ms without a controller; " + (abort ? "aborted" : "passed without circuits"));
    if (abort) return;
    std::vector<CommId> comms;
    for (const LaunchKey& key : launch.keys)
        if (rank.members[key.member]) comms.push_back(rank.members[key.member]->info.comm);
    for (const CommId& comm : comms) degrade_here(comm);
}

void Core::Impl::expire_overdue() {
    if (has_controller() || !alone_since) return;
    for (auto& entry : ranks) {
        Rank& rank = entry.second;
        const auto waiting = rank.waiting;
        for (const std::uint64_t seq : waiting) {
            Launch* launch = rank.find(seq);
            if (launch == nullptr || launch->phase != Phase::waiting) continue;
            if (now >= hold_deadline(rank, launch->waiting_since)) expire(rank, *launch);
        }
        if (rank.info.policy == Policy::abort) continue;
        for (const auto& member : rank.members)
            if (member && member->awaits_verdict() && now >= verdict_deadline(rank, *member)) {
                waited_in_vain = true;
                degrade_here(CommId(member->info.comm));
            }
    }
    decide_all();
}

TimeNs Core::Impl::next_deadline() const {
    TimeNs at = std::numeric_limits<TimeNs>::max();
    if (session.state != SessionState::down && session.retry_at != 0) at = session.retry_at;
    if (session.state == SessionState::greeting) at = std::min(at, session.last_frame + session.silence_ns);
    if (session.state == SessionState::up) {
        at = std::min(at, session.last_frame + session.silence_ns);
        // A little late: the controller's own heartbeat, which ours answers, usually comes first, so that
        // an idle manager wakes once for both.
        at = std::min(at, session.last_heartbeat + session.heartbeat_ns + session.heartbeat_ns / 8);
    } else if (alone_since) {
        for (const auto& [id, rank] : ranks) {
            for (const std::uint64_t seq : rank.waiting)
                if (const Launch* launch = rank.find(seq))
                    at = std::min(at, hold_deadline(rank, launch->waiting_since));
            if (rank.info.policy == Policy::abort) continue;
            for (const auto& member : rank.members)
                if (member && member->awaits_verdict())
                    at = std::min(at, verdict_deadline(rank, *member));
        }
    }
    return letting_go ? at : std::min(at, runs_end());
}

// --- one look -------------------------------------------------------------------------------------

void Core::Impl::gather_done() {
    const auto append = [](auto& to, auto& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
        from.clear();
    };
    append(outbox.done.launches, unreported.launches);
    append(outbox.done.ran, unreported.ran);
    append(outbox.done.ended, unreported.ended);
    unreported_due = false;
    all_reported();
}

void Core::Impl::all_reported() {
    for (auto& entry : ranks) {
        entry.second.forget_unreported();
        retire(entry.second);
    }
}

bool Core::Impl::flush() {
    bool later = false;
    const bool asks = !outbox.demand.empty();
    if (has_controller()) {
        wire::Demand demand;
        for (const wire::LocalLaunch& id : outbox.demand) {
            Rank* rank = nullptr;
            Launch* launch = launch_of(id, &rank);
            if (launch == nullptr || launch->phase != Phase::waiting) continue;
            launch->reported = true;
            demand.launches.push_back(demand_of(*rank, *launch));
        }
        counters.demand_launches += demand.launches.size();
        counters.demand_messages += !demand.launches.empty();
        // What may wait goes along with what does not.
        if (const auto& o = outbox; unreported_due || !o.done.launches.empty() || !demand.launches.empty() ||
                                    !o.registered.comms.empty() || !o.registered.entering.empty() ||
                                    !o.retire.comms.empty() || !o.retire.ranks.empty() || !o.retire.degraded.empty() ||
                                    !o.retire.failed.empty() ||
                                    unreported.ran.size() + unreported.launches.size() >= kMaxUnreported / 2)
            unreported_due = true;
        if (auto ended = soft.take_ended(); !ended.empty()) {
            unreported_due = true;
            unreported.ended.insert(unreported.ended.end(), ended.begin(), ended.end());
        }
        if (unreported_due) gather_done();
        const bool any_done = !outbox.done.launches.empty() || !outbox.done.ran.empty() || !outbox.done.ended.empty() ||
                              !outbox.done.seen.empty();
        counters.done_messages += any_done;
        const auto send_if = [this](bool any, auto& message) {
            if (any) emit(Send{std::move(message)});
        };
        auto& [registered, done, retire, passed, asked] = outbox;
        send_if(!registered.ranks.empty() || !registered.comms.empty() || !registered.entering.empty(), registered);
        send_if(any_done, done);
        send_if(!passed.launches.empty(), passed);
        send_if(!demand.launches.empty(), demand);
        send_if(!retire.ranks.empty() || !retire.comms.empty() || !retire.degraded.empty() || !retire.failed.empty(),
                retire);
    }
    outbox.clear();
    if (asks && any_early_release_due())
        later = true;
    else
        release_early_all();
    if (const TimeNs at = next_deadline(); at != wake_at) {
        wake_at = at;
        emit(WakeAt{at});
    }
    return later;
}

}  // namespace opus::manager
