#include "manager/shell/ring_words.h"

#include <algorithm>

#include "manager/shell/go_words.h"

namespace opus::manager {
namespace {

constexpr std::size_t kMostQueues = 64;  // of streams with nothing in them

// What is alike from iteration to iteration.
std::uint64_t kind_of(const Recorded& record) {
    std::uint64_t kind = record.ops.size();
    for (const ring::OpEntry& op : record.ops)
        kind = hash_mix(kind, std::uint64_t(op.kind) | std::uint64_t(op.comm) << 8 | std::uint64_t(op.peer) << 24) ^ op.bytes;
    return kind;
}

}  // namespace

void RingWords::watch(bool broken, std::vector<Event>& events) {
    watch_queues(events);
    watch_replays(broken, events);
    last_look_ = now_;
}

// Connections are made by whichever thread comes first: each in a queue of its own.
void RingWords::follow(const Recorded& record) {
    const bool conn = (record.flags & ring::kLaunchConn) != 0;
    StreamQueue& queue = queues_[{record.stream, conn ? 16 + record.seq : static_cast<std::uint64_t>(record.gate)}];
    if (queue.launches.empty()) queue.since = now_;
    queue.launches.push_back({record.seq, record.flags, record.gate, false, go_comm(record), kind_of(record)});
}

bool RingWords::reached(std::uint64_t seq) const {
    return view_.ready[seq & view_.mask].value.load(std::memory_order_acquire) == seq + 1;
}
bool RingWords::ended(std::uint64_t seq) const {
    return view_.done[seq & view_.mask].value.load(std::memory_order_acquire) == seq + 1;
}
bool RingWords::went(std::uint64_t seq, std::uint32_t comm) const {
    if ((view_.go[seq & view_.mask].value.load(std::memory_order_relaxed) & ~ring::kGoAbort) == seq + 1) return true;
    if (comm == kNone) return false;
    const std::uint64_t go = view_.comms[comm].go.load(std::memory_order_relaxed) & ~ring::kGoAbort;
    return seq < std::max(go, comm < gos_.size() ? gos_[comm] : 0);
}

// Not what a manager before this one released early, unless its gate was reached in time.
bool RingWords::stays_gone(std::uint64_t seq, std::uint16_t flags, std::uint32_t comm) const {
    const bool gone = went(seq, comm);
    if (!gone || (flags & ring::kLaunchFenced) == 0) return gone;
    if (!reached(seq)) {
        retract_go(view_, seq);
        if (!is_reached(view_, seq)) return false;
    }
    const std::uint64_t go = view_.go[seq & view_.mask].value.load(std::memory_order_relaxed);
    if (comm != kNone || go == seq) store_go(view_, seq, go == ((seq + 1) | ring::kGoAbort), comm);
    return true;
}

void RingWords::take_comm_gos() {
    gos_.resize(ring::kMaxComms);
    for (std::uint32_t i = 0; i < ring::kMaxComms; ++i) gos_[i] = retract_comm_go(view_, i, 0);
}

void RingWords::take_back() {
    for (const auto& [key, queue] : queues_)
        for (const Tracked& launch : queue.launches)
            if (!launch.ready || launch.comm != kNone) stays_gone(launch.seq, launch.flags, launch.comm);
    for (const auto& [seq, captured] : captured_) take_back_replays(seq & view_.mask);
}

std::uint32_t RingWords::go_comm(const Recorded& record) {
    const bool looks = (record.flags & ring::kLaunchCommGo) != 0 && (record.flags & ring::kLaunchReplayed) == 0;
    return looks && !record.ops.empty() && record.ops.front().comm < ring::kMaxComms ? record.ops.front().comm : kNone;
}

// What came since the last look came at one time, as far as can be known: it is reported in the order of the program,
// and not in that of the queues, which is the same in no two processes.
void RingWords::watch_queues(std::vector<Event>& events) {
    const auto first = static_cast<std::ptrdiff_t>(events.size());
    // Again where something came: what ended before it, in a queue that had been looked at by then.
    for (std::size_t before = events.size() + 1; before != events.size();) {
        before = events.size();
        for (auto& [key, queue] : queues_) watch_queue(queue, events);
    }
    // Empty ones remember what came before, as far as that stays few.
    std::erase_if(queues_, [this](const auto& entry) {
        return entry.second.launches.empty() && (entry.first.second >= 16 || queues_.size() > kMostQueues);
    });
    const auto place = [](const Event& event) {
        const auto* ready = std::get_if<Ready>(&event);
        return ready != nullptr ? std::pair(ready->seq, 0) : std::pair(std::get<DoneSeen>(event).seq, 1);
    };
    std::sort(events.begin() + first, events.end(), [&](const Event& a, const Event& b) { return place(a) < place(b); });
}

void RingWords::watch_queue(StreamQueue& queue, std::vector<Event>& events) {
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

// Where an earlier manager has reported of its replays, on from there.
std::uint64_t RingWords::follow_replays(const Recorded& record, bool recovered) {
    Captured& captured = captured_[record.seq];
    captured.record = record;
    if (!recovered) return 0;
    const std::uint64_t slot = record.seq & view_.mask;
    take_back_replays(slot);
    captured.recorded = captured.ready = captured.done = view_.done[slot].replays.load(std::memory_order_acquire);
    return captured.done;
}

// The one that was let go before its gate was reached, unless that was reached in time.
void RingWords::take_back_replays(std::uint64_t slot) const {
    const std::uint64_t next = replay_launch(slot, view_.ready[slot].replays.load(std::memory_order_seq_cst));
    if ((view_.go[slot].replays.load(std::memory_order_relaxed) & ~ring::kGoAbort) <= number_of_replay(next)) return;
    retract_go(view_, next);
    if (is_reached(view_, next)) store_go(view_, next);
}

// The launch that a replay is: its keys are numbered by it (replayed_key). What members of a sequence do in one launch, others
// may do in two, so each key is an operation of its own.
Recorded RingWords::replay_of(const Captured& captured, std::uint64_t number, std::uint64_t slot, bool go) {
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

void RingWords::watch_replays(bool broken, std::vector<Event>& events) {
    for (auto it = captured_.begin(); it != captured_.end();) {
        const std::uint64_t seq = it->first;
        Captured& captured = it->second;
        const bool gone = ended(seq);
        watch_replays(captured, events);
        if (!gone || broken) {
            ++it;
            continue;
        }
        if (captured.done < captured.ready)
            end_replay(captured, events);  // by a shim that counts from nothing again then
        counted_.push_back(seq);
        events.push_back(DoneSeen{rank_, seq});
        it = captured_.erase(it);
    }
}

// Not before: the core may let go what it is told of with the end of the graph.
void RingWords::retired(const Retired& a, const std::function<bool(std::uint64_t seq)>& is_occupied) {
    std::erase_if(counted_, [&](std::uint64_t seq) {
        const bool is_free =
            is_occupied(seq) ? std::ranges::any_of(a.freed, [seq](const Slots& s) { return s.seq == seq; }) : seq < a.upto;
        if (is_free) view_.go[seq & view_.mask].replays.store(0, std::memory_order_release);
        return is_free;
    });
}

void RingWords::end_replay(Captured& captured, std::vector<Event>& events) {
    events.push_back(DoneSeen{rank_, replay_launch(captured.record.seq & view_.mask, captured.done++)});
}

// Those of one graph take turns, and so do their words.
void RingWords::watch_replays(Captured& captured, std::vector<Event>& events) {
    const std::uint64_t slot = captured.record.seq & view_.mask;
    const std::uint64_t done = view_.done[slot].replays.load(std::memory_order_acquire);
    const std::uint64_t ready = view_.ready[slot].replays.load(std::memory_order_acquire);
    const std::uint64_t most = std::uint64_t{1} << kReplayBits;
    if (done > ready || ready < captured.ready) return;  // the graph goes just now
    if (ready > captured.done + kMostPassed || ready >= most) {
        // They pass, whatever opened their gates.
        for (const ring::OpEntry& op : captured.record.ops) events.push_back(CommLost{rank_, op.comm});
        if (captured.done < captured.recorded) end_replay(captured, events);
        captured.recorded = captured.ready = captured.done = done;
        return;
    }
    for (;;) {
        if (captured.recorded == captured.done) {
            const std::uint64_t number = captured.recorded++;
            const std::uint64_t go = view_.go[slot].replays.load(std::memory_order_relaxed) & ~ring::kGoAbort;
            events.push_back(replay_of(captured, number, slot, go > number));
        }
        if (captured.ready == captured.done) {
            if (ready <= captured.ready) return;
            events.push_back(Ready{rank_, replay_launch(slot, captured.ready++)});
            captured.pause = now_ - captured.since;
        } else {
            if (done <= captured.done) return;
            end_replay(captured, events);
        }
        captured.since = now_;
    }
}

// The word that comes next in a queue: of its first launch, after what ended before it.
std::uint64_t RingWords::arrival_of(const StreamQueue& queue) {
    return hash_mix(hash_mix(hash_mix(queue.last_but_one, queue.last), queue.launches.front().kind),
                    static_cast<std::uint64_t>(queue.next));
}

void RingWords::learn(StreamQueue& queue) {
    if (now_ == 0 || queue.since == 0) return;
    arrivals_.came(arrival_of(queue), now_ - queue.since, last_look_ == 0 ? 0 : now_ - last_look_);
}

void RingWords::await(PollHint& hint, TimeNs now, const Awaited& is_awaited) {
    for (auto& [key, queue] : queues_) {
        if (queue.launches.empty()) continue;
        const Tracked& first = queue.launches.front();
        if ((first.flags & ring::kLaunchConn) != 0) continue;  // the host reaches it and ends it
        const bool unmarked = first.gate == ring::Gate::none && (first.flags & ring::kLaunchMarksReady) == 0;
        const bool fenced = (first.flags & ring::kLaunchFenced) != 0;
        const bool runs = went(first.seq, first.comm) || (first.flags & ring::kLaunchUngated) != 0 || unmarked;
        if (runs ? (first.flags & ring::kLaunchHostDone) != 0 : first.gate == ring::Gate::host || first.ready) continue;
        if (!runs) {
            queue.next = Word::ready;  // also what was retracted
        } else if (queue.next == Word::ready) {
            queue.next = fenced && !first.ready ? Word::done_ahead : Word::done;
            if (first.ready) queue.since = now;
        }
        if (runs && !is_awaited(first.seq))
            hint.any = hint.unawaited = true;
        else if (queue.next == Word::done_ahead && queue.launches.size() > 1 &&
                 went(queue.launches[1].seq, queue.launches[1].comm))
            hint.add_soon(now);
        else
            hint.add(queue.since, arrivals_.window(arrival_of(queue)), now);
    }
    for (const auto& [seq, captured] : captured_)
        goes_by_itself(captured, is_awaited) ? hint.add_soon(now) : hint.add(captured.since, {}, now);
}

// It was let go, nobody waits for its end, and the next comes so much later that somebody has looked by then.
bool RingWords::goes_by_itself(const Captured& captured, const Awaited& is_awaited) const {
    const std::uint64_t slot = captured.record.seq & view_.mask;
    const std::uint64_t go = view_.go[slot].replays.load(std::memory_order_relaxed) & ~ring::kGoAbort;
    return captured.pause > kSeldom && go > captured.done && !is_awaited(replay_launch(slot, captured.done));
}

}  // namespace opus::manager
