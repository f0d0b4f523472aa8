// opus-manager's thread (bystanders.h has another): looks at rings, the socket and the controller, feeds the core, does
// what it says, sleeps as long as it may.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "manager/core/core.h"
#include "manager/shell/attach_server.h"
#include "manager/shell/bystanders.h"
#include "manager/shell/controller_link.h"
#include "manager/shell/core_waits.h"
#include "manager/shell/descriptor.h"
#include "manager/shell/local_rank.h"
#include "manager/shell/poll_pace.h"
#include "manager/shell/runtime_directory.h"
#include "manager/shell/steering_table.h"

namespace opus::manager {

struct DaemonOptions {
    std::string node;
    std::string controller;
    std::string runtime_directory;
    std::uint32_t max_ranks = 256;
};

class Daemon {
public:
    explicit Daemon(const DaemonOptions& options);  // throws std::runtime_error: cannot serve
    // Until SIGTERM or SIGINT; false: until another manager was found to speak for this node. Living ranks keep their
    // segments, for the next manager.
    bool run();
    std::vector<std::string> what_it_knows() const { return core_.describe(); }  // for last words (opus/assert.h)

private:
    // A segment that lay there when this manager came, and that it could not serve yet.
    struct Unserved {
        RankId id = kNone;
        std::string path;
        TimeNs again_at = 0;
        std::string said;  // of why
        bool soon = false;  // it may be otherwise before long
    };

    // Ranks that come and go.
    void recover_ranks();
    void recover_later(TimeNs now);
    bool recover(Unserved& segment);
    void greet();  // unless ranks are still to be recovered: a controller would take them for ended
    attach::AttachStatus attach(pid_t pid, const attach::AttachRequest& request, AttachServer::Accepted& accepted);
    void add_rank(RankId id, Segment segment, std::uint32_t pid, std::uint64_t pid_start, bool recovered);
    void check_rank(RankId id, bool ended);  // its socket or its pidfd spoke
    void check_unwatched();

    // One look.
    bool look(bool scan);
    void feed(const Event& event);
    void feed(const Event& event, TimeNs now, TimeNs realtime_ns);
    void perform_all();
    void settle();  // flush, do what the core says, send
    void perform(Send& a);
    void perform(const SetGo& a);
    void perform(const ReleaseEarly& a);
    void perform(const ReleaseAhead& a);
    void perform(Retract& a);
    struct Taken {
        Retract what;
        TimeNs since = 0;
        std::vector<std::pair<RankId, std::uint64_t>> heads;  // of rings, when it was taken back
    };
    bool has_read(const Taken& taken);
    void answer_retracts();
    void perform(const SetVerdict& a);
    void perform(const SetOpen& a);
    void perform(const Retired& a);
    void perform(const FreeComm& a);
    void perform(const Steer& a);
    void perform(const SetNode& a);
    void perform(const ForgetRank& a);
    void perform(const EndSession& a);
    void perform(const End& a);
    void perform(const WakeAt& a);
    void perform(const Log& a);
    void open_gates(LocalRank& rank, ring::Open how);

    // Waiting.
    void wait();
    void account(bool found);
    void beat(TimeNs now);
    void pace_beats();
    TimeNs until_next_deadline(TimeNs now) const;
    bool handle_ready(int fd);
    void watch_link();
    bool hear_link();  // was there reason to ask
    void calm_bells();
    void set_asleep(std::uint32_t value);
    void on_signal();

    DaemonOptions options_;
    RuntimeDirectory directory_;
    Descriptor poller_, signals_, doorbell_;
    SteeringTable steering_;
    Core core_;
    LocalRanks ranks_;
    std::vector<Unserved> unserved_;
    TimeNs started_ = 0;
    std::uint64_t to_greet_ = 0;  // session; 0: none
    std::map<int, RankId> watches_;
    RankId next_rank_ = 0;
    std::unique_ptr<AttachServer> server_;
    Bystanders bystanders_;
    std::unique_ptr<ControllerLink> link_;
    std::array<int, 2> link_descriptors_{-1, -1};
    std::uint64_t link_opened_ = 0;  // which of its sockets these are
    bool link_spoke_ = false;        // there may be something to hear
    bool monitor_spoke_ = false;     // of connections that come and go

    Actions actions_;
    std::vector<Event> events_;
    std::vector<wire::Message> outgoing_;
    std::deque<Taken> retracts_;        // to be answered when the events at hand are told
    bool fed_ = true;                   // the core has something to settle
    bool reconnect_ = false;
    bool stopping_ = false;
    bool second_ = false;  // another manager speaks for this node
    TimeNs wake_at_ = 0;
    PollPace pace_;
    CoreWaits core_waits_;
    TimeNs polled_at_ = 0;   // 0: slept without polling
    TimeNs polled_for_ = 0;  // how long that sleep was to be
    TimeNs cpu_before_ = 0;  // of this sleep, when it is measured
    std::uint32_t polls_ = 0;
    TimeNs last_event_ = 0;  // of a ring
    TimeNs last_scan_ = 0;   // of communicator entries
    TimeNs last_beat_ = 0;
    TimeNs beat_interval_ = 0;
    std::uint32_t told_asleep_ = ring::kAwake;  // the ranks have been told to ring
    TimeNs last_wake_ = 0;
};

}  // namespace opus::manager
