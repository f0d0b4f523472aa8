#include "tools/opus-sim/circuit_uses.h"

#include <algorithm>

namespace opus::job {

using replay::DryRunLaunch;

VariantLaunches::VariantLaunches(const sim::PlayedVariant& variant) : variant_(variant) {
    for (const std::vector<DryRunLaunch>& of_rank : variant.run.ranks) {
        std::vector<std::uint32_t>& at = at_.emplace_back(of_rank.size());
        for (std::uint32_t i = 0; i < of_rank.size(); ++i) at[of_rank[i].seq] = i;  // all have begun: the job ended
    }
}

Meeting meeting_of(const JobLaunches& launches, const VariantLaunches& played, const JobLaunches::Operation& operation,
                   std::uint32_t rank) {
    Meeting m;
    m.full_ns = -1;
    for (const JobLaunches::Member& member : launches.members(operation, rank)) {
        const DryRunLaunch& l = played.record(member.rank, member.seq);
        // Whoever asks is taken for the last where several came last.
        if (l.ready_ns > m.full_ns || (l.ready_ns == m.full_ns && member.rank == rank)) {
            m.full_ns = l.ready_ns;
            m.last = member;
        }
        // A launch is let go whole, and its first operation begins no earlier: the last member to begin is the one that was awaited.
        m.begin_ns = std::max(m.begin_ns, l.begin_ns);
    }
    m.begin_ns = std::max(m.begin_ns, m.full_ns);
    return m;
}

std::vector<CircuitUse> circuit_uses(const JobLaunches& launches, const VariantLaunches& played, std::uint32_t learned) {
    std::vector<CircuitUse> uses;
    for (std::uint32_t rank = 0; rank < launches.workload().world(); ++rank)
        for (const DryRunLaunch& l : played.variant().run.ranks[rank]) {
            if (l.iteration < learned) continue;
            for (const auto* o = launches.begin(rank, l.seq); o != launches.end(rank, l.seq); ++o) {
                if (!launches.speaks(*o->step, rank) || !launches.crosses(*o->step, rank)) continue;
                const Meeting m = meeting_of(launches, played, *o, rank);
                CircuitUse use;
                use.label = launches.label(*o->step, rank), use.pairs = launches.pairs(*o->step, rank);
                use.full_ns = m.full_ns, use.begin_ns = m.begin_ns, use.end_ns = l.end_ns;
                use.held = launches.all_pairs()[use.pairs].served;
                uses.push_back(use);
            }
        }
    std::stable_sort(uses.begin(), uses.end(),
                     [](const CircuitUse& a, const CircuitUse& b) { return a.begin_ns < b.begin_ns; });
    return uses;
}

std::vector<Span> joined(std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end());
    std::vector<Span> all;
    for (const Span& s : spans) {
        if (s.second <= s.first) continue;
        if (all.empty() || s.first > all.back().second)
            all.push_back(s);
        else
            all.back().second = std::max(all.back().second, s.second);
    }
    return all;
}

std::int64_t covered(const std::vector<Span>& joined, Span span) {
    std::int64_t sum = 0;
    auto at = std::lower_bound(joined.begin(), joined.end(), span.first,
                               [](const Span& s, std::int64_t from) { return s.second <= from; });
    for (; at != joined.end() && at->first < span.second; ++at)
        sum += std::min(at->second, span.second) - std::max(at->first, span.first);
    return sum;
}

}  // namespace opus::job
