// Which items of a trace are one operation: those of a collective's members, the two sides of a transfer.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/opus-sim/job_trace.h"

namespace opus::job {

class Meetings {
public:
    // The trace must be checked.
    explicit Meetings(const JobTrace& trace) {
        std::unordered_map<Name, std::uint32_t, Hash> numbers, called;
        of_.resize(trace.ranks.size());
        for (std::uint32_t r = 0; r < trace.ranks.size(); ++r) {
            called.clear();
            of_[r].assign(trace.ranks[r].items.size(), kNone);
            for (std::uint32_t i = 0; i < of_[r].size(); ++i) {
                const TraceItem& item = trace.ranks[r].items[i];
                if (item.kind == replay::StepKind::compute) continue;
                Name name{item.same, item.group, 0, 0, 0};
                if (item.kind == replay::StepKind::send) name.from = r, name.to = item.peer;
                if (item.kind == replay::StepKind::recv) name.from = item.peer, name.to = r;
                const bool collective = item.group != replay::kNobody;
                name.times = called[name]++;
                const auto [at, fresh] = numbers.try_emplace(name, static_cast<std::uint32_t>(wanted_.size()));
                if (fresh)
                    wanted_.push_back(collective ? static_cast<std::uint32_t>(trace.groups[item.group].size()) : 2);
                of_[r][i] = at->second;
            }
        }
    }

    static constexpr std::uint32_t kNone = 0xffffffffu;
    std::uint32_t of(std::uint32_t rank, std::uint32_t item) const { return of_[rank][item]; }
    std::uint32_t count() const { return static_cast<std::uint32_t>(wanted_.size()); }
    std::uint32_t sides(std::uint32_t meeting) const { return wanted_[meeting]; }

private:
    struct Name {
        std::uint64_t same = 0;
        std::uint32_t group = 0, from = 0, to = 0, times = 0;
        bool operator==(const Name& o) const {
            return same == o.same && group == o.group && from == o.from && to == o.to && times == o.times;
        }
    };
    struct Hash {
        std::size_t operator()(const Name& n) const {
            std::uint64_t h = n.same * 0x9e3779b97f4a7c15ull + n.group;
            h = (h ^ (h >> 29)) * 0xff51afd7ed558ccdull + (std::uint64_t{n.from} << 32 | n.to);
            h = (h ^ (h >> 32)) * 0xc2b2ae3d27d4eb4full + n.times;
            return h ^ (h >> 29);
        }
    };

    std::vector<std::vector<std::uint32_t>> of_;
    std::vector<std::uint32_t> wanted_;
};

}  // namespace opus::job
