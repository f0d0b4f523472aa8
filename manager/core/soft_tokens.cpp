#include "manager/core/soft_tokens.h"

#include <algorithm>

namespace opus::manager {

void SoftTokens::add(std::uint64_t grant, const std::vector<wire::KeyRange>& ranges) {
    for (const wire::KeyRange& range : ranges) {
        const std::uint64_t begin = range.first.n;
        sequences_[sequence_of(range.first)].push_back({grant, begin, begin + range.count, {}});
    }
}

std::uint64_t SoftTokens::covers(const wire::KeyRange& range) const {
    const auto it = sequences_.find(sequence_of(range.first));
    if (it == sequences_.end()) return 0;
    const std::uint64_t end = range.first.n + range.count;
    std::uint64_t grant = 0;
    // Ranges of a sequence may come from several grants and in any order: walk on as far as they reach.
    for (std::uint64_t at = range.first.n; at < end;) {
        const auto found = std::find_if(it->second.begin(), it->second.end(),
                                        [at](const Range& r) { return r.begin <= at && at < r.end; });
        if (found == it->second.end()) return 0;
        if (grant == 0) grant = found->grant;
        at = found->end;
    }
    return grant;
}

void SoftTokens::started(const wire::KeyRange& range, RankId rank, std::uint32_t member, std::uint32_t members) {
    const auto it = sequences_.find(sequence_of(range.first));
    if (it == sequences_.end()) return;
    const std::uint64_t who = (std::uint64_t(rank) << 32) | member;
    const std::uint64_t end = range.first.n + range.count;
    std::erase_if(it->second, [&](Range& r) {
        if (end <= r.begin) return false;
        std::uint64_t& upto = r.started[who];
        upto = std::max(upto, std::min(end, r.end));
        const auto finished = std::count_if(r.started.begin(), r.started.end(),
                                            [&r](const auto& entry) { return entry.second >= r.end; });
        return static_cast<std::uint32_t>(finished) >= members;
    });
    if (it->second.empty()) sequences_.erase(it);
}

std::vector<wire::KeyRange> SoftTokens::revoke() {
    std::vector<wire::KeyRange> upto;
    for (const auto& [sequence, ranges] : sequences_) {
        for (const Range& r : ranges) {
            std::uint64_t furthest = r.begin;
            for (const auto& entry : r.started) furthest = std::max(furthest, entry.second);
            if (furthest == r.begin) continue;
            Key first = sequence;
            first.n = r.begin;
            upto.push_back({first, static_cast<std::uint32_t>(furthest - r.begin)});
        }
    }
    std::sort(upto.begin(), upto.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    sequences_.clear();
    return upto;
}

void SoftTokens::drop_comm(const CommId& comm) {
    std::erase_if(sequences_, [&comm](const auto& entry) { return entry.first.comm == comm; });
}

std::size_t SoftTokens::ranges() const {
    std::size_t sum = 0;
    for (const auto& entry : sequences_) sum += entry.second.size();
    return sum;
}

void SoftTokens::snapshot(std::vector<wire::Token>& out) const {
    for (const auto& [sequence, ranges] : sequences_) {
        for (const Range& r : ranges) {
            auto token = std::find_if(out.begin(), out.end(), [&r](const auto& t) { return t.grant == r.grant; });
            if (token == out.end()) token = out.insert(out.end(), wire::Token{r.grant, {}, {}, false});
            Key first = sequence;
            first.n = r.begin;
            token->soft.push_back({first, static_cast<std::uint32_t>(r.end - r.begin)});
        }
    }
}

}  // namespace opus::manager
