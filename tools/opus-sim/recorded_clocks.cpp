// By how much the clocks of nodes differ, from when operations ended on them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "tools/opus-sim/recordings.h"

namespace opus::job {
namespace {

using replay::Recording;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

// One operation, as one file saw it.
struct Seen {
    std::size_t file = 0;
    std::int64_t begin_ns = kNever;  // of the member that came last
    std::int64_t end_ns = 0;
};

// Of an operation in two files.
struct ClockSample {
    std::int64_t difference_ns = 0;          // of its ends
    std::int64_t least_ns = 0, most_ns = 0;  // it cannot have ended anywhere before everybody had begun
};
using Edge = std::pair<std::size_t, std::size_t>;  // files, the lower first

std::int64_t quantile(std::vector<std::int64_t>& values, double at) {
    const auto nth = values.begin() + static_cast<std::ptrdiff_t>(at * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), nth, values.end());
    return *nth;
}

// Operations of a job, by the id of their group: its number differs from file to file.
class Operations {
public:
    explicit Operations(const std::vector<NamedRecording>& files) {
        for (std::size_t f = 0; f < files.size(); ++f)
            for (const auto& [number, rank] : files[f].recording.ranks)
                for (const Recording::Launch& launch : rank.launches)
                    for (const Recording::Operation& o : launch.operations) see(f, files[f].recording, launch, o);
    }

    std::map<Edge, std::vector<ClockSample>> samples(bool transfers) const {
        std::map<Edge, std::vector<ClockSample>> found;
        for (const auto& [what, seen] : all_) {
            if (std::get<1>(what) != transfers) continue;
            for (std::size_t i = 1; i < seen.size(); ++i) {
                const Seen &a = seen[0], &b = seen[i];
                found[{a.file, b.file}].push_back({b.end_ns - a.end_ns, b.begin_ns - a.end_ns, b.end_ns - a.begin_ns});
            }
        }
        return found;
    }

private:
    using What = std::tuple<std::uint32_t, bool, std::uint32_t, std::uint32_t, std::uint64_t>;

    void see(std::size_t file, const Recording& of, const Recording::Launch& launch, const Recording::Operation& o) {
        const auto group = of.groups.find(o.first.group);
        if (group == of.groups.end()) return;
        const auto id = ids_.try_emplace(group->second.id, static_cast<std::uint32_t>(ids_.size())).first->second;
        for (std::uint64_t i = 0; i < o.count; ++i) {
            std::vector<Seen>& seen = all_[{id, o.first.transfer, o.first.from, o.first.to, o.first.n + i}];
            if (seen.empty() || seen.back().file != file) seen.push_back({file, kNever, launch.done_ns});
            seen.back().begin_ns = std::max(seen.back().begin_ns, launch.begin_ns);
            seen.back().end_ns = std::max(seen.back().end_ns, launch.done_ns);
        }
    }

    std::map<std::string, std::uint32_t> ids_;  // of groups
    std::map<What, std::vector<Seen>> all_;
};

// Of the second file's clock over the first one's.
ClockOffset offset_of(const std::vector<ClockSample>& samples) {
    std::vector<std::int64_t> differences, away;
    std::int64_t least = kNever, most = std::numeric_limits<std::int64_t>::max();
    for (const ClockSample& s : samples) {
        differences.push_back(s.difference_ns);
        least = std::max(least, s.least_ns), most = std::min(most, s.most_ns);
    }
    ClockOffset found;
    found.operations = samples.size();
    found.ahead_ns = quantile(differences, 0.5);
    for (const std::int64_t d : differences) away.push_back(std::abs(d - found.ahead_ns));
    found.spread_ns = quantile(away, 0.5);
    found.beyond_ns = std::max<std::int64_t>({0, least - found.ahead_ns, found.ahead_ns - most});
    return found;
}

}  // namespace

std::vector<ClockOffset> align_clocks(const std::vector<NamedRecording>& files) {
    std::vector<ClockOffset> found(files.size());
    if (files.size() < 2) return found;
    const Operations operations(files);
    std::map<Edge, std::vector<ClockSample>> edges = operations.samples(true);
    for (auto& [edge, samples] : operations.samples(false)) edges[edge] = std::move(samples);
    // From the first on, each time by the pair that has most in common.
    std::vector<bool> known(files.size(), false);
    known[0] = true;
    for (;;) {
        const std::pair<const Edge, std::vector<ClockSample>>* best = nullptr;
        for (const auto& edge : edges)
            if (known[edge.first.first] != known[edge.first.second] &&
                (best == nullptr || edge.second.size() > best->second.size()))
                best = &edge;
        if (best == nullptr) return found;
        const auto [a, b] = best->first;
        ClockOffset offset = offset_of(best->second);
        const bool forward = known[a];
        offset.ahead_ns = forward ? found[a].ahead_ns + offset.ahead_ns : found[b].ahead_ns - offset.ahead_ns;
        offset.spread_ns += found[forward ? a : b].spread_ns;
        found[forward ? b : a] = offset;
        known[forward ? b : a] = true;
    }
}

}  // namespace opus::job
