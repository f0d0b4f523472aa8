#include "tools/sim/clairvoyant.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace opus::sim {
namespace {

struct Seen {
    std::uint32_t rank = 0;
    const replay::RehearsedLaunch* launch = nullptr;
};

class Groups {
public:
    explicit Groups(std::size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), std::size_t{0}); }
    std::size_t find(std::size_t i) {
        while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
        return i;
    }
    void join(std::size_t a, std::size_t b) { parent_[std::max(find(a), find(b))] = std::min(find(a), find(b)); }

private:
    std::vector<std::size_t> parent_;
};

}  // namespace

Clairvoyant::Clairvoyant(const JobMap& map, const replay::Rehearsal& lit, TimeNs dark_ns)
    : dark_ns_(dark_ns), use_of_(lit.ranks.size()), gpus_(map.fabric().gpus.size()) {
    std::vector<Seen> seen;
    for (std::uint32_t r = 0; r < lit.ranks.size(); ++r)
        for (const replay::RehearsedLaunch& l : lit.ranks[r]) {
            std::vector<GpuPair> pairs;
            for (const replay::Step* step : l.operations) map.add_pairs(*step, r, pairs);
            if (!pairs.empty()) seen.push_back({r, &l});
        }
    std::stable_sort(seen.begin(), seen.end(),
                     [](const Seen& x, const Seen& y) { return x.launch->begin_ns < y.launch->begin_ns; });

    // Launches of one GPU group that begin at one time over common pairs belong together.
    Groups groups(seen.size());
    std::vector<std::vector<GpuPair>> pairs(seen.size());
    std::map<GpuPair, std::size_t> last;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        for (const replay::Step* step : seen[i].launch->operations) map.add_pairs(*step, seen[i].rank, pairs[i]);
        for (const GpuPair& p : pairs[i]) {
            if (const auto at = last.find(p); at != last.end() && seen[at->second].launch->begin_ns == seen[i].launch->begin_ns)
                groups.join(i, at->second);
            last[p] = i;
        }
    }
    for (std::uint32_t r = 0; r < lit.ranks.size(); ++r) use_of_[r].assign(lit.ranks[r].size(), seen.size());
    uses_.resize(seen.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
        const std::size_t u = groups.find(i);
        use_of_[seen[i].rank][seen[i].launch->seq] = u;
        ++uses_[u].left;
        for (const GpuPair& p : pairs[i])
            if (std::find(uses_[u].pairs.begin(), uses_[u].pairs.end(), p) == uses_[u].pairs.end())
                uses_[u].pairs.push_back(p);
    }
    for (std::size_t u = 0; u < uses_.size(); ++u) {
        if (uses_[u].left == 0) continue;
        std::map<GpuId, std::set<GpuPair>> at;
        for (const GpuPair& p : uses_[u].pairs) at[p.first].insert(p), at[p.second].insert(p);
        for (const auto& [gpu, mine] : at) {
            auto& phases = gpus_[gpu].phases;
            if (phases.empty() || phases.back().pairs != mine) phases.push_back({mine, {}, 0});
            phases.back().uses.push_back(u);
            ++phases.back().left;
        }
    }
    due_ = 0;
}

bool Clairvoyant::recorded(Name name, const replay::RehearsedLaunch&, std::int64_t) {
    return use_of_[name.rank][name.seq] < uses_.size();
}

void Clairvoyant::reached(Name name, std::int64_t now) {
    const std::size_t u = use_of_[name.rank][name.seq];
    uses_[u].waiting.push_back(name);
    held_.insert(u);
    due_ = now;
}

void Clairvoyant::ended(Name name, std::int64_t now) {
    const std::size_t u = use_of_[name.rank][name.seq];
    if (--uses_[u].left > 0) return;
    for (const GpuPair& p : uses_[u].pairs)
        for (const GpuId gpu : {p.first, p.second}) {
            GpuState& g = gpus_[gpu];
            for (std::size_t i = g.at; i < g.phases.size(); ++i) {
                Phase& phase = g.phases[i];
                const auto mine = std::find(phase.uses.begin(), phase.uses.end(), u);
                if (mine == phase.uses.end()) continue;
                phase.uses.erase(mine);  // once for each GPU, whatever its pairs
                --phase.left;
                break;
            }
        }
    due_ = now;
}

std::int64_t Clairvoyant::next_ns() const {
    std::int64_t next = due_ >= 0 ? due_ : std::numeric_limits<std::int64_t>::max();
    for (const auto& [pair, at] : turning_) next = std::min(next, at);
    return next;
}

bool Clairvoyant::wanted(const GpuPair& pair) const {
    for (const GpuId gpu : {pair.first, pair.second})
        if (const Phase* phase = gpus_[gpu].phase(); phase == nullptr || !phase->pairs.contains(pair)) return false;
    return true;
}

bool Clairvoyant::is_lit(std::size_t use) const {
    return std::all_of(uses_[use].pairs.begin(), uses_[use].pairs.end(), [&](const GpuPair& p) {
        const auto in = [&](GpuId gpu) {
            const Phase* phase = gpus_[gpu].phase();
            return phase != nullptr && std::find(phase->uses.begin(), phase->uses.end(), use) != phase->uses.end();
        };
        return lit_.contains(p) && in(p.first) && in(p.second);
    });
}

bool Clairvoyant::turn(GpuId gpu, std::int64_t now) {
    GpuState& g = gpus_[gpu];
    bool moved = false;
    while (g.at < g.phases.size() && g.phases[g.at].left == 0) ++g.at, moved = true;
    if (g.phase() == nullptr) return moved;
    for (const GpuPair& p : g.phase()->pairs) {
        if (lit_.contains(p) || turning_.contains(p) || !wanted(p)) continue;
        for (const GpuId end : {p.first, p.second})
            std::erase_if(lit_, [&](const GpuPair& q) {
                return (q.first == end || q.second == end) && !gpus_[end].phase()->pairs.contains(q);
            });
        turning_[p] = now + dark_ns_;
        ++moves_;
        moved = true;
    }
    return moved;
}

void Clairvoyant::advance(std::int64_t now, std::vector<Name>& open) {
    due_ = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (GpuId g = 0; g < gpus_.size(); ++g) moved |= turn(g, now);
        std::erase_if(turning_, [&](const auto& t) {
            if (t.second > now) return false;
            lit_.insert(t.first);
            return moved = true;
        });
    }
    std::erase_if(held_, [&](std::size_t u) {
        if (!is_lit(u)) return false;
        auto& waiting = uses_[u].waiting;
        open.insert(open.end(), waiting.begin(), waiting.end());
        waiting.clear();
        return true;
    });
}

}  // namespace opus::sim
