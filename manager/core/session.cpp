// Sessions with the controller, and what time does to them: heartbeats, silence.
#include <algorithm>
#include <limits>
#include <variant>

#include "manager/core/rooms.h"
#include "opus/opus.h"

namespace opus::manager {
namespace {

std::string program_version() {
    return std::to_string(OPUS_VERSION_MAJOR) + "." + std::to_string(OPUS_VERSION_MINOR) + "." +
           std::to_string(OPUS_VERSION_PATCH);
}

}  // namespace

Session::Session(World& world, Rooms& rooms)
    : Room(world),
      members_(rooms.members),
      launches_(rooms.launches),
      runs_(rooms.runs),
      reports_(rooms.reports),
      holds_(rooms.holds) {}

void Session::handle(const ControllerUp& e) {
    if (current_.state != State::down) lose_controller("another connection");
    current_ = {};
    current_.state = State::greeting;
    current_.id = e.session;
    current_.silence_ns = options_.controller_silence_ns;
    current_.heartbeat_ns = options_.heartbeat_ns;
    current_.last_frame = now_;
    emit(Send{wire::Hello{world_.node, e.session, known_epoch_, program_version(), options_.where, options_.seat}});
}

void Session::handle(const ControllerDown&) { lose_controller("connection lost"); }

// Nothing is forgotten: launches go on within their tokens, and the next snapshot tells all.
void Session::lose_controller(const std::string& why) {
    if (current_.state == State::up) log(LogLevel::warn, "controller lost: " + why);
    current_.state = State::down;
    holds_.note_alone();
    runs_.controller_lost();
    reports_.controller_lost();
}

void Session::end(const std::string& reason) {
    lose_controller(reason);
    emit(EndSession{reason});
}

void Session::handle(const FromController& e) {
    if (current_.state == State::down || e.session != current_.id) {
        ++counters_.rejected;
        return;
    }
    if (current_.state != State::up) {
        if (const auto* m = std::get_if<wire::Welcome>(&e.message)) return welcome(*m);
        if (const auto* m = std::get_if<wire::Refused>(&e.message)) return hear(*m);
        ++counters_.rejected;
        return;
    }
    if (e.epoch != current_.epoch) {
        ++counters_.rejected;
        return;
    }
    current_.last_frame = heard_ns_ = now_;
    std::visit([this](const auto& m) { hear(m); }, e.message);
}

void Session::send_heartbeat() {
    current_.last_heartbeat = now_;
    reports_.report_unreported();
    emit(Send{wire::Heartbeat{realtime_, {}, {}}});
}

void Session::handle(const Tick&) {
    if (current_.retry_at != 0 && now_ >= current_.retry_at && current_.state != State::down) {
        end("trying again");
    } else if (current_.state == State::greeting && now_ - current_.last_frame >= current_.silence_ns) {
        end("no answer to hello");
    } else if (current_.state == State::up) {
        if (now_ - current_.last_frame >= current_.silence_ns) {
            end("silent");
        } else if (now_ - current_.last_heartbeat >= current_.heartbeat_ns) {
            send_heartbeat();
        }
    }
    runs_.let_go();
    holds_.expire_overdue();
}

TimeNs Session::next_deadline() const {
    TimeNs at = std::numeric_limits<TimeNs>::max();
    if (current_.state != State::down && current_.retry_at != 0) at = current_.retry_at;
    if (current_.state == State::greeting) at = std::min(at, current_.last_frame + current_.silence_ns);
    if (current_.state == State::up) {
        at = std::min(at, current_.last_frame + current_.silence_ns);
        // A little late: the controller's own heartbeat, which ours answers, usually comes first, so that
        // an idle manager wakes once for both.
        at = std::min(at, current_.last_heartbeat + current_.heartbeat_ns + current_.heartbeat_ns / 8);
    }
    return at;
}

void Session::welcome(const wire::Welcome& m) {
    if (m.session != current_.id || m.epoch < known_epoch_) {
        ++counters_.rejected;
        if (m.epoch < known_epoch_) {
            log(LogLevel::error, "the controller of epoch " + std::to_string(m.epoch) + " is older than epoch " +
                                     std::to_string(known_epoch_) + ", already seen: not followed");
            current_.retry_at = now_ + options_.heartbeat_ns;
        }
        return;
    }
    known_epoch_ = m.epoch;
    current_.state = State::up;
    current_.epoch = m.epoch;
    members_.place_all(m.gpus);
    current_.retry_at = 0;
    current_.last_frame = current_.last_heartbeat = heard_ns_ = now_;
    grace_ns_ = TimeNs(m.grace_ms) * 1'000'000;
    if (m.silence_ms != 0) {
        const TimeNs silence = TimeNs(m.silence_ms) * 1'000'000;
        current_.silence_ns = std::max(silence, 2 * options_.heartbeat_ns);  // its own heartbeats are no more frequent
        current_.heartbeat_ns = std::clamp(silence / 3, options_.heartbeat_ns / 10, options_.heartbeat_ns);
    }
    holds_.controller_back();
    refusal_.clear();
    refused_since_.reset();
    log(LogLevel::info, "controller of epoch " + std::to_string(m.epoch) + ": this is node " + std::to_string(m.node) +
                            " with " + std::to_string(m.gpus.size()) + " GPUs");
    emit(SetNode{m.node});
    reports_.controller_back();
}

void Session::hear(const wire::Refused& m) {
    if (m.session != current_.id) {
        ++counters_.rejected;
        return;
    }
    if (m.reason != refusal_) log(LogLevel::error, "refused by the controller: " + m.reason);
    refusal_ = m.reason;
    if (current_.state == State::up) lose_controller("refused");
    current_.state = State::refused;
    current_.retry_at = now_ + 2 * options_.heartbeat_ns;
    if (m.taken_ms == 0) return;
    if (!refused_since_) refused_since_ = now_;
    // Refused so much later, the other one was heard of meanwhile: it lives. One that has served goes on asking: its
    // ranks have none but it.
    if (known_epoch_ == 0 && now_ - *refused_since_ > TimeNs(m.taken_ms) * 1'000'000) emit(End{m.reason});
}

void Session::hear(const wire::Resync& m) {
    log(LogLevel::warn, "the controller asks to start over: " + m.reason);
    end("asked to start over");
}

void Session::hear(const wire::Heartbeat&) {
    if (now_ - current_.last_heartbeat >= current_.heartbeat_ns / 2) send_heartbeat();
}

void Session::hear(const wire::Verdicts& m) { members_.hear(m); }
void Session::hear(const wire::Grant& m) { launches_.hear(m); }
void Session::hear(const wire::Revoke& m) { runs_.hear(m); }
void Session::hear(const wire::Pass& m) { launches_.hear(m); }
void Session::hear(const wire::Suspended& m) { launches_.hear(m); }
void Session::hear(const wire::Waiting& m) { launches_.hear(m); }

}  // namespace opus::manager
