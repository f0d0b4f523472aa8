#include "manager/shell/ring_reader.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "manager/shell/go_words.h"

namespace opus::manager {
namespace {

constexpr std::uint64_t kMaxKeys = wire::kMaxKeysPerLaunch / 2;  // a first use doubles them at most

}  // namespace

RingReader::RingReader(ring::View view, RankId rank, bool recovered)
    : view_(view), rank_(rank), recovered_(recovered), entries_(view, rank, recovered), words_(view, rank) {
    if (!recovered) return;
    const std::uint64_t retired = view_.header->retired.load(std::memory_order_acquire);
    const std::uint64_t reusable = view_.header->reusable.load(std::memory_order_acquire);
    passes_over_ = reusable > retired;
    next_ = retired_ = std::max(retired, reusable);
}

void RingReader::take_back() {
    words_.take_comm_gos();
    std::vector<Event> unheard;
    read_all(head(), unheard);  // what went by those words
    words_.take_back();
}

// A thread may have its place in the ring and not have committed yet, and those behind it be gone by the go word of
// their communicator. It is waited for, a while: one that stands still for longer is stopped, or dies.
void RingReader::read_all(std::uint64_t head, std::vector<Event>& events) {
    for (int tries = 0; tries < 1'000; ++tries) {
        if (!broken()) read_records(events);
        if (has_read(head)) return;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

std::vector<std::uint64_t> RingReader::reached_from(std::uint64_t seq) const {
    std::vector<std::uint64_t> found;
    const std::uint64_t slots = std::uint64_t(view_.mask) + 1;
    for (std::uint64_t at = std::max(seq, next_ - std::min(next_, slots)); at < next_; ++at)
        if (is_reached(view_, at)) found.push_back(at);
    return found;
}

void RingReader::look(std::vector<Event>& events, bool scan, TimeNs now) {
    words_.begin(now);
    const std::uint64_t changes = view_.header->comm_changes.load(std::memory_order_acquire);
    if (!broken()) {
        if (scan || recovered_ || changes != comm_changes_) break_ring(entries_.scan(events), events);
        comm_changes_ = changes;
        if (recovered_) {
            words_.take_comm_gos();
            if (passes_over_) recover_occupied(events);
            read_all(head(), events);
        }
        read_records(events);
        entries_.end(next_, events);
    }
    words_.watch(broken(), events);
    if (scan || recovered_) {
        const std::uint64_t gave_up = view_.header->gave_up.load(std::memory_order_relaxed);
        if (gave_up > gave_up_) events.push_back(GaveUp{rank_});
        gave_up_ = gave_up;
    }
    if (recovered_) words_.forget_comm_gos();
    recovered_ = false;
    entries_.known();
}

void RingReader::break_ring(std::string fault, std::vector<Event>& events) {
    if (broken() || fault.empty()) return;
    fault_ = std::move(fault);
    entries_.lose_all(events);
}

// Marks first, then what makes them count.
void RingReader::retired(const Retired& a) {
    for (const Slots& slots : a.occupied) set_occupied(slots, true);
    passes_over_ |= !a.occupied.empty();
    words_.retired(a, [this](std::uint64_t seq) { return any_occupied(seq, 1); });
    free_upto(a.upto);
    for (const Slots& slots : a.freed) set_occupied(slots, false);
}

// With what has no launch behind it, of which nobody will say that it is over: a shim that passed over most of the ring would
// find no room beyond it else.
void RingReader::free_upto(std::uint64_t upto) {
    upto = std::max(upto, retired_);
    for (; !skipped_.empty() && skipped_.front() <= upto; skipped_.pop_front()) upto = std::max(upto, skipped_.front() + 1);
    if (upto == retired_) return;
    retired_ = upto;
    auto& word = passes_over_ ? view_.header->reusable : view_.header->retired;
    word.store(upto, std::memory_order_release);
}

void RingReader::set_occupied(const Slots& slots, bool occupied) {
    occupied_.resize(std::size_t(view_.mask) + 1);
    for (std::uint32_t i = 0; i < slots.count; ++i) {
        const std::uint64_t slot = (slots.seq + i) & view_.mask;
        occupied_[slot] = occupied;
        view_.go[slot].occupied.store(occupied, std::memory_order_release);
    }
}

bool RingReader::any_occupied(std::uint64_t seq, std::uint32_t count) const {
    for (std::uint32_t i = 0; i < count && !occupied_.empty(); ++i)
        if (occupied_[(seq + i) & view_.mask]) return true;
    return false;
}

// What an earlier manager had passed over, in the order of the program. Marks that were set and did not come to count are
// taken away.
void RingReader::recover_occupied(std::vector<Event>& events) {
    std::vector<std::uint64_t> found;
    for (std::uint64_t slot = 0; slot <= view_.mask; ++slot) {
        if (view_.go[slot].occupied.load(std::memory_order_relaxed) == 0) continue;
        const std::uint64_t commit = view_.record(slot).commit.load(std::memory_order_acquire);
        const std::uint64_t seq = (commit & ring::kSeqMask) - 1;
        if ((commit & ~ring::kSeqMask) == ring::kCommitTag && (seq & view_.mask) == slot && seq < retired_)
            found.push_back(seq);
    }
    std::sort(found.begin(), found.end());
    for (const std::uint64_t seq : found)
        if (broken() || !read_record(seq, retired_, events)) return;
    occupied_.resize(std::size_t(view_.mask) + 1);
    for (std::uint64_t slot = 0; slot <= view_.mask; ++slot)
        if (!occupied_[slot]) view_.go[slot].occupied.store(0, std::memory_order_release);
}

void RingReader::read_records(std::vector<Event>& events) {
    const std::uint64_t head = view_.header->head.load(std::memory_order_acquire);
    const std::uint64_t slots = std::uint64_t(view_.mask) + 1;
    if (head < next_ || head - retired_ > slots || head > ring::kSeqMask) {
        if (head == next_) return;
        return break_ring("head " + std::to_string(head) + " with " + std::to_string(retired_) + " retired and " +
                              std::to_string(slots) + " slots",
                          events);
    }
    while (next_ < head && !broken() && read_next(head, events)) {}
    free_upto(retired_);
}

// False: nothing more to read now.
bool RingReader::read_next(std::uint64_t head, std::vector<Event>& events) {
    if (view_.record(next_).commit.load(std::memory_order_acquire) == (ring::kCommitTag | (next_ + 1)))
        return read_record(next_, head, events);
    if (view_.ready[next_ & view_.mask].skipped.load(std::memory_order_acquire) != next_ + 1) return false;
    skipped_.push_back(next_++);
    return true;
}

// The launch `seq`, which is committed and may reach as far as `end`. One before those to be read was passed over.
bool RingReader::read_record(std::uint64_t seq, std::uint64_t end, std::vector<Event>& events) {
    const ring::LaunchRecord& shared = view_.record(seq);
    Recorded record;
    record.rank = rank_;
    record.seq = seq;
    record.occupied = seq < next_;
    record.flags = shared.flags;
    record.stream = shared.stream;
    const std::uint16_t gate = shared.gate, op_count = shared.op_count;
    const std::string name = "launch " + std::to_string(seq);
    if (op_count == 0 || op_count > ring::kMaxOps || gate > static_cast<std::uint16_t>(ring::Gate::net)) {
        break_ring(name + ": " + std::to_string(op_count) + " operations, gate " + std::to_string(gate), events);
        return false;
    }
    record.gate = static_cast<ring::Gate>(gate);
    if ((record.flags & ring::kLaunchReplayed) != 0 && record.gate != ring::Gate::stream) {
        break_ring(name + ": captured, with gate " + std::to_string(gate), events);
        return false;
    }
    record.slots = ring::slots_for(op_count);
    if (record.slots > end - seq) {
        break_ring(name + ": reaches beyond the head of the ring", events);
        return false;
    }
    if (any_occupied(seq, record.slots)) {
        break_ring(name + ": lies in a slot that is occupied", events);
        return false;
    }
    record.ops.reserve(op_count);
    record.ops.push_back(shared.op);
    for (std::uint32_t i = 1; i < op_count; ++i)
        record.ops.push_back(view_.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2]);
    std::uint64_t keys = 0;
    for (std::size_t i = 0; i < record.ops.size(); ++i) {
        std::string fault = entries_.fault_of(record.ops[i], events);
        keys += record.ops[i].count;
        if (fault.empty() && (record.flags & ring::kLaunchReplayed) != 0 && record.ops[i].n + record.ops[i].count > kMostCaptured)
            fault = "captured number " + std::to_string(record.ops[i].n);
        if (fault.empty()) continue;
        fault.insert(0, ", operation " + std::to_string(i) + ": ").insert(0, name);
        break_ring(std::move(fault), events);
        return false;
    }
    record.keyless = keys > kMaxKeys;
    if (record.keyless) lose_comms_of(record, events);
    if (record.occupied)
        set_occupied({seq, record.slots}, true);
    else
        next_ = seq + record.slots;
    if ((record.flags & ring::kLaunchReplayed) != 0) {
        record.replays = words_.follow_replays(record, recovered_);
    } else {
        record.go = recovered_ && words_.stays_gone(seq, record.flags, RingWords::go_comm(record));
        words_.follow(record);
    }
    events.push_back(std::move(record));
    return true;
}

// Its peers may wait for keys that nobody can be told of.
void RingReader::lose_comms_of(const Recorded& record, std::vector<Event>& events) {
    std::set<std::uint32_t> comms;
    for (const ring::OpEntry& op : record.ops)
        if (comms.insert(op.comm).second) events.push_back(CommLost{rank_, op.comm});
}

}  // namespace opus::manager
