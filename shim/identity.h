// The 128 bits that every member of a communicator derives alike, from what all of them pass to NCCL.
// Pure but for Occurrences.
#pragma once

#include <cstddef>
#include <cstdint>

#include "opus/types.h"

namespace opus::shim {

// Where an id comes from; part of the hash, so that two ways never meet.
enum class Origin : std::uint64_t { unique_id = 1, split = 2, shrink = 3, grow = 4, growing = 5 };

CommId hash_bytes(Origin origin, const void* bytes, std::size_t size);

// A communicator made from a unique id, for the `occurrence`-th time by this rank (NCCL_COMM_ID makes
// ids repeat).
CommId id_of_unique(const void* unique_id, std::size_t size, std::uint64_t occurrence);

// A child of `parent`: its `nth` ncclCommSplit, counted from 0 by every member, those without a color too.
CommId id_of_split(const CommId& parent, std::uint64_t nth, int color);

// The survivors of `parent` without `excluded`, whose order does not matter. Ranks that are excluded do not
// call, so `occurrence` counts shrinks of this parent by this very list.
CommId id_of_shrink(const CommId& parent, const int* excluded, std::size_t count, std::uint64_t occurrence);

// `parent` with new members: its `nth` ncclCommGrow. And what those call it, who know nothing but its unique id.
CommId id_of_grow(const CommId& parent, std::uint64_t nth);
CommId id_of_growing(const void* unique_id, std::size_t size);

// How often something has been seen before. Grows; never forgets (one entry per distinct thing).
class Occurrences {
public:
    // The number of earlier calls with the same `what`; 0 also when there is no memory.
    std::uint64_t next(const CommId& what);

private:
    struct Entry {
        CommId what;
        std::uint64_t seen;
    };
    Entry* entries_ = nullptr;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
};

}  // namespace opus::shim
