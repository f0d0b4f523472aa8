// A workload: what every rank of a job does, as a plain NCCL program would. docs/workloads.md describes
// the file. Pure: no NCCL, no CUDA, no clock. A file is read into roles; a role's steps are expanded
// (loops unrolled) for the ranks that need them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace opus::replay {

inline constexpr std::uint32_t kNobody = 0xffffffffu;
inline constexpr std::uint32_t kMaxWorld = 65536;
inline constexpr std::size_t kMaxSteps = 1u << 20;  // of one role, loops unrolled

enum class StepKind : std::uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    reduce,
    broadcast,
    all_to_all,
    gather,
    scatter,
    send,
    recv,     // operations
    compute,  // a stream is busy for `us`
    host,     // the host is busy for `us`
    record,   // event <- stream
    wait,     // stream waits for event
    sync,     // host waits for stream (all streams when none is named)
    create,   // a communicator that is made later
    destroy,  // a communicator's end; it may be made again
    group_begin,
    group_end,
    repeat,
    end,  // a loop; gone once unrolled
};
bool is_operation(StepKind kind);
bool is_rooted(StepKind kind);
bool is_reduction(StepKind kind);
const char* name_of(StepKind kind);

enum class DType : std::uint8_t { int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16 };
std::size_t size_of(DType type);
const char* name_of(DType type);

enum class Reduction : std::uint8_t { sum, prod, max, min };
const char* name_of(Reduction reduction);

struct Step {
    StepKind kind = StepKind::host;
    bool first_only = false;  // in the first iteration only
    bool varies = false;      // its bytes and time follow the iteration's length (Workload::lengths)
    DType dtype = DType::bfloat16;
    Reduction reduction = Reduction::sum;
    std::uint32_t comm = kNobody;    // index of Workload::comms
    std::uint32_t stream = kNobody;  // index of Workload::streams
    std::uint32_t event = kNobody;   // index of Workload::events
    std::uint32_t peer = 0;          // send, recv: rank in the communicator; rooted: the root
    std::uint32_t times = 1;         // repeat
    std::uint32_t every = 1;         // in every n-th iteration only
    // At scale 1. all_gather, gather: what each rank gives. reduce_scatter, all_to_all, scatter: the whole
    // that is cut into as many parts as there are ranks. Else: the buffer.
    std::uint64_t bytes = 0;
    std::uint64_t us = 0;         // compute, host
    std::uint64_t jitter_us = 0;  // up to so much is added, drawn from (seed, rank, iteration, step)
    std::string name;             // for people and traces; may be empty
    std::uint32_t line = 0;

    bool does_as(const Step& other) const;  // whatever it is called and wherever it stands
};

struct Comm {
    std::string name;
    std::string parent;  // empty: from a unique id; else by ncclCommSplit of this communicator
    std::vector<std::vector<std::uint32_t>> groups;  // disjoint lists of world ranks, in rank order
    bool later = false;                              // made by a step, not before the first iteration
    bool non_blocking = false;                       // config.blocking = 0; its children are so, too
    bool shrink = false;                             // of its parent, by ncclCommShrink: who is left out does not call
    std::uint32_t gpus_each = 1;                     // that each rank stands for, of its node; not in files
};

struct Place {
    std::uint32_t node = 0;
    std::uint32_t gpu = 0;  // index on the node
};

struct Role {
    std::string name;
    std::vector<std::uint32_t> ranks;
    std::vector<Step> steps;  // as in the file, with loops
};

struct Workload {
    std::string name;
    std::string source;  // where its numbers come from
    std::uint32_t iterations = 1;
    std::vector<double> lengths;  // factors of what varies; one is drawn for each iteration. Empty: 1
    std::vector<Place> places;    // one a rank; its size is the world
    std::vector<Comm> comms;      // parents before children
    std::vector<std::string> streams;
    std::vector<std::string> events;
    std::vector<Role> roles;  // every rank has exactly one

    std::uint32_t world() const { return static_cast<std::uint32_t>(places.size()); }
    std::uint32_t nodes() const;
    const Role& role_of(std::uint32_t rank) const;
};

// Is the step played in this iteration?
inline bool is_played(const Step& step, std::uint32_t iteration) {
    return step.first_only ? iteration == 0 : (iteration + 1) % step.every == 0;
}
// The factor of this step's bytes and time in this iteration; alike on all ranks.
double length_of(const Workload& workload, const Step& step, std::uint32_t iteration);
double longest(const Workload& workload, const Step& step);

// The group of `comm` that holds `rank`, and its rank in it; kNobody when it is no member.
struct Membership {
    std::uint32_t group = kNobody;
    std::uint32_t rank = kNobody;
};
Membership membership(const Comm& comm, std::uint32_t rank);

// The same for all communicators of a workload, found once.
class Memberships {
public:
    explicit Memberships(const Workload& workload);
    Membership of(std::uint32_t comm, std::uint32_t rank) const { return of_[comm][rank]; }

private:
    std::vector<std::vector<Membership>> of_;
};

// Elements of an operation after scaling: of one rank's part where the whole is cut (reduce_scatter,
// all_to_all, gather, scatter, all_gather), else of the buffer. At least 1 where bytes is not 0.
std::size_t element_count(const Step& step, std::size_t comm_size, double scale_bytes);

// Loops unrolled.
std::vector<Step> unrolled(const std::vector<Step>& steps);

struct WorkloadError {
    std::uint32_t line = 0;  // 0: the file as a whole
    std::string text;
};

// Reads and checks a whole file; every mistake found is appended to `errors`.
Workload read_workload(std::istream& in, std::vector<WorkloadError>& errors);
void write_workload(const Workload& workload, std::ostream& out);

// What would hang or corrupt any NCCL: members that disagree on a communicator's collectives, its creation and its end,
// sends without receives, operations of a communicator that the rank is not in or that is not there. read_workload calls it.
void check_agreement(const Workload& workload, std::vector<WorkloadError>& errors);

}  // namespace opus::replay
