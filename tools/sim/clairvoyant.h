// Gates of a rehearsal: a schedule that knows the future. It has seen the job on a network that is never dark,
// keeps that order on each GPU, and turns circuits as soon as what went before on both their ends is over. The
// whole of a GPU goes to one phase, as in Opus. No messages, no time to decide: what is left to wait is what no
// schedule of that order can hide.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "tools/replay/rehearsal.h"
#include "tools/sim/job_map.h"

namespace opus::sim {

class Clairvoyant : public replay::Gates {
public:
    Clairvoyant(const JobMap& map, const replay::Rehearsal& lit, TimeNs dark_ns);

    bool recorded(Name name, const replay::RehearsedLaunch& launch, std::int64_t now) override;
    void reached(Name name, std::int64_t now) override;
    void ended(Name name, std::int64_t now) override;
    std::int64_t next_ns() const override;
    void advance(std::int64_t now, std::vector<Name>& open) override;

    std::uint64_t moves() const { return moves_; }

private:
    struct Use {  // launches that meet, of which some begin at the same time
        std::vector<GpuPair> pairs;
        std::uint32_t left = 0;  // launches not ended
        std::vector<Name> waiting;
    };
    struct Phase {  // consecutive uses of a GPU with the same neighbours
        std::set<GpuPair> pairs;
        std::vector<std::size_t> uses;
        std::uint32_t left = 0;  // uses not over
    };
    struct GpuState {
        std::vector<Phase> phases;
        std::size_t at = 0;
        const Phase* phase() const { return at < phases.size() ? &phases[at] : nullptr; }
    };

    void pump(std::int64_t now);
    bool turn(GpuId gpu, std::int64_t now);
    bool is_lit(std::size_t use) const;
    bool wanted(const GpuPair& pair) const;

    TimeNs dark_ns_;
    std::vector<Use> uses_;
    std::vector<std::vector<std::size_t>> use_of_;  // by rank and seq; the number of uses: none
    std::set<std::size_t> held_;                    // uses of which launches wait
    std::vector<GpuState> gpus_;
    std::set<GpuPair> lit_;
    std::map<GpuPair, std::int64_t> turning_;  // lit at
    std::int64_t due_ = -1;                    // something has changed
    std::uint64_t moves_ = 0;
};

}  // namespace opus::sim
