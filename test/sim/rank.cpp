#include "test/sim/rank.h"

#include <algorithm>

#include "manager/core/core.h"
#include "test/sim/draft.h"
#include "test/sim/world.h"

namespace opus::sim {
namespace {

constexpr TimeNs kRingWaitNs = 100'000'000;  // OPUS_RING_WAIT_MS

}  // namespace

Rank::Rank(World& world, const Scenario& scenario, std::uint32_t index)
    : world_(world),
      s_(scenario),
      plan_(scenario.ranks[index]),
      index_(index),
      random_(scenario.seed, 0x4a00 + index),
      streams_(plan_.streams + 1),
      events_(plan_.events) {}

void Rank::start() {
    alive_ = true;
    view_ = world_.memory.take(s_.ring_slots);
    attached_ = world_.manager_of(index_).attach(index_);  // else it stays inert for its life
    if (world_.journal.on)
        world_.journal.add(world_.now, s_.name_of_rank(index_) +
                                           (attached_ ? " attaches as " + std::to_string(id_) : " finds no manager"));
    wake_host();
}

void Rank::kill() {
    if (!alive_) return;
    alive_ = false;
    died_ = true;
    if (world_.journal.on) world_.journal.add(world_.now, s_.name_of_rank(index_) + " dies");
    world_.inspector.gone(index_);
    world_.after(random_.spread(50'000, 1'000'000), Kind::rank_noticed, index_);
}

void Rank::end() {
    alive_ = false;
    ended_ = true;
    if (world_.journal.on) world_.journal.add(world_.now, s_.name_of_rank(index_) + " ends");
    world_.after(random_.spread(50'000, 1'000'000), Kind::rank_noticed, index_);
    world_.rank_ended(index_);
}

std::uint32_t Rank::entry_of(std::uint32_t comm) const {
    for (std::uint32_t entry = 0; entry < table_.size(); ++entry)
        if (table_[entry].comm == comm) return entry;
    return kNone;
}

std::deque<std::uint32_t>& Rank::family_of(std::uint32_t comm) { return families_[s_.comms[comm].family]; }

Verdict Rank::verdict(std::uint32_t comm) const {
    if (!attached_) return Verdict::passes;
    const std::uint32_t entry = entry_of(comm);
    if (entry == kNone) return Verdict::unknown;
    if (table_[entry].ignores_verdict) return Verdict::passes;
    return static_cast<Verdict>(view_.comms[entry].verdict.load());
}

bool Rank::records(std::uint32_t comm) const { return verdict(comm) == Verdict::enforced; }

// --- the host thread ----------------------------------------------------------------------------------

void Rank::wake_host() {
    if (!alive_ || host_pending_) return;
    host_pending_ = true;
    world_.after(random_.spread(1'000, 20'000), Kind::host, index_);
}

void Rank::host() {
    host_pending_ = false;
    if (!alive_) return;
    // A few calls at a time: the host takes time, too.
    for (int calls = 0; at_ < plan_.calls.size(); ++at_, step_ = Step::begin, ++calls) {
        if (calls == 4) return wake_host();
        const Call& call = plan_.calls[at_];
        switch (call.kind) {
            case Call::Kind::create:
                if (!create(call)) return;
                break;
            case Call::Kind::launch:
            case Call::Kind::capture:
                if (!launch(call)) return;
                break;
            case Call::Kind::replay: replay(call); break;
            case Call::Kind::forget:
                if (!family_of(call.comm).empty()) return;
                forget(graphs_.at(call.index));
                graphs_.erase(call.index);
                break;
            case Call::Kind::compute:
                streams_[call.stream].items.push_back({Item::Kind::compute, 0, call.ns});
                run_streams();
                break;
            case Call::Kind::record:
                streams_[call.stream].items.push_back({Item::Kind::record, call.index, 0});
                run_streams();
                break;
            case Call::Kind::wait:
                streams_[call.stream].items.push_back({Item::Kind::wait, call.index, 0});
                run_streams();
                break;
            case Call::Kind::sync:
                if (!streams_[call.stream].items.empty()) return;
                break;
            case Call::Kind::destroy:
                if (!destroy(call)) return;
                break;
            case Call::Kind::pause:
                if (!pause(call.ns)) return;
                break;
        }
        if (!alive_) return;
    }
    for (const StreamState& stream : streams_)
        if (!stream.items.empty()) return;
    if (!have_arrived(kNone)) {  // its proxies have sent what it has given them
        host_pending_ = true;
        return world_.after(1'000'000, Kind::host, index_);
    }
    end();
}

// The first entry that is nobody's, or that the manager has let go of. Members of a split know their rank and its size
// only when NCCL's own call has returned.
void Rank::enter_creation(std::uint32_t index, bool splits) {
    if (!attached_) return;
    const CommPlan& comm = s_.comms[index];
    std::uint32_t entry = 0;
    for (; entry < table_.size(); ++entry) {
        const ring::CommEntry& e = view_.comms[entry];
        if (e.state.load() == static_cast<std::uint32_t>(ring::CommState::retired) && e.freed.load() == e.generation)
            break;
    }
    if (entry == table_.size()) table_.emplace_back();
    table_[entry] = {index, false};
    ring::CommEntry& e = view_.comms[entry];
    e.id = comm.id;
    e.rank = splits ? kNone : place_in(comm);
    e.size = splits ? kNone : static_cast<std::uint32_t>(comm.ranks.size());
    e.family = comm.family;
    ++e.generation;
    e.lost.store(0);
    e.mode = static_cast<std::uint32_t>(plan_.mode);
    e.creation.store(static_cast<std::uint32_t>(CreationState::entered));
    e.state.store(static_cast<std::uint32_t>(splits ? ring::CommState::entering : ring::CommState::registered));
    tell_comms();
}

void Rank::creation_returned(std::uint32_t index) {
    if (!attached_) return;
    const CommPlan& comm = s_.comms[index];
    ring::CommEntry& e = view_.comms[entry_of(index)];
    e.rank = place_in(comm);
    e.size = static_cast<std::uint32_t>(comm.ranks.size());
    e.creation.store(static_cast<std::uint32_t>(CreationState::returned));
    e.state.store(static_cast<std::uint32_t>(ring::CommState::registered));
    tell_comms();
}

std::uint32_t Rank::place_in(const CommPlan& comm) const {
    return static_cast<std::uint32_t>(std::find(comm.ranks.begin(), comm.ranks.end(), index_) - comm.ranks.begin());
}

// True when the call returns. Members of a split know their rank and its size only when NCCL's own call has returned;
// the program has seen to it that nothing of the parent's is under way.
bool Rank::create(const Call& call) {
    const Creation& creation = s_.creations[call.creation];
    const bool splits = creation.parent != kNone;
    if (step_ == Step::begin) {
        if (splits && !family_of(creation.parent).empty()) return false;
        if (call.index != kNone) enter_creation(call.index, splits);
        ++world_.arrivals[call.creation];
        for (const std::uint32_t r : creation.callers)
            if (r != index_) world_.ranks[r]->comm_joined();
        step_ = Step::join;
    }
    if (step_ == Step::join) {
        if (world_.arrivals[call.creation] < creation.callers.size()) return false;
        if (call.index == kNone) return true;
        creation_returned(call.index);
        step_ = Step::verdict;
        world_.after(s_.timing.hold_ns, Kind::verdict_gave_up, index_, ++wait_number_);
    }
    return verdict(call.index) != Verdict::unknown;
}

bool Rank::have_arrived(std::uint32_t comm) const {
    for (std::size_t i = 0; i < at_ && i < plan_.calls.size(); ++i)
        for (const LaunchPlan& launch : plan_.calls[i].launches)
            for (const Part& part : launch.parts)
                if ((comm == kNone || part.comm == comm) && part.sends && !world_.traffic.has_arrived(part.flow))
                    return false;
    return true;
}

// NCCL waits for its kernels, and for its proxies, which send what they were given.
bool Rank::destroy(const Call& call) {
    if (!family_of(call.index).empty()) return false;
    if (!have_arrived(call.index)) {
        host_pending_ = true;
        world_.after(1'000'000, Kind::host, index_);
        return false;
    }
    if (!attached_) return true;
    forget_graphs(call.index);
    view_.comms[entry_of(call.index)].state.store(static_cast<std::uint32_t>(ring::CommState::retired));
    tell_comms();
    return true;
}

// The host is busy: it hears nothing meanwhile.
bool Rank::pause(TimeNs ns) {
    if (step_ == Step::join) return true;
    step_ = Step::join;
    host_pending_ = true;
    world_.after(ns, Kind::host, index_);
    return false;
}

void Rank::give_up_verdict(std::uint64_t wait) {
    if (!alive_ || wait != wait_number_ || step_ != Step::verdict || at_ >= plan_.calls.size()) return;
    const std::uint32_t comm = plan_.calls[at_].index;
    if (comm == kNone || verdict(comm) != Verdict::unknown) return;
    table_[entry_of(comm)].ignores_verdict = true;
    count_lost(comm);
    wake_host();
}

void Rank::on_verdict(std::uint32_t) { wake_host(); }

void Rank::count_lost(std::uint32_t comm) {
    view_.comms[entry_of(comm)].lost.fetch_add(1);
    tell_comms();
}

void Rank::tell_comms() {
    view_.header->comm_changes.fetch_add(1);
    world_.manager_of(index_).look_soon(index_, random_.spread(5'000, 60'000));
}

// As the shim does it: circuits for the connections first; then the launches are recorded and their gates enqueued;
// then comes the real call, which makes the connections and enqueues the kernels.
bool Rank::launch(const Call& call) {
    if (step_ == Step::begin) {
        if (!await_room(call.first_uses)) return false;
        ask_for_first_uses(call);
        step_ = Step::connect;
    }
    if (step_ == Step::connect) {
        if (connecting_ != kNone && world_.launches[connecting_].state < LaunchRun::State::running) return false;
        first_ = static_cast<LaunchIndex>(world_.launches.size());
        enqueued_ = 0;
        step_ = Step::enqueue;
    }
    if (step_ == Step::enqueue) {
        if (!call_nccl(call)) return false;
        step_ = Step::call;
    }
    for (const LaunchIndex connections : {connecting_, forgotten_}) {
        if (connections == kNone) continue;
        const LaunchRun& run = world_.launches[connections];
        if (run.runs() && run.left == 0 && is_drained()) finish(connections);
        if (run.state != LaunchRun::State::done) return false;
    }
    for (LaunchIndex launch = first_; launch < last_; ++launch) world_.launches[launch].called = true;
    run_streams();
    return true;
}

LaunchIndex Rank::launch_of(std::uint64_t seq) const {
    if (!manager::is_replay(seq)) return seq < by_seq_.size() ? by_seq_[seq] : kNone;
    const auto at = replays_.find(seq);
    return at != replays_.end() ? at->second : kNone;
}

// Of a replay its slot counts.
std::atomic<std::uint64_t>& Rank::word_of(ring::GateWord* words, std::uint64_t seq) const {
    return manager::is_replay(seq) ? words[manager::slot_of_replay(seq) & view_.mask].replays : words[seq & view_.mask].value;
}

// What the GPU writes.
void Rank::signal(ring::GateWord* words, std::uint64_t seq) const {
    auto& word = word_of(words, seq);
    manager::is_replay(seq) ? void(word.fetch_add(1)) : word.store(seq + 1);
}

bool Rank::drains() const { return s_.jobs[plan_.job].drains; }

// Of all that stands before the kernels of the call, its own gates among it.
bool Rank::is_drained() const {
    if (!drains()) return true;
    return std::all_of(streams_.begin(), streams_.end(), [this](const StreamState& stream) {
        for (const Item& item : stream.items) {
            if (item.kind == Item::Kind::kernel && kernels_[item.index].launch >= first_) return true;
            if (item.kind == Item::Kind::compute || item.kind == Item::Kind::gate || item.kind == Item::Kind::kernel)
                return false;
        }
        return true;
    });
}

bool Rank::call_nccl(const Call& call) {
    for (; enqueued_ < call.launches.size(); ++enqueued_) {
        const LaunchPlan& plan = call.launches[enqueued_];
        if (!await_room(plan.ops)) {
            run_streams();
            return false;
        }
        call.kind == Call::Kind::capture ? capture(plan, call.index) : enqueue(plan, call);
    }
    last_ = static_cast<LaunchIndex>(world_.launches.size());
    run_streams();
    if (forgotten_ != kNone) begin_launch(forgotten_);
    return true;
}

// As shim/ring_writer.cpp does: for a while, and not again before the manager's heart has beaten. False: it waits.
bool Rank::await_room(const std::vector<OpPlan>& ops) {
    const auto recorded = std::count_if(ops.begin(), ops.end(), [this](const OpPlan& op) { return records(op.comm); });
    const std::uint32_t slots = ring::slots_for(static_cast<std::uint32_t>(recorded));
    std::uint64_t seq = 0;
    const bool needs = attached_ && recorded > 0 && slots <= (view_.mask + 1) / 2;
    const std::uint64_t beat =
        1 + (world_.manager_of(index_).alive() ? static_cast<std::uint64_t>(world_.now / s_.timing.heartbeat_ns) : 0);
    if (!needs || has_room(slots, seq) || beat == full_beat_) {
        room_until_ns_ = 0;
        return true;
    }
    if (room_until_ns_ == 0) {
        room_until_ns_ = world_.now + kRingWaitNs;
        ++world_.outcome().full_rings;
    }
    if (world_.now >= room_until_ns_) {
        ++world_.outcome().filled_rings;
        if (s_.faults.empty() && !is_held_full(slots))
            world_.fail(s_.name_of_rank(index_) + ": no room in its ring, and what has not ended leaves enough");
        full_beat_ = beat;
        room_until_ns_ = 0;
        return true;
    }
    host_pending_ = true;
    world_.after(random_.between(50'000, 2'000'000), Kind::host, index_);
    return false;
}

void Rank::note_unheld(LaunchRun& run) const {
    for (std::size_t i = 0; i < run.parts->size() && i < 64; ++i)
        if (!records((*run.parts)[i].comm)) run.unheld |= 1ull << i;
}

LaunchIndex Rank::connect(const std::vector<Part>& parts) {
    const auto index = static_cast<LaunchIndex>(world_.launches.size());
    LaunchRun& run = world_.launches.emplace_back();
    run.rank = index_;
    run.parts = &parts;
    run.left = static_cast<std::uint32_t>(parts.size());
    note_unheld(run);
    return index;
}

// What a wrong shim does not ask for.
bool Rank::forgets_first_use(const Call& call, std::size_t use) const {
    const OpPlan& op = call.first_uses[use];
    if (!records(op.comm)) return false;
    if (s_.mutation == Mutation::no_connect_keys) return true;
    if (s_.mutation == Mutation::no_empty_keys) return op.empty;
    if (s_.mutation == Mutation::no_pair_keys)
        return is_transfer(op.kind) && std::any_of(call.launches.begin(), call.launches.end(), [&](const LaunchPlan& launch) {
                   return std::any_of(launch.ops.begin(), launch.ops.end(),
                                      [&](const OpPlan& o) { return o.comm == op.comm && is_mesh(o.kind); });
               });
    if (s_.mutation != Mutation::fast_path_first_use || is_transfer(op.kind)) return false;
    const auto last = last_stream_.find(op.comm);
    const bool alone = call.launches.size() == 1 && call.launches[0].ops.size() == 1;
    return alone && last != last_stream_.end() && last->second == call.launches[0].stream;
}

// First uses, held on the host (kLaunchConn), done when the real call would return.
void Rank::ask_for_first_uses(const Call& call) {
    connecting_ = forgotten_ = kNone;
    std::vector<OpPlan> asked;
    const std::vector<Part>* parts = &call.first_parts;
    for (std::size_t i = 0; i < call.first_uses.size(); ++i)
        if (!forgets_first_use(call, i)) asked.push_back(call.first_uses[i]);
    if (asked.size() < call.first_uses.size()) {
        auto& with = parts_.emplace_back();
        auto& without = parts_.emplace_back();
        for (std::size_t i = 0; i < call.first_uses.size(); ++i)
            (forgets_first_use(call, i) ? without : with).push_back(call.first_parts[i]);
        parts = &with;
        forgotten_ = connect(without);
        world_.launches[forgotten_].forgotten = true;
    }
    if (call.launches.size() == 1 && call.launches[0].ops.size() == 1)
        last_stream_[call.launches[0].ops[0].comm] = call.launches[0].stream;
    if (asked.empty()) return;
    connecting_ = connect(*parts);
    const std::uint64_t seq = push(asked, ring::kLaunchConn, ring::Gate::host, 0);
    world_.launches[connecting_].seq = seq;
    if (seq == kUnrecorded) return begin_launch(connecting_);
    world_.inspector.issued(connecting_);
    reach(connecting_);
}

// As shim/ring_writer.cpp does, alone. The first of so many free slots in a row.
bool Rank::has_room(std::uint32_t slots, std::uint64_t& seq) const {
    const ring::SegmentHeader& header = *view_.header;
    const std::uint64_t retired = header.retired.load(), reusable = header.reusable.load();
    const bool passes_over = reusable > retired;
    const std::uint64_t end = std::max(retired, reusable) + view_.mask + 1;
    seq = header.head.load();
    for (std::uint64_t at = seq; at < end && at < seq + slots; ++at)
        if (passes_over && view_.go[at & view_.mask].occupied.load() != 0) seq = at + 1;
    return seq + slots <= end;
}

// Of the slots before its head no such row is free: of launches that have ended, half the time ago that a host waits.
bool Rank::is_held_full(std::uint32_t slots) const {
    const std::uint64_t head = view_.header->head.load(), size = view_.mask + 1;
    std::vector<bool> held(size, false);
    for (std::uint64_t at = 0; at < head; ++at) {
        if (launch_of(at) == kNone) continue;  // skipped, or of the launch before it
        const LaunchRun& run = world_.launches[launch_of(at)];
        const bool ended = run.state == LaunchRun::State::done && run.done_ns < world_.now - kRingWaitNs / 2;
        for (std::uint32_t i = 0; i < run.slots; ++i) held[(at + i) & view_.mask] = !ended;
    }
    std::uint32_t row = 0;
    for (std::uint64_t at = head; at < head + size && row < slots; ++at) row = held[at & view_.mask] ? 0 : row + 1;
    return row < slots;
}

std::uint64_t Rank::claim(std::uint32_t slots) {
    ring::SegmentHeader& header = *view_.header;
    std::uint64_t seq = 0;
    if (slots > (view_.mask + 1) / 2) {  // for as much as that there is never room
        ++world_.outcome().filled_rings;
        return kUnrecorded;
    }
    if (!has_room(slots, seq)) return kUnrecorded;
    for (std::uint64_t at = header.head.load(); at < seq; ++at) view_.ready[at & view_.mask].skipped.store(at + 1);
    header.head.store(seq + slots);
    return seq;
}

// What goes anyway rings for nobody, and a manager that dozes looks some milliseconds later (manager/shell/daemon.cpp).
void Rank::let_look(const LaunchRun& run) {
    const bool rings = run.go_comm == kNone || run.seq + ring::kLeftToRing >= view_.comms[run.go_comm].go.load();
    if (!rings && s_.mutation == Mutation::overlook_ahead) return;
    world_.manager_of(index_).look_soon(
        index_, rings ? random_.spread(10'000, s_.timing.poll_high_ns) : random_.spread(10'000, 16 * kMs));
}

std::uint64_t Rank::push(const std::vector<OpPlan>& ops, std::uint16_t flags, ring::Gate gate, std::uint64_t stream) {
    std::vector<ring::OpEntry> entries;
    for (const OpPlan& op : ops)
        if (!records(op.comm))
            flags |= ring::kLaunchMixed;
        else if (!op.empty || s_.mutation != Mutation::no_empty_keys)
            entries.push_back({static_cast<std::uint8_t>(op.kind), 0, static_cast<std::uint16_t>(entry_of(op.comm)),
                               op.peer, op.n, op.count, (flags & ring::kLaunchConn) != 0 ? ring::kOpFirstUse : 0,
                               op.empty ? 0u : 4096u});
    if (entries.empty()) return kUnrecorded;
    const std::uint32_t slots = ring::slots_for(static_cast<std::uint32_t>(entries.size()));
    const std::uint64_t seq = claim(slots);
    if (seq == kUnrecorded) {  // full: passes, and is counted
        for (const OpPlan& op : ops)
            if (records(op.comm)) count_lost(op.comm);
        return kUnrecorded;
    }
    for (std::uint32_t i = 1; i < entries.size(); ++i)
        view_.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2] = entries[i];
    if ((flags & ring::kLaunchReplayed) != 0)
        view_.ready[seq & view_.mask].replays = view_.done[seq & view_.mask].replays = 0;
    ring::LaunchRecord& record = view_.record(seq);
    record.gate = static_cast<std::uint16_t>(gate);
    record.op_count = static_cast<std::uint16_t>(entries.size());
    record.flags = flags | ring::kLaunchSkips;
    record.stream = stream;
    record.op = entries[0];
    record.commit.store(ring::kCommitTag | (seq + 1));
    by_seq_.resize(seq + 1, kNone);
    by_seq_[seq] = static_cast<LaunchIndex>(world_.launches.size() - 1);
    world_.launches.back().slots = slots;
    world_.launches.back().seq = seq;
    let_look(world_.launches.back());
    return seq;
}

// As shim/fast_path.cpp does: a lone collective in the stream of its communicator's launch before; or where all before
// it that are not done look at the same word.
bool Rank::looks_at_comm_go(const LaunchPlan& plan) {
    if (plan.ops.size() != 1 || plan.ops[0].count != 1 || plan.kernels.size() != 1 || !plan.other_streams.empty())
        return false;
    const OpPlan& op = plan.ops[0];
    if (is_transfer(op.kind) || is_mesh(op.kind) || !records(op.comm) || last_end_.contains(op.comm)) return false;
    LastLaunch& last = last_launch_[op.comm];
    if (last.apart != kNone && world_.launches[last.apart].state == LaunchRun::State::done) last.apart = kNone;
    return last.apart == kNone || last.stream == plan.stream;
}

void Rank::enqueue(const LaunchPlan& plan, const Call& call) {
    const auto index = static_cast<LaunchIndex>(world_.launches.size());
    LaunchRun& run = world_.launches.emplace_back();
    run.rank = index_;
    run.plan = &plan;
    run.called = call.first_parts.empty();
    run.connects = !run.called;
    run.parts = &plan.parts;
    run.left = static_cast<std::uint32_t>(plan.kernels.size());
    note_unheld(run);
    const bool fenced = (s_.seed + index_) % 8 != 0;  // else an older shim
    // As shim/group.cpp does: nobody is told of these connections, and the call that makes them may wait for this gate.
    const bool connects_unheld = std::any_of(call.first_uses.begin(), call.first_uses.end(),
                                             [this](const OpPlan& op) { return !records(op.comm); });
    if (fenced && call.first_parts.empty() && call.launches.size() == 1 && looks_at_comm_go(plan))
        run.go_comm = entry_of(plan.ops[0].comm);
    for (const OpPlan& op : plan.ops) {
        LastLaunch& last = last_launch_[op.comm];
        last.stream = plan.other_streams.empty() ? plan.stream : kNone;
        if (run.go_comm == kNone) last.apart = index;
    }
    const int flags = (fenced ? ring::kLaunchFenced : 0) | (connects_unheld ? ring::kLaunchMixed : 0) |
                      (run.go_comm != kNone ? ring::kLaunchCommGo : 0);
    run.seq = push(plan.ops, static_cast<std::uint16_t>(flags), ring::Gate::stream, plan.stream + 1);
    run.forgotten =
        run.seq == kUnrecorded && s_.mutation == Mutation::no_empty_keys &&
        std::all_of(plan.ops.begin(), plan.ops.end(), [this](const OpPlan& op) { return op.empty && records(op.comm); });
    if (run.seq != kUnrecorded) world_.inspector.issued(index);
    auto& stream = streams_[plan.stream].items;
    for (const std::uint32_t other : plan.other_streams) stream.push_back({Item::Kind::wait, record_event(other), 0});
    enqueue_kernels(index, plan);
    for (const std::uint32_t other : plan.other_streams)
        streams_[other].items.push_back({Item::Kind::wait, record_event(plan.stream), 0});
}

// From a communicator's first capture on a gate waits for the end of the launch before it; what is of several stands
// behind its gate alone (shim/captured.h).
void Rank::enqueue_kernels(LaunchIndex index, const LaunchPlan& plan) {
    auto& stream = streams_[plan.stream].items;
    const bool recorded = world_.launches[index].seq != kUnrecorded, one = plan.kernels.size() == 1;
    const auto end_of = [&](const KernelPlan& kernel) {
        const auto at = recorded ? last_end_.find(kernel.comm) : last_end_.end();
        return at != last_end_.end() ? &at->second : nullptr;
    };
    for (const KernelPlan& kernel : plan.kernels)
        if (const std::uint32_t* before = end_of(kernel); one && before != nullptr && *before != kNone)
            stream.push_back({Item::Kind::wait, *before, 0});
    if (recorded) stream.push_back({Item::Kind::gate, index, 0});
    for (const KernelPlan& kernel : plan.kernels)
        if (std::uint32_t* end = end_of(kernel); !one && end != nullptr) *end = record_event(plan.stream);
    for (const KernelPlan& kernel : plan.kernels) {
        const auto k = static_cast<std::uint32_t>(kernels_.size());
        kernels_.push_back({index, &kernel, static_cast<std::uint32_t>(kernel.parts.size())});
        stream.push_back({Item::Kind::kernel, k, 0});
        family_of(kernel.comm).push_back(k);
    }
    for (const KernelPlan& kernel : plan.kernels)
        if (std::uint32_t* end = end_of(kernel); one && end != nullptr) *end = record_event(plan.stream);
}

std::uint32_t Rank::record_event(std::uint32_t stream) {
    const auto event = static_cast<std::uint32_t>(events_.size());
    events_.push_back(false);
    streams_[stream].items.push_back({Item::Kind::record, event, 0});
    return event;
}

// --- CUDA graphs: shim/captured.cpp ---------------------------------------------------------------------

void Rank::capture(const LaunchPlan& plan, std::uint32_t graph) {
    static const std::vector<Part> kNoParts;
    const auto index = static_cast<LaunchIndex>(world_.launches.size());
    LaunchRun& run = world_.launches.emplace_back();
    run.rank = index_;
    run.plan = &plan;
    run.parts = &kNoParts;
    run.state = LaunchRun::State::running;  // as long as its graph is there
    const std::uint32_t comm = plan.ops.front().comm;
    const std::uint16_t flags = ring::kLaunchReplayed | ring::kLaunchFenced | ring::kLaunchKeepsCounts;
    run.seq = push(plan.ops, flags, ring::Gate::stream, plan.stream + 1);
    if (run.seq != kUnrecorded) last_end_.try_emplace(comm, kNone);
    graphs_[graph].comm = comm;
    graphs_[graph].launches.push_back({run.seq, index, 0});
}

void Rank::replay(const Call& call) {
    Graph& graph = graphs_.at(call.index);
    for (std::size_t i = 0; i < call.launches.size(); ++i) {
        const LaunchPlan& plan = call.launches[i];
        CapturedLaunch& captured = graph.launches[i];
        const auto index = static_cast<LaunchIndex>(world_.launches.size());
        LaunchRun& run = world_.launches.emplace_back();
        run.rank = index_;
        run.plan = &plan;
        run.parts = &plan.parts;
        run.left = 1;
        if (captured.seq != kUnrecorded) {
            run.seq = manager::replay_launch(captured.seq & view_.mask, captured.replays++);
            replays_[run.seq] = index;
            world_.inspector.issued(index);
        } else {
            note_unheld(run);
        }
        enqueue_kernels(index, plan);
    }
    run_streams();
}

void Rank::forget_graphs(std::uint32_t comm) {
    for (const auto& [index, graph] : graphs_)
        if (graph.comm == comm) forget(graph);
    std::erase_if(graphs_, [comm](const auto& graph) { return graph.second.comm == comm; });
}

// Nothing of it runs any more.
void Rank::forget(const Graph& graph) {
    for (const CapturedLaunch& captured : graph.launches) {
        LaunchRun& run = world_.launches[captured.launch];
        run.state = LaunchRun::State::done;
        run.done_ns = world_.now;
        if (captured.seq == kUnrecorded) continue;
        view_.done[captured.seq & view_.mask].value.store(captured.seq + 1);
        let_look(run);
    }
}

// --- gates --------------------------------------------------------------------------------------------

void Rank::reach(LaunchIndex index) {
    LaunchRun& run = world_.launches[index];
    run.state = LaunchRun::State::reached;
    run.reached_ns = world_.now;
    signal(view_.ready, run.seq);
    gated_.push_back(index);
    // Let go for good before it is reached: of one behind it in another stream the gate was.
    if (run.go || is_let_go(run))
        world_.after(random_.between(0, 20'000), run.go ? Kind::gate_open : Kind::gate_look, index);
    ManagerHost& manager = world_.manager_of(index_);
    let_look(run);
    if (s_.mutation == Mutation::start_without_go && world_.mutations_left > 0 && random_.chance(300)) {
        --world_.mutations_left;
        world_.after(1'000, Kind::gate_open, index);
    }
    if (!manager.alive())
        world_.after(known_dead_ == manager.life() ? 1'000 : s_.timing.hold_ns, Kind::gave_up, index, manager.life());
}

bool Rank::is_let_go(const LaunchRun& run) const {
    return run.go_comm != kNone          ? view_.comms[run.go_comm].go.load() > run.seq
           : manager::is_replay(run.seq) ? word_of(view_.go, run.seq).load() > manager::number_of_replay(run.seq)
                                         : word_of(view_.go, run.seq).load() == run.seq + 1;
}

void Rank::on_offer(std::uint64_t seq) {
    const LaunchIndex index = launch_of(seq);
    if (index == kNone && manager::is_replay(seq)) return;  // its graph is not launched yet
    if (index == kNone) return world_.fail(s_.name_of_rank(index_) + ": released early, and was never recorded");
    if (world_.journal.on) world_.journal.add(world_.now, world_.inspector.name(index) + " is released early");
    if (world_.launches[index].state == LaunchRun::State::reached)
        world_.after(random_.between(0, 20'000), Kind::gate_look, index);
}

void Rank::on_ahead(std::uint32_t entry, std::uint64_t upto) {
    if (world_.journal.on)
        world_.journal.add(world_.now, s_.name_of_rank(index_) + " comm entry " + std::to_string(entry) +
                                           ": goes up to #" + std::to_string(upto));
    look_at_comm(entry);
}

// All gates that stand at this word, whichever launch it was stored for.
void Rank::look_at_comm(std::uint32_t entry) {
    for (const LaunchIndex index : gated_)
        if (world_.launches[index].go_comm == entry) world_.after(random_.between(0, 20'000), Kind::gate_look, index);
}

// After its ready was stored. What was retracted in between will be released again: its manager has seen ready.
void Rank::look_at_gate(LaunchIndex index) {
    const LaunchRun& run = world_.launches[index];
    if (!alive_ || run.state != LaunchRun::State::reached || run.go || !is_let_go(run)) return;
    ++world_.outcome().released_early;
    on_go(run.seq, false);
}

void Rank::settle_gates() {
    for (const LaunchIndex index : std::vector(gated_)) look_at_gate(index);
}

// The heartbeat stands still from now on.
void Rank::manager_died() {
    const std::uint64_t life = world_.manager_of(index_).life();
    for (const LaunchIndex index : gated_) world_.after(s_.timing.hold_ns, Kind::gave_up, index, life);
}

void Rank::give_up(LaunchIndex index, std::uint64_t life) {
    LaunchRun& run = world_.launches[index];
    const ManagerHost& manager = world_.manager_of(index_);
    if (!alive_ || run.state != LaunchRun::State::reached || run.go || manager.alive() || manager.life() != life)
        return;
    known_dead_ = life;
    view_.header->gave_up.fetch_add(1);
    if (world_.journal.on)
        world_.journal.add(world_.now, s_.name_of_rank(index_) + " #" + std::to_string(run.seq) + " gives up waiting");
    if (plan_.policy == Policy::abort) return world_.rank_died(index_, true);
    run.passed = true;
    open_gate(index);
}

void Rank::on_go(std::uint64_t seq, bool abort) {
    const LaunchIndex index = launch_of(seq);
    if (index == kNone) return world_.fail(s_.name_of_rank(index_) + ": go for a launch that was never recorded");
    LaunchRun& run = world_.launches[index];
    if (run.go) return;
    run.go = true;
    run.abort = abort;
    world_.inspector.went(index, abort);
    world_.after(random_.spread(1'000, 10'000), Kind::gate_open, index);
}

void Rank::open_gate(LaunchIndex index) {
    LaunchRun& run = world_.launches[index];
    if (!alive_ || run.state != LaunchRun::State::reached || run.opened) return;
    std::erase(gated_, index);
    if (run.abort) return world_.rank_died(index_, true);  // the call fails, or the kernel traps
    run.opened = true;
    if (run.plan != nullptr) return run_streams();
    begin_launch(index);
    wake_host();
}

// --- kernels ------------------------------------------------------------------------------------------

void Rank::begin_launch(LaunchIndex index) {
    LaunchRun& run = world_.launches[index];
    run.state = LaunchRun::State::running;
    world_.inspector.started(index);
    if (run.plan == nullptr) world_.traffic.join(index, kNone, *run.parts);
}

void Rank::run_kernel(std::uint32_t index) {
    KernelRun& kernel = kernels_[index];
    if (world_.launches[kernel.launch].state != LaunchRun::State::running) begin_launch(kernel.launch);
    kernel.running = true;
    world_.traffic.join(kernel.launch, index, kernel.plan->parts);
}

void Rank::part_done(LaunchIndex index, std::uint32_t kernel) {
    if (!alive_) return;
    if (kernel != kNone) {
        if (--kernels_[kernel].parts_left == 0) finish_kernel(kernel);
    } else if (--world_.launches[index].left == 0) {
        drains() ? wake_host() : finish(index);
    }
}

void Rank::finish_kernel(std::uint32_t index) {
    const KernelRun& kernel = kernels_[index];
    LaunchRun& run = world_.launches[kernel.launch];
    family_of(kernel.plan->comm).pop_front();
    streams_[run.plan->stream].items.pop_front();
    if (--run.left == 0) return finish(kernel.launch);
    run_streams();
    wake_host();
}

void Rank::finish(LaunchIndex index) {
    LaunchRun& run = world_.launches[index];
    run.state = LaunchRun::State::done;
    run.done_ns = world_.now;
    world_.inspector.finished(index);
    if (run.seq != kUnrecorded) {
        signal(view_.done, run.seq);
        let_look(run);
    }
    run_streams();
    wake_host();
}

void Rank::stream_step(std::uint32_t stream) {
    if (!alive_) return;
    streams_[stream].computing = false;
    streams_[stream].items.pop_front();
    run_streams();
    if (streams_[stream].items.empty()) wake_host();
}

void Rank::run_streams() {
    again_ = true;
    if (running_streams_) return;
    running_streams_ = true;
    bool drained = false;
    while (again_) {
        again_ = false;
        for (std::uint32_t i = 0; i < streams_.size(); ++i)
            while (!streams_[i].items.empty() && pass_head(i)) {
                streams_[i].items.pop_front();
                again_ = true;
                drained |= streams_[i].items.empty();
            }
    }
    running_streams_ = false;
    if (drained || (drains() && step_ == Step::call && is_drained())) wake_host();
}

// True: the head of the stream is over. Kernels leave by finish().
bool Rank::pass_head(std::uint32_t stream) {
    const Item item = streams_[stream].items.front();
    switch (item.kind) {
        case Item::Kind::compute:
            if (!streams_[stream].computing) {
                streams_[stream].computing = true;
                world_.after(item.ns, Kind::stream, index_, stream);
            }
            return false;
        case Item::Kind::record: return events_[item.index] = true;
        case Item::Kind::wait: return events_[item.index];
        case Item::Kind::gate: {
            const LaunchRun& run = world_.launches[item.index];
            if (run.state == LaunchRun::State::issued) reach(item.index);
            return world_.launches[item.index].opened;
        }
        case Item::Kind::kernel: {
            const KernelRun& kernel = kernels_[item.index];
            if (!kernel.running && world_.launches[kernel.launch].called && family_of(kernel.plan->comm).front() == item.index)
                run_kernel(item.index);
            return false;
        }
    }
    return false;
}

std::string Rank::where() const {
    std::string text = s_.name_of_rank(index_) + ": ";
    if (at_ >= plan_.calls.size()) {
        text += "its calls are over";
        for (const Call& call : plan_.calls)
            for (const LaunchPlan& launch : call.launches)
                for (const Part& part : launch.parts)
                    if (part.sends && !world_.traffic.has_arrived(part.flow))
                        text += ", flow " + std::to_string(part.flow) + " is under way (" +
                                std::to_string(world_.traffic.members(part.flow).size()) + " ends)";
    } else {
        static constexpr const char* kCalls[] = {"create",  "launch", "compute", "record", "wait",  "sync",
                                                 "destroy", "pause",  "capture", "replay", "forget"};
        text += "in call " + std::to_string(at_) + " (" + kCalls[static_cast<int>(plan_.calls[at_].kind)] + ", step " +
                std::to_string(static_cast<int>(step_)) + ")";
    }
    for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (streams_[i].items.empty()) continue;
        const Item& item = streams_[i].items.front();
        text += "; stream " + std::to_string(i) + ": ";
        if (item.kind != Item::Kind::gate && item.kind != Item::Kind::kernel) {
            text += item.kind == Item::Kind::wait ? "event" : "compute";
            continue;
        }
        const LaunchRun& run = world_.launches[item.kind == Item::Kind::gate ? item.index : kernels_[item.index].launch];
        text += (item.kind == Item::Kind::gate ? "gate of #" : "kernel of #") + std::to_string(run.seq) +
                (run.go ? " go" : "") + (run.suspended ? " suspended" : "") + (run.passed ? " passed" : "") +
                (run.runs() ? " runs" : "") + " keys:";
        for (const Part& part : *run.parts) text += " " + world_.describe(part.flow);
    }
    if (connecting_ != kNone && world_.launches[connecting_].state != LaunchRun::State::done)
        text += "; connecting #" + std::to_string(world_.launches[connecting_].seq);
    return text;
}

}  // namespace opus::sim
