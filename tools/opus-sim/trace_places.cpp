// Which ranks of a trace share a node.
#include <algorithm>
#include <map>

#include "tools/opus-sim/job_trace.h"
#include "tools/replay/dry_run.h"

namespace opus::job {
namespace {

// Groups of one size in which each rank is once, by their first ranks.
using Families = std::map<std::size_t, std::vector<const std::vector<std::uint32_t>*>>;

Families families_of(const JobTrace& trace) {
    Families families;
    for (const auto& group : trace.groups) families[group.size()].push_back(&group);
    for (auto& [size, family] : families)
        std::sort(family.begin(), family.end(), [](const auto* a, const auto* b) { return *a < *b; });
    std::erase_if(families, [&](const auto& family) {
        std::vector<std::uint32_t> ranks;
        for (const auto* group : family.second) ranks.insert(ranks.end(), group->begin(), group->end());
        std::sort(ranks.begin(), ranks.end());
        if (ranks.size() != trace.world) return true;
        for (std::uint32_t r = 0; r < trace.world; ++r)
            if (ranks[r] != r) return true;
        return false;
    });
    return families;
}

// What passes between neighbours of a ring, by size of the group.
std::map<std::size_t, double> bytes_by_size(const JobTrace& trace) {
    std::map<std::size_t, double> bytes;
    for (const TraceRank& rank : trace.ranks)
        for (const TraceItem& item : rank.items) {
            if (item.group == replay::kNobody) continue;
            const std::size_t members = trace.groups[item.group].size();
            bytes[members] +=
                static_cast<double>(item.bytes) * replay::ring_passes(item.kind, static_cast<double>(members));
        }
    return bytes;
}

}  // namespace

std::vector<replay::Place> choose_places(const JobTrace& trace, const ReadOptions& options,
                                         std::vector<std::string>& assumed) {
    const std::uint32_t gpus = choose_gpus_per_node(trace.world, trace.groups, options, assumed);
    std::vector<replay::Place> places(trace.world);
    for (std::uint32_t r = 0; r < trace.world; ++r) places[r] = {r / gpus, r % gpus};
    if (gpus == 1 || options.gpus_per_node != 0 || trace.neighbours_share_nodes) return places;
    const std::map<std::size_t, double> bytes = bytes_by_size(trace);
    const Families families = families_of(trace);
    auto most = families.end();
    for (auto f = families.begin(); f != families.end(); ++f) {
        const auto of = bytes.find(f->first);
        if (f->first < 2 || gpus % f->first != 0 || of == bytes.end()) continue;
        if (most == families.end() || of->second >= bytes.at(most->first)) most = f;
    }
    if (most == families.end()) return places;
    std::vector<replay::Place> grouped(trace.world);
    std::uint32_t next = 0;
    bool neighbours = true;
    for (const auto* group : most->second)
        for (const std::uint32_t r : *group) {
            neighbours &= r / gpus == next / gpus;
            grouped[r] = {next / gpus, next % gpus};
            ++next;
        }
    if (neighbours) return places;
    assumed.back() = "nodes of " + std::to_string(gpus) + " GPUs, and on each of them groups of " +
                     std::to_string(most->first) +
                     ", which have the most to say to each other; --gpus-per-node N puts N neighbours on each";
    return grouped;
}

}  // namespace opus::job
