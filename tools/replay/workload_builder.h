// Writes a role's program line by line; generators only.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::replay {

class WorkloadBuilder {
public:
    WorkloadBuilder(std::string name, std::uint32_t nodes, std::uint32_t gpus, std::uint32_t iterations) {
        w_.name = std::move(name);
        w_.iterations = iterations;
        for (std::uint32_t n = 0; n < nodes; ++n)
            for (std::uint32_t g = 0; g < gpus; ++g) w_.places.push_back({n, g});
    }

    Workload& workload() { return w_; }
    void comm(std::string name, std::string parent, std::vector<std::vector<std::uint32_t>> groups) {
        w_.comms.push_back({std::move(name), std::move(parent), std::move(groups)});
    }
    void role(std::string name, std::vector<std::uint32_t> ranks) {
        w_.roles.push_back({std::move(name), std::move(ranks), {}});
    }

    void collective(StepKind kind, const std::string& comm, const std::string& stream, std::uint64_t bytes, DType dtype,
                    std::string name = {}) {
        Step& s = add(kind, std::move(name));
        s.comm = comm_index(comm), s.stream = index(w_.streams, streams_, stream), s.bytes = bytes, s.dtype = dtype;
    }
    void transfer(StepKind kind, const std::string& comm, std::uint32_t peer, const std::string& stream,
                  std::uint64_t bytes, std::string name = {}) {
        collective(kind, comm, stream, bytes, DType::bfloat16, std::move(name));
        last().peer = peer;
    }
    void compute(const std::string& stream, std::uint64_t us, std::string name = {}) {
        Step& s = add(StepKind::compute, std::move(name));
        s.stream = index(w_.streams, streams_, stream), s.us = us;
    }
    void record(const std::string& stream, const std::string& event) { order(StepKind::record, stream, event); }
    void wait(const std::string& stream, const std::string& event) { order(StepKind::wait, stream, event); }
    // `later` starts what follows only when `earlier` has done what is on it now.
    void after(const std::string& later, const std::string& earlier, const std::string& event) {
        record(earlier, event);
        wait(later, event);
    }
    void group_begin() { add(StepKind::group_begin, {}); }
    void group_end() { add(StepKind::group_end, {}); }
    void sync() { add(StepKind::sync, {}); }
    void host(std::uint64_t us, std::string name = {}) { add(StepKind::host, std::move(name)).us = us; }
    // Of all steps that are added from now on.
    void first_only(bool yes) { first_only_ = yes; }
    void every(std::uint32_t iterations) { every_ = iterations; }
    void varies(bool yes) { varies_ = yes; }
    Step& last() { return w_.roles.back().steps.back(); }

private:
    Step& add(StepKind kind, std::string name) {
        Step s;
        s.kind = kind;
        s.name = std::move(name);
        s.first_only = first_only_, s.every = every_;
        const bool sized = is_operation(kind) || kind == StepKind::compute;
        s.varies = varies_ && sized;
        w_.roles.back().steps.push_back(std::move(s));
        return last();
    }
    void order(StepKind kind, const std::string& stream, const std::string& event) {
        Step& s = add(kind, {});
        s.stream = index(w_.streams, streams_, stream), s.event = index(w_.events, events_, event);
    }
    using Known = std::unordered_map<std::string, std::uint32_t>;
    static std::uint32_t index(std::vector<std::string>& names, Known& known, const std::string& name) {
        const auto [at, fresh] = known.try_emplace(name, static_cast<std::uint32_t>(names.size()));
        if (fresh) names.push_back(name);
        return at->second;
    }
    std::uint32_t comm_index(const std::string& name) const {
        std::uint32_t i = 0;
        while (w_.comms[i].name != name) ++i;
        return i;
    }

    Workload w_;
    Known streams_, events_;  // by name: a recording has as many events as launches
    bool first_only_ = false, varies_ = false;
    std::uint32_t every_ = 1;
};

}  // namespace opus::replay
