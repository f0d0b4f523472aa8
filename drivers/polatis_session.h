// What is said to a Polatis switch over SCPI, and what its replies mean. Pure: requests, bytes and the
// time come in, bytes and driver events go out; polatis_scpi.cpp puts it on a socket and a thread.
// What of it is not verified against hardware: docs/drivers.md.
//
// A change set is one line, so that the switch moves once:
//     :oxc:swit:conn:sub (@1),(@);:oxc:swit:conn:add (@2,3),(@18,19);:system:error?
// Set commands answer nothing, so the error query is what says that it has been taken (the fence); the map
// is read right behind it and the entries of the change set compared. Then the settle rule. Replies come
// in order, each is matched with the question at the head of the queue, and one of another shape ends the
// session: after that nothing it says could be trusted.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/line_buffer.h"
#include "drivers/scpi_text.h"
#include "opus/switch_driver.h"

namespace opus::drivers {

class PolatisSession {
public:
    static constexpr double kLightDbm = -30.0;  // as much or more at a port: light is back

    PolatisSession(const Switch& description, SwitchDriver::Sink sink);

    // --- the connection: what its owner tells and asks
    void open(TimeNs now);  // connected: says hello
    void receive(std::string_view bytes, TimeNs now);
    void close(const std::string& reason);               // every op is answered `unreachable`
    std::string& output() { return output_; }            // bytes to send; the owner erases what it sent
    const std::string& fault() const { return fault_; }  // not empty: close the connection for this reason
    bool up() const { return state_ == State::up; }

    // --- requests; deadlines are absolute
    void read_map(OpId op, TimeNs deadline, TimeNs now);
    void apply(OpId op, ChangeSet changes, TimeNs deadline, TimeNs now);
    void read_power(OpId op, std::vector<SwitchPort> ports, TimeNs deadline, TimeNs now);
    void cancel(OpId op, TimeNs now);

    void advance(TimeNs now);
    TimeNs next_due() const;  // when advance() has something to do

private:
    enum class State : std::uint8_t { closed, greeting, up };
    enum class Kind : std::uint8_t { map, apply, power };
    enum class Phase : std::uint8_t { queued, asked, settling };

    struct Op {
        Kind kind{};
        Phase phase = Phase::queued;
        TimeNs deadline = 0;
        ChangeSet changes;
        std::vector<SwitchPort> ports;  // power: asked for; apply: all that the change set names
        std::vector<SwitchPort> dark;   // settling by power: still without light
        TimeNs sent_ns = 0, acked_ns = 0;
        TimeNs next_look_ns = 0;  // settling
        bool looking = false;     // a power question is out
        std::vector<double> dbm;
    };

    enum class Question : std::uint8_t {
        identity,
        size,
        power_probe,
        probe_error,
        map,
        error,
        power,
        power_error,
        drain
    };
    struct Expected {
        Question question{};
        OpId op = 0;  // may be answered already: then the reply is only matched
        TimeNs asked_ns = 0;
        std::vector<SwitchPort> ports;  // power
    };

    void ask(Question question, OpId op, const std::string& line, TimeNs now, std::vector<SwitchPort> ports = {});
    void say(const std::string& line);
    void reply(std::string_view line, TimeNs now);
    bool take(const Expected& expected, std::string_view line, TimeNs now);  // false: not such a reply
    void take_size(const scpi::Size& size);
    void take_error(const Expected& expected, const scpi::Error& error, TimeNs now);
    void take_map(OpId id, std::vector<CrossConnect> circuits, TimeNs now);
    void take_power(const Expected& expected, const std::vector<double>& dbm, TimeNs now);
    void come_up(TimeNs now);

    bool admit(OpId op, Kind kind, TimeNs deadline, TimeNs now);
    void send_queued(TimeNs now);
    bool blocked(const Op& op, OpId id) const;
    void send(OpId id, Op& op, TimeNs now);
    void settle(OpId id, Op& op, TimeNs now);
    void look(OpId id, Op& op, TimeNs now);
    TimeNs look_interval_ns() const;
    void answer(OpId id, DriverError error, std::string text, TimeNs now);
    void fail(std::string reason) {
        if (fault_.empty()) fault_ = std::move(reason);
    }

    const Switch description_;
    const SwitchDriver::Sink sink_;
    State state_ = State::closed;
    LineBuffer lines_;
    std::string output_, fault_;
    SwitchIdentity identity_;
    bool monitor_ = true;  // greeting: the power probe was answered
    std::deque<Expected> expected_;
    std::map<OpId, Op> ops_;
    std::deque<OpId> queue_;  // change sets not sent yet, in the order of the caller
    std::uint32_t drained_ = 0;
};

}  // namespace opus::drivers
