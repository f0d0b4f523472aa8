// When a word that only a GPU writes is to be expected, learned from when the same came before: an iteration
// repeats. So the manager sleeps while the GPU surely computes, and watches when the word is due.
//
// For each kind of arrival the mean of its time after its cause, and how far it strays. A word that lay there
// already when somebody looked again came earlier than it was seen: the window then moves forward, until looks
// find the words and not the other way round. Bounded: kinds that share a place forget each other. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "opus/types.h"

namespace opus::manager {

// After the cause. Before `from` it surely does not come; until `to` it most probably does.
struct Window {
    TimeNs from = 0;
    TimeNs to = 0;  // 0: not known
};

class Arrivals {
public:
    Window window(std::uint64_t kind) const {
        const Known& known = known_[index(kind)];
        if (!is(known, kind)) return {};
        const TimeNs reach = 2 * known.stray + kMargin;
        const TimeNs from = known.mean - reach;
        return {from < kWorthwhile ? 0 : from, known.mean + reach};
    }

    // It came `after` its cause, or up to `unseen` before that: nobody had looked since.
    void came(std::uint64_t kind, TimeNs after, TimeNs unseen) {
        Known& known = known_[index(kind)];
        if (!is(known, kind)) {
            known = {tag(kind), after, after / 8};
            return;
        }
        if (unseen > kWatched) after -= std::min(unseen, known.stray + kMargin);
        const TimeNs off = after - known.mean;
        known.mean += off / 4;
        known.stray += (std::abs(off) - known.stray) / 4;
    }

private:
    static constexpr TimeNs kMargin = 12'000;
    static constexpr TimeNs kWatched = 20'000;     // looks no further apart than this are watching
    static constexpr TimeNs kWorthwhile = 60'000;  // shorter sleeps save nothing
    static constexpr std::size_t kPlaces = 1024;

    struct Known {
        std::uint64_t tag = 0;  // 0: empty
        TimeNs mean = 0;
        TimeNs stray = 0;
    };
    static std::size_t index(std::uint64_t kind) { return kind % kPlaces; }
    static std::uint64_t tag(std::uint64_t kind) { return kind | 1; }
    static bool is(const Known& known, std::uint64_t kind) { return known.tag == tag(kind); }

    std::array<Known, kPlaces> known_{};
};

// What a manager waits for that nobody will ring for, over all its ranks.
struct PollHint {
    static constexpr TimeNs kSoon = 1'000'000;

    bool any = false;
    bool unawaited = false;  // there is a word that nobody waits for: what comes after it goes without us
    bool rests = false;      // nor does it matter when that is
    TimeNs quiet = 0;        // since the last event
    TimeNs due = 0;          // since when that is due which fell due last; 0: nothing is
    TimeNs watch_until = 0;  // until then what is due is most probably here
    TimeNs next = 0;         // when the next falls due; 0: none will

    // What comes after it goes without us, but when it comes is worth knowing.
    void add_soon(TimeNs now) {
        any = true;
        next = next == 0 ? now + kSoon : std::min(next, now + kSoon);
    }

    // One more word, whose cause was at `since`.
    void add(TimeNs since, Window window, TimeNs now) {
        any = true;
        const TimeNs at = since + window.from;
        if (at > now) {
            next = next == 0 ? at : std::min(next, at);
            return;
        }
        due = std::max(due, at);
        if (window.to != 0) watch_until = std::max(watch_until, since + window.to);
    }
};

}  // namespace opus::manager
