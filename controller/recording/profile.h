// What a run was like, from what happened in it: windows, and how much of the dark time anybody waited for.
//
// A phase of a rank is a run of its launches on one communicator (transfers apart from collectives); the window
// before a phase is the time for which nothing of the rank was under way before the phase's first launch was ready
// (the paper's: the idle time of a rail's ports between two parallelism phases). Windows are counted by the operation
// that begins the phase and the size of its communicator, which is what tells one parallelism from another.
//
// Fed in the order in which things end; the last launches of a rank are kept back and taken in the order in which they
// were ready, so that one which ends late still counts as under way. Times are nanoseconds of one clock. Bounded
// memory; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/recording/latency.h"
#include "opus/types.h"

namespace opus::controller {

struct RecordedLaunch {
    std::uint64_t rank = 0;  // a number of the caller's for the rank process
    CommId group;
    OpKind op = OpKind::none;
    std::uint64_t bytes = 0;
    TimeNs ready_ns = 0, go_ns = 0, done_ns = 0;  // 0: it never was
    bool held = true;                             // false: observed, or passed
    TimeNs called_ns = 0;                         // when the call was seen, of what is observed; 0: not told
};

class Profile {
public:
    static constexpr std::size_t kMaxRanks = 1u << 16;  // processes at a time
    static constexpr std::size_t kMaxGroups = 1u << 18;
    static constexpr std::size_t kMaxKinds = 64;  // of phases, a job
    static constexpr std::size_t kMaxJobs = 256;  // the oldest that has ended goes
    static constexpr std::size_t kMaxJobsAlive = 4096;
    static constexpr std::size_t kKeptBack = 32;  // launches of a rank

    void rank(std::uint64_t rank, const std::string& job);
    void group(const CommId& group, std::uint32_t size);
    void launch(const RecordedLaunch& launch);
    // From the command to light.
    void change_set(TimeNs sent_ns, TimeNs settled_ns, std::uint32_t circuits);
    // A gang that was granted, one of its ranks, and how long it had waited for light, up to now.
    void gang(std::uint64_t rank, TimeNs granted_ns, TimeNs dark_ns);
    void job_ended(const std::string& job);

    // {"jobs": [...], "fabric": {...}}: docs/recording.md. One job only, where one is named.
    nlohmann::json summary(const std::string& job = "");

private:
    struct Kind {  // phases that begin alike
        std::uint64_t phases = 0, launches = 0, bytes = 0, over_1ms = 0;
        TimeNs window_ns = 0, longest_ns = 0;
        Latency windows;
    };
    struct Job {
        std::string name;
        std::uint32_t ranks = 0;
        std::uint64_t launches = 0, held = 0, gangs = 0, gangs_in_the_dark = 0;
        TimeNs held_ns = 0, begin_ns = 0, end_ns = 0, waited_ns = 0;
        bool ended = false;
        std::map<std::pair<OpKind, std::uint32_t>, std::unique_ptr<Kind>> kinds;  // operation, size of the group
    };
    struct Rank {
        Job* job = nullptr;
        CommId phase;
        bool transfers = false, began = false;
        Kind* kind = nullptr;
        TimeNs busy_until_ns = 0;
        std::vector<RecordedLaunch> kept;  // a heap: the first that was ready on top
    };
    struct ChangeSet {
        TimeNs begin_ns = 0, end_ns = 0, waited_to_ns = 0;
    };

    std::deque<Job> jobs_;
    std::unordered_map<std::uint64_t, Rank> ranks_;
    std::unordered_map<CommId, std::uint32_t> groups_;
    std::deque<ChangeSet> recent_;
    std::uint64_t change_sets_ = 0, circuits_ = 0, gangs_ = 0, gangs_in_the_dark_ = 0;
    TimeNs dark_ns_ = 0, exposed_ns_ = 0;

    Job* job(const std::string& name);
    void take(Rank& rank, const RecordedLaunch& launch);
    void take_kept(Rank& rank, std::size_t leave);
    Kind* kind(Job& job, const RecordedLaunch& launch);
    static nlohmann::json job_json(const Job& job);
};

}  // namespace opus::controller
