// opus-observer's thread: serves the ranks of a node as opus-manager does, but holds nothing and knows no controller.
// What they do goes into a recording. It never keeps a rank waiting: one whose ring is full records less.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "manager/observer/observation.h"
#include "manager/shell/attach_server.h"
#include "manager/shell/core_waits.h"
#include "manager/shell/descriptor.h"
#include "manager/shell/local_rank.h"
#include "manager/shell/runtime_directory.h"

namespace opus::manager {

struct ObserverOptions {
    std::string node;
    std::string file;  // of the recording; made anew
    std::string runtime_directory;
    std::uint32_t max_ranks = 4096;
    bool until_signal = false;  // it ends with a signal; else when standard input does
};

class Observer {
public:
    // Throws std::runtime_error: cannot serve. `lock`: of the file, kept as long as this is.
    Observer(const ObserverOptions& options, Descriptor lock);
    // Until standard input ends, which says that who started this needs it no more, and no rank lives or two more seconds are
    // over. Signals then end nothing: what is told to end with the whole job has still to record how the job ends.
    void run();
    // What was recorded, a line for people each.
    std::vector<std::string> report() const;
    bool empty() const { return observation_.totals().ranks == 0; }

private:
    attach::AttachStatus attach(pid_t pid, const attach::AttachRequest& request, AttachServer::Accepted& accepted);
    void add_rank(RankId id, Segment segment, std::uint32_t pid, std::uint64_t pid_start);
    void check_rank(RankId id, bool ended);  // its socket or its pidfd spoke
    void check_unwatched();

    bool look(bool scan);
    void feed(const std::vector<Event>& events);
    void perform(const Action& action);
    void count(RankId id, const LocalRank& rank);
    void beat(TimeNs now);
    void flush();

    void wait();
    TimeNs pace(TimeNs now) const;
    void handle_ready(int fd);
    void release();
    void set_asleep(std::uint32_t value);
    TimeNs real(TimeNs monotonic) const { return monotonic + realtime_offset_; }

    ObserverOptions options_;
    Descriptor lock_;
    RuntimeDirectory directory_;
    Descriptor poller_, signals_, doorbell_;
    TimeNs realtime_offset_ = 0;  // of the monotonic clock, once and for all: a recording's time never leaps
    std::ofstream file_;
    bool failed_ = false;  // the file takes no more
    std::string text_;
    controller::RecordingWriter writer_;
    Observation observation_;
    LocalRanks ranks_;
    std::map<int, RankId> watches_;
    RankId next_rank_ = 0;
    std::unique_ptr<AttachServer> server_;
    std::vector<Event> events_;
    Actions actions_;
    std::vector<std::string> complaints_;
    bool told_asleep_ = false;
    bool released_ = false;  // it is to end
    TimeNs released_at_ = 0;
    TimeNs last_event_ = 0, last_scan_ = 0, last_flush_ = 0, last_beat_ = 0;
    TimeNs cost_ = 0;  // CPU time of a look, lately
    CoreWaits core_waits_;
    TimeNs stretch_ = 1;  // so many times more seldom it looks
    std::uint32_t looks_ = 0;
};

}  // namespace opus::manager
