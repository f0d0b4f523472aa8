// Reads one rank's launch ring and tells what happened since the last look, as events of the core.
//
// The shim is not trusted: what it wrote is copied first and checked then, and what is counted on
// (positions, which communicator entries live) is kept here, never read back. A record that breaks the
// contract ends the reading of new ones: the ring is `broken`, its communicators are reported lost, and the
// owner opens the segment. A look reads at most one ring's worth of records.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "manager/core/core.h"
#include "manager/shell/ring_entries.h"
#include "manager/shell/ring_words.h"
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
    void await(PollHint& hint, TimeNs now, const RingWords::Awaited& is_awaited) {
        words_.await(hint, now, is_awaited);
    }

    // What was released early and is not reached waits again: for the manager that comes next.
    void take_back();

    // All that was recorded when `head` was the ring's head has been read, or is no launch's; or nothing will be.
    bool has_read(std::uint64_t head) const { return next_ >= head || broken(); }
    std::uint64_t head() const { return view_.header->head.load(std::memory_order_seq_cst); }
    // Launches from `seq` on, of those read, whose gates were reached. Of one stream several threads may make launches,
    // and not each in its turn: so the words are asked, and not what was told of them.
    std::vector<std::uint64_t> reached_from(std::uint64_t seq) const;

    // Actions of the core. The shim is told which slots are free.
    void retired(const Retired& a);
    void comm_freed(std::uint32_t index, std::uint32_t generation) { entries_.freed(index, generation); }

    bool broken() const { return !fault_.empty(); }
    const std::string& fault() const { return fault_; }

private:
    void read_records(std::vector<Event>& events);
    void read_all(std::uint64_t head, std::vector<Event>& events);
    bool read_next(std::uint64_t head, std::vector<Event>& events);
    bool read_record(std::uint64_t seq, std::uint64_t end, std::vector<Event>& events);
    void lose_comms_of(const Recorded& record, std::vector<Event>& events);
    void recover_occupied(std::vector<Event>& events);
    void free_upto(std::uint64_t upto);
    void set_occupied(const Slots& slots, bool occupied);
    bool any_occupied(std::uint64_t seq, std::uint32_t count) const;
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
    RingEntries entries_;
    RingWords words_;
    std::string fault_;
};

}  // namespace opus::manager
