// Reads one rank's launch ring and tells what happened since the last look, as events of the core.
//
// The shim is not trusted: what it wrote is copied first and checked then, and what is counted on
// (positions, which communicator entries live) is kept here, never read back. A record that breaks the
// contract ends the reading of new ones: the ring is `broken`, its communicators are reported lost, and the
// owner opens the segment. A look reads at most one ring's worth of records.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "manager/core/core.h"
#include "manager/shell/arrivals.h"
#include "opus/launch_ring.h"

namespace opus::manager {

class RingReader {
public:
    // `recovered`: another manager served this ring; reads what that one had passed over, and on from where it had
    // retired it.
    RingReader(ring::View view, RankId rank, bool recovered);

    // Appends events. `scan`: look at all communicator entries even where the rank did not say that any of
    // them changed. `now`: of the monotonic clock; 0: when words come is not to be learned.
    void look(std::vector<Event>& events, bool scan, TimeNs now = 0);

    // Adds what can change that only looking shows: a GPU rings no doorbell.
    void await(PollHint& hint, TimeNs now);

    // What was released early and is not reached waits again: for the manager that comes next.
    void take_back();

    // Actions of the core. The shim is told which slots are free.
    void retired(const Retired& a);
    void comm_freed(std::uint32_t index, std::uint32_t generation);

    bool broken() const { return !fault_.empty(); }
    const std::string& fault() const { return fault_; }

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
    struct Tracked {
        std::uint64_t seq = 0;
        std::uint16_t flags = 0;
        ring::Gate gate{};
        bool ready = false;
        std::uint64_t kind = 0;  // of launch, as far as it tells when its words come
    };
    // What is looked for next: of a launch that was released early nobody need know when it was ready.
    enum class Word : std::uint8_t { ready = 1, done = 2, done_ahead = 3 };
    // Launches that become ready and done in order: those of one stream and one kind of gate.
    struct StreamQueue {
        std::deque<Tracked> launches;              // not done
        std::size_t ready = 0;                     // so many of them are known to be ready
        std::uint64_t last = 0, last_but_one = 0;  // kinds of those that ended
        TimeNs since = 0;                          // the cause of the next word: a record, a go, an end
        Word next = Word::ready;
    };
    // A launch that is captured into a graph, until that is gone. Its replays are reported one after another.
    struct Captured {
        Recorded record;
        std::uint64_t ready = 0, done = 0;  // replays reported
        TimeNs since = 0;                   // the last of that
    };
    static constexpr std::uint64_t kMostPassed = 64;  // replays between two looks that are reported one by one
    static constexpr std::uint64_t kSeqNone = ~0ull;
    using StreamQueueKey = std::pair<std::uint64_t, std::uint64_t>;

    void scan_comms(std::vector<Event>& events);
    void scan_entry(std::uint32_t index, std::vector<Event>& events);
    void enter_entry(std::uint32_t index, std::vector<Event>& events);
    void register_entry(std::uint32_t index, std::vector<Event>& events);
    void end_entries(std::vector<Event>& events);
    void read_records(std::vector<Event>& events);
    bool read_next(std::uint64_t head, std::vector<Event>& events);
    bool read_record(std::uint64_t seq, std::uint64_t end, std::vector<Event>& events);
    void follow(const Recorded& record);
    void lose_comms_of(const Recorded& record, std::vector<Event>& events);
    void recover_occupied(std::vector<Event>& events);
    void free_upto(std::uint64_t upto);
    void set_occupied(const Slots& slots, bool occupied);
    bool any_occupied(std::uint64_t seq, std::uint32_t count) const;
    std::string fault_of(const ring::OpEntry& op, std::vector<Event>& events);
    void watch_queues(std::vector<Event>& events);
    void watch_queue(StreamQueue& queue, std::vector<Event>& events);
    void recover(Captured& captured);
    void watch_replays(std::vector<Event>& events);
    void watch_replays(Captured& captured, std::vector<Event>& events);
    static Recorded replay_of(const Captured& captured, std::uint64_t number, std::uint64_t slot, bool go);
    static std::uint64_t arrival_of(const StreamQueue& queue);
    void learn(StreamQueue& queue);
    bool reached(std::uint64_t seq) const;
    bool ended(std::uint64_t seq) const;
    bool went(std::uint64_t seq) const;
    bool stays_gone(std::uint64_t seq, std::uint16_t flags) const;
    void break_ring(std::string fault, std::vector<Event>& events);

    ring::View view_;
    RankId rank_;
    bool recovered_;          // until the first scan is done
    std::uint64_t next_ = 0;  // first position not read
    std::uint64_t retired_ = 0;
    std::deque<std::uint64_t> skipped_;  // from retired_ on, in order: read, and no launch
    bool passes_over_ = false;    // has ever passed over a launch
    std::vector<bool> occupied_;  // by slot; empty before the first
    std::uint64_t gave_up_ = 0;
    std::uint64_t comm_changes_ = 0;
    std::uint32_t first_device_ = kNone;
    std::array<Entry, ring::kMaxComms> entries_{};
    std::uint32_t ending_ = 0;
    std::map<StreamQueueKey, StreamQueue> queues_;
    std::map<std::uint64_t, Captured> captured_;  // by seq
    Arrivals arrivals_;
    TimeNs now_ = 0, last_look_ = 0;
    std::string fault_;
};

}  // namespace opus::manager
