#include "manager/core/soft_tokens.h"

#include <algorithm>
#include <utility>

namespace opus::manager {
namespace {

std::uint64_t who(RankId rank, std::uint32_t member) { return (std::uint64_t(rank) << 32) | member; }

}  // namespace

void SoftTokens::add(std::uint64_t grant, const std::vector<wire::KeyRange>& ranges) {
    for (const wire::KeyRange& range : ranges) {
        const std::uint64_t begin = range.first.n;
        sequences_[sequence_of(range.first)].push_back({grant, begin, begin + range.count, range.mesh, begin, {}});
        ++held_[grant];
    }
}

std::uint64_t SoftTokens::covers(const wire::KeyRange& range, const std::vector<std::uint64_t>& without) const {
    const auto it = sequences_.find(sequence_of(range.first));
    if (it == sequences_.end()) return 0;
    const std::uint64_t end = range.first.n + range.count;
    std::uint64_t grant = 0;
    // Ranges of a sequence may come from several grants and in any order: walk on as far as they reach. A run
    // over a ring's circuits lights no mesh.
    for (std::uint64_t at = range.first.n; at < end;) {
        const auto found = std::find_if(it->second.begin(), it->second.end(), [&](const Range& r) {
            return r.begin <= at && at < r.end && (r.mesh || !range.mesh) &&
                   std::find(without.begin(), without.end(), r.grant) == without.end();
        });
        if (found == it->second.end()) return 0;
        if (grant == 0) grant = found->grant;
        at = found->end;
    }
    return grant;
}

bool SoftTokens::continues(std::uint64_t grant, const Key& key) const {
    const auto it = sequences_.find(sequence_of(key));
    return it != sequences_.end() && std::any_of(it->second.begin(), it->second.end(),
                                                 [&](const Range& r) { return r.grant == grant && key.n < r.end; });
}

void SoftTokens::started(const wire::KeyRange& range) {
    const auto it = sequences_.find(sequence_of(range.first));
    if (it == sequences_.end()) return;
    for (Range& r : it->second) r.started = std::max(r.started, std::min(range.first.n + range.count, r.end));
}

void SoftTokens::finished(const wire::KeyRange& range, RankId rank, std::uint32_t member, std::uint32_t members) {
    const auto it = sequences_.find(sequence_of(range.first));
    if (it == sequences_.end()) return;
    const std::uint64_t end = range.first.n + range.count;
    for (Range& r : it->second) {
        std::uint64_t& upto = r.finished[who(rank, member)];
        upto = std::max(upto, std::min(end, r.end));
    }
    end_if_finished(it->first, members);
}

void SoftTokens::release(const CommId& comm, RankId rank, std::uint32_t member, const CountMembers& count) {
    std::vector<Key> concerned;
    for (auto& [sequence, ranges] : sequences_) {
        if (sequence.comm != comm) continue;
        for (Range& r : ranges) r.finished.erase(who(rank, member));
        concerned.push_back(sequence);
    }
    std::sort(concerned.begin(), concerned.end());
    for (const Key& sequence : concerned) end_if_finished(sequence, count(sequence));
}

// Without members left, it is of no use to anybody here.
void SoftTokens::end_if_finished(const Key& sequence, std::uint32_t members) {
    const auto it = sequences_.find(sequence);
    std::erase_if(it->second, [&](const Range& r) {
        const auto finished =
            std::count_if(r.finished.begin(), r.finished.end(), [&r](const auto& entry) { return entry.second >= r.end; });
        if (static_cast<std::uint32_t>(finished) < members) return false;
        const auto held = held_.find(r.grant);
        if (--held->second == 0) {
            ended_.push_back(r.grant);
            held_.erase(held);
        }
        return true;
    });
    if (it->second.empty()) sequences_.erase(it);
}

std::vector<wire::KeyRange> SoftTokens::revoke(const std::vector<std::uint64_t>& grants) {
    std::vector<wire::KeyRange> upto;
    for (auto it = sequences_.begin(); it != sequences_.end();) {
        std::erase_if(it->second, [&](const Range& r) {
            if (!grants.empty() && std::find(grants.begin(), grants.end(), r.grant) == grants.end()) return false;
            if (r.started > r.begin) {
                Key first = it->first;
                first.n = r.begin;
                upto.push_back({first, static_cast<std::uint32_t>(r.started - r.begin), r.mesh});
            }
            if (const auto held = held_.find(r.grant); --held->second == 0) held_.erase(held);
            return true;
        });
        it = it->second.empty() ? sequences_.erase(it) : std::next(it);
    }
    std::sort(upto.begin(), upto.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return upto;
}

std::vector<std::uint64_t> SoftTokens::take_ended() { return std::exchange(ended_, {}); }

std::size_t SoftTokens::ranges() const {
    std::size_t sum = 0;
    for (const auto& entry : sequences_) sum += entry.second.size();
    return sum;
}

void SoftTokens::snapshot(std::vector<wire::Token>& out) const {
    for (const auto& [sequence, ranges] : sequences_) {
        for (const Range& r : ranges) {
            auto token = std::find_if(out.begin(), out.end(), [&r](const auto& t) { return t.grant == r.grant; });
            if (token == out.end()) token = out.insert(out.end(), wire::Token{r.grant, {}, {}, {}});
            Key first = sequence;
            first.n = r.begin;
            token->soft.push_back({first, static_cast<std::uint32_t>(r.end - r.begin), r.mesh});
        }
    }
}

}  // namespace opus::manager
