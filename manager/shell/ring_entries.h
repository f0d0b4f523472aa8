// The communicator entries of one rank's segment: whose they are, and what became of them since the last look.
// What is wrong with one is said as a text; an empty text: nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "manager/core/core.h"
#include "opus/launch_ring.h"

namespace opus::manager {

class RingEntries {
public:
    // `recovered`: another manager served this ring; until known() entries that are found have been told of before.
    RingEntries(ring::View view, RankId rank, bool recovered) : view_(view), rank_(rank), recovered_(recovered) {}

    std::string scan(std::vector<Event>& events);
    void known() { recovered_ = false; }
    // Those that were retired, when all records before that are read: as far as `next`.
    void end(std::uint64_t next, std::vector<Event>& events);
    void freed(std::uint32_t index, std::uint32_t generation);
    void lose_all(std::vector<Event>& events) const;

    // Of an operation that names an entry.
    std::string fault_of(const ring::OpEntry& op, std::vector<Event>& events);

private:
    enum class Life : std::uint8_t { free, entering, live, ending };
    struct Entry {
        Life life = Life::free;
        bool ever_freed = false;
        std::uint32_t generation = 0;  // of its life, or the one last freed
        std::uint32_t size = 0;
        std::uint32_t lost = 0;
        bool created = false;       // NCCL's creation has returned, and that is reported
        std::uint64_t ends_at = 0;  // Life::ending: reported when all records before are read
    };
    static constexpr std::uint64_t kSeqNone = ~0ull;

    std::string scan(std::uint32_t index, std::vector<Event>& events);
    std::string enter(std::uint32_t index, std::vector<Event>& events);
    std::string register_member(std::uint32_t index, std::vector<Event>& events);

    ring::View view_;
    RankId rank_;
    bool recovered_;
    std::uint32_t first_device_ = kNone;
    std::array<Entry, ring::kMaxComms> entries_{};
    std::uint32_t ending_ = 0;
};

}  // namespace opus::manager
