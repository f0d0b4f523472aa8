// What the controller says, once its session is checked.
#include <algorithm>

#include "manager/core/state.h"

namespace opus::manager {

void Core::Impl::welcome(const wire::Welcome& m) {
    if (m.session != session.id || m.epoch < known_epoch) {
        ++counters.rejected;
        if (m.epoch < known_epoch) {
            log(LogLevel::error, "the controller of epoch " + std::to_string(m.epoch) + " is older than epoch " +
                                     std::to_string(known_epoch) + ", already seen: not followed");
            session.retry_at = now + options.heartbeat_ns;
        }
        return;
    }
    known_epoch = m.epoch;
    session.state = SessionState::up;
    session.epoch = m.epoch;
    gpus.assign(m.gpus);
    for (auto& entry : ranks)
        for (std::uint32_t i = 0; i < entry.second.used; ++i)
            if (entry.second.members[i]) place(entry.second, i);
    session.retry_at = 0;
    session.last_frame = session.last_heartbeat = heard_ns = now;
    grace_ns = TimeNs(m.grace_ms) * 1'000'000;
    if (m.silence_ms != 0) {
        const TimeNs silence = TimeNs(m.silence_ms) * 1'000'000;
        session.silence_ns = std::max(silence, 2 * options.heartbeat_ns);  // its own heartbeats are no more frequent
        session.heartbeat_ns = std::clamp(silence / 3, options.heartbeat_ns / 10, options.heartbeat_ns);
    }
    alone_since.reset();
    waited_in_vain = false;
    outbox.clear();
    refusal.clear();
    refused_since.reset();
    log(LogLevel::info, "controller of epoch " + std::to_string(m.epoch) + ": this is node " + std::to_string(m.node) +
                            " with " + std::to_string(m.gpus.size()) + " GPUs");
    emit(SetNode{m.node});
    emit(Send{snapshot()});
    all_reported();  // by what it says is finished
    unreported.launches.clear();
    unreported.ended.clear();
    soft.take_ended();
    if (!expired.empty()) emit(Send{wire::Expired{std::move(expired)}});
    expired.clear();
    tell_degraded();
}

void Core::Impl::hear(const wire::Refused& m) {
    if (m.session != session.id) {
        ++counters.rejected;
        return;
    }
    if (m.reason != refusal) log(LogLevel::error, "refused by the controller: " + m.reason);
    refusal = m.reason;
    if (session.state == SessionState::up) lose_controller("refused");
    session.state = SessionState::refused;
    session.retry_at = now + 2 * options.heartbeat_ns;
    if (m.taken_ms == 0) return;
    if (!refused_since) refused_since = now;
    // Refused so much later, the other one was heard of meanwhile: it lives. One that has served goes on asking: its ranks
    // have none but it.
    if (known_epoch == 0 && now - *refused_since > TimeNs(m.taken_ms) * 1'000'000) emit(End{m.reason});
}

void Core::Impl::hear(const wire::Resync& m) {
    log(LogLevel::warn, "the controller asks to start over: " + m.reason);
    end_session("asked to start over");
}

void Core::Impl::hear(const wire::Heartbeat&) {
    if (now - session.last_heartbeat >= session.heartbeat_ns / 2) send_heartbeat();
}

void Core::Impl::hear(const wire::Verdicts& m) {
    for (const wire::CommVerdict& v : m.comms) {
        if (v.known_as != CommId{}) {
            join(v.comm, v.known_as);
            if (!has_controller()) return;  // what it takes back it says anew
            continue;
        }
        const auto it = groups.find(v.comm);
        if (it == groups.end() || it->second.verdict == Verdict::intra) continue;
        if (it->second.verdict != v.verdict && !v.why.empty() && v.reason != Reason::observe)
            log(LogLevel::warn, "a communicator is not held for circuits: " + v.why);
        set_verdict(v.comm, v.verdict, v.reason, v.reason_rank);
    }
    decide_all();
}

void Core::Impl::hear(const wire::Grant& m) {
    if (!m.steering.empty()) emit(Steer{m.steering});
    for (const wire::LocalLaunch& id : m.firm) {
        Rank* rank = nullptr;
        Launch* launch = launch_of(id, &rank);
        if (launch == nullptr || launch->phase == Phase::done || launch->running()) continue;
        launch->grant = m.id;
        launch->firm = true;
        if (launch->phase == Phase::waiting) start(*rank, *launch, Phase::started);
    }
    if (m.soft.empty()) return;
    soft.add(m.id, m.soft);
    for (auto& entry : ranks) entry.second.early_release_due = true;
    decide_all();
}

// The soft part of these grants goes back; the firm part stays. What has started under a run is reported with the
// answer, whichever run it was: so no launch is in flight unknown to the controller when circuits move. What has
// ended comes first. Not before it is known which of the launches that were released early have gone.
void Core::Impl::hear(const wire::Revoke& m) {
    m.grants.empty() ? retract_all() : retract(m.grants);
    if (retractions == 0) return return_run(m);
    revokes.push_back(m);
}

void Core::Impl::return_run(const wire::Revoke& m) {
    wire::Returned answer;
    answer.id = m.id;
    answer.started_upto = soft.revoke(m.grants);
    for (auto& entry : ranks) {
        const Rank& rank = entry.second;
        entry.second.each([&](Launch& launch) {
            if (!launch.running() || launch.phase == Phase::passed || launch.grant == 0 || launch.firm) return;
            answer.started.push_back({rank.info.rank, launch.seq});
            if (launch.known_running) return;
            launch.reported = launch.known_running = true;
            if (wire::LaunchDemand what = demand_of(rank, launch); !what.keys.empty())
                answer.running.push_back(std::move(what));
        });
    }
    auto ended = soft.take_ended();
    unreported.ended.insert(unreported.ended.end(), ended.begin(), ended.end());
    gather_done();
    auto& done = outbox.done;
    if (!done.launches.empty() || !done.ran.empty() || !done.ended.empty()) emit(Send{std::exchange(done, {})});
    emit(Send{std::move(answer)});
}

void Core::Impl::hear(const wire::Pass& m) {
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

void Core::Impl::hear(const wire::Suspended& m) {
    for (const wire::LocalLaunch& id : m.launches) {
        Launch* launch = launch_of(id);
        if (launch == nullptr) continue;
        if (!m.back && launch->phase == Phase::started) launch->phase = Phase::suspended;
        if (m.back && launch->phase == Phase::suspended) launch->phase = Phase::started;
        log(LogLevel::info, name_of(id) + (m.back ? ": circuits are back" : ": suspended, its circuits are moved"));
    }
}

void Core::Impl::hear(const wire::Waiting& m) {
    for (const wire::WaitingLaunch& w : m.launches) {
        Launch* launch = launch_of(w.launch);
        if (launch == nullptr || launch->phase == Phase::done || launch->running()) continue;
        // Once for people; what it waits for changes with every second.
        log(launch->misses.empty() ? LogLevel::info : LogLevel::debug, name_of(w.launch) + " is held: " + w.misses);
        launch->misses = w.misses.empty() ? "?" : w.misses;
    }
}

}  // namespace opus::manager
