// Plays a lap on the ports of its GPUs, in one given way (Way). search.cpp looks for the best way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "controller/plan/lap.h"
#include "opus/fabric.h"

namespace opus::controller::plan {

using Ports = std::pair<std::uint32_t, std::uint32_t>;  // of a Play: joined, or to be; Play::kNone32: none

// How a lap may go. `rank`: of each use its priority for ports, lowest first (no NCCL rank). `circuits`: of each use,
// for each pair of GPUs. `ports`: of each use, of each pair, then of each pair's second circuit, and so on; more of
// them count for nothing. A use of which these are not given chooses them by `first_free`: of two ports the one that is
// free earlier is better, even if both are free a dark time before the use is ready; otherwise these two are as good.
struct Way {
    std::vector<double> rank;
    std::vector<std::uint32_t> circuits;
    bool first_free = false;
    std::vector<std::vector<Ports>> ports = {};
};

class Play {
public:
    static constexpr std::uint32_t kNone32 = 0xffffffffu;
    static constexpr std::uint32_t kTypical = 3;  // of the laps that are played

    struct Begun {
        TimeNs full_ns = 0, begin_ns = 0, blocked_ns = 0, ns = 0, longer_ns = 0;
        std::uint32_t blocker = kNone32;  // instance
        bool done = false;
    };

    Play(const Lap& lap, const Fabric& fabric, const std::vector<bool>& usable);

    // So many circuits each pair of the use can have.
    std::uint32_t most_circuits(std::uint32_t use) const { return use_[use].most_circuits; }
    // What the use takes longer with so many circuits a pair than as it was seen.
    TimeNs longer_ns(std::uint32_t use, std::uint32_t circuits) const {
        const Slice& longer = use_[use].longer;
        return longer_[std::min(longer.at + circuits, longer.end) - 1];
    }

    void play(const Way& way);

    bool whole() const { return !short_of_ports_ && order_.size() == std::size_t{uses_} * kLaps; }
    std::vector<std::pair<PortId, PortId>> ports_of(std::uint32_t use) const;
    // These, by use, as they are named in a Way; empty: not all of them can be had.
    std::vector<std::vector<Ports>> named(const std::vector<std::vector<std::pair<PortId, PortId>>>& ports) const;
    std::uint32_t circuits_of(std::uint32_t use) const;
    TimeNs end_of(std::uint32_t k) const {
        TimeNs end = 0;
        for (std::uint32_t x = 0; x < (k + 1) * uses_; ++x) end = std::max(end, begun_[x].begin_ns + begun_[x].ns);
        return end;
    }
    TimeNs lap_ns() const { return (end_of(kLaps - 1) - end_of(kChosen)) / (kLaps - 1 - kChosen); }
    TimeNs held_ns() const {
        TimeNs sum = 0;
        for (std::uint32_t x = uses_; x < uses_ * kLaps; ++x) sum += begun_[x].begin_ns - begun_[x].full_ns;
        return sum;
    }
    const Begun& typical(std::uint32_t use) const { return begun_[kTypical * uses_ + use]; }
    TimeNs dark_ns() const { return dark_ns_; }  // the longest
    const std::vector<std::uint32_t>& order() const { return order_; }
    std::uint32_t uses() const { return uses_; }

private:
    // Laps that are played. In that of kChosen ports are chosen for all that follow.
    static constexpr std::uint32_t kLaps = 5, kChosen = 1;

    struct Slice {  // of a list of all uses: from `at` on, before `end`
        std::uint32_t at = 0, end = 0;
    };
    struct PlayedUse {
        Slice pairs, longer, next, circuits;
        std::uint32_t most_circuits = 1;
        TimeNs ns = 0;
    };
    struct Gpu {
        Slice ports;
        TimeNs dark_ns = 0;
        std::vector<std::pair<double, std::uint32_t>> peers;  // of uses, by rank: whom it is joined to
    };
    struct Port {
        std::uint32_t peer = kNone32, gpu = kNone32;  // where its light leads
        std::uint32_t last = kNone32;
        std::uint32_t open = 0;   // launches that are to have its light again
        std::uint64_t taken = 0;  // when serving_ was so
        TimeNs free_ns = 0, lit_ns = 0;
    };
    using Gpus = std::pair<std::uint32_t, std::uint32_t>;
    struct Circuit {
        Gpus pair;
        Ports ports;
    };
    struct Next {
        std::uint32_t use = 0, laps = 0;
        TimeNs ns = 0;
    };

    void list_next();
    bool is_implied(std::uint32_t use, const Before& before) const;
    void list_peers();
    std::size_t needed_after(std::uint32_t gpu, std::uint32_t peer, double now) const;

    bool is_taken(std::uint32_t p) const { return port_[p].taken == serving_; }
    void take(const Ports& ports) {
        for (const std::uint32_t p : {ports.first, ports.second}) port_[p].taken = serving_, taken_.push_back(p);
    }
    bool leads_to(std::uint32_t p, std::uint32_t gpu) const { return port_[p].peer != kNone32 && port_[p].gpu == gpu; }

    Ports choose(const Gpus& pair, double now, TimeNs in_time) const;
    void list_pairs(const std::vector<bool>& usable);
    void name_ports(Gpu& gpu, const std::vector<PortId>& ports, const std::vector<bool>& usable);
    void list_lengths();
    void list_instances();
    void list_places();
    void list_circuits(const Way& way);
    void serve(std::uint32_t x);
    void take_ports(std::uint32_t x);
    void turn_ports(std::uint32_t x);
    void turn(Begun& b, const Circuit& circuit);
    void note_had(std::uint32_t x);
    void have_again(std::uint32_t x);

    const Lap& lap_;
    const Fabric& fabric_;
    std::uint32_t uses_ = 0;
    bool short_of_ports_ = false;
    std::uint64_t serving_ = 0;
    // Each of these lists is one for all uses, not one a use: a play reads them five times, and mostly waits for memory.
    std::vector<PlayedUse> use_;
    std::vector<Gpus> pairs_;        // of each use
    std::vector<Circuit> circuits_;  // of each use: of each pair, then of each pair's second, and so on
    std::vector<TimeNs> longer_;     // of each use: with one circuit a pair, with two
    std::vector<Next> next_;  // of each use: what waits for it, but for what does so by way of another use anyway
    TimeNs dark_ns_ = 0;
    std::vector<PortId> id_;           // of each port; those of a GPU are beside each other
    std::vector<std::uint32_t> name_;  // by PortId: its index in id_, or kNone32
    std::vector<Gpu> gpus_;
    std::vector<std::uint32_t> waits_for_;  // by instance: for so many
    // An instance is a use in a lap: those of the first lap come first.
    struct Instance {
        std::uint32_t use = 0, lap = 0;
        Use::InLap in_lap;
    };
    std::vector<Instance> instance_;
    std::vector<std::uint32_t> by_rank_, place_;  // uses by their rank, and of each use its place among these
    const std::vector<double>* rank_ = nullptr;
    bool first_free_ = false;
    std::vector<bool> given_;  // by use: its ports are
    std::vector<Begun> begun_;
    std::vector<std::uint32_t> waits_, order_, taken_;
    std::vector<std::uint64_t> due_;  // a heap: instances, behind what they are served by
    std::vector<Port> port_;
    bool goes_on_ = false;                   // some launch does, with a later use (Until)
    std::vector<std::vector<Circuit>> had_;  // by instance: what its launches had before, and are to have again
    std::vector<std::vector<Ports>> again_;  // by use: those that it turns for that
};

}  // namespace opus::controller::plan
