#include "tools/replay/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace opus::replay {
namespace {

constexpr std::array kStepNames = {
    "all_reduce", "all_gather", "reduce_scatter", "reduce",      "broadcast", "all_to_all", "gather",
    "scatter",    "send",       "recv",           "compute",     "host",      "record",     "wait",
    "sync",       "create",     "destroy",        "group_begin", "group_end", "repeat",     "end"};
static_assert(kStepNames.size() == static_cast<std::size_t>(StepKind::end) + 1);

struct DTypeInfo {
    const char* name;
    std::size_t size;
};
constexpr std::array<DTypeInfo, 10> kDTypes = {{{"int8", 1},
                                                {"uint8", 1},
                                                {"int32", 4},
                                                {"uint32", 4},
                                                {"int64", 8},
                                                {"uint64", 8},
                                                {"float16", 2},
                                                {"float32", 4},
                                                {"float64", 8},
                                                {"bfloat16", 2}}};
constexpr std::array kReductionNames = {"sum", "prod", "max", "min"};

}  // namespace

bool Step::does_as(const Step& o) const {
    const auto of = [](const Step& s) {
        return std::tie(s.kind, s.first_only, s.varies, s.dtype, s.reduction, s.comm, s.stream, s.event, s.peer,
                        s.times, s.every, s.bytes, s.us, s.jitter_us);
    };
    return of(*this) == of(o);
}

bool is_operation(StepKind kind) { return kind <= StepKind::recv; }
bool is_rooted(StepKind kind) {
    return kind == StepKind::reduce || kind == StepKind::broadcast || kind == StepKind::gather || kind == StepKind::scatter;
}
bool is_reduction(StepKind kind) {
    return kind == StepKind::all_reduce || kind == StepKind::reduce_scatter || kind == StepKind::reduce;
}
const char* name_of(StepKind kind) { return kStepNames[static_cast<std::size_t>(kind)]; }
std::size_t size_of(DType type) { return kDTypes[static_cast<std::size_t>(type)].size; }
const char* name_of(DType type) { return kDTypes[static_cast<std::size_t>(type)].name; }
const char* name_of(Reduction reduction) { return kReductionNames[static_cast<std::size_t>(reduction)]; }

std::uint32_t Workload::nodes() const {
    std::uint32_t count = 0;
    for (const Place& place : places) count = std::max(count, place.node + 1);
    return count;
}

const Role& Workload::role_of(std::uint32_t rank) const {
    for (const Role& role : roles)
        if (std::find(role.ranks.begin(), role.ranks.end(), rank) != role.ranks.end()) return role;
    static const Role none;
    return none;
}

double length_of(const Workload& workload, const Step& step, std::uint32_t iteration) {
    if (!step.varies || workload.lengths.empty()) return 1;
    std::uint64_t draw = (iteration + 1) * 0x9e3779b97f4a7c15ull;
    draw = (draw ^ (draw >> 31)) * 0xff51afd7ed558ccdull;
    return workload.lengths[(draw >> 33) % workload.lengths.size()];
}

double longest(const Workload& workload, const Step& step) {
    if (!step.varies || workload.lengths.empty()) return 1;
    return *std::max_element(workload.lengths.begin(), workload.lengths.end());
}

Membership membership(const Comm& comm, std::uint32_t rank) {
    for (std::uint32_t g = 0; g < comm.groups.size(); ++g) {
        const auto& ranks = comm.groups[g];
        const auto it = std::find(ranks.begin(), ranks.end(), rank);
        if (it != ranks.end()) return {g, static_cast<std::uint32_t>(it - ranks.begin())};
    }
    return {};
}

Memberships::Memberships(const Workload& workload) {
    for (const Comm& comm : workload.comms) {
        std::vector<Membership>& of = of_.emplace_back(workload.world());
        for (std::uint32_t g = static_cast<std::uint32_t>(comm.groups.size()); g-- > 0;)  // of several, the first
            for (std::uint32_t i = static_cast<std::uint32_t>(comm.groups[g].size()); i-- > 0;)
                of.at(comm.groups[g][i]) = {g, i};
    }
}

std::size_t element_count(const Step& step, std::size_t comm_size, double scale_bytes) {
    if (step.bytes == 0) return 0;
    double bytes = static_cast<double>(step.bytes) * scale_bytes;
    if (step.kind == StepKind::reduce_scatter || step.kind == StepKind::all_to_all || step.kind == StepKind::scatter)
        bytes /= static_cast<double>(comm_size);
    const auto count = std::llround(bytes / static_cast<double>(size_of(step.dtype)));
    return static_cast<std::size_t>(std::max(1LL, count));
}

namespace {

// steps[at] is the first of the body; returns the index of its `end` (or the size).
std::size_t unroll(const std::vector<Step>& steps, std::size_t at, std::vector<Step>& out) {
    while (at < steps.size() && steps[at].kind != StepKind::end) {
        if (steps[at].kind != StepKind::repeat) {
            if (out.size() < kMaxSteps) out.push_back(steps[at]);
            ++at;
            continue;
        }
        std::size_t close = at;
        // The reader refuses empty loops and times 0, so each turn adds a step and the limit ends it.
        for (std::uint32_t i = 0; i < steps[at].times && (i == 0 || out.size() < kMaxSteps); ++i)
            close = unroll(steps, at + 1, out);
        at = close + 1;
    }
    return at;
}

}  // namespace

std::vector<Step> unrolled(const std::vector<Step>& steps) {
    std::vector<Step> out;
    unroll(steps, 0, out);
    return out;
}

}  // namespace opus::replay
