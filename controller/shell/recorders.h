// Who is recording: a file of the controller's own (--record), and any number of opus-ctl record. Also the account
// that is kept of every job whoever records, for opus-ctl summary and for the log when a job ends.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/core/core.h"
#include "controller/recording/recording.h"

namespace opus::controller {

class Recorders {
public:
    static constexpr std::size_t kMax = 16;              // opus-ctl record at a time
    static constexpr std::size_t kBatch = 256u << 10;    // bytes of text that are sent at once
    static constexpr std::size_t kMaxBehind = 4u << 20;  // unsent bytes of one that does not read; then lines are lost

    // False: it could not be delivered now. `last`: nothing follows.
    using Send = std::function<bool(const std::string& peer, std::uint64_t request, const std::string& lines, bool last)>;

    // `realtime_offset_ns`: CLOCK_REALTIME less CLOCK_MONOTONIC. Throws std::runtime_error when the file cannot be
    // written.
    Recorders(const Fabric& fabric, std::string program, TimeNs realtime_offset_ns, const std::string& path);

    // Begins with what there is. A job: only what it does, until it has ended. False: there are too many already.
    bool open(const std::string& peer, std::uint64_t request, const std::string& job, const Core& core, TimeNs now);

    // Who comes and goes; every message that the core is given, before it, but for Demand and Done.
    void heard(NodeIndex node, const wire::Message& message);
    // Of what launches consist; every message, while anybody records.
    void heard_launches(NodeIndex node, const wire::Message& message);
    void add(const Trace& trace);
    void programmed(SwitchIndex sw, const ChangeSet& changes, const Applied& applied);

    bool any() const { return !recorders_.empty(); }
    bool batch_due() const { return batch_due_; }
    void deliver(const Send& send, TimeNs now);
    void flush();

    nlohmann::json summary(const std::string& job) { return profile_.summary(job); }
    // Jobs whose last rank has gone since this was last asked.
    std::vector<std::string> ended();

private:
    struct Recorder {
        std::string peer;
        std::uint64_t request = 0;
        std::string job;   // empty: all
        std::string text;  // not sent yet
        std::uint64_t lost_lines = 0;
        TimeNs failing_since_ns = 0;
        bool over = false;
        std::set<std::pair<std::uint64_t, CommId>> members;  // that have a line: of a rank, in a group
        RecordingWriter writer;
        Recorder(const Fabric& fabric, const std::string& program, TimeNs began_ns)
            : writer(text, fabric.name, program, began_ns) {}
    };
    struct Known {
        std::uint32_t gpu = kNone;
        std::string job;
    };
    const Fabric& fabric_;
    std::string program_;
    TimeNs realtime_offset_ns_;
    std::ofstream file_;
    std::list<Recorder> recorders_;  // the file's, if any, has no peer
    std::map<std::uint64_t, Known> ranks_;
    std::map<std::string, std::uint32_t> jobs_;  // ranks alive
    std::unordered_map<CommId, std::uint32_t> groups_;
    std::map<std::uint64_t, std::unordered_map<CommId, std::uint32_t>> places_;  // of a rank in its groups
    // Of launches that are not done, while anybody records.
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<wire::KeyRange>> keys_;  // by rank and sequence
    std::vector<std::string> ended_;
    Profile profile_;
    bool batch_due_ = false;

    static std::uint64_t id_of(NodeIndex node, RankId rank) { return std::uint64_t{node} << 32 | rank; }
    void came(NodeIndex node, const wire::RankInfo& info);
    void gone(std::uint64_t rank);
    void joined(NodeIndex node, const wire::CommMember& member);
    void keys_of(NodeIndex node, const wire::LaunchDemand& demand);
    void name_member(Recorder& recorder, std::uint64_t rank, const CommId& group);
    void name_rank(Recorder& recorder, std::uint64_t rank, const Known& known);
    void launch(const Trace& trace);
    template <class F>
    void write(const std::string& job, F&& f);  // to each that wants to hear of this job; empty: of all jobs
};

// One line for the log: what a job was like. `job`: an element of summary()["jobs"].
std::string job_line(const nlohmann::json& job);

}  // namespace opus::controller
