#include "controller/shell/daemon.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <zmq.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "controller/shell/clock.h"

namespace opus::controller {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;
constexpr TimeNs kCalm = 50'000;           // since the look before
constexpr std::size_t kFramesALook = 256;  // then sends go out, so that nobody waits for the rest

std::uint64_t switch_op(SwitchIndex sw, OpId op) { return hash_mix(sw, op); }

CoreOptions core_options(CoreOptions options, std::uint64_t epoch) {
    options.epoch = epoch;
    return options;
}

}  // namespace

// The wall clock in milliseconds grows from life to life, so no state on disk is needed; where it does
// not, a manager's Hello says so (raise_epoch).
Daemon::Daemon(Fabric fabric, const DaemonOptions& options)
    : fabric_(std::move(fabric)),
      options_(options),
      epoch_(static_cast<std::uint64_t>(realtime_ns() / 1'000'000)),
      started_ns_(monotonic_ns()),
      now_(started_ns_),
      server_(options.address, options.io_threads, [](const std::string& text) { spdlog::warn("{}", text); }),
      trace_(options.trace_path.empty()
                 ? nullptr
                 : std::make_unique<TraceFile>(options.trace_path, fabric_, realtime_ns() - monotonic_ns())),
      recorders_(fabric_, "opus-controller " OPUS_PROGRAM_VERSION, realtime_ns() - monotonic_ns(), options.record_path),
      switches_(fabric_),
      thinker_(options.core.provision ? std::make_unique<Thinker>(fabric_) : nullptr),
      core_(fabric_, core_options(options.core, epoch_)),
      sessions_(fabric_.nodes.size()),
      outbox_(fabric_.nodes.size()) {}

Daemon::~Daemon() {
    if (trace_) trace_->close(monotonic_ns());
}

void Daemon::run(int stop_fd) {
    if (!options_.core.observe) {
        say_needed_hold();
        switches_.start();
    }
    feed(Tick{});
    flush();
    zmq_pollitem_t items[] = {{server_.handle(), 0, ZMQ_POLLIN, 0},
                              {nullptr, switches_.descriptor(), ZMQ_POLLIN, 0},
                              {nullptr, stop_fd, ZMQ_POLLIN, 0},
                              {nullptr, thinker_ ? thinker_->descriptor() : -1, ZMQ_POLLIN, 0}};
    const int sources = thinker_ ? 4 : 3;
    bool more = false;
    for (;;) {
        if (zmq_poll(items, sources, more ? 0 : timeout_ms()) < 0 && errno != EINTR) break;
        if (items[2].revents != 0) break;
        now_ = std::max(now_, monotonic_ns());
        calm_ = now_ - std::exchange(look_began_ns_, now_) > kCalm;
        more = items[0].revents != 0 && server_.receive(kFramesALook, [this](const std::string& peer, wire::Frame&& frame) {
            hear(peer, std::move(frame));
            answer();
        });
        look(items[1].revents != 0);
        if (thinker_ && items[3].revents != 0) {
            thinker_->take(thoughts_);
            for (Thought& thought : thoughts_) feed(std::move(thought));
            take_notes();
        }
        flush();
    }
    if (trace_) trace_->close(monotonic_ns());
    deliver_recordings();
}

void Daemon::say_needed_hold() {
    const auto slowest = std::max_element(fabric_.switches.begin(), fabric_.switches.end(),
                                          [](const Switch& x, const Switch& y) { return x.dark_ns < y.dark_ns; });
    if (slowest == fabric_.switches.end()) return;
    const TimeNs needed = needed_hold_ns(slowest->dark_ns);
    const auto level = needed > kDefaultHoldNs ? spdlog::level::warn : spdlog::level::info;
    spdlog::log(level,
                "{} is dark for {} ms: launches that wait for it are held for up to {} ms; OPUS_HOLD_MS must not be "
                "less than {}",
                slowest->name, static_cast<double>(slowest->dark_ns) / 1e6,
                std::max(needed, kDefaultHoldNs) / 1'000'000, needed / 1'000'000);
}

// Rounded up, so that nothing is looked at a little too early, again and again.
int Daemon::timeout_ms() const {
    TimeNs at = wake_at_.value_or(std::numeric_limits<TimeNs>::max());
    if (sessions_.count() > 0) at = std::min(at, heartbeat_at_);
    if (at == std::numeric_limits<TimeNs>::max()) return -1;
    const TimeNs left = std::max<TimeNs>(at - monotonic_ns(), 0);
    return static_cast<int>(std::min<TimeNs>((left + 999'999) / 1'000'000, 3'600'000));
}

void Daemon::look(bool switches) {
    if (switches) {
        switches_.take(switch_events_);
        for (const SwitchEvent& event : switch_events_) heard_of_switch(event);
    }
    if (wake_at_ && now_ >= *wake_at_) {
        wake_at_.reset();
        feed(Tick{});
    }
    if (sessions_.count() > 0 && now_ >= heartbeat_at_) every_second();
}

void Daemon::every_second() {
    // Whole seconds from the first on, however late this one is: other timers count on meeting heartbeats.
    heartbeat_at_ += kSecond;
    if (heartbeat_at_ <= now_) heartbeat_at_ = now_ + kSecond;
    for (const NodeIndex node : sessions_.silent(now_, options_.node_silence_ns))
        end_session(node, "nothing was heard of it");
    sessions_.each([this](Session& session) { post(session.node, session.id, wire::Heartbeat{realtime_ns()}); });
    if (trace_) trace_->flush();
    if (recorders_.any()) deliver_recordings();
}

// Once a second, or when there is much; at once where no heartbeat will come.
void Daemon::deliver_recordings() {
    recorders_.deliver(
        [this](const std::string& peer, std::uint64_t request, const std::string& lines, bool last) {
            const std::string body = to_text({{"lines", lines}});
            return server_.send(peer, {0, 0, 1, {wire::CtlReply{request, true, !last, body}}});
        },
        now_);
    recorders_.flush();
}

void Daemon::heard_of_switch(const SwitchEvent& event) {
    const std::string& name = fabric_.switches[event.sw].name;
    if (const auto* up = std::get_if<SessionUp>(&event.event)) {
        spdlog::info("{}: connected to {} {}", name, up->identity.vendor, up->identity.model);
    } else if (const auto* down = std::get_if<SessionDown>(&event.event)) {
        spdlog::warn("{}: connection lost: {}", name, down->reason);
    } else if (const auto* applied = std::get_if<Applied>(&event.event)) {
        if (const auto at = programming_.find(switch_op(event.sw, applied->op)); at != programming_.end()) {
            if (trace_) trace_->programmed(event.sw, at->second, *applied);
            recorders_.programmed(event.sw, at->second, *applied);
            programming_.erase(at);
        }
    }
    feed(event);
    take_notes();
}

// Never from carry_out(): one event's actions are carried out before the next event.
void Daemon::feed(const Event& event) {
    std::size_t next = actions_.size();
    core_.on(event, now_, actions_);
    for (; next < actions_.size(); ++next) carry_out(actions_[next]);
}

// What happened, told to those who only look on: after the answer.
void Daemon::take_notes() {
    for (const Action& action : actions_)
        if (const auto* trace = std::get_if<Trace>(&action)) note(*trace);
    actions_.clear();
}

void Daemon::note(const Trace& t) {
    if (t.kind == Trace::Kind::gang_complete) completed_.push_back(t.id);
    if (t.kind == Trace::Kind::gang_granted) granted_.push_back(t.id);
    if (t.kind == Trace::Kind::gang_done) gang_control_.erase(t.id);
    if (trace_) trace_->add(t);
    recorders_.add(t);
    if (!watchers_.empty()) tell_watchers(trace_event(fabric_, t));
}

void Daemon::carry_out(Action& action) {
    std::visit(
        [this](auto& a) {
            using A = std::decay_t<decltype(a)>;
            if constexpr (std::is_same_v<A, SendTo>) {
                post(a.node, a.session, std::move(a.message));
            } else if constexpr (std::is_same_v<A, Program>) {
                send_outbox();  // what a node is told comes before the switch is
                switches_.program(a);
                programming_[switch_op(a.sw, a.op)] = std::move(a.changes);
            } else if constexpr (std::is_same_v<A, ReadMap>) {
                switches_.read_map(a);
            } else if constexpr (std::is_same_v<A, Think>) {
                if (thinker_) thinker_->begin(std::move(a));
            } else if constexpr (std::is_same_v<A, CtlDone>) {
                const auto at = ctl_pending_.find(a.id);
                if (at == ctl_pending_.end()) return;
                ctl_answer(at->second, a.ok, false, a.ok ? to_text({{"done", a.text}}) : a.text);
                ctl_pending_.erase(at);
            } else if constexpr (std::is_same_v<A, WakeAt>) {
                if (a.at_ns == std::numeric_limits<TimeNs>::max())
                    wake_at_.reset();
                else
                    wake_at_ = a.at_ns;
            } else if constexpr (std::is_same_v<A, Log>) {
                constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                                spdlog::level::warn, spdlog::level::err};
                spdlog::log(levels[static_cast<int>(a.level)], "{}", a.text);
                if (!watchers_.empty() && a.level >= LogLevel::warn)
                    tell_watchers({{"event", "log"}, {"at_ns", now_}, {"text", a.text}});
            } else {
                static_assert(std::is_same_v<A, Trace>);  // take_notes()
            }
        },
        action);
}

// Where frames are few, who waits for an answer shall not wait for the next frame, nor for notes. In a crowd ZeroMQ's
// own thread is better left to gather frames: flush() answers them. Yielding the core to that thread instead would cost
// a whole slice of the scheduler's wherever somebody else wants the core.
void Daemon::answer() {
    if (!calm_) return;
    send_outbox();
}

// All that the core said to a node since the last time: one frame.
void Daemon::send_outbox() {
    for (const NodeIndex node : outbox_nodes_) {
        Session* session = sessions_.of_node(node);
        if (session && !outbox_[node].empty()) {
            wire::Frame frame{epoch_, session->id, ++session->sent, std::move(outbox_[node])};
            if (!server_.send(session->peer, frame)) unreachable_.push_back(node);
            outbox_[node] = std::move(frame.messages);  // keeps its memory
        }
        outbox_[node].clear();
    }
    outbox_nodes_.clear();
}

void Daemon::flush() {
    send_outbox();
    while (!unreachable_.empty()) {
        const NodeIndex node = unreachable_.back();
        unreachable_.pop_back();
        end_session(node, "it cannot be reached");
        send_outbox();
    }
    take_notes();
    note_control_time();
    if (recorders_.any() && (recorders_.batch_due() || sessions_.count() == 0)) deliver_recordings();
    for (const std::string& job : recorders_.ended())
        if (const nlohmann::json jobs = recorders_.summary(job).at("jobs"); !jobs.empty())
            spdlog::info("{}", job_line(jobs.back()));
}

// Control-plane time of a gang: what the controller took in the look that completed it and in the look
// that granted it, from waking up to the last send. Waiting for a switch, or for busy ports, lies between.
void Daemon::note_control_time() {
    if (completed_.empty() && granted_.empty()) return;
    const TimeNs took = monotonic_ns() - look_began_ns_;
    for (const std::uint64_t gang : completed_) gang_control_[gang] = took;
    for (const std::uint64_t gang : granted_) {
        const auto at = gang_control_.find(gang);
        const bool at_once = std::find(completed_.begin(), completed_.end(), gang) != completed_.end();
        control_.add(at == gang_control_.end() || at_once ? took : at->second + took);
        if (at != gang_control_.end()) gang_control_.erase(at);
    }
    completed_.clear();
    granted_.clear();
}

}  // namespace opus::controller
