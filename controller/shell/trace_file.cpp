#include "controller/shell/trace_file.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "controller/shell/names.h"

namespace opus::controller {
namespace {

enum Process { kRanks = 1, kCircuits = 2, kSwitches = 3, kGangs = 4 };

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
// The trace format counts microseconds.
std::string micros(TimeNs ns) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", static_cast<double>(ns) / 1e3);
    return text;
}

}  // namespace

TraceFile::TraceFile(const std::string& path, const Fabric& fabric, TimeNs realtime_offset_ns)
    : fabric_(fabric), realtime_offset_ns_(realtime_offset_ns), out_(path, std::ios::trunc) {
    if (!out_) throw std::runtime_error("cannot write the trace " + path + ": " + std::strerror(errno));
    open_ = true;
    out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    const char* const processes[] = {"ranks", "circuits", "switches", "gangs"};
    for (int i = 0; i < 4; ++i)
        raw("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" + std::to_string(i + 1) + ",\"args\":{\"name\":\"" +
            processes[i] + "\"}}");
    for (PortId p = 0; p < fabric.ports.size(); ++p) name_row(kCircuits, p + 1, fabric.ports[p].name);
    for (SwitchIndex s = 0; s < fabric.switches.size(); ++s) name_row(kSwitches, s + 1, fabric.switches[s].name);
}

TraceFile::~TraceFile() {
    if (open_) out_ << "\n]}\n";
}

void TraceFile::raw(const std::string& event) {
    if (!first_) out_ << ",\n";
    first_ = false;
    out_ << event;
}

void TraceFile::name_row(int process, std::uint32_t row, const std::string& name) {
    raw("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" + std::to_string(process) +
        ",\"tid\":" + std::to_string(row) + ",\"args\":{\"name\":" + quoted(name) + "}}");
}

void TraceFile::span(int process, std::uint32_t row, const std::string& name, TimeNs from, TimeNs to,
                     const std::string& arguments) {
    raw("{\"ph\":\"X\",\"name\":" + quoted(name) + ",\"pid\":" + std::to_string(process) +
        ",\"tid\":" + std::to_string(row) + ",\"ts\":" + micros(from) +
        ",\"dur\":" + micros(std::max<TimeNs>(to - from, 0)) + ",\"args\":{" + arguments + "}}");
}

void TraceFile::instant(int process, std::uint32_t row, const std::string& name, TimeNs at) {
    raw("{\"ph\":\"i\",\"s\":\"t\",\"name\":" + quoted(name) + ",\"pid\":" + std::to_string(process) +
        ",\"tid\":" + std::to_string(row) + ",\"ts\":" + micros(at) + "}");
}

std::uint32_t TraceFile::row_of(NodeIndex node, RankId rank) {
    const auto row = static_cast<std::uint32_t>(rank_rows_.size() + 1);
    const auto [at, fresh] = rank_rows_.try_emplace({node, rank}, row);
    if (fresh) {
        name_row(kRanks, row, rank_name(fabric_, node, rank));
        const std::uint64_t place = std::uint64_t{node} << 32 | rank;  // by node, not by who spoke first
        raw("{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":1,\"tid\":" + std::to_string(row) +
            ",\"args\":{\"sort_index\":" + std::to_string(place) + "}}");
    }
    return at->second;
}

void TraceFile::name_rank(NodeIndex node, RankId rank, std::uint32_t local_gpu) {
    if (node >= fabric_.nodes.size() || local_gpu >= fabric_.nodes[node].gpus.size()) return;
    const auto [at, fresh] = rank_gpus_.try_emplace({node, rank}, kNone);
    if (at->second == local_gpu) return;
    at->second = local_gpu;
    name_row(kRanks, row_of(node, rank),
             fabric_.gpus[fabric_.nodes[node].gpus[local_gpu]].name + " (" + rank_name(fabric_, node, rank) + ")");
}

void TraceFile::launch_done(const Trace& t) {
    const std::uint32_t row = row_of(t.launch.node, t.launch.rank);
    const std::string arguments = "\"seq\":" + std::to_string(t.launch.seq) + ",\"bytes\":" + std::to_string(t.bytes) +
                                  ",\"communicator\":\"" + comm_name(t.comm) + "\"";
    const TimeNs ready = t.ready_ns - realtime_offset_ns_, go = t.go_ns - realtime_offset_ns_,
                 done = t.done_ns - realtime_offset_ns_;
    if (t.ready_ns != 0 && t.go_ns > t.ready_ns) span(kRanks, row, "hold", ready, go, arguments);
    const TimeNs begin = t.go_ns != 0 ? go : ready;
    if (t.done_ns != 0 && (t.go_ns != 0 || t.ready_ns != 0)) span(kRanks, row, op_name(t.op), begin, done, arguments);
}

void TraceFile::circuit_down(const Circuit& circuit, TimeNs at) {
    const auto up = lit_.find(circuit);
    if (up == lit_.end()) return;
    if (circuit.a < fabric_.ports.size() && circuit.b < fabric_.ports.size()) {
        span(kCircuits, circuit.a + 1, fabric_.ports[circuit.b].name, up->second, at);
        span(kCircuits, circuit.b + 1, fabric_.ports[circuit.a].name, up->second, at);
    }
    lit_.erase(up);
}

void TraceFile::gang_spans(std::uint64_t id, const Gang& gang, TimeNs done_ns) {
    // Gangs overlap, so they are asynchronous events: each its own line, found by its id.
    const auto edge = [&](const char* phase, const char* name, TimeNs at) {
        raw(std::string("{\"ph\":\"") + phase + "\",\"cat\":\"gang\",\"name\":" + quoted(name) +
            ",\"id\":" + std::to_string(id) + ",\"pid\":" + std::to_string(kGangs) + ",\"tid\":1,\"ts\":" + micros(at) +
            ",\"args\":{\"gang\":" + quoted(gang.label) + "}}");
    };
    const TimeNs granted = gang.granted_ns != 0 ? gang.granted_ns : done_ns;
    edge("b", "complete", gang.complete_ns != 0 ? gang.complete_ns : granted);
    edge("e", "complete", granted);
    if (gang.granted_ns == 0) return;
    edge("b", "granted", granted);
    edge("e", "granted", done_ns);
}

void TraceFile::gang(const Trace& t) {
    if (t.kind == Trace::Kind::gang_done) {
        const auto at = gangs_.find(t.id);
        if (at == gangs_.end()) return;
        gang_spans(t.id, at->second, t.at_ns);
        gangs_.erase(at);
        return;
    }
    Gang& gang = gangs_[t.id];
    if (t.kind == Trace::Kind::gang_complete)
        gang.complete_ns = t.at_ns;
    else
        gang.granted_ns = t.at_ns;
    if (gang.label.empty()) gang.label = std::to_string(t.id) + " " + op_name(t.op) + " " + comm_name(t.comm);
}

void TraceFile::add(const Trace& t) {
    switch (t.kind) {
        case Trace::Kind::gang_complete:
        case Trace::Kind::gang_granted:
        case Trace::Kind::gang_done: return gang(t);
        case Trace::Kind::launch_done: return launch_done(t);
        case Trace::Kind::circuit_up: lit_.try_emplace(t.circuit, t.at_ns); return;
        case Trace::Kind::circuit_down:
        case Trace::Kind::circuit_lost: return circuit_down(t.circuit, t.at_ns);
        case Trace::Kind::program_begin:
        case Trace::Kind::program_end: return;  // programmed() knows more
        case Trace::Kind::suspend: return instant(kRanks, row_of(t.launch.node, t.launch.rank), "suspended", t.at_ns);
        case Trace::Kind::resume:
            return instant(kRanks, row_of(t.launch.node, t.launch.rank), "circuits are back", t.at_ns);
        case Trace::Kind::pass: return instant(kRanks, row_of(t.launch.node, t.launch.rank), "passed", t.at_ns);
        case Trace::Kind::port_fenced:
        case Trace::Kind::port_unfenced:
            if (t.circuit.a < fabric_.ports.size())
                instant(kCircuits, t.circuit.a + 1,
                        t.kind == Trace::Kind::port_fenced ? "fenced" : "unfenced", t.at_ns);
            return;
    }
}

void TraceFile::programmed(SwitchIndex sw, const ChangeSet& changes, const Applied& applied) {
    if (applied.sent_ns == 0) return;
    const TimeNs end = std::max({applied.settled_ns, applied.acked_ns, applied.sent_ns});
    const std::string name =
        applied.error == DriverError::none ? std::to_string(changes.connect.size()) + " circuits" : "failed";
    span(kSwitches, sw + 1, name, applied.sent_ns, end,
         "\"op\":" + std::to_string(applied.op) + ",\"acknowledged_us\":" + micros(applied.acked_ns - applied.sent_ns) +
             ",\"error\":" + quoted(applied.text));
}

void TraceFile::flush() { out_.flush(); }

void TraceFile::close(TimeNs now) {
    if (!open_) return;
    while (!lit_.empty()) circuit_down(Circuit(lit_.begin()->first), now);
    for (const auto& [id, gang] : gangs_) gang_spans(id, gang, now);
    out_ << "\n]}\n";
    out_.close();
    open_ = false;
}

}  // namespace opus::controller
