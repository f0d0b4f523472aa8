// The launch ring from both its ends: the shim's writer and the manager's reader and accounts, over one segment.
// Launches end in any order, some hardly ever, and some are done and not reported yet.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "manager/core/rank.h"
#include "manager/shell/ring_reader.h"
#include "test/shim/segment.h"

using namespace opus;

namespace {

constexpr std::uint32_t kSlots = 64;
constexpr std::uint32_t kMostOps = 14;

class BothEnds {
public:
    // `stubborn`: so many launches hardly ever end; `unreported`: so many ends are not reported at once.
    BothEnds(std::uint64_t seed, double stubborn, double unreported)
        : stubborn_(stubborn), unreported_(unreported), random_(seed) {
        shim::process.settings.OPUS_RING_WAIT_MS = 0;
        rank_.capacity = kSlots;
        ring::CommEntry& entry = segment_.view.comms[0];
        entry.id = {1, 1};
        entry.size = 4;
        entry.mode = static_cast<std::uint32_t>(Mode::enforce);
        ++entry.generation;
        entry.state = static_cast<std::uint32_t>(ring::CommState::registered);
    }

    // A launch that may be hard to end. False: the ring is full.
    bool push(std::uint32_t ops) {
        std::array<ring::OpEntry, kMostOps> entries;
        entries.fill(ring::OpEntry{static_cast<std::uint8_t>(OpKind::all_reduce), 0, 0, 0, 0, 1, 0, 8});
        shim::LaunchHead head{ring::Gate::none, static_cast<std::uint16_t>(ops), ring::kLaunchSkips};
        if (shim::push(segment_.view, head, 0, entries.data()) == shim::kFull) return false;
        look();
        stuck_.push_back(chance(stubborn_));
        return true;
    }
    void end_some() {
        for (std::size_t i = 0; i < open_.size();) {
            if (chance(stuck_[i] ? 0.002 : 0.5)) {
                end(open_[i]);
                open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
                stuck_.erase(stuck_.begin() + static_cast<std::ptrdiff_t>(i));
            } else {
                ++i;
            }
        }
    }
    void tell() {
        rank_.forget_unreported();
        retire();
    }
    // So many free slots in a row, from the head on once round the ring, where only launches that are not done take any.
    bool has_row(std::uint32_t slots) {
        std::vector<bool> taken(kSlots);
        for (const std::uint64_t seq : open_)
            for (std::uint32_t i = 0; i < rank_.find(seq)->slots; ++i) taken[(seq + i) % kSlots] = true;
        std::uint32_t row = 0;
        for (std::uint32_t i = 0; i < kSlots && row < slots; ++i)
            row = taken[(segment_.view.header->head + i) % kSlots] ? 0 : row + 1;
        return row >= slots;
    }
    std::string check() const { return reader_.broken() ? reader_.fault() : rank_.check(); }
    bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
    std::uint32_t ops() { return chance(0.7) ? 1 : std::uniform_int_distribution<std::uint32_t>(2, kMostOps)(random_); }
    std::size_t open() const { return open_.size(); }

private:
    void look() {
        std::vector<manager::Event> events;
        reader_.look(events, true);
        for (const manager::Event& event : events)
            if (const auto* e = std::get_if<manager::Recorded>(&event)) {
                manager::Launch launch;
                launch.seq = e->seq;
                launch.slots = e->slots;
                launch.flags = e->flags;
                REQUIRE(rank_.append(std::move(launch)));
                open_.push_back(e->seq);
            }
        if (rank_.is_short()) retire();
    }
    void end(std::uint64_t seq) {
        manager::Launch* launch = rank_.find(seq);
        REQUIRE(launch != nullptr);
        rank_.set_done(*launch);
        if (chance(unreported_)) rank_.set_unreported(*launch);
        retire();
    }
    void retire() {
        const manager::Retired r = rank_.retire(true);
        if (r.upto != 0 || !r.freed.empty()) reader_.retired(r);
    }

    double stubborn_, unreported_;
    std::mt19937_64 random_;
    shim::Segment segment_{kSlots};
    manager::RingReader reader_{segment_.managers_view(), 0, false};
    manager::Rank rank_;
    std::vector<std::uint64_t> open_;
    std::vector<bool> stuck_;
};

}  // namespace

TEST_CASE("the ring is full only where launches that are not done leave no row of slots that is long enough") {
    int full = 0, pushed = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        BothEnds ring(seed, 0.01 * static_cast<double>(seed % 12), 0.25 * static_cast<double>(seed % 5));
        for (int i = 0; i < 400; ++i) {
            const std::uint32_t ops = ring.ops();
            bool taken = ring.push(ops);
            if (!taken) {
                ring.tell();
                taken = ring.push(ops);
            }
            pushed += taken;
            if (!taken) {
                ++full;
                INFO("push ", i, ", ", ops, " operations, ", ring.open(), " launches are not done");
                REQUIRE(!ring.has_row(ring::slots_for(ops)));
            }
            if (i % 3 == 0) ring.end_some();
            if (i % 7 == 0) ring.tell();
            REQUIRE(ring.check() == "");
        }
    }
    CHECK(full > 0);
    CHECK(pushed > 10'000);
}
