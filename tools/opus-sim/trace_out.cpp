#include "tools/opus-sim/trace_out.h"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "tools/opus-sim/job_launches.h"

namespace opus::job {
namespace {

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
// The format counts microseconds.
std::string micros(std::int64_t ns) {
    char text[40];
    std::snprintf(text, sizeof text, "%" PRId64 ".%03" PRId64, ns / 1000, ns % 1000);
    return text;
}

class TraceOut {
public:
    TraceOut(const JobLaunches& launches, std::ostream& out) : l_(launches), out_(out) {
        out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    }
    ~TraceOut() { out_ << "\n]}\n"; }

    void ranks(const std::string& name, const sim::PlayedVariant& variant) {
        process(name + ": ranks");
        const replay::Workload& w = l_.workload();
        for (std::uint32_t rank = 0; rank < w.world(); ++rank) {
            row(rank, "rank " + std::to_string(rank) + " (n" + std::to_string(w.places[rank].node) + ".g" +
                          std::to_string(w.places[rank].gpu) + ")");
            for (const replay::DryRunLaunch& launch : variant.run.ranks[rank]) {
                const auto* first = l_.begin(rank, launch.seq);
                const std::string arguments = "\"iteration\":" + std::to_string(launch.iteration) +
                                              ",\"seq\":" + std::to_string(launch.seq) +
                                              ",\"bytes\":" + std::to_string(first->step->bytes);
                if (launch.begin_ns > launch.ready_ns)
                    span(rank, "waits for peers or circuits", launch.ready_ns, launch.begin_ns, arguments);
                span(rank, l_.labels()[l_.label(*first->step, rank)], launch.begin_ns, launch.end_ns, arguments);
            }
        }
    }

    void circuits(const std::string& name, const sim::PlayedVariant& variant) {
        process(name + ": circuits");
        const Fabric& fabric = l_.map().fabric();
        struct Port {
            PortId peer = kNone;
            std::int64_t lit_ns = 0;
        };
        std::vector<Port> ports(fabric.ports.size());
        for (PortId p = 0; p < ports.size(); ++p) row(p, fabric.ports[p].name);
        const auto leave = [&](PortId p, std::int64_t now) {
            if (ports[p].peer != kNone && now > ports[p].lit_ns)
                span(p, fabric.ports[ports[p].peer].name, ports[p].lit_ns, now, "");
            ports[p].peer = kNone;
        };
        for (const sim::Turn& t : variant.turns) {
            for (const PortId p : {t.a, t.b})
                if (const PortId peer = ports[p].peer; peer != kNone) leave(p, t.from_ns), leave(peer, t.from_ns);
            for (const PortId p : {t.a, t.b}) {
                span(p, "dark", t.from_ns, t.lit_ns, "");
                ports[p] = {p == t.a ? t.b : t.a, t.lit_ns};
            }
        }
        const std::vector<std::int64_t> ends = variant.run.ends();
        for (PortId p = 0; p < ports.size(); ++p) leave(p, ends.empty() ? 0 : ends.back());
    }

private:
    void raw(const std::string& event) {
        out_ << (first_ ? "" : ",\n") << event;
        first_ = false;
    }
    void process(const std::string& name) {
        raw("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" + std::to_string(++process_) +
            ",\"args\":{\"name\":" + quoted(name) + "}}");
    }
    void row(std::uint32_t number, const std::string& name) {
        const std::string which = ",\"pid\":" + std::to_string(process_) + ",\"tid\":" + std::to_string(number + 1);
        raw("{\"ph\":\"M\",\"name\":\"thread_name\"" + which + ",\"args\":{\"name\":" + quoted(name) + "}}");
        raw("{\"ph\":\"M\",\"name\":\"thread_sort_index\"" + which +
            ",\"args\":{\"sort_index\":" + std::to_string(number) + "}}");
    }
    void span(std::uint32_t row, const std::string& name, std::int64_t from, std::int64_t to, const std::string& arguments) {
        raw("{\"ph\":\"X\",\"name\":" + quoted(name) + ",\"pid\":" + std::to_string(process_) +
            ",\"tid\":" + std::to_string(row + 1) + ",\"ts\":" + micros(from) + ",\"dur\":" + micros(to - from) +
            ",\"args\":{" + arguments + "}}");
    }

    const JobLaunches& l_;
    std::ostream& out_;
    bool first_ = true;
    int process_ = 0;
};

}  // namespace

void write_run_trace(const JobFile& job, const RunOptions& o, double dark_ms, std::ostream& out) {
    sim::VariantOptions c = variant_options_of(job, o);
    c.rails.keep_turns = true;
    c.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
    const replay::Workload workload = o.slow.empty() ? job.workload : with_slow_ranks(job.workload, o.slow);
    const JobLaunches launches(workload, o.ports, c.dry_run.iterations);
    TraceOut trace(launches, out);
    trace.ranks("electrical", play(workload, sim::Rails::lit, c));
    for (const bool ahead : {false, true}) {
        const sim::PlayedVariant variant = play(workload, ahead ? sim::Rails::provisioned : sim::Rails::on_demand, c);
        const std::string name = ahead ? "provisioned" : "on demand";
        trace.ranks(name, variant);
        trace.circuits(name, variant);
    }
}

}  // namespace opus::job
