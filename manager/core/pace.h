// How long a rank takes for what it does again and again, against how long it took with its circuits moved on demand.
//
// Launches are taken in the order in which the program posts them, which does not depend on Opus. The time between the
// ends of two of them belongs to the second; a launch that ends before an earlier one has ended takes no time. A launch
// is known by its context: it and the kContext - 1 before it. What comes is followed through what came before, from
// where its context was seen first; so inner loops (micro-batches, layers) are followed as they were, and a lap, which is
// as far back as that lies, is an iteration of the training job. The yardstick is what each context took in the last laps
// on demand. Only laps that go as an earlier one went, launch for launch, are compared with it: where something else
// comes (an evaluation, a checkpoint), the lap begins anew.
//
// Bounded memory (kMostPast, kMostPending). Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "opus/types.h"

namespace opus::manager {

class Pace {
public:
    static constexpr std::uint32_t kContext = 8;
    // A lap must show itself for so many launches, and for many if it is over in less than kLeastLapNs: what comes again
    // after a few is rather a layer, or a micro-batch.
    static constexpr std::uint32_t kLeastRound = 16, kLeastShortRound = 64;
    static constexpr std::uint32_t kMostLaps = 8;     // of the yardstick
    static constexpr TimeNs kLeastLapNs = 250'000'000;  // shorter ones are compared several at a time: one is noise
    static constexpr std::uint64_t kMostPast = 1u << 16;  // launches remembered
    static constexpr std::uint64_t kNotFollowed = 4, kLeastNotFollowed = 64;  // laps without one that counts; launches at least
    static constexpr std::size_t kMostPending = 1u << 13;

    enum class Kind : std::uint8_t {
        ready,   // on demand: a whole lap has been seen, and it repeats
        lap,     // another lap is over, and what it took is known
        excess,  // this lap has taken an eighth longer than a whole one should, and is not over; or twice as long
        lost,    // nothing goes as it went before for several laps
        longer   // what is called a lap is part of a longer one that repeats
    };
    struct News {
        Kind kind{};
        TimeNs took_ns = 0, yardstick_ns = 0;  // of the lap, as far as it has come
        TimeNs lap_ns = 0;                     // the whole of it, by the yardstick
    };

    // From now on circuits move on demand, or ahead of it. A lap that is under way does not count.
    void begin(bool on_demand);
    void forget();  // what is called a lap, and how long it took
    // In the order in which the program posts them: that of the ring; replays of a graph as they come.
    void recorded(std::uint64_t seq, std::uint64_t signature);
    void ended(std::uint64_t seq, TimeNs now);
    void look(TimeNs now);  // nothing may have ended for long
    // What there is to tell, once.
    std::optional<News> news();

private:
    static constexpr std::uint64_t kNowhere = ~0ull;
    struct Posted {
        std::uint64_t seq = 0, signature = 0;
        TimeNs ended_ns = -1;
    };
    struct Took {
        std::uint64_t context = 0;
        TimeNs ns = 0;
    };
    struct Mean {
        double sum_ns = 0, weight = 0;
        double ns() const { return sum_ns / weight; }
    };

    std::uint64_t context_with(std::uint64_t signature) const;
    bool remembered(std::uint64_t position) const { return position < count_ && position + kMostPast > count_; }
    void pass(std::uint64_t signature, TimeNs took);
    std::uint64_t follow(std::uint64_t signature);
    bool repeats() const;
    TimeNs last_recorded(std::uint64_t launches) const;
    void tell_if_excessive(TimeNs took);
    static void age(Mean& mean);
    void make_yardstick();
    void compare(const Took& t);
    void tell(Kind kind);

    std::deque<Posted> posted_;
    TimeNs last_ns_ = -1;  // the latest end of what is behind; negative: not known

    std::vector<std::uint64_t> past_;                         // signatures, by position modulo kMostPast
    std::unordered_map<std::uint64_t, std::uint64_t> first_;  // context: the place behind where it was seen first
    std::uint64_t count_ = 0;                                 // launches passed
    std::uint64_t at_ = kNowhere;                             // the place of what is expected to come next
    std::uint64_t followed_ = 0;                              // launches since something else came than was expected

    bool on_demand_ = true;
    bool told_longer_ = false;
    std::uint64_t lap_ = 0;    // launches
    std::deque<Took> record_;  // on demand, since begin()

    std::unordered_map<std::uint64_t, Mean> yardstick_;
    std::uint64_t yardstick_lap_ = 0;  // launches of one that is compared: of a lap, or of several
    TimeNs yardstick_lap_ns_ = 0;
    Mean lap_mean_;
    TimeNs took_ns_ = 0, should_ns_ = 0;
    std::uint64_t compared_ = 0, since_lap_ = 0;  // launches of this lap; since the last that counts
    unsigned told_excess_ = 0;
    std::optional<News> news_;
};

}  // namespace opus::manager
