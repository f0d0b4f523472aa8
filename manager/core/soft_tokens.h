// The soft part of grants that this node holds: ranges of keys whose launches may start without asking,
// until they are revoked. A launch may go only when every key of it lies under a token (scenario D1).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "manager/core/keys.h"
#include "opus/wire.h"

namespace opus::manager {

class SoftTokens {
public:
    void add(std::uint64_t grant, const std::vector<wire::KeyRange>& ranges);

    // The grant of the first key when all of `range` is covered, else 0.
    std::uint64_t covers(const wire::KeyRange& range) const;

    // A member (rank process, communicator entry) has started these keys. Remembered for the answer to a
    // revocation; a range that `members` members of this node have all started to its end is forgotten.
    void started(const wire::KeyRange& range, RankId rank, std::uint32_t member, std::uint32_t members);

    // Takes everything back: what was started of each range, the furthest of the members.
    std::vector<wire::KeyRange> revoke();
    void drop_comm(const CommId& comm);

    bool empty() const { return sequences_.empty(); }
    std::size_t ranges() const;
    void snapshot(std::vector<wire::Token>& out) const;  // merges into tokens of equal grant

private:
    struct Range {
        std::uint64_t grant = 0, begin = 0, end = 0;
        std::unordered_map<std::uint64_t, std::uint64_t> started;  // member -> first number not started
    };
    std::unordered_map<Key, std::vector<Range>> sequences_;  // by sequence_of
};

}  // namespace opus::manager
