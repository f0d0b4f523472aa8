#include "drivers/polatis_session.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "drivers/polatis_changes.h"

namespace opus::drivers {

namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
constexpr TimeNs kMinSilenceNs = 2'000 * kMs;
constexpr std::uint32_t kMaxDrained = 64;  // errors of others that a new session finds in the queue

// A line of unknown bytes as text for people: printable, short.
std::string shown(std::string_view line) {
    std::string out = "'";
    for (unsigned char c : line.substr(0, 80)) out += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
    return out + (line.size() > 80 ? "...'" : "'");
}

std::string size_text(std::uint32_t ingress, std::uint32_t egress) {
    return egress ? std::to_string(ingress) + "x" + std::to_string(egress) : std::to_string(ingress);
}

}  // namespace

PolatisSession::PolatisSession(const Switch& description, SwitchDriver::Sink sink)
    : description_(description), sink_(std::move(sink)), lines_(scpi::kMaxLine) {}

// --- the connection ---------------------------------------------------------------------------------

void PolatisSession::open(TimeNs now) {
    state_ = State::greeting;
    fault_.clear();
    output_.clear();
    lines_.clear();
    expected_.clear();
    identity_ = {};
    monitor_ = true;
    drained_ = 0;
    ask(Question::identity, 0, "*idn?", now);
    ask(Question::size, 0, ":oxc:swit:size?", now);
    if (description_.settle == Settle::power) ask(Question::power_probe, 0, ":pmon:pow? (@1)", now);
    ask(Question::probe_error, 0, ":system:error?", now);
}

void PolatisSession::receive(std::string_view bytes, TimeNs now) {
    lines_.append(bytes);
    while (fault_.empty()) {
        const auto line = lines_.next();
        if (!line) break;
        reply(*line, now);
    }
    if (lines_.overlong()) fail("garbage from the switch: a line without an end");
    if (fault_.empty()) send_queued(now);  // what waited for a port that is free now
}

void PolatisSession::close(const std::string& reason) {
    state_ = State::closed;
    output_.clear();
    expected_.clear();
    queue_.clear();
    while (!ops_.empty()) answer(ops_.begin()->first, DriverError::unreachable, reason, 0);
}

// --- questions and replies --------------------------------------------------------------------------

void PolatisSession::say(const std::string& line) { output_ += line + '\n'; }

void PolatisSession::ask(Question question, OpId op, const std::string& line, TimeNs now, std::vector<SwitchPort> ports) {
    say(line);
    expected_.push_back({question, op, now, std::move(ports)});
}

void PolatisSession::reply(std::string_view line, TimeNs now) {
    while (!expected_.empty()) {
        const Expected expected = std::move(expected_.front());
        expected_.pop_front();
        if (take(expected, line, now)) return;
        // A power question that the switch refuses is not answered; the error query behind it is.
        const bool silent = expected.question == Question::power_probe || expected.question == Question::power;
        if (silent && scpi::parse_error(line)) {
            if (expected.question == Question::power_probe) monitor_ = false;
            continue;
        }
        fail("garbage from the switch: " + shown(line));
        if (expected.op) answer(expected.op, DriverError::garbage, "unexpected reply " + shown(line), now);
        return;
    }
    fail("garbage from the switch, nothing was asked: " + shown(line));
}

bool PolatisSession::take(const Expected& expected, std::string_view line, TimeNs now) {
    switch (expected.question) {
        case Question::identity:
            if (auto identity = scpi::parse_identity(line)) return identity_ = *identity, true;
            return false;
        case Question::size:
            if (auto size = scpi::parse_size(line)) return take_size(*size), true;
            return false;
        case Question::map:
            if (auto circuits = scpi::parse_map(line)) return take_map(expected.op, std::move(*circuits), now), true;
            return false;
        case Question::power_probe: return scpi::parse_powers(line).has_value();
        case Question::power:
            if (auto dbm = scpi::parse_powers(line); dbm && dbm->size() == expected.ports.size())
                return take_power(expected, *dbm, now), true;
            return false;
        case Question::error:
        case Question::power_error:
        case Question::probe_error:
        case Question::drain:
            if (auto error = scpi::parse_error(line)) return take_error(expected, *error, now), true;
            return false;
    }
    return false;
}

void PolatisSession::take_size(const scpi::Size& size) {
    identity_.ingress = size.ingress;
    identity_.egress = size.egress;
    if (size.ingress == description_.ingress && size.egress == description_.egress) return;
    fail("the switch at " + description_.address + " says its size is " + size_text(size.ingress, size.egress) +
         ", the fabric file says " + size_text(description_.ingress, description_.egress) + " for " +
         description_.name + ": correct its size or address");
}

void PolatisSession::take_error(const Expected& expected, const scpi::Error& error, TimeNs now) {
    const bool some = error.code != 0;
    switch (expected.question) {
        case Question::probe_error:
            if (!monitor_)
                return fail("the switch at " + description_.address + " has no power monitor: give " +
                            description_.name + " settle = \"time\"");
            if (!some) return come_up(now);
            break;
        case Question::drain:
            if (!some) return state_ == State::greeting ? come_up(now) : void();
            if (++drained_ > kMaxDrained) return fail("the error queue of the switch has no end");
            break;
        case Question::error: {
            const auto it = ops_.find(expected.op);
            if (it == ops_.end()) break;
            it->second.acked_ns = now;
            if (some) answer(expected.op, DriverError::refused, scpi::format_error(error), now);
            break;
        }
        case Question::power_error: {
            const auto it = ops_.find(expected.op);
            if (it == ops_.end()) break;
            if (some)
                answer(expected.op, DriverError::refused, scpi::format_error(error), now);
            else if (it->second.kind == Kind::power)
                answer(expected.op, DriverError::none, {}, now);
            break;
        }
        default: break;
    }
    // One command may leave several errors; what stays behind would be blamed on the next.
    if (some)
        ask(Question::drain, 0, ":system:error?", now);
    else
        drained_ = 0;
}

void PolatisSession::take_map(OpId id, std::vector<CrossConnect> circuits, TimeNs now) {
    const auto it = ops_.find(id);
    if (it == ops_.end()) return;
    if (it->second.kind == Kind::map) {
        ops_.erase(it);
        sink_(MapRead{id, DriverError::none, {}, std::move(circuits)});
        return;
    }
    if (auto text = difference(it->second.changes, circuits); !text.empty())
        return answer(id, DriverError::garbage, std::move(text), now);
    settle(id, it->second, now);
}

void PolatisSession::take_power(const Expected& expected, const std::vector<double>& dbm, TimeNs now) {
    const auto it = ops_.find(expected.op);
    if (it == ops_.end()) return;
    Op& op = it->second;
    op.dbm = dbm;
    if (op.kind == Kind::power) return;  // answered when the error query behind it is
    op.looking = false;
    std::vector<SwitchPort> dark;
    double least = 0;
    for (std::size_t i = 0; i < dbm.size(); ++i)
        if (dbm[i] < kLightDbm) {
            if (dark.empty()) least = dbm[i];
            dark.push_back(expected.ports[i]);
        }
    op.dark = std::move(dark);
    if (op.dark.empty()) return answer(expected.op, DriverError::none, {}, now);
    // Asked after the deadline and still dark; a late reply to an early question proves nothing. Counted from the
    // answer: a busy switch may take a command long after it was sent.
    if (expected.asked_ns >= op.acked_ns + 4 * description_.dark_ns + description_.guard_ns + kMs) {
        char text[128];
        std::snprintf(text, sizeof text, "no light at port %u (%.1f dBm) %.1f ms after the command", op.dark.front(),
                      least, double(now - op.sent_ns) / kMs);
        return answer(expected.op, DriverError::no_light, text, now);
    }
    // Ever more rarely: a port that stays dark is not asked hundreds of times.
    op.next_look_ns = now + std::max(look_interval_ns(), (now - op.sent_ns - description_.dark_ns) / 8);
}

void PolatisSession::come_up(TimeNs now) {
    state_ = State::up;
    drained_ = 0;
    sink_(SessionUp{identity_});
    send_queued(now);
}

// --- requests ---------------------------------------------------------------------------------------

bool PolatisSession::admit(OpId id, Kind kind, TimeNs deadline, TimeNs now) {
    Op& op = ops_[id];
    op = {};
    op.kind = kind;
    op.deadline = deadline;
    if (state_ == State::up) return true;
    answer(id, DriverError::unreachable, "no session with the switch at " + description_.address, now);
    return false;
}

void PolatisSession::read_map(OpId id, TimeNs deadline, TimeNs now) {
    if (!admit(id, Kind::map, deadline, now)) return;
    send(id, ops_[id], now);
}

void PolatisSession::read_power(OpId id, std::vector<SwitchPort> ports, TimeNs deadline, TimeNs now) {
    if (!admit(id, Kind::power, deadline, now)) return;
    Op& op = ops_[id];
    op.ports = std::move(ports);
    if (op.ports.empty()) return answer(id, DriverError::none, {}, now);
    send(id, op, now);
}

void PolatisSession::apply(OpId id, ChangeSet changes, TimeNs deadline, TimeNs now) {
    if (!admit(id, Kind::apply, deadline, now)) return;
    Op& op = ops_[id];
    order_ends(changes, description_);
    op.ports = changes.disconnect;
    for (const auto& [a, b] : changes.connect) {
        op.ports.push_back(a);
        op.ports.push_back(b);
    }
    op.changes = std::move(changes);
    queue_.push_back(id);
    send_queued(now);
}

void PolatisSession::cancel(OpId id, TimeNs now) {
    if (!ops_.contains(id)) return;
    answer(id, DriverError::cancelled, "cancelled", now);
    send_queued(now);
}

// A change set waits for earlier ones that name a port of it; others overtake it.
bool PolatisSession::blocked(const Op& op, OpId id) const {
    const auto meets = [&](OpId other) {
        const auto it = ops_.find(other);
        return it != ops_.end() && std::ranges::find_first_of(it->second.ports, op.ports) != it->second.ports.end();
    };
    for (const auto& [other, o] : ops_)
        if (o.kind == Kind::apply && o.phase != Phase::queued && meets(other)) return true;
    for (OpId earlier : queue_) {
        if (earlier == id) return false;
        if (meets(earlier)) return true;
    }
    return false;
}

void PolatisSession::send_queued(TimeNs now) {
    if (state_ != State::up) return;
    for (std::size_t i = 0; i < queue_.size();) {
        const OpId id = queue_[i];
        const auto it = ops_.find(id);
        if (it != ops_.end() && blocked(it->second, id)) {
            ++i;
            continue;
        }
        queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
        if (it != ops_.end()) send(id, it->second, now);
    }
}

void PolatisSession::send(OpId id, Op& op, TimeNs now) {
    op.phase = Phase::asked;
    op.sent_ns = now;
    switch (op.kind) {
        case Kind::map: return ask(Question::map, id, ":oxc:swit:conn:stat?", now);
        case Kind::power:
            ask(Question::power, id, ":pmon:pow? " + scpi::format_list(op.ports), now, op.ports);
            return ask(Question::power_error, id, ":system:error?", now);
        case Kind::apply:
            ask(Question::error, id, change_line(op.changes, description_), now);
            return ask(Question::map, id, ":oxc:swit:conn:stat?", now);
    }
}

// --- light ------------------------------------------------------------------------------------------

TimeNs PolatisSession::look_interval_ns() const {
    return std::clamp<TimeNs>(description_.dark_ns / 100, 50'000, 20 * kMs);
}

void PolatisSession::settle(OpId id, Op& op, TimeNs now) {
    if (op.changes.connect.empty()) return answer(id, DriverError::none, {}, now);
    op.phase = Phase::settling;
    if (description_.settle == Settle::time) {
        op.next_look_ns = op.acked_ns + description_.dark_ns + description_.guard_ns;
        return;
    }
    for (const auto& [a, b] : op.changes.connect) {
        op.dark.push_back(a);
        op.dark.push_back(b);
    }
    // Not before the dark time is nearly over: few questions, and none that could still see the light of
    // the old circuit.
    op.next_look_ns = op.sent_ns + description_.dark_ns - look_interval_ns();
}

void PolatisSession::look(OpId id, Op& op, TimeNs now) {
    if (description_.settle == Settle::time) return answer(id, DriverError::none, {}, now);
    op.looking = true;
    ask(Question::power, id, ":pmon:pow? " + scpi::format_list(op.dark), now, op.dark);
    ask(Question::power_error, id, ":system:error?", now);
}

// --- time and answers -------------------------------------------------------------------------------

void PolatisSession::advance(TimeNs now) {
    std::vector<OpId> late, due;
    for (const auto& [id, op] : ops_) {
        if (now >= op.deadline)
            late.push_back(id);
        else if (op.phase == Phase::settling && !op.looking && now >= op.next_look_ns)
            due.push_back(id);
    }
    for (OpId id : late) answer(id, DriverError::timeout, "not done by the deadline", now);
    for (OpId id : due) look(id, ops_[id], now);
    if (state_ == State::closed) return;
    send_queued(now);
    if (!expected_.empty() &&
        now >= expected_.front().asked_ns + std::max(kMinSilenceNs, 4 * description_.dark_ns + 1'000 * kMs))
        fail("the switch at " + description_.address + " does not answer");
}

TimeNs PolatisSession::next_due() const {
    TimeNs due = kNever;
    for (const auto& [id, op] : ops_) {
        due = std::min(due, op.deadline);
        if (op.phase == Phase::settling && !op.looking) due = std::min(due, op.next_look_ns);
    }
    if (state_ != State::closed && !expected_.empty())
        due = std::min(due, expected_.front().asked_ns + std::max(kMinSilenceNs, 4 * description_.dark_ns + 1'000 * kMs));
    return due;
}

void PolatisSession::answer(OpId id, DriverError error, std::string text, TimeNs now) {
    const auto it = ops_.find(id);
    if (it == ops_.end()) return;
    const Op op = std::move(it->second);
    ops_.erase(it);
    switch (op.kind) {
        case Kind::map: return sink_(MapRead{id, error, std::move(text), {}});
        case Kind::apply:
            return sink_(Applied{id, error, std::move(text), op.sent_ns, op.acked_ns, error == DriverError::none ? now : 0});
        case Kind::power: {
            PortPower power{id, error, {}};
            if (error == DriverError::none)
                for (std::size_t i = 0; i < op.dbm.size(); ++i) power.dbm.emplace_back(op.ports[i], op.dbm[i]);
            return sink_(power);
        }
    }
}

}  // namespace opus::drivers
