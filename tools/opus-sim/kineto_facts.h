// What a Kineto event says of a collective, by its arguments or by the names of annotation and kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/opus-sim/json_scan.h"
#include "tools/replay/workload.h"

namespace opus::job {

struct CollectiveFacts {
    replay::StepKind kind = replay::StepKind::end;  // end: not known
    std::uint64_t bytes = 0;
    bool has_bytes = false;
    std::string group;                     // its name; empty: not told
    std::vector<std::uint32_t> ranks;      // of the group; empty: not told
    std::uint32_t peer = replay::kNobody;  // of a transfer: rank of the group

    // What is not known yet.
    void add(const CollectiveFacts& other);
};

bool is_nccl(std::string_view kernel);
// Arguments of an event; `args` is its JSON object.
CollectiveFacts facts_of_args(const NamedText& args);
// "nccl:all_reduce", "nccl:send 0->1".
CollectiveFacts facts_of_annotation(std::string_view name);
// "ncclDevKernel_AllReduce_Sum_f16_RING_LL(...)".
CollectiveFacts facts_of_kernel(std::string_view name);
// "[0, 1, 2]"; anything else: none.
std::vector<std::uint32_t> numbers_of(std::string_view text);

}  // namespace opus::job
