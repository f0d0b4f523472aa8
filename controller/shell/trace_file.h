// --trace FILE: what happened, as Chrome/Perfetto JSON. Rows: "ranks" (a thread each: hold, then run),
// "circuits" (a thread each port: who it is joined to), "switches" (a thread each: programming) and
// "gangs" (complete, granted, done). The file is whole after close(); after a crash it lacks only the
// closing brackets, which the viewers forgive.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/core/core.h"

namespace opus::controller {

class TraceFile {
public:
    // Throws std::runtime_error when the file cannot be written. `realtime_offset_ns`: CLOCK_REALTIME less
    // CLOCK_MONOTONIC; launches are told in the former, all else in the latter.
    TraceFile(const std::string& path, const Fabric& fabric, TimeNs realtime_offset_ns);
    ~TraceFile();
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;

    // A rank process says which GPU it drives: its row is called so.
    void name_rank(NodeIndex node, RankId rank, std::uint32_t local_gpu);
    void add(const Trace& trace);
    void programmed(SwitchIndex sw, const ChangeSet& changes, const Applied& applied);
    void flush();
    void close(TimeNs now);  // ends what is still going on

private:
    struct Gang {
        TimeNs complete_ns = 0, granted_ns = 0;
        std::string label;
    };
    const Fabric& fabric_;
    TimeNs realtime_offset_ns_;
    std::ofstream out_;
    bool first_ = true;
    bool open_ = false;
    std::unordered_map<Circuit, TimeNs> lit_;
    std::unordered_map<std::uint64_t, Gang> gangs_;
    std::map<std::pair<NodeIndex, RankId>, std::uint32_t> rank_rows_, rank_gpus_;

    void raw(const std::string& event);
    void name_row(int process, std::uint32_t row, const std::string& name);
    void span(int process, std::uint32_t row, const std::string& name, TimeNs from, TimeNs to,
              const std::string& arguments = "");
    void instant(int process, std::uint32_t row, const std::string& name, TimeNs at);
    std::uint32_t row_of(NodeIndex node, RankId rank);
    void launch_done(const Trace& trace);
    void circuit_down(const Circuit& circuit, TimeNs at);
    void gang(const Trace& trace);
    void gang_spans(std::uint64_t id, const Gang& gang, TimeNs done_ns);
};

}  // namespace opus::controller
