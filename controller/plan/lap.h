// What a job does again and again, learned from what its launches have done: one lap as a graph of uses.
//
// A use is what one gang does: launches that begin together and meet at their keys, on the circuits of these. If
// members start a key in different grants, the key belongs to the last grant. A use begins when its members are ready
// and its light is up; a member is ready so long after earlier uses of its rank are over. Where a use was ready before
// an earlier one was over, it does not wait for that one, and for what its program made later it cannot wait. In each
// lap the gap from the last of those ends until it was ready is a use's own; from earlier ends on it may have waited
// for others. So the longest such gap bounds all its delays (where no lap is wholly known: the gap from the last known
// end).
//
// Delays and lengths are the least that were seen. What each of the last laps had beyond them is kept as well, for laps
// differ: in what is computed, and by chance.
//
// Pure, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "opus/types.h"

namespace opus::controller::plan {

using RankName = std::pair<NodeIndex, RankId>;
using Pair = std::pair<GpuId, GpuId>;  // first < second

struct SeenKey {
    Key key;
    bool mesh = false;
};

struct Seen {  // a launch that is over; times by one clock
    OpKind op = OpKind::none;  // of its first operation
    std::vector<SeenKey> keys;
    std::uint64_t seq = 0;    // in the order in which its rank's program has made it
    std::uint64_t grant = 0;  // with which it began, later ones being greater; 0: not known
    TimeNs ready_ns = 0, go_ns = 0, done_ns = 0;
    bool unasked = false;        // it began in a run
    std::uint32_t circuits = 0;  // of each pair that it needs light between, at least; 0: not known
    TimeNs bytes_ns = 0;         // what its bytes take over one circuit of a pair; 0: not known
    std::uint64_t signature = 0;  // signature_of(op, keys), of those in a log
    bool in_order = true;  // its program has made those of higher numbers after it: its rank has replayed nothing so far
};

constexpr std::size_t kMostAhead = 256;  // launches of a rank that are over before one that was posted earlier

// The last launches of each rank of a job, in the order of its program.
class Log {
public:
    static constexpr std::size_t kMostOfARank = 8192;
    static constexpr std::size_t kMostInAll = 1u << 21;  // of about 170 bytes; of more than 256 ranks each has fewer

    std::uint64_t add(const RankName& rank, Seen seen);  // its signature
    // What comes from here on may be something else.
    void mark();
    void drop(const RankName& rank);  // it has left
    std::uint64_t marked(const RankName& rank) const {
        const auto at = marks_.find(rank);
        return at == marks_.end() ? 0 : at->second;
    }
    std::uint64_t added() const { return added_; }
    const std::map<RankName, std::deque<Seen>>& ranks() const { return ranks_; }

private:
    std::map<RankName, std::deque<Seen>> ranks_;
    std::map<RankName, std::uint64_t> marks_;  // launches up to this number came before
    std::uint64_t added_ = 0;
};

struct Before {
    std::uint32_t use = 0;
    std::uint32_t laps = 0;  // so many laps earlier
    TimeNs ns = 0;           // from its beginning until this one is ready, at least
};

struct Until {  // a launch that began with a use goes on with this one, and is to have the light of both then
    std::uint32_t use = 0;
    std::uint32_t laps = 0;  // so many laps later
    bool operator==(const Until&) const = default;
};

struct Use {
    std::vector<Pair> pairs;  // it needs light between; sorted
    std::vector<Before> before;
    std::vector<Until> until;
    TimeNs ns = 0;                // from its beginning until it is over, as it was seen last
    TimeNs bytes_ns = 0;          // what its bytes take over one circuit of a pair; 0: not known
    std::vector<TimeNs> took_ns;  // with one circuit a pair, with two, and so on; 0: it was not seen
    TimeNs apart_ns = 0;  // from when the first of its members is ready until the last is
    TimeNs at_ns = 0;  // its start, from the start of the last lap seen
    struct InLap {     // how much later than it must be it was ready, and how much longer than `ns` it took
        TimeNs late_ns = 0, longer_ns = 0;
    };
    std::vector<InLap> in_laps;  // of those that were seen, the last first
    std::uint64_t grant = 0;  // of the lap that was found

    // With so many circuits a pair, how much longer than `ns`; negative: shorter.
    TimeNs longer_ns(std::uint32_t circuits) const;
};

struct Sequence {  // of keys; the n-th of them, from `first` on, is uses[(n - first) % uses.size()]
    std::uint64_t first = 0;
    std::vector<std::uint32_t> uses;
    bool mesh = false;  // one of them is of a mesh
    std::optional<std::size_t> tied;  // of Lap::tied: where its keys come together with those of others

    // Of its key of this number: which use, in which lap, counted from the one that was found.
    std::pair<std::uint32_t, std::int64_t> place_of(std::uint64_t number) const;
};

// Of a launch of several keys: their sequences, and their numbers, counted from the first of their sequence in the lap.
using Together = std::vector<std::pair<Key, std::int64_t>>;

// What a rank's program does in a lap: launches in its order, from the one of number `seq` on, and so again after `seqs`.
struct RankLap {
    struct Launch {
        std::uint64_t offset = 0;  // of its number
        std::uint64_t signature = 0;
        std::vector<std::int64_t> keys;  // their numbers, counted from the first of their sequence in the lap
    };
    std::uint64_t seq = 0, seqs = 0;
    std::vector<Launch> launches;

    // Of the launch of this number: in which lap, counted from the first, and which launch of it.
    std::optional<std::pair<std::int64_t, std::size_t>> place_of(std::uint64_t number) const;
    std::int64_t lap_of(std::uint64_t number) const;
    bool fits(std::uint64_t number, std::uint64_t signature) const;
};

std::uint64_t signature_of(OpKind op, const std::vector<SeenKey>& keys);

// Of each rank's sequences, for their n-th launch in a lap, of each of its other sequences: the latest launch that had
// ended before it was ready, in every lap seen, of those that its program makes before, counted from the first of the same lap.
using Links = std::map<RankName, std::map<Key, std::vector<std::map<Key, std::int64_t>>>>;

struct Lap {
    std::map<RankName, RankLap> ranks;
    Links links;
    std::vector<Use> uses;
    std::map<Key, Sequence> sequences;  // by their key of number 0
    std::vector<std::vector<Together>> tied;  // launches of several keys: those that have sequences in common, directly or by others
    TimeNs ns = 0;                      // as it was seen
    std::size_t launches = 0;           // of all ranks
    // Below 0: so many laps before the first began by a plan as well, and are timed with those that follow it.
    std::int64_t by_plan = 0;

    // Ranks and sequences are those of the other lap, and do as much in it.
    bool does_as(const Lap& other) const;
    // All that is done in it is done in the other one, and more.
    bool is_part_of(const Lap& longer) const;
    // The rank's launch of this number is none from before these laps.
    bool reaches(const RankName& rank, std::uint64_t number) const;
    // From now on laps are counted from a later one, or from an earlier one.
    void advance(std::int64_t laps);
    std::optional<std::size_t> tied_to(const Key& sequence) const {
        const auto at = sequences.find(sequence);
        return at == sequences.end() ? std::nullopt : at->second.tied;
    }
    // Of all its uses.
    std::size_t pairs() const;
    // So many of its keys come in a lap.
    std::int64_t again(const Key& sequence) const {
        const auto at = sequences.find(sequence);
        return at == sequences.end() ? 0 : static_cast<std::int64_t>(at->second.uses.size());
    }
    // Of the key: which use, in which lap, counted from the one that was found.
    std::optional<std::pair<std::uint32_t, std::int64_t>> find(const Key& key) const;
};

// Lap::find, of many keys: by hash. Of a lap that neither goes nor gets other sequences meanwhile.
class Found {
public:
    explicit Found(const Lap& lap) {
        for (const auto& [key, sequence] : lap.sequences)
            if (!sequence.uses.empty()) sequences_.emplace(key, &sequence);
    }
    std::optional<std::pair<std::uint32_t, std::int64_t>> find(const Key& key) const {
        const auto at = sequences_.find(sequence_of(key));
        return at == sequences_.end() ? std::nullopt : std::make_optional(at->second->place_of(key.n));
    }

private:
    std::unordered_map<Key, const Sequence*> sequences_;
};

// Which pairs a key needs light between.
using PairsOf = std::function<std::vector<Pair>(const SeenKey&)>;

// What the job has been seen to do twice, one lap of it: its uses, without times. None where there is no such thing yet.
std::optional<Lap> find_lap(const Log& log, const PairsOf& pairs_of);

// The job has done something else meanwhile. True: what each rank did last is this lap again, and it is numbered anew.
bool find_again(Lap& lap, const Log& log);

// How long its uses take and wait for each other, by the last laps of it. False: there is no whole lap of it in the log.
bool time_lap(Lap& lap, const Log& log);

}  // namespace opus::controller::plan
