// The soft part of grants that this node holds: ranges of keys whose launches may start without asking,
// until they are revoked. A launch may go only when every key of it lies under a token (scenario D1).
// A token is used up when all members on this node have finished its ranges.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "manager/core/keys.h"
#include "opus/wire.h"

namespace opus::manager {

class SoftTokens {
public:
    using CountMembers = std::function<std::uint32_t(const Key&)>;  // of this node, that a sequence concerns

    void add(std::uint64_t grant, const std::vector<wire::KeyRange>& ranges);

    // The grant of the first key when all of `range` is covered, by others than those `without`, else 0.
    std::uint64_t covers(const wire::KeyRange& range, const std::vector<std::uint64_t>& without = {}) const;
    // The grant's soft part goes on with this sequence.
    bool continues(std::uint64_t grant, const Key& key) const;

    void started(const wire::KeyRange& range);
    // A member (rank process, communicator entry) has finished these keys, however it started them.
    void finished(const wire::KeyRange& range, RankId rank, std::uint32_t member, std::uint32_t members);
    // A member is no more.
    void release(const CommId& comm, RankId rank, std::uint32_t member, const CountMembers& count);

    // Takes these back (none named: all): what was started of each range, the furthest of the members.
    std::vector<wire::KeyRange> revoke(const std::vector<std::uint64_t>& grants);
    // Grants that were used up since the last call.
    std::vector<std::uint64_t> take_ended();
    bool any_ended() const { return !ended_.empty(); }

    bool empty() const { return sequences_.empty(); }
    std::size_t ranges() const;
    void snapshot(std::vector<wire::Token>& out) const;  // merges into tokens of equal grant

private:
    struct Range {
        std::uint64_t grant = 0, begin = 0, end = 0;
        bool mesh = false;
        std::uint64_t started = 0;                                  // first number that nobody has started
        std::unordered_map<std::uint64_t, std::uint64_t> finished;  // member -> first number not finished
    };
    void end_if_finished(const Key& sequence, std::uint32_t members);

    std::unordered_map<Key, std::vector<Range>> sequences_;  // by sequence_of
    std::map<std::uint64_t, std::uint32_t> held_;            // grant -> ranges left
    std::vector<std::uint64_t> ended_;
};

}  // namespace opus::manager
