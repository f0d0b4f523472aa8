// Forming launches at the outermost ncclGroupEnd. What NCCL does there: group.cc, enqueue.cc
// (docs: nccl facts, "What happens at launch").
#include "shim/group.h"

#include <cstring>
#include <utility>

#include "shim/captured.h"
#include "shim/fast_path.h"
#include "shim/first_uses.h"
#include "shim/hooks.h"
#include "shim/host_gate.h"
#include "shim/stream_gate.h"
#include "shim/thread_state.h"
#include "shim/windows.h"

namespace opus::shim {

GroupBuffers* GroupBuffers::make() {
    auto* buffers = static_cast<GroupBuffers*>(calloc(1, sizeof(GroupBuffers)));
    if (buffers != nullptr) buffers->connections = kFull;
    return buffers;
}

void GroupBuffers::clear() {
    ops.clear();
    creations.clear();
    leaving.clear();
    parts.clear();
    streams.clear();
    unheld_streams.clear();
    entries.clear();
    pairs.clear();
    launches.clear();
    failed = false;
    connections = kFull;
}

namespace {

// A Gather or a Scatter as its transfers.
bool add_operation(GroupBuffers& group, const PendingOp& op) {
    if (!is_rooted_transfers(op.kind)) return group.ops.add(op);
    bool all = true;
    transfers_of(*op.comm, op.kind, op.peer, [&](OpKind direction, std::uint32_t peer) {
        all = group.ops.add({op.comm, op.stream, op.bytes, peer, direction, op.dtype}) && all;
    });
    return all;
}

}  // namespace

void collect(Communicator& c, const PendingOp& op, ncclResult_t result) {
    GroupBuffers* group = group_buffers();
    if (group != nullptr && result != ncclSuccess && result != ncclInProgress)
        group->failed = true;
    else if (group == nullptr || !add_operation(*group, op))
        c.count_lost();
}

namespace {

// One event of this thread for each context: a wait refers to what was recorded when it was asked for, so the next may
// use it again.
CUevent event_in(GroupBuffers& group, const DriverContext& context) {
    for (const GroupBuffers::ContextEvent& known : group.events)
        if (known.context == context.handle) return known.event;
    const InContext current(context);
    const BesideCaptures beside;
    CUevent event = nullptr;
    if (driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
    group.events.add({context.handle, event});
    return event;
}

}  // namespace

bool order_streams(const LaunchStream& before, const LaunchStream& after) {
    GroupBuffers* group = group_buffers();
    CUevent event = group != nullptr ? event_in(*group, *before.context) : nullptr;
    if (event == nullptr) return false;
    {
        const InContext current(*before.context);
        if (driver.cuEventRecord(event, before.stream) != CUDA_SUCCESS) return false;
    }
    const InContext current(*after.context);
    return driver.cuStreamWaitEvent(after.stream, event, 0) == CUDA_SUCCESS;
}

namespace {

std::atomic<std::uint64_t> group_stamps{0};

// Of a communicator that is not known to be enforced.
__attribute__((noinline)) bool records_in(GroupBuffers& group, Communicator& c) {
    if (group.refused != nullptr) return false;
    const bool recorded = records_slowly(c);
    if (!recorded && thread_words.refusal != ncclSuccess) group.refused = &c;
    return recorded;
}

class Formation {
public:
    explicit Formation(GroupBuffers& group) : group_(group) {}

    // Numbers the operations, and records and holds what is to be held. False: do not start.
    bool begin() {
        // Calls on communicators of one node pass at once. One that came meanwhile, perhaps in another thread, may be
        // in this group.
        holds_up_unseen_ = process.view.header->passed.load(std::memory_order_relaxed) != group_.passed;
        number();
        if (group_.entries.empty()) return group_.refused == nullptr && (group_.pairs.empty() || hold_first_uses());
        if (may_take_fast_path()) return begin_on_fast_path();
        if (group_.refused != nullptr) return false;
        if (any_capturing()) return begin_captured();
        gate_ = gate_of_group();
        if (gate_ == ring::Gate::stream) {
            join_parts();
            if (!hold_first_uses()) return false;
        }
        record_all();
        if (group_.parts.size() == 1 && group_.streams.size() == 1)
            prepare_fast_path(*group_.parts[0].comm, group_.streams[0].at.stream, gate_);
        else
            close_fast_paths();
        return hold_all();
    }

    // After the real call of a group that was refused.
    void release() {
        if (group_.launches.empty() && fast_path_seq_ == kFull) count_lost(kNone);
        if (Communicator* c = std::exchange(group_.refused, nullptr); c != nullptr)
            end_wait(c->index);
        else
            end_wait(group_.launch_ops.data(), fast_path_seq_ != kFull ? 1 : group_.launch_ops.size());
    }

    // After the real call.
    void end(ncclResult_t result) {
        if (fast_path_seq_ != kFull) {
            Communicator& c = *group_.parts[0].comm;
            if (result == ncclSuccess && c.fast_path.on_driver)
                finish_fast_path_stream(c, fast_path_seq_);
            else
                end_flight(c, {fast_path_seq_, kFull}, {c.fast_path.stream, c.context}, result);
            return;
        }
        if (group_.connections != kFull) {
            if (lasts_ && (result == ncclSuccess || result == ncclInProgress))
                let_last();
            else if (result == ncclInProgress)
                defer_done(*group_.parts[0].comm, group_.connections, nullptr, 0);
            else
                store_done(group_.connections);
        }
        if (lasts_) end_device_uses(result == ncclSuccess || result == ncclInProgress);
        for (const GroupLaunch& launch : group_.launches) {
            if (launch.seq == kFull) continue;
            gather_streams(launch.set);
            LaunchStream* streams = group_.launch_streams.data();
            const std::uint32_t count = group_.launch_streams.size();
            Communicator& lead = lead_comm(launch);
            if (result == ncclInProgress) {
                defer_done(lead, launch.seq, streams, count, ends_as_one(launch.set));
            } else if (result == ncclSuccess) {
                enqueue_done(launch.seq, streams, count);
                if (ends_as_one(launch.set))
                    each_held(launch.set, [this](const GroupPart& part) {
                        precede(*part.comm, {part.launch_stream, part.comm->context}, captured_);
                    });
            } else {
                count_lost(launch.set);  // peers may wait for what its keys promised
                captured_ ? enqueue_done(launch.seq, streams, count) : store_done(launch.seq);
            }
        }
    }

private:
    Communicator& lead_comm(const GroupLaunch& launch) { return *group_.parts[launch.lead].comm; }
    LaunchStream launch_stream(const GroupLaunch& launch) {
        return {group_.parts[launch.lead].launch_stream, lead_comm(launch).context};
    }

    // What most groups are: one communicator on one stream, as before, and no first use.
    bool may_take_fast_path() const {
        if (group_.parts.size() != 1 || group_.streams.size() != 1 || first_uses_ != 0 || holds_up_unseen_)
            return false;  // so none is unheld
        const Communicator& c = *group_.parts[0].comm;
        return c.fast_path_verdict == std::uint32_t(Verdict::enforced) &&
               group_.streams[0].at.stream == c.fast_path.stream && recordable(process.view, group_.entries.size()) &&
               (!c.fast_path.on_driver || ask_stream(c.fast_path));
    }

    // Of communicators that stand in another stream than before, or in several (ring::kLaunchCommGo).
    void close_fast_paths() {
        for (const GroupPart& part : group_.parts)
            if (part.recorded && (group_.streams.size() != 1 || part.comm->fast_path.stream != group_.streams[0].at.stream))
                part.comm->close_fast_path();
    }

    bool begin_on_fast_path() {
        Communicator& c = *group_.parts[0].comm;
        gather_ops(kNone);
        const LaunchHead head(c.fast_path.gate, group_.launch_ops.size(), record_flags(1, c.fast_path.gate));
        const std::uint64_t seq = push(process.view, head, c.fast_path.stream_name, group_.launch_ops.data());
        if (seq == kFull) {
            c.count_lost();
            return true;
        }
        process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
        fast_path_seq_ = c.apart = seq;
        return pass_fast_path_gate<false>(c, seq);
    }

    // The calls are captured into a graph, all of them: a stream that captures waits for none that does not.
    bool begin_captured() {
        const bool held = process.mode == Mode::enforce && gate_of_group() != ring::Gate::none;
        if (!held || kMutation == Mutation::let_replays_pass) {
            process.view.header->passed.fetch_add(1, std::memory_order_relaxed);  // nothing is held
            group_.entries.clear();
            return true;
        }
        captured_ = true;
        gate_ = ring::Gate::stream;
        const bool numbered = number_captured();
        join_parts();
        if (!hold_first_uses()) return false;
        const Replays replays = numbered ? hold_of_replays() : Replays::pass;
        if (replays == Replays::pinned) return pin_all();
        if (replays == Replays::pass) {
            count_lost(kNone);
            return true;
        }
        record_all();
        return hold_all();
    }

    // From calls to captured operations (number_captured of captured.h).
    bool number_captured() {
        bool all = true;
        for (std::uint32_t i = group_.entries.size(); i-- > 0;) {
            const GroupEntry& e = group_.entries[i];
            give_number_back(*group_.parts[e.part].comm, e.op);
        }
        for (GroupEntry& e : group_.entries) all = shim::number_captured(*group_.parts[e.part].comm, e.op) && all;
        return all;
    }

    Replays hold_of_replays() {
        Replays least = Replays::gated;
        for (const GroupPart& part : group_.parts)
            if (part.recorded) least = std::max(least, shim::hold_of_replays(*part.comm));
        return least == Replays::gated && group_.streams.size() > 1 && !joinable() ? Replays::pass : least;
    }

    void gather_pinned(std::uint32_t part) {
        group_.launch_ops.clear();
        for (const GroupEntry& e : group_.entries)
            if (e.part == part) pin_each(e.op, [this](const ring::OpEntry& op) { group_.launch_ops.add(op); });
    }

    // A launch for each communicator, all before the first is waited for. False: do not start.
    bool pin_all() {
        Array<GroupLaunch>& pins = group_.launches;
        for (std::uint32_t i = 0; i < group_.parts.size(); ++i) {
            if (!group_.parts[i].recorded) continue;
            gather_pinned(i);
            if (group_.launch_ops.empty()) continue;
            const std::uint64_t seq = record_pin(group_.launch_ops.data(), group_.launch_ops.size());
            if (seq == kFull)
                group_.parts[i].comm->count_lost();
            else if (store_ready(seq); !pins.add({seq, i, i}))
                store_done(seq);
        }
        bool held = true;
        for (const GroupLaunch& pin : pins) {
            Communicator& c = *group_.parts[pin.lead].comm;
            if (held) gather_pinned(pin.lead);
            held = held && await_go(pin.seq, group_.launch_ops.data(), group_.launch_ops.size());
            if (!held)
                store_done(pin.seq);
            else if (!keep_pin(c, pin.seq, launch_stream(pin)))
                c.count_lost();
        }
        pins.clear();  // they are not the call's
        return held;
    }

    static bool joinable() {
        return driver.cuEventCreate != nullptr && driver.cuEventRecord != nullptr && driver.cuStreamWaitEvent != nullptr;
    }

    // Every operation takes its key number, whatever becomes of it.
    void number() {
        stamp_ = group_stamps.fetch_add(1, std::memory_order_relaxed) + 1;
        for (const PendingOp& op : group_.ops) {
            Communicator& c = *op.comm;
            if (c.group != stamp_ && !add_part(c)) continue;
            GroupPart& part = group_.parts[c.group_part];
            if (is_transfer(op.kind)) {
                number_transfer(part, op);
            } else if (is_of_windows(op.kind)) [[unlikely]] {
                number_of_windows(part, op);
                if (op.kind == OpKind::none) continue;
            } else {
                number_collective(part, op);
            }
            if (part.recorded)
                add_stream(part, c.group_part, {op.stream, c.context});
            else if (c.sends != nullptr)
                group_.unheld_streams.add({op.stream, c.context});
        }
    }

    bool add_part(Communicator& c) {
        if (c.fast_path_verdict == kNotPlain) settle_slow(c);
        c.group = stamp_;
        c.group_part = group_.parts.size();
        const std::uint32_t self = group_.parts.size();
        return group_.parts.add(
            {&c, nullptr, self, kNone, c.sends != nullptr && (is_enforced(c) || records_in(group_, c)), false});
    }

    __attribute__((always_inline)) void number_transfer(GroupPart& part, const PendingOp& op) {
        Communicator& c = *op.comm;
        if (c.sends == nullptr || op.peer >= c.size) return;
        PeerSequence& peer = (op.kind == OpKind::send ? c.sends : c.recvs)[op.peer];
        const std::uint64_t n = peer.next++;
        const bool first = n == 0 && note_transfer(c, peer);
        if (!part.recorded) {
            connects_unheld_ |= first;
            return;
        }
        if (peer.group == stamp_) {
            extend(group_.entries[peer.entry].op, op);
            return;
        }
        peer.group = stamp_;
        peer.entry = group_.entries.size();
        add_entry(op, n, first);
    }

    static constexpr bool is_of_windows(OpKind kind) { return kind == OpKind::none || is_one_sided(kind); }
    __attribute__((noinline)) void number_of_windows(GroupPart& part, const PendingOp& op) {
        op.kind == OpKind::none ? number_mesh(part, op) : number_put(part, op);
    }

    // Nobody else comes to it.
    void number_put(GroupPart& part, const PendingOp& op) {
        Communicator& c = *op.comm;
        if (c.puts == nullptr) c.puts = static_cast<PeerSequence*>(calloc(c.size, sizeof(PeerSequence)));
        if (c.puts == nullptr) return c.count_lost();
        PeerSequence& peer = c.puts[op.peer];
        const std::uint64_t n = peer.next++;
        if (!part.recorded) return;
        if (peer.group == stamp_) return extend(group_.entries[peer.entry].op, op);
        peer.group = stamp_;
        peer.entry = group_.entries.size();
        add_entry(op, n, false);
    }

    void number_mesh(GroupPart& part, const PendingOp& op) {
        const auto use = static_cast<MeshUse>(op.peer);
        part.lasts |= use == MeshUse::device;
        lasts_ |= use == MeshUse::device;
        ring::OpEntry pair;
        if (note_mesh(*op.comm, use, pair)) add_pair(part, *op.comm, pair);
    }

    void number_collective(GroupPart& part, const PendingOp& op) {
        Communicator& c = *op.comm;
        if (c.sends == nullptr) return;
        const std::uint64_t n = c.collectives++;
        const bool first = note_use(c, op.kind, op.peer);
        note_pairs(c, op.kind, op.dtype, [&](const ring::OpEntry& pair) { add_pair(part, c, pair); });
        if (!part.recorded) {
            connects_unheld_ |= first;
            return;
        }
        if (part.collective != kNone) {
            ring::OpEntry& last = group_.entries[part.collective].op;
            if (last.kind == std::uint8_t(op.kind) && last.peer == op.peer) {
                extend(last, op);
                return;
            }
        }
        part.collective = group_.entries.size();
        add_entry(op, n, first);
        if (c.windows && may_spread(op.kind) && part.collective < group_.entries.size())
            group_.entries[part.collective].op.flags |= ring::kOpMesh;
    }

    static void extend(ring::OpEntry& entry, const PendingOp& op) {
        ++entry.count;
        entry.bytes += op.bytes;
    }

    void add_entry(const PendingOp& op, std::uint64_t n, bool first) {
        const Communicator& c = *op.comm;
        const ring::OpEntry entry{std::uint8_t(op.kind),         op.dtype, std::uint16_t(c.index), op.peer, n, 1,
                                  first ? ring::kOpFirstUse : 0, op.bytes};
        if (first) ++first_uses_;
        if (!group_.entries.add({entry, c.group_part})) op.comm->count_lost();
    }

    void add_pair(const GroupPart& part, Communicator& c, const ring::OpEntry& pair) {
        if (!part.recorded) {
            connects_unheld_ = true;
            return;
        }
        ++first_uses_;
        if (!group_.pairs.add({pair, c.group_part})) c.count_lost();
    }

    void add_stream(GroupPart& part, std::uint32_t index, LaunchStream at) {
        for (std::uint32_t i = group_.streams.size(); i-- > 0;) {
            const GroupStream& known = group_.streams[i];
            if (known.part == index && known.at == at) return;
        }
        part.launch_stream = at.stream;
        group_.streams.add({index, at});
    }

    bool any_capturing() {
        for (const GroupStream& s : group_.streams) {
            const InContext current(*s.at.context);
            if (capturing(s.at.stream)) return true;
        }
        return false;
    }

    ring::Gate gate_of_group() {
        ring::Gate gate = ring::Gate::stream;
        for (const GroupPart& part : group_.parts) {
            if (!part.recorded) continue;
            const ring::Gate own = gate_for(*part.comm, part.launch_stream);
            if (own != ring::Gate::stream) gate = own;
        }
        return gate == ring::Gate::stream && group_.streams.size() > 1 && !joinable() ? ring::Gate::host : gate;
    }

    std::uint32_t root_of(std::uint32_t part) const {
        while (group_.parts[part].set != part) part = group_.parts[part].set;
        return part;
    }

    void join(std::uint32_t part, std::uint32_t other) {
        const std::uint32_t a = root_of(part), b = root_of(other);
        if (a != b) group_.parts[b].set = a;
    }

    // Communicators that share a stream are one launch: the first's gate would stand before the second's
    // kernel anyway. So are those that share resources: NCCL runs their kernels one after another, in an order of its own.
    void join_parts() {
        for (std::uint32_t i = 0; i < group_.parts.size(); ++i)
            for (std::uint32_t k = 0; k < i; ++k)
                if (group_.parts[i].recorded && group_.parts[k].recorded &&
                    group_.parts[i].comm->family == group_.parts[k].comm->family)
                    join(k, i);
        for (std::uint32_t i = 0; i < group_.streams.size(); ++i) {
            for (std::uint32_t k = 0; k < i; ++k) {
                if (!(group_.streams[i].at == group_.streams[k].at)) continue;
                join(group_.streams[k].part, group_.streams[i].part);
                break;
            }
        }
    }

    bool in_set(std::uint32_t part, std::uint32_t set) const { return set == kNone || root_of(part) == set; }

    bool hold_first_uses() {
        group_.launch_ops.clear();
        for (const GroupEntry& e : group_.entries) {
            if ((e.op.flags & ring::kOpFirstUse) == 0) continue;
            ring::OpEntry first = e.op;
            first.flags = ring::kOpFirstUse;
            group_.launch_ops.add(first);
        }
        for (const GroupEntry& e : group_.pairs) group_.launch_ops.add(e.op);
        if (group_.launch_ops.empty()) return true;
        bool fail = false;
        group_.connections = hold_connections(group_.launch_ops.data(), group_.launch_ops.size(), group_.entries.size(),
                                              connection_flags(), fail);
        if (group_.connections == kFull) count_lost(kNone);
        for (GroupEntry& e : group_.entries) e.op.flags &= ~ring::kOpFirstUse;
        return !fail;
    }

    std::uint16_t connection_flags() const {
        const bool mixed = holds_up_unseen_ || !group_.unheld_streams.empty();
        return std::uint16_t((mixed ? ring::kLaunchMixed : 0) | (lasts_ ? ring::kLaunchLasts : 0));
    }

    // NCCL has not made them; or their connections were one launch with operations, behind a host gate, and end with these.
    void end_device_uses(bool made) {
        for (const GroupPart& part : group_.parts) {
            if (!part.lasts) continue;
            if (!made) forget_device_use(*part.comm);
            if (made && part.recorded && part.comm->lasting == nullptr) part.comm->count_lost();
        }
    }

    // The launch of connections, as long as the device communicators that were made with it.
    void let_last() {
        Array<Communicator*>& comms = group_.lasting;
        comms.clear();
        for (const GroupPart& part : group_.parts)
            if (part.lasts && part.recorded && part.comm->lasting == nullptr) comms.add(part.comm);
        if (comms.empty())
            store_done(group_.connections);
        else
            begin_lasting(comms.data(), comms.size(), group_.connections);
    }

    void count_lost(std::uint32_t set) {
        for (std::uint32_t i = 0; i < group_.parts.size(); ++i)
            if (group_.parts[i].recorded && in_set(i, set)) group_.parts[i].comm->count_lost();
    }

    void record_all() {
        for (std::uint32_t i = 0; i < group_.parts.size(); ++i) {
            if (!group_.parts[i].recorded) continue;
            if (gate_ != ring::Gate::stream) {
                record(kNone, i);
                return;
            }
            if (root_of(i) == i) record(i, i);
        }
    }

    // The gate of the set stands before operations that nobody will hear of.
    bool holds_up_others(std::uint32_t set) const {
        if (holds_up_unseen_) return true;
        for (std::uint32_t i = 0; i < group_.unheld_streams.size(); ++i) {
            if (gate_ != ring::Gate::stream) return true;
            for (std::uint32_t k = 0; k < group_.streams.size(); ++k)
                if (in_set(group_.streams[k].part, set) && group_.streams[k].at == group_.unheld_streams[i])
                    return true;
        }
        return false;
    }

    void record(std::uint32_t set, std::uint32_t lead) {
        gather_ops(set);
        gather_streams(set);
        GroupLaunch launch{kFull, set, lead};
        const std::uint32_t count = group_.launch_ops.size();
        if (recordable(process.view, count)) {
            const GroupPart& part = group_.parts[lead];
            const std::uint16_t held = captured_ ? kCapturedFlags : record_flags(group_.launch_streams.size(), gate_);
            const bool mixed = holds_up_others(set) || (connects_unheld_ && !captured_);
            const std::uint16_t flags = held | (mixed ? ring::kLaunchMixed : 0);
            const LaunchHead head{gate_, count, flags};
            launch.seq = push(process.view, head, stream_name(*part.comm, part.launch_stream), group_.launch_ops.data());
        }
        if (launch.seq == kFull)
            count_lost(set);
        else
            process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
        each_held(set, [&launch](const GroupPart& part) { part.comm->apart = std::min(launch.seq, kFull - 1); });
        group_.launches.add(launch);
    }

    void gather_ops(std::uint32_t set) {
        group_.launch_ops.clear();
        for (const GroupEntry& e : group_.entries)
            if (in_set(e.part, set)) group_.launch_ops.add(e.op);
        if (brings_pairs(gate_))
            for (const GroupEntry& e : group_.pairs) group_.launch_ops.add(e.op);
    }

    // The distinct streams that the set's kernels stand on.
    void gather_streams(std::uint32_t set) {
        group_.launch_streams.clear();
        for (std::uint32_t i = 0; i < group_.parts.size(); ++i) {
            const GroupPart& part = group_.parts[i];
            if (!part.recorded || !in_set(i, set)) continue;
            const LaunchStream at{part.launch_stream, part.comm->context};
            bool known = false;
            for (const LaunchStream& other : group_.launch_streams) known = known || other == at;
            if (!known) group_.launch_streams.add(at);
        }
    }

    bool hold_all() {
        for (GroupLaunch& launch : group_.launches) {
            if (launch.seq == kFull) continue;
            if (captured_ && !keep_with_graph(launch.seq, launch_stream(launch))) {
                launch.seq = kFull;
                count_lost(launch.set);
            } else if (gate_ == ring::Gate::none) {
                mark_ready(launch.seq, launch_stream(launch));
            } else if (gate_ == ring::Gate::stream && place_gate(launch)) {
                process.view.header->gated.fetch_add(1, std::memory_order_relaxed);
                ring_doorbell();
            } else if (captured_) {
                launch.seq = kFull;  // its slot is the graph's
                count_lost(launch.set);
            } else {
                gather_ops(launch.set);
                if (!pass_host_gate(launch.seq, group_.launch_ops.data(), group_.launch_ops.size())) return false;
            }
        }
        return true;
    }

    template <class Visit>
    void each_held(std::uint32_t set, Visit visit) {
        for (std::uint32_t i = 0; i < group_.parts.size(); ++i)
            if (group_.parts[i].recorded && in_set(i, set)) visit(group_.parts[i]);
    }

    bool is_fused(std::uint32_t set) const {
        std::uint32_t count = 0;
        for (std::uint32_t i = 0; i < group_.parts.size(); ++i) count += group_.parts[i].recorded && in_set(i, set);
        return count > 1;
    }

    // Else its gate waits for none before it, and what comes next on one of its communicators for the gate alone: each of its kernels
    // waits for its own communicator, and of which one the others wait nobody knows.
    bool ends_as_one(std::uint32_t set) const {
        return (!is_fused(set) && !holds_up_others(set)) || kMutation == Mutation::end_groups_as_one;
    }

    // Behind all user streams of the set, before all its kernels. False: it does not stand before all of them.
    bool place_gate(const GroupLaunch& launch) {
        const Communicator& lead = lead_comm(launch);
        const LaunchStream at = launch_stream(launch);
        for (const GroupStream& s : group_.streams)
            if (in_set(s.part, launch.set) && !(s.at == at) && !order_streams(s.at, at)) return false;
        const bool one = ends_as_one(launch.set);
        if (one) each_held(launch.set, [&](const GroupPart& part) { follow(*part.comm, at, captured_); });
        {
            const InContext current(*at.context);
            const auto enqueue = captured_ ? enqueue_replayed_gate : enqueue_gate;
            if (!enqueue(lead, launch.seq, at.stream, is_fused(launch.set))) return false;
        }
        if (!one) each_held(launch.set, [&](const GroupPart& part) { precede(*part.comm, at, captured_); });
        gather_streams(launch.set);
        for (const LaunchStream& other : group_.launch_streams)
            if (!(other == at) && !order_streams(at, other)) return false;
        return true;
    }

    GroupBuffers& group_;
    std::uint64_t stamp_ = 0;
    std::uint64_t fast_path_seq_ = kFull;  // of a group that took the fast path
    std::uint32_t first_uses_ = 0;
    bool captured_ = false;         // into a graph
    bool holds_up_unseen_ = false;  // operations of the group that are not in it
    bool connects_unheld_ = false;  // first uses that nobody is told of: the call may wait for its gates while it makes them
    bool lasts_ = false;            // it makes device communicators
    ring::Gate gate_ = ring::Gate::none;
};

// NCCL launches nothing when a call of its group has failed: this one does. It takes a real call to close
// the group.
ncclResult_t end_without_launch() {
    real.ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, nullptr, nullptr);
    real.ncclGroupEnd();
    return ncclResult_t(thread_words.refusal);
}

// Communicators made or destroyed inside the group take effect at its end. All are known before the first is waited for.
__attribute__((noinline)) ncclResult_t conclude_members(GroupBuffers& group, ncclResult_t result) {
    for (Communicator* c : group.leaving) retire(c);
    const ncclResult_t said = result;
    for (Creation& creation : group.creations)
        if (conclude(creation, said) == nullptr) creation.out = nullptr;
    for (const Creation& creation : group.creations) {
        if (creation.out == nullptr) continue;
        if (Communicator* c = communicators.find(*creation.out); c != nullptr)
            if (const ncclResult_t admitted = admit_created(*c, creation.out); admitted != ncclSuccess) result = admitted;
    }
    return result;
}

__attribute__((noinline)) ncclResult_t end_refused(Formation& formation, GroupBuffers& group) {
    const ncclResult_t result = conclude_members(group, end_without_launch());
    formation.end(result);
    formation.release();
    group.clear();
    return result;
}

bool outermost() { return thread_words.depth != 0 && --thread_words.depth == 0; }

}  // namespace

ncclResult_t handlers::ncclGroupStart() {
    if (thread_words.inside != 0) return real.ncclGroupStart();
    const ncclResult_t result = real.ncclGroupStart();
    if (result != ncclSuccess || thread_words.depth++ != 0) return result;
    GroupBuffers* group = thread_words.buffers;
    if (group == nullptr) [[unlikely]]
        group = group_buffers();
    if (group == nullptr) return result;
    group->clear();
    group->passed = process.view.header != nullptr ? process.view.header->passed.load(std::memory_order_relaxed) : 0;
    return result;
}

ncclResult_t handlers::ncclGroupEnd() {
    if (thread_words.inside != 0 || !outermost()) return real.ncclGroupEnd();
    GroupBuffers* group = thread_words.buffers;
    const Inside inside;
    if (group == nullptr) return real.ncclGroupEnd();
    if (group->failed) group->ops.clear();
    Formation formation(*group);
    if (!group->ops.empty() && !formation.begin()) [[unlikely]]
        return end_refused(formation, *group);
    const ncclResult_t result = real.ncclGroupEnd();
    if (!group->ops.empty()) formation.end(result);
    const bool members = !group->creations.empty() || !group->leaving.empty();
    const ncclResult_t concluded = members ? conclude_members(*group, result) : result;
    group->clear();
    return concluded;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
// Closes the group and estimates; nothing is launched, so no key is used up. What the group connects for
// the first time while it is simulated is not held (NCCL prepares its tasks on the host): simulate after
// a first use.
ncclResult_t handlers::ncclGroupSimulateEnd(ncclSimInfo_t* info) {
    if (thread_words.inside != 0 || !outermost()) return real.ncclGroupSimulateEnd(info);
    GroupBuffers* group = thread_words.buffers;
    const Inside inside;
    const ncclResult_t result = real.ncclGroupSimulateEnd(info);
    if (group != nullptr) {
        conclude_members(*group, result);
        group->clear();
    }
    return result;
}
#endif

}  // namespace opus::shim
