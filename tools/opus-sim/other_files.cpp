#include "tools/opus-sim/other_files.h"

#include <algorithm>

namespace opus::job {
namespace {

using Text = std::string_view;

bool has(Text head, Text word) { return head.find(word) != head.npos; }

// "1,0,5,0,DP,": numbers, and the axis of parallelism.
bool is_launch_list(Text head) {
    const Text line = head.substr(0, head.find('\n'));
    std::size_t at = 0;
    for (int field = 0; field < 4; ++field) {
        const std::size_t comma = line.find(',', at);
        if (comma == line.npos || comma == at) return false;
        if (!std::all_of(line.begin() + static_cast<std::ptrdiff_t>(at),
                         line.begin() + static_cast<std::ptrdiff_t>(comma), [](char c) { return c >= '0' && c <= '9'; }))
            return false;
        at = comma + 1;
    }
    const Text axis = line.substr(at, line.find(',', at) - at);
    return axis.size() == 2 && axis[1] == 'P' && std::count(line.begin(), line.end(), ',') >= 6;
}

struct Other {
    bool (*is)(Text head);
    Text text;
};

constexpr Other kOthers[] = {
    {[](Text h) { return h.starts_with("{") && has(h, "\"schema\"") && has(h, "\"nodes\""); },
     "it is PyTorch's execution graph, which has no times: give the profiler's (Kineto) trace of the same rank"},
    {[](Text h) { return h.starts_with("{") && has(h, "\"workload_graph\""); },
     "it is a Chakra trace written as JSON: give the .et file that it was made of"},
    {[](Text h) { return (h.starts_with("[") || h.starts_with("{")) && has(h, "\"ph\"") && has(h, "\"ts\""); },
     "it is a Chrome trace, and not one of PyTorch's profiler: it does not say what a GPU did; record with "
     "torch.profiler"},
    {is_launch_list,
     "it is a list of launches (iteration, index, backend, ..., axis, operation), which says neither how much they "
     "carry nor when they begin: give the profiler's traces of the job, or record it with opus-run --observe"},
    {[](Text h) { return has(h, "start_backend:") && has(h, "end_idx:"); },
     "it is a list of phases with their times, which does not say what operations they are of nor how much these "
     "carry: give the profiler's traces of the job, or record it with opus-run --observe"},
    {[](Text h) { return has(h, "topology:") && has(h, "npus_count:"); },
     "it is ASTRA-sim's description of a network, not a job: give the traces; what the network is like is said with "
     "--gbits, --ports, --latency-us, --node-gbytes and --dark-ms"},
    {[](Text h) { return h.starts_with("{") && (has(h, "\"scheduling-policy\"") || has(h, "\"memory-type\"")); },
     "it is ASTRA-sim's settings of a system, not a job: give the traces"},
    {[](Text h) { return h.starts_with("{") && has(h, "\"logical-dims\""); },
     "it is ASTRA-sim's shape of a network, not a job: give the traces"},
    {[](Text h) { return h.starts_with("BW ") && h.find_first_of("0123456789") != h.npos; },
     "it is a list of topologies for the reconfigurable ASTRA-sim, not a job: give the traces; opus-sim finds its own"},
    {[](Text h) { return h.starts_with("mapping:"); },
     "it is a schedule for the reconfigurable ASTRA-sim (which topology serves which communicator), not a job: give "
     "the traces; opus-sim finds its own"},
    {[](Text h) { return h.starts_with("case,gpus,mode,"); },
     "it is a table of results, not a job: give the traces that were played"},
};

}  // namespace

std::string_view other_file(std::string_view text) {
    const std::size_t from = text.find_first_not_of(" \t\r\n");
    if (from == text.npos) return {};
    const Text head = text.substr(from, 4096);
    for (const Other& o : kOthers)
        if (o.is(head)) return o.text;
    return {};
}

}  // namespace opus::job
