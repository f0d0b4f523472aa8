// opus-controller around its core: frames and what the switches say come in, the core decides, its
// actions are carried out. One thread, but for ZeroMQ's, the drivers' and the thinker's; it sleeps until there is
// something to do, and wakes once a second while a manager is connected (heartbeats).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "controller/core/core.h"
#include "controller/recording/latency.h"
#include "controller/shell/ctl_replies.h"
#include "controller/shell/recorders.h"
#include "controller/shell/sessions.h"
#include "controller/shell/switch_bank.h"
#include "controller/shell/thinker.h"
#include "controller/shell/trace_file.h"
#include "controller/shell/wire_server.h"

namespace opus::controller {

struct DaemonOptions {
    std::string address = "tcp://127.0.0.1:7070";
    std::string trace_path;   // empty: no trace
    std::string record_path;  // empty: no recording of its own
    int io_threads = 1;
    TimeNs node_silence_ns = 3'000'000'000;  // no frame for so long: the node's session is lost
    CoreOptions core;  // epoch is set by the daemon
};

class Daemon {
public:
    // Throws std::runtime_error with a line for people: bind, drivers, trace file.
    Daemon(Fabric fabric, const DaemonOptions& options);
    ~Daemon();

    const std::string& address() const { return server_.address(); }
    // Until `stop_fd` (a signalfd, say) becomes readable.
    void run(int stop_fd);
    // What opus-ctl would show, a line a table: for last words (opus/assert.h).
    std::vector<std::string> what_it_knows() const;

private:
    struct CtlPending {
        std::string peer;
        std::uint64_t request = 0;
    };

    const Fabric fabric_;
    DaemonOptions options_;
    std::uint64_t epoch_;
    TimeNs started_ns_;
    TimeNs now_;
    TimeNs look_began_ns_ = 0;
    bool calm_ = false;  // nothing had come for a while when this look began
    WireServer server_;
    std::unique_ptr<TraceFile> trace_;
    Recorders recorders_;
    std::map<NodeIndex, std::vector<wire::Bystander>> bystanders_;  // of each session's last heartbeat
    SwitchBank switches_;
    std::unique_ptr<Thinker> thinker_;  // where jobs are planned
    Core core_;
    Sessions sessions_;
    Actions actions_;  // carried out, but for what is only to be noted
    std::vector<SwitchEvent> switch_events_;
    std::vector<Thought> thoughts_;
    std::optional<TimeNs> wake_at_;
    TimeNs heartbeat_at_ = 0;
    std::vector<std::vector<wire::Message>> outbox_;  // by node: all of one look goes out in one frame
    std::vector<NodeIndex> outbox_nodes_;             // whose outbox is not empty
    std::vector<NodeIndex> unreachable_;              // found so while sending
    std::unordered_set<std::string> strangers_;       // peers told to begin a session
    std::unordered_set<std::string> seconds_;         // managers refused because there is another, told of once
    std::uint64_t ctl_count_ = 0;
    std::unordered_map<std::uint64_t, CtlPending> ctl_pending_;
    std::vector<CtlPending> watchers_;
    std::unordered_map<std::uint64_t, ChangeSet> programming_;  // by switch and op, for trace and recordings
    std::unordered_map<std::uint64_t, TimeNs> gang_control_;    // gang -> time spent on it before its grant
    std::vector<std::uint64_t> completed_, granted_;            // gangs of this look
    Latency control_;

    // daemon.cpp: the loop
    void say_needed_hold();
    int timeout_ms() const;
    void look(bool switches);
    void answer();
    void send_outbox();
    void flush();
    void note_control_time();
    void deliver_recordings();
    void every_second();
    void feed(const Event& event);
    void carry_out(Action& action);
    void take_notes();
    void note(const Trace& trace);
    void heard_of_switch(const SwitchEvent& event);

    // conversations.cpp: frames
    void hear(const std::string& peer, wire::Frame&& frame);
    void hello(const std::string& peer, const wire::Frame& frame, const wire::Hello& hello);
    void refuse(const std::string& peer, std::uint64_t session, const std::string& reason);
    void refuse_second(const std::string& peer, const wire::Hello& hello, const Speaker& second, const Speaker& first);
    void raise_epoch(std::uint64_t known);
    void post(NodeIndex node, std::uint64_t session, wire::Message&& message);
    void end_session(NodeIndex node, const std::string& reason);
    void name_ranks(NodeIndex node, const wire::Message& message);
    std::string misfit(NodeIndex node, const wire::Message& message) const;

    // ctl_requests.cpp
    void ctl(const std::string& peer, const wire::CtlRequest& request);
    void ctl_answer(const CtlPending& to, bool ok, bool more, std::string body);
    void ctl_move(const CtlPending& from, const wire::CtlRequest& request, const nlohmann::json& arguments);
    void tell_watchers(nlohmann::json event);
    ControllerView view() const;
};

}  // namespace opus::controller
