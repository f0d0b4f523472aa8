#include "test/sim/drawn.h"

#include <algorithm>
#include <map>
#include <set>

#include "test/sim/calendar.h"
#include "test/sim/draft.h"

namespace opus::sim {
namespace {

constexpr TimeNs kLate = 10 * kMs;

class Census {
public:
    explicit Census(const Scenario& s) : s_(s) {}

    std::uint32_t bits() {
        for (const JobPlan& job : s_.jobs) {
            if (job.early_receives > 0) note(Drawn::early_receive);
            if (job.odd_iterations) note(Drawn::odd_iterations);
        }
        for (const RankPlan& rank : s_.ranks) of_rank(rank);
        return bits_;
    }

private:
    struct Use {  // of a communicator, by a rank
        std::set<std::uint32_t> streams;
        std::uint32_t last = kNone;  // stream of the last launch
        bool collectives = false, transfers = false, ring = false, pairs = false;
    };

    void note(Drawn what) { bits_ |= 1u << static_cast<unsigned>(what); }

    void of_rank(const RankPlan& rank) {
        const auto is_launch = [](const Call& c) { return c.kind == Call::Kind::launch; };
        const auto launches = std::count_if(rank.calls.begin(), rank.calls.end(), is_launch);
        std::ptrdiff_t before = 0;
        bool destroyed = false;
        std::map<std::uint32_t, Use> uses;
        replayed_.clear();
        for (std::size_t i = 0; i < rank.calls.size(); ++i) {
            const Call& call = rank.calls[i];
            if (call.kind == Call::Kind::create) {
                of_creation(call, before, destroyed);
            } else if (call.kind == Call::Kind::destroy) {
                destroyed = true;
                if (before < launches) note(Drawn::destroyed_early);
            } else if (call.kind == Call::Kind::forget) {
                note(Drawn::graph_destroyed);
            } else if (call.kind == Call::Kind::replay) {
                note(replayed_.insert(call.index).second ? Drawn::graph : Drawn::graph_again);
                if (call.launches.size() > 1) note(Drawn::graph_of_several);
            } else if (call.kind == Call::Kind::pause) {
                if (i == 0 && call.ns >= kLate) note(Drawn::late_rank);
                if (i > 0 && call.ns >= kSecond) note(Drawn::long_pause);
            } else if (is_launch(call)) {
                if (!call.first_uses.empty() && 2 * before > launches) note(Drawn::late_first_use);
                of_group(call, uses);
                ++before;
            }
        }
    }

    void of_creation(const Call& call, std::ptrdiff_t launches, bool destroyed) {
        const std::uint32_t parent = s_.creations[call.creation].parent;
        if (launches > 0) note(Drawn::created_later);
        if (destroyed) note(Drawn::entry_again);
        if (parent == kNone || call.index == kNone) return;
        if (s_.comms[call.index].family == s_.comms[parent].family) note(Drawn::shared_resources);
        if (splits_.contains(parent)) note(Drawn::split_of_split);
        splits_.insert(call.index);
    }

    void of_group(const Call& call, std::map<std::uint32_t, Use>& uses) {
        std::set<std::uint32_t> comms;
        bool collective = false, transfer = false;
        for (const OpPlan& first : call.first_uses)
            if (first.empty) note(Drawn::empty_first_use);
        for (const LaunchPlan& launch : call.launches)
            for (const OpPlan& op : launch.ops) {
                comms.insert(op.comm);
                (is_transfer(op.kind) ? transfer : collective) = true;
                of_op(op, launch, uses[op.comm]);
            }
        if (comms.size() > 1) note(Drawn::several_comms);
        if (collective && transfer) note(Drawn::mixed_group);
    }

    void of_op(const OpPlan& op, const LaunchPlan& launch, Use& use) {
        if (op.empty) note(Drawn::empty_transfer);
        if (!is_transfer(op.kind)) {
            if (!use.collectives && use.transfers && use.last == launch.stream) note(Drawn::fast_path_first_use);
            if (is_mesh(op.kind) && use.ring) note(Drawn::pairs_after_ring);
            if (!is_mesh(op.kind) && use.pairs) note(Drawn::ring_after_pairs);
            (is_mesh(op.kind) ? use.pairs : use.ring) = true;
        }
        (is_transfer(op.kind) ? use.transfers : use.collectives) = true;
        use.streams.insert(use.last = launch.stream);
        if (use.transfers && use.collectives) note(Drawn::both_kinds);
        if (use.streams.size() > 1) note(Drawn::several_streams);
    }

    const Scenario& s_;
    std::set<std::uint32_t> splits_, replayed_;
    std::uint32_t bits_ = 0;
};

}  // namespace

const char* name_of(Drawn what) {
    static constexpr const char* kNames[] = {
        "collectives and transfers of one communicator",
        "launches of one communicator on several streams",
        "first collective after a transfer on its stream",
        "first use in the second half of a program",
        "first all-to-all after a ring collective",
        "first ring collective after an all-to-all",
        "transfer of zero bytes",
        "first transfer of a pair has zero bytes",
        "split of a split",
        "split that shares its parent's resources",
        "communicator created in mid-job",
        "communicator destroyed in mid-job",
        "communicator created after one was destroyed",
        "group over several communicators",
        "group of collectives and transfers",
        "receive posted early on a stream of its own",
        "every n-th iteration is another one",
        "rank that comes late",
        "host that pauses for a second or more",
        "CUDA graph of collectives, launched",
        "the same graph launched again",
        "graph of several collectives",
        "graph destroyed before its communicator",
    };
    return kNames[static_cast<std::size_t>(what)];
}

std::uint32_t drawn_in(const Scenario& scenario) { return Census(scenario).bits(); }

}  // namespace opus::sim
