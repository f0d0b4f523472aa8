// All that one seed decides before time begins: fabric, jobs, programs, faults. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "opus/fabric.h"
#include "opus/launch_ring.h"
#include "opus/types.h"

namespace opus::sim {

// What may go wrong in a schedule. `calm`: nothing; only delays are drawn. `windows`: nothing but predictions.
// `silence`: a node that holds runs is not heard, or does not hear, for longer than the grace time, and others want its
// ports. `early`: receives posted early, and anything meanwhile. `wide`: up to six nodes,
// four ports a GPU and four switches a rail, all-to-alls over as many nodes as these reach, and anything.
enum class FaultClass : std::uint8_t {
    calm,
    ranks,
    managers,
    controller,
    network,
    switches,
    foreign,
    mixed,
    windows,
    silence,
    early,
    wide
};
inline constexpr std::uint32_t kFaultClasses = 12;
const char* name_of(FaultClass c);

enum class FaultKind : std::uint8_t {
    rank_death,
    manager_death,
    controller_death,
    link_break,
    partition,
    lossy,
    duplicates,
    session_drop,
    slow,
    refuse,
    refuse_all,
    partial,
    stuck,
    reboot,
    foreign_hand,
    mute,  // nothing that the node says arrives
    deaf,  // nothing arrives that is said to it
};
const char* name_of(FaultKind kind);
bool is_of_network(FaultKind kind);
bool is_of_switch(FaultKind kind);

struct Fault {
    FaultKind kind{};
    TimeNs at_ns = 0, lasts_ns = 0;
    std::uint32_t target = 0;  // rank, node or switch
    std::uint64_t detail = 0;  // a seed of its own, a port, ...
    bool left_out = false;     // while a failing schedule is made smaller
};

// Deliberate mistakes of the harness, each to be caught by one of its checks.
enum class Mutation : std::uint8_t {
    none,
    cut_under_launch,
    drop_grants,
    start_without_go,
    lying_switch,
    forget_done,
    early_answer,
    half_grant,
    ignore_revoke,
    keep_runs,
    retract_nothing,
    // Of the shim: what it forgets to ask for, NCCL does all the same, in the dark.
    fast_path_first_use,  // no connect key for the first collective, after a transfer on the same stream
    no_connect_keys,
    no_empty_keys,  // none for transfers of zero bytes
    no_pair_keys,   // none for the pairs that an all-to-all, gather or scatter connects
    overlook_ahead,  // of a manager: what went by a communicator's go word is not looked for, nor before that is taken back
    keep_replays,  // ...: the go of a replay that was let go before its gate was reached is not taken back
};
inline constexpr std::uint32_t kMutations = 17;
const char* name_of(Mutation m);

using FlowIndex = std::uint32_t;
using PairIndex = std::uint32_t;  // two GPUs: a * GPUs + b, a < b

// A key, and what its members do at it.
struct FlowPlan {
    Key key;
    std::uint32_t comm = 0;
    std::uint32_t members = 0;
    TimeNs transfer_ns = 0;        // light it needs, once all members are there
    TimeNs sender_ns = 0;          // of that, until the sender is through
    bool eager = false;            // the sender is through before the receiver comes
    bool empty = false;            // a transfer of zero bytes: it connects and meets all the same
    std::vector<PairIndex> pairs;  // circuits that it needs; none inside a node
};

struct Part {  // one rank's share in a flow
    FlowIndex flow = 0;
    std::uint32_t comm = 0;  // CommPlan
    bool sends = false;      // of a transfer: its first end
};

struct OpPlan {
    std::uint32_t comm = 0;  // CommPlan
    OpKind kind{};
    std::uint32_t peer = 0;  // rank in the communicator
    std::uint64_t n = 0;
    std::uint32_t count = 1;
    bool empty = false;  // zero bytes
};

struct KernelPlan {  // what a group gives one communicator
    std::uint32_t comm = 0;
    std::vector<Part> parts;
};

struct LaunchPlan {
    std::uint32_t stream = 0;  // the gate stands here
    std::vector<std::uint32_t> other_streams;
    std::vector<OpPlan> ops;
    std::vector<Part> parts;
    std::vector<KernelPlan> kernels;  // the same parts, in the order in which NCCL launches them
};

struct Call {
    enum class Kind : std::uint8_t {
        create,
        launch,
        compute,
        record,
        wait,
        sync,
        destroy,
        pause,
        capture,
        replay,
        forget
    } kind{};
    std::uint32_t index = 0;  // communicator (kNone: created for others alone), event, or graph
    std::uint32_t comm = kNone;  // whose graph it forgets
    std::uint32_t creation = 0;
    std::uint32_t stream = 0;
    TimeNs ns = 0;
    std::vector<LaunchPlan> launches;  // of one group; of a graph each by itself, when captured without parts and kernels
    std::vector<OpPlan> first_uses;    // connections that the group makes, on the host
    std::vector<Part> first_parts;
};

// One ncclCommInitRank of all its members, or one ncclCommSplit of all members of the parent: a barrier.
struct Creation {
    std::uint32_t parent = kNone;        // CommPlan; kNone: from a unique id
    std::vector<std::uint32_t> callers;  // RankPlan
};

struct CommPlan {
    CommId id;
    std::uint32_t job = 0;
    std::uint32_t family = 0;
    std::uint64_t hash = 0;            // NCCL's: communicators of one group launch by it
    std::vector<std::uint32_t> ranks;  // RankPlan, by rank in the communicator
    bool intra = false;
};

struct RankPlan {
    std::uint32_t job = 0;
    NodeIndex node = 0;
    std::uint32_t gpu = 0;  // local
    Mode mode = Mode::enforce;
    Policy policy = Policy::proceed;
    std::uint32_t streams = 1;
    std::uint32_t events = 0;
    std::vector<Call> calls;
};

// What its programs are: anything (programs.cpp), or one thing again and again (special_programs.cpp). `silent`: a rank
// computes for longer than its node may be silent. `early`: receives posted early. `ring`: each rank sends to the next,
// out of step. `line`: there and back along a line of ranks.
enum class JobShape : std::uint8_t { any, silent, early, ring, line };

struct JobPlan {
    TimeNs start_ns = 0;
    std::uint32_t after = kNone;  // starts when that job has ended
    TimeNs pauses_ns = 0;         // of all its hosts
    std::vector<std::uint32_t> ranks;
    JobShape shape = JobShape::any;
    std::uint32_t early_receives = 0;  // posted before others of their rank, on a stream of their own
    bool odd_iterations = false;       // every n-th is another one
    // A call that makes connections waits for all that its GPU was given before its kernels, its own gates too: CUDA may
    // synchronise the device for what NCCL does on the host (decision 019). Its program ends where each
    // such call waits for its own kernels as well.
    bool drains = false;
};

// Time constants: the daemons' own in proportion, shorter, so that a schedule has fewer heartbeats.
struct Timing {
    TimeNs heartbeat_ns = 200'000'000;
    TimeNs silence_ns = 1'000'000'000;
    TimeNs grace_ns = 6'000'000'000;
    TimeNs register_ns = 2'000'000'000;
    TimeNs hold_ns = 6'000'000'000;
    TimeNs switch_timeout_ns = 300'000'000;
    TimeNs map_period_ns = 1'000'000'000;
    TimeNs port_trial_ns = 50'000'000;
    std::optional<TimeNs> rest_ns;  // CoreOptions
    TimeNs wire_low_ns = 20'000, wire_high_ns = 200'000;
    TimeNs poll_high_ns = 300'000;
    TimeNs compute_high_ns = 4'000'000;
    bool long_silence = false;  // partitions last as long as the grace time, shorter here, and so do computations
};

struct Scenario {
    std::uint64_t seed = 0;
    FaultClass fault_class{};
    Mutation mutation{};
    Timing timing;
    bool provision = true;     // the controller moves circuits ahead of demand
    bool guard = false;        // only while jobs are no slower for it
    std::uint32_t ring_slots = 128;  // of each rank's launch ring; few: hosts wait for room
    Fabric fabric;
    std::vector<JobPlan> jobs;
    std::vector<Creation> creations;
    std::vector<CommPlan> comms;
    std::vector<RankPlan> ranks;
    std::vector<FlowPlan> flows;
    std::vector<Fault> faults;
    TimeNs about_ns = 0;   // class early: its jobs last about so long
    TimeNs healed_ns = 0;  // from here on nothing is wrong any more

    PairIndex pair_of(GpuId x, GpuId y) const {
        const auto gpus = static_cast<PairIndex>(fabric.gpus.size());
        return x < y ? x * gpus + y : y * gpus + x;
    }
    std::string name_of_rank(std::uint32_t rank) const;
};

Scenario make_scenario(std::uint64_t seed, FaultClass fault_class, Mutation mutation);

}  // namespace opus::sim
