#include "manager/shell/ring_reader.h"

#include <algorithm>
#include <set>

#include "manager/shell/go_words.h"

namespace opus::manager {
namespace {

// What the wire carries (opus/wire.h): more would have our frames refused.
constexpr std::uint32_t kMaxRanks = 1u << 22;
constexpr std::uint32_t kMaxLocal = 64;
constexpr std::size_t kMostQueues = 64;                          // of streams with nothing in them
constexpr std::uint64_t kMaxKeys = wire::kMaxKeysPerLaunch / 2;  // a first use doubles them at most

// What is alike from iteration to iteration.
std::uint64_t kind_of(const Recorded& record) {
    std::uint64_t kind = record.ops.size();
    for (const ring::OpEntry& op : record.ops)
        kind = hash_mix(kind, std::uint64_t(op.kind) | std::uint64_t(op.comm) << 8 | std::uint64_t(op.peer) << 24) ^ op.bytes;
    return kind;
}

bool is_directed(std::uint8_t kind) {
    switch (static_cast<OpKind>(kind)) {
        case OpKind::send:
        case OpKind::recv:
        case OpKind::put_signal:
        case OpKind::signal:
        case OpKind::wait_signal: return true;
        default: return false;
    }
}

}  // namespace

RingReader::RingReader(ring::View view, RankId rank, bool recovered) : view_(view), rank_(rank), recovered_(recovered) {
    if (!recovered) return;
    const std::uint64_t retired = view_.header->retired.load(std::memory_order_acquire);
    const std::uint64_t reusable = view_.header->reusable.load(std::memory_order_acquire);
    passes_over_ = reusable > retired;
    next_ = retired_ = std::max(retired, reusable);
}

void RingReader::look(std::vector<Event>& events, bool scan, TimeNs now) {
    now_ = now;
    const std::uint64_t changes = view_.header->comm_changes.load(std::memory_order_acquire);
    if (!broken()) {
        if (scan || recovered_ || changes != comm_changes_) scan_comms(events);
        comm_changes_ = changes;
        if (recovered_ && passes_over_) recover_occupied(events);
        read_records(events);
        end_entries(events);
    }
    watch_queues(events);
    watch_replays(events);
    if (scan || recovered_) {
        const std::uint64_t gave_up = view_.header->gave_up.load(std::memory_order_relaxed);
        if (gave_up > gave_up_) events.push_back(GaveUp{rank_});
        gave_up_ = gave_up;
    }
    recovered_ = false;
    last_look_ = now;
}

void RingReader::break_ring(std::string fault, std::vector<Event>& events) {
    if (broken()) return;
    fault_ = std::move(fault);
    for (std::uint32_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].life != Life::free) events.push_back(CommLost{rank_, i});
}

// --- communicators --------------------------------------------------------------------------------

void RingReader::scan_comms(std::vector<Event>& events) {
    for (std::uint32_t i = 0; i < entries_.size() && !broken(); ++i) scan_entry(i, events);
}

void RingReader::scan_entry(std::uint32_t index, std::vector<Event>& events) {
    const ring::CommEntry& shared = view_.comms[index];
    Entry& entry = entries_[index];
    const auto state = static_cast<ring::CommState>(shared.state.load(std::memory_order_acquire));
    // It never got its place. The entry may be another's by now: no launch has named it.
    if (entry.life == Life::entering && (state == ring::CommState::free || shared.generation != entry.generation)) {
        entry.life = Life::free;
        events.push_back(CommDown{rank_, index});
    }
    if (entry.life == Life::free) {
        if (state == ring::CommState::entering) return enter_entry(index, events);
        if (state != ring::CommState::registered && state != ring::CommState::retired) return;
        // Retired and freed before: its last life, already reported.
        if (entry.ever_freed && shared.generation == entry.generation) return;
        if (recovered_ && state == ring::CommState::retired &&
            shared.freed.load(std::memory_order_relaxed) == shared.generation) {
            entry.ever_freed = true;
            entry.generation = shared.generation;
            return;
        }
        register_entry(index, events);
        if (entry.life == Life::free) return;
    }
    if (entry.life == Life::entering && state != ring::CommState::entering) {
        register_entry(index, events);
        if (entry.life != Life::live) return;
    }
    if (entry.life == Life::live) {
        const auto creation = static_cast<CreationState>(shared.creation.load(std::memory_order_relaxed));
        if (creation == CreationState::returned && !entry.created) events.push_back(CommCreated{rank_, index});
        entry.created |= creation == CreationState::returned;
        const std::uint32_t lost = shared.lost.load(std::memory_order_relaxed);
        if (lost > entry.lost) events.push_back(CommLost{rank_, index});
        entry.lost = lost;
        if (state == ring::CommState::retired) {
            entry.life = Life::ending;
            entry.ends_at = view_.header->head.load(std::memory_order_acquire);
            ++ending_;
        } else if (state != ring::CommState::registered || shared.generation != entry.generation) {
            break_ring("communicator entry " + std::to_string(index) + " changed while it was registered", events);
        }
    }
}

// Its rank and size come later. What it says of them until then is not looked at.
void RingReader::enter_entry(std::uint32_t index, std::vector<Event>& events) {
    const ring::CommEntry& shared = view_.comms[index];
    const CommEntering entering{rank_, index, shared.id};
    const std::uint32_t generation = shared.generation;
    if (entering.comm == CommId{})
        return break_ring("communicator entry " + std::to_string(index) + " has no id", events);
    entries_[index] = {Life::entering, true, generation, 0, 0, false, 0};
    events.push_back(entering);
}

void RingReader::register_entry(std::uint32_t index, std::vector<Event>& events) {
    const ring::CommEntry& shared = view_.comms[index];
    CommUp up;
    up.rank = rank_;
    up.index = index;
    up.family = shared.family;
    up.member = {shared.id, shared.parent, shared.rank, shared.size, rank_, kNone, Mode::off, shared.generation, {}};
    wire::CommMember& m = up.member;
    const std::uint32_t mode = shared.mode, device = shared.device;
    const std::string name = "communicator entry " + std::to_string(index);
    if (m.comm == CommId{}) return break_ring(name + " has no id", events);
    if (m.size == 0 || m.size > kMaxRanks || m.rank_in_comm >= m.size)
        return break_ring(name + ": rank " + std::to_string(m.rank_in_comm) + " of " + std::to_string(m.size), events);
    if (mode > static_cast<std::uint32_t>(Mode::enforce))
        return break_ring(name + ": mode " + std::to_string(mode), events);
    m.mode = static_cast<Mode>(mode);
    up.gpu = {shared.pci, shared.uuid};
    const std::uint32_t ways = shared.ways;
    m.own_nic = (ways & ring::kWaysOwnNic) != 0;
    m.own_host = (ways & ring::kWaysOwnHost) != 0;
    m.at_once = (ways & ring::kWaysAtOnce) != 0;
    m.also = shared.also;
    if (m.also == m.comm) m.also = {};
    const std::uint32_t gpu = std::atomic_ref(view_.header->gpu).load(std::memory_order_relaxed);
    // The header names the GPU of the process's first communicator; its other devices count on from there.
    if (first_device_ == kNone) first_device_ = device;
    const std::uint32_t local = gpu < kMaxLocal ? gpu + (device - first_device_) : device;
    if (local < kMaxLocal) m.gpu = local;
    if (recovered_) {
        const std::uint32_t verdict = shared.verdict.load(std::memory_order_relaxed);
        if (verdict < kVerdicts) up.verdict = static_cast<Verdict>(verdict);
        const std::uint32_t reason = shared.reason.load(std::memory_order_relaxed);
        if (reason < kReasons) up.reason = static_cast<Reason>(reason);
        up.reason_rank = shared.reason_rank.load(std::memory_order_relaxed);
    }
    const std::uint32_t creation = shared.creation.load(std::memory_order_relaxed);
    if (creation < kCreationStates) m.creation = static_cast<CreationState>(creation);
    entries_[index] = {Life::live, true, m.generation, m.size, 0, m.creation == CreationState::returned, 0};
    events.push_back(std::move(up));
}

void RingReader::end_entries(std::vector<Event>& events) {
    if (ending_ == 0) return;
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
        Entry& entry = entries_[i];
        if (entry.life != Life::ending || entry.ends_at == kSeqNone || next_ < entry.ends_at) continue;
        entry.ends_at = kSeqNone;
        --ending_;
        events.push_back(CommDown{rank_, i});
    }
}

void RingReader::comm_freed(std::uint32_t index, std::uint32_t generation) {
    if (index >= entries_.size() || entries_[index].generation != generation) return;
    entries_[index].life = Life::free;
}

// --- records --------------------------------------------------------------------------------------

// Marks first, then what makes them count.
void RingReader::retired(const Retired& a) {
    for (const Slots& slots : a.occupied) set_occupied(slots, true);
    passes_over_ |= !a.occupied.empty();
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
        std::string fault = fault_of(record.ops[i], events);
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
        Captured& captured = captured_[seq];
        captured.record = record;
        if (recovered_) recover(captured);
        record.replays = captured.done;
    } else {
        record.go = recovered_ && stays_gone(seq, record.flags);
        follow(record);
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

// Connections are made by whichever thread comes first: each in a queue of its own.
void RingReader::follow(const Recorded& record) {
    const bool conn = (record.flags & ring::kLaunchConn) != 0;
    StreamQueue& queue = queues_[{record.stream, conn ? 16 + record.seq : static_cast<std::uint64_t>(record.gate)}];
    if (queue.launches.empty()) queue.since = now_;
    queue.launches.push_back({record.seq, record.flags, record.gate, false, kind_of(record)});
}

std::string RingReader::fault_of(const ring::OpEntry& op, std::vector<Event>& events) {
    if (op.kind == 0 || op.kind >= kOpKinds) return "kind " + std::to_string(op.kind);
    if (op.comm >= entries_.size()) return "communicator entry " + std::to_string(op.comm);
    const auto unknown = [&] { return entries_[op.comm].life == Life::free || entries_[op.comm].life == Life::entering; };
    if (unknown()) scan_entry(op.comm, events);  // registered since the scan
    if (broken()) return fault_;
    if (unknown()) return "communicator entry " + std::to_string(op.comm) + " is free";
    const std::uint32_t size = entries_[op.comm].size;
    if (is_directed(op.kind) && op.peer >= size)
        return "peer " + std::to_string(op.peer) + " of " + std::to_string(size);
    if (op.count == 0) return "count 0";
    if (op.n > ring::kSeqMask - op.count) return "number " + std::to_string(op.n);
    return {};
}

// --- words ----------------------------------------------------------------------------------------

bool RingReader::reached(std::uint64_t seq) const {
    return view_.ready[seq & view_.mask].value.load(std::memory_order_acquire) == seq + 1;
}
bool RingReader::ended(std::uint64_t seq) const {
    return view_.done[seq & view_.mask].value.load(std::memory_order_acquire) == seq + 1;
}
bool RingReader::went(std::uint64_t seq) const {
    return (view_.go[seq & view_.mask].value.load(std::memory_order_relaxed) & ~ring::kGoAbort) == seq + 1;
}

// Not what a manager before this one released early, unless its gate was reached in time.
bool RingReader::stays_gone(std::uint64_t seq, std::uint16_t flags) const {
    if (!went(seq) || (flags & ring::kLaunchFenced) == 0 || reached(seq)) return went(seq);
    retract_go(view_, seq);
    if (!is_reached(view_, seq)) return false;
    store_go(view_, seq);
    return true;
}

void RingReader::take_back() {
    for (const auto& [key, queue] : queues_)
        for (const Tracked& launch : queue.launches)
            if (!launch.ready) stays_gone(launch.seq, launch.flags);
}

// What came since the last look came at one time, as far as can be known: it is reported in the order of the program,
// and not in that of the queues, which is the same in no two processes.
void RingReader::watch_queues(std::vector<Event>& events) {
    const auto first = static_cast<std::ptrdiff_t>(events.size());
    for (auto it = queues_.begin(); it != queues_.end();) {
        watch_queue(it->second, events);
        // Empty ones remember what came before, as far as that stays few.
        const bool forget = it->second.launches.empty() && (it->first.second >= 16 || queues_.size() > kMostQueues);
        it = forget ? queues_.erase(it) : std::next(it);
    }
    const auto place = [](const Event& event) {
        const auto* ready = std::get_if<Ready>(&event);
        return ready != nullptr ? std::pair(ready->seq, 0) : std::pair(std::get<DoneSeen>(event).seq, 1);
    };
    std::sort(events.begin() + first, events.end(), [&](const Event& a, const Event& b) { return place(a) < place(b); });
}

void RingReader::watch_queue(StreamQueue& queue, std::vector<Event>& events) {
    auto& launches = queue.launches;
    if (launches.empty()) return;
    // Host gates are reached by several threads, in no order; a GPU reaches those of one stream in order.
    const bool any_order = launches.front().gate == ring::Gate::host;
    for (std::size_t i = queue.ready; i < launches.size(); ++i) {
        if (!launches[i].ready && reached(launches[i].seq)) {
            launches[i].ready = true;
            if (i == 0 && launches[i].gate != ring::Gate::host && queue.next != Word::done_ahead) learn(queue);
            events.push_back(Ready{rank_, launches[i].seq});
        }
        if (launches[i].ready && i == queue.ready) ++queue.ready;
        if (!launches[i].ready && !any_order) break;
    }
    while (!launches.empty() && ended(launches.front().seq)) {
        events.push_back(DoneSeen{rank_, launches.front().seq});
        if (queue.next != Word::ready) learn(queue);
        queue.last_but_one = queue.last;
        queue.last = launches.front().kind;
        queue.since = now_;
        queue.next = Word::ready;
        launches.pop_front();
        if (queue.ready > 0) --queue.ready;
    }
}

// --- replays --------------------------------------------------------------------------------------

// What an earlier manager has reported of its replays.
void RingReader::recover(Captured& captured) {
    const std::uint64_t done = view_.done[captured.record.seq & view_.mask].replays.load(std::memory_order_acquire);
    captured.ready = captured.done = done;
}

// The launch that a replay is: its keys are numbered by it (replayed_key). What members of a sequence do in one launch, others
// may do in two, so each key is an operation of its own.
Recorded RingReader::replay_of(const Captured& captured, std::uint64_t number, std::uint64_t slot, bool go) {
    Recorded replay = captured.record;
    replay.seq = replay_launch(slot, number);
    replay.slots = 0;
    replay.go = go;
    replay.occupied = false;
    replay.ops.clear();
    for (const ring::OpEntry& op : captured.record.ops)
        for (std::uint32_t i = 0; i < op.count; ++i) {
            replay.ops.push_back(op);
            replay.ops.back().n = replayed_key(op.n + i, number);
            replay.ops.back().count = 1;
            if (i != 0) replay.ops.back().bytes = 0;
        }
    return replay;
}

void RingReader::watch_replays(std::vector<Event>& events) {
    for (auto it = captured_.begin(); it != captured_.end();) {
        const std::uint64_t seq = it->first;
        const bool gone = ended(seq);
        if (!gone) watch_replays(it->second, events);
        if (!gone || broken()) {
            ++it;
            continue;
        }
        // Nothing of it runs any more: its words count from nothing again.
        const Captured& captured = it->second;
        const std::uint64_t slot = seq & view_.mask;
        if (captured.done < captured.ready) events.push_back(DoneSeen{rank_, replay_launch(slot, captured.done)});
        view_.go[slot].replays.store(0, std::memory_order_release);
        events.push_back(DoneSeen{rank_, seq});
        it = captured_.erase(it);
    }
}

// A replay is reported when the one before it is done: those of one graph take turns, and so do their words.
void RingReader::watch_replays(Captured& captured, std::vector<Event>& events) {
    const std::uint64_t slot = captured.record.seq & view_.mask;
    const std::uint64_t done = view_.done[slot].replays.load(std::memory_order_acquire);
    const std::uint64_t ready = view_.ready[slot].replays.load(std::memory_order_acquire);
    const std::uint64_t most = std::uint64_t{1} << kReplayBits;
    if (done > ready || ready < captured.ready) return;  // the graph goes just now
    if (ready > captured.done + kMostPassed || ready >= most) {
        // They pass, whatever opened their gates.
        for (const ring::OpEntry& op : captured.record.ops) events.push_back(CommLost{rank_, op.comm});
        if (captured.done < captured.ready) events.push_back(DoneSeen{rank_, replay_launch(slot, captured.done)});
        captured.ready = captured.done = done;
        return;
    }
    for (;;) {
        if (captured.done < captured.ready) {
            if (done <= captured.done) return;
            events.push_back(DoneSeen{rank_, replay_launch(slot, captured.done++)});
        } else {
            if (ready <= captured.ready) return;
            const std::uint64_t number = captured.ready++;
            const std::uint64_t go = view_.go[slot].replays.load(std::memory_order_relaxed) & ~ring::kGoAbort;
            events.push_back(replay_of(captured, number, slot, go > number));
            events.push_back(Ready{rank_, replay_launch(slot, number)});
        }
        captured.since = now_;
    }
}

// The word that comes next in a queue: of its first launch, after what ended before it.
std::uint64_t RingReader::arrival_of(const StreamQueue& queue) {
    return hash_mix(hash_mix(hash_mix(queue.last_but_one, queue.last), queue.launches.front().kind),
                    static_cast<std::uint64_t>(queue.next));
}

void RingReader::learn(StreamQueue& queue) {
    if (now_ == 0 || queue.since == 0) return;
    arrivals_.came(arrival_of(queue), now_ - queue.since, last_look_ == 0 ? 0 : now_ - last_look_);
}

void RingReader::await(PollHint& hint, TimeNs now) {
    for (auto& [key, queue] : queues_) {
        if (queue.launches.empty()) continue;
        const Tracked& first = queue.launches.front();
        if ((first.flags & ring::kLaunchConn) != 0) continue;  // the host reaches it and ends it
        const bool unmarked = first.gate == ring::Gate::none && (first.flags & ring::kLaunchMarksReady) == 0;
        const bool fenced = (first.flags & ring::kLaunchFenced) != 0;
        const bool runs = went(first.seq) || (first.flags & ring::kLaunchUngated) != 0 || unmarked;
        if (runs ? (first.flags & ring::kLaunchHostDone) != 0 : first.gate == ring::Gate::host || first.ready) continue;
        if (!runs) {
            queue.next = Word::ready;  // also what was retracted
        } else if (queue.next == Word::ready) {
            queue.next = fenced && !first.ready ? Word::done_ahead : Word::done;
            if (first.ready) queue.since = now;
        }
        if (queue.next == Word::done_ahead && queue.launches.size() > 1 && went(queue.launches[1].seq))
            hint.add_unawaited(now);
        else
            hint.add(queue.since, arrivals_.window(arrival_of(queue)), now);
    }
    for (const auto& [seq, captured] : captured_) hint.add(captured.since, {}, now);
}

}  // namespace opus::manager
