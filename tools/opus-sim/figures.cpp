#include <algorithm>
#include <map>
#include <sstream>

#include "tools/opus-sim/job_file.h"

namespace opus::job {

using replay::Step;
using replay::StepKind;

void count_workload(const replay::Workload& workload, Figures& figures) {
    figures.world = workload.world();
    std::vector<bool> used(workload.comms.size(), false);
    for (const replay::Role& role : workload.roles) {
        const std::uint64_t ranks = role.ranks.size();
        for (const Step& step : replay::unrolled(role.steps)) {
            if (step.kind == StepKind::compute || step.kind == StepKind::host)
                figures.compute_ms += static_cast<double>(step.us * ranks) / 1e3;
            if (!is_operation(step.kind)) continue;
            used[step.comm] = true;
            const bool transfer = step.kind == StepKind::send || step.kind == StepKind::recv;
            const replay::Comm& comm = workload.comms[step.comm];
            const replay::Membership m = membership(comm, role.ranks.front());
            const auto members = transfer ? 2u : static_cast<std::uint32_t>(comm.groups[m.group].size());
            OperationFigure& f = figures.operations[{step.kind, members}];
            f.calls += ranks, f.bytes += step.bytes * ranks;
        }
    }
    std::map<std::size_t, std::uint32_t> sizes;
    for (std::size_t c = 0; c < used.size(); ++c)
        for (const auto& group : workload.comms[c].groups) sizes[group.size()] += used[c];
    for (const auto& [size, count] : sizes)
        if (count != 0) figures.groups[std::to_string(count) + " of " + std::to_string(size)] = count;
}

std::uint32_t choose_gpus_per_node(std::uint32_t world, const std::vector<std::vector<std::uint32_t>>& groups,
                                   const ReadOptions& options, std::vector<std::string>& assumed) {
    if (options.gpus_per_node != 0) return options.gpus_per_node;
    // The widest groups of neighbours that divide the ranks among them.
    constexpr std::uint32_t kMost = 8;
    std::map<std::uint32_t, std::uint32_t> aligned;  // by size: how many
    for (const auto& group : groups) {
        const auto n = static_cast<std::uint32_t>(group.size());
        bool neighbours = n > 1 && n <= kMost && n < world && group.front() % n == 0;
        for (std::uint32_t i = 1; i < n && neighbours; ++i) neighbours = group[i] == group[i - 1] + 1;
        if (neighbours) ++aligned[n];
    }
    std::uint32_t gpus = world > kMost && world % kMost == 0 ? kMost : 1;
    std::string why = gpus == kMost ? "" : ", one GPU a node";
    for (const auto& [n, count] : aligned)
        if (count * n >= world && (gpus == 1 || n > gpus)) gpus = n, why = ", as its groups of neighbours are";
    assumed.push_back("nodes of " + std::to_string(gpus) + " GPU" + (gpus == 1 ? "" : "s") + why +
                      "; --gpus-per-node says otherwise");
    return gpus;
}

JobFile read_played(const NamedText& file) {
    JobFile job;
    job.format = "opus-replay workload";
    std::istringstream in{std::string(file.text)};
    std::vector<replay::WorkloadError> errors;
    job.workload = replay::read_workload(in, errors);
    if (!errors.empty())
        throw BadFile(file.name, errors.front().line == 0 ? "" : "line " + std::to_string(errors.front().line),
                      errors.front().text);
    job.figures.files = 1, job.figures.ranks = job.workload.world();
    job.figures.entries = static_cast<std::uint64_t>(std::count(file.text.begin(), file.text.end(), '\n'));
    count_workload(job.workload, job.figures);
    return job;
}

}  // namespace opus::job
