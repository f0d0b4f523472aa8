// The events of one Kineto file that matter.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/opus-sim/kineto_facts.h"

namespace opus::job {

struct GpuWork {
    std::int64_t start_ns = 0, end_ns = 0;
    std::uint64_t correlation = 0;          // of NCCL kernels
    std::uint32_t event = 0;                // number in the file
    std::uint32_t facts = replay::kNobody;  // index of KinetoEvents::facts, of NCCL kernels
};
struct HostCall {
    std::int64_t start_ns = 0, end_ns = 0;
    std::string thread;
    CollectiveFacts facts;
};
struct HostLaunch {
    std::int64_t ns = 0;
    std::string_view thread;  // in the file's text
};

struct KinetoEvents {
    std::uint32_t rank = replay::kNobody, world = 0;
    std::map<std::string, std::vector<std::uint32_t>> groups;  // by name
    std::vector<GpuWork> work;
    std::vector<CollectiveFacts> facts;
    std::vector<HostCall> calls;                             // "nccl:" annotations
    std::unordered_map<std::uint64_t, HostLaunch> launches;  // by correlation; of all kernels
    std::uint64_t count = 0;
    std::uint32_t steps = 0;  // "ProfilerStep#" annotations
};

// Throws BadFile.
KinetoEvents scan_kineto(const NamedText& file);

}  // namespace opus::job
