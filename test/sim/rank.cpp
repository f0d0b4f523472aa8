#include "test/sim/rank.h"

#include <algorithm>

#include "test/sim/world.h"

namespace opus::sim {

Rank::Rank(World& world, const Scenario& scenario, std::uint32_t index)
    : world_(world),
      s_(scenario),
      plan_(scenario.ranks[index]),
      index_(index),
      random_(scenario.seed, 0x4a00 + index),
      streams_(plan_.streams + 1),
      events_(plan_.events),
      ignores_verdict_(plan_.comms.size()) {}

void Rank::start() {
    alive_ = true;
    view_ = world_.memory.take();
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
    return static_cast<std::uint32_t>(std::find(plan_.comms.begin(), plan_.comms.end(), comm) - plan_.comms.begin());
}

std::deque<LaunchIndex>& Rank::family_of(std::uint32_t comm) { return families_[s_.comms[comm].family]; }
const std::deque<LaunchIndex>& Rank::family_of(std::uint32_t comm) const { return families_.at(s_.comms[comm].family); }

Verdict Rank::verdict(std::uint32_t entry) const {
    if (!attached_ || ignores_verdict_[entry]) return Verdict::passes;
    return static_cast<Verdict>(view_.comms[entry].verdict.load());
}

bool Rank::records(std::uint32_t comm) const { return verdict(entry_of(comm)) == Verdict::enforced; }

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
                if (!launch(call)) return;
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
                if (!family_of(call.index).empty()) return;
                if (!attached_) break;
                view_.comms[entry_of(call.index)].state.store(static_cast<std::uint32_t>(ring::CommState::retired));
                view_.header->comm_changes.fetch_add(1);
                world_.manager_of(index_).look_soon(index_, random_.spread(5'000, 60'000));
                break;
        }
        if (!alive_) return;
    }
    for (const StreamState& stream : streams_)
        if (!stream.items.empty()) return;
    // Its proxies have sent what it has given them.
    for (const Call& call : plan_.calls)
        for (const LaunchPlan& launch : call.launches)
            for (const Part& part : launch.parts)
                if (part.sends && !world_.traffic.has_arrived(part.flow)) {
                    host_pending_ = true;
                    return world_.after(1'000'000, Kind::host, index_);
                }
    end();
}

// True when the call returns.
bool Rank::create(const Call& call) {
    const std::uint32_t entry = entry_of(call.index);
    const CommPlan& comm = s_.comms[call.index];
    if (step_ == Step::begin) {
        if (attached_) {
            ring::CommEntry& e = view_.comms[entry];
            e.id = comm.id;
            e.rank =
                static_cast<std::uint32_t>(std::find(comm.ranks.begin(), comm.ranks.end(), index_) - comm.ranks.begin());
            e.size = static_cast<std::uint32_t>(comm.ranks.size());
            e.family = comm.family;
            e.generation = 1;
            e.mode = static_cast<std::uint32_t>(plan_.mode);
            e.state.store(static_cast<std::uint32_t>(ring::CommState::registered));
            view_.header->comm_changes.fetch_add(1);
            world_.manager_of(index_).look_soon(index_, random_.spread(5'000, 60'000));
        }
        ++world_.comm_arrivals[call.index];
        for (const std::uint32_t r : comm.ranks)
            if (r != index_) world_.ranks[r]->comm_joined();
        step_ = Step::join;
    }
    if (step_ == Step::join) {
        if (world_.comm_arrivals[call.index] < comm.ranks.size()) return false;
        step_ = Step::verdict;
        world_.after(s_.timing.hold_ns, Kind::verdict_gave_up, index_, ++wait_number_);
    }
    return verdict(entry) != Verdict::unknown;
}

void Rank::give_up_verdict(std::uint64_t wait) {
    if (!alive_ || wait != wait_number_ || step_ != Step::verdict || at_ >= plan_.calls.size()) return;
    const std::uint32_t comm = plan_.calls[at_].index;
    if (verdict(entry_of(comm)) != Verdict::unknown) return;
    ignores_verdict_[entry_of(comm)] = true;
    count_lost(comm);
    wake_host();
}

void Rank::on_verdict(std::uint32_t) { wake_host(); }

void Rank::count_lost(std::uint32_t comm) {
    view_.comms[entry_of(comm)].lost.fetch_add(1);
    view_.header->comm_changes.fetch_add(1);
    world_.manager_of(index_).look_soon(index_, random_.spread(5'000, 60'000));
}

bool Rank::launch(const Call& call) {
    if (step_ == Step::begin) {
        if (call.first_parts.empty()) {
            step_ = Step::enqueue;
        } else {
            connect(call);
            step_ = Step::connect;
        }
    }
    if (step_ == Step::connect) {
        if (world_.launches[connecting_].state != LaunchRun::State::done) return false;
        step_ = Step::enqueue;
    }
    for (const LaunchPlan& plan : call.launches) enqueue(plan);
    run_streams();
    return true;
}

void Rank::note_unheld(LaunchRun& run) const {
    for (std::size_t i = 0; i < run.parts->size() && i < 64; ++i)
        if (!records((*run.parts)[i].comm)) run.unheld |= 1ull << i;
}

// First uses, held on the host (kLaunchConn), done when the real call would return.
void Rank::connect(const Call& call) {
    connecting_ = static_cast<LaunchIndex>(world_.launches.size());
    LaunchRun& run = world_.launches.emplace_back();
    run.rank = index_;
    run.parts = &call.first_parts;
    run.parts_left = static_cast<std::uint32_t>(call.first_parts.size());
    note_unheld(run);
    run.seq = push(call.first_uses, ring::kLaunchConn, ring::Gate::host, 0);
    if (run.seq == kUnrecorded) return begin_launch(connecting_);
    world_.inspector.issued(connecting_);
    reach(connecting_);
}

std::uint64_t Rank::push(const std::vector<OpPlan>& ops, std::uint16_t flags, ring::Gate gate, std::uint64_t stream) {
    std::vector<ring::OpEntry> entries;
    for (const OpPlan& op : ops)
        if (records(op.comm))
            entries.push_back({static_cast<std::uint8_t>(op.kind), 0, static_cast<std::uint16_t>(entry_of(op.comm)),
                               op.peer, op.n, op.count, (flags & ring::kLaunchConn) != 0 ? ring::kOpFirstUse : 0, 4096});
    if (entries.empty()) return kUnrecorded;
    if (entries.size() < ops.size()) flags |= ring::kLaunchMixed;
    const std::uint32_t slots = ring::slots_for(static_cast<std::uint32_t>(entries.size()));
    const std::uint64_t seq = view_.header->head.load();
    if (seq + slots > view_.header->retired.load() + view_.mask + 1) {  // full: passes unrecorded, and is counted
        for (const OpPlan& op : ops)
            if (records(op.comm)) count_lost(op.comm);
        return kUnrecorded;
    }
    view_.header->head.store(seq + slots);
    for (std::uint32_t i = 1; i < entries.size(); ++i)
        view_.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2] = entries[i];
    ring::LaunchRecord& record = view_.record(seq);
    record.gate = static_cast<std::uint16_t>(gate);
    record.op_count = static_cast<std::uint16_t>(entries.size());
    record.flags = flags;
    record.stream = stream;
    record.op = entries[0];
    record.commit.store(ring::kCommitTag | (seq + 1));
    by_seq_.resize(seq + 1, kNone);
    by_seq_[seq] = static_cast<LaunchIndex>(world_.launches.size() - 1);
    world_.manager_of(index_).look_soon(index_, random_.spread(10'000, s_.timing.poll_high_ns));
    return seq;
}

void Rank::enqueue(const LaunchPlan& plan) {
    const auto index = static_cast<LaunchIndex>(world_.launches.size());
    LaunchRun& run = world_.launches.emplace_back();
    run.rank = index_;
    run.plan = &plan;
    run.parts = &plan.parts;
    run.parts_left = static_cast<std::uint32_t>(plan.parts.size());
    note_unheld(run);
    const bool fenced = (s_.seed + index_) % 8 != 0;  // else an older shim
    run.seq = push(plan.ops, fenced ? ring::kLaunchFenced : 0, ring::Gate::stream, plan.stream + 1);
    if (run.seq != kUnrecorded) world_.inspector.issued(index);
    auto& stream = streams_[plan.stream].items;
    for (const std::uint32_t other : plan.other_streams) {
        const auto event = static_cast<std::uint32_t>(events_.size());
        events_.push_back(false);
        streams_[other].items.push_back({Item::Kind::record, event, 0});
        stream.push_back({Item::Kind::wait, event, 0});
    }
    if (run.seq != kUnrecorded) stream.push_back({Item::Kind::gate, index, 0});
    stream.push_back({Item::Kind::kernel, index, 0});
    for (const std::uint32_t other : plan.other_streams) {
        const auto event = static_cast<std::uint32_t>(events_.size());
        events_.push_back(false);
        stream.push_back({Item::Kind::record, event, 0});
        streams_[other].items.push_back({Item::Kind::wait, event, 0});
    }
    for (const Part& part : plan.parts) {
        auto& family = family_of(part.comm);
        if (family.empty() || family.back() != index) family.push_back(index);
    }
}

// --- gates --------------------------------------------------------------------------------------------

void Rank::reach(LaunchIndex index) {
    LaunchRun& run = world_.launches[index];
    run.state = LaunchRun::State::reached;
    run.reached_ns = world_.now;
    view_.ready[run.seq & view_.mask].value.store(run.seq + 1);
    gated_.push_back(index);
    if (is_let_go(run)) world_.after(random_.between(0, 20'000), Kind::gate_look, index);
    ManagerHost& manager = world_.manager_of(index_);
    manager.look_soon(index_, random_.spread(10'000, s_.timing.poll_high_ns));
    if (s_.mutation == Mutation::start_without_go && world_.mutations_left > 0 && random_.chance(300)) {
        --world_.mutations_left;
        world_.after(1'000, Kind::gate_open, index);
    }
    if (!manager.alive())
        world_.after(known_dead_ == manager.life() ? 1'000 : s_.timing.hold_ns, Kind::gave_up, index, manager.life());
}

bool Rank::is_let_go(const LaunchRun& run) const { return view_.go[run.seq & view_.mask].value.load() == run.seq + 1; }

void Rank::on_offer(std::uint64_t seq) {
    const LaunchIndex index = launch_of(seq);
    if (index == kNone) return world_.fail(s_.name_of_rank(index_) + ": let go ahead, and was never recorded");
    if (world_.journal.on) world_.journal.add(world_.now, world_.inspector.name(index) + " is let go ahead");
    if (world_.launches[index].state == LaunchRun::State::reached)
        world_.after(random_.between(0, 20'000), Kind::gate_look, index);
}

// After its ready was stored. What was taken back in between will be let go again: its manager has seen ready.
void Rank::look_at_gate(LaunchIndex index) {
    const LaunchRun& run = world_.launches[index];
    if (!alive_ || run.state != LaunchRun::State::reached || run.go || !is_let_go(run)) return;
    ++world_.outcome().ahead;
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
    if (run.plan == nullptr)
        begin_launch(index);
    else
        run_streams();
}

// --- kernels ------------------------------------------------------------------------------------------

void Rank::begin_launch(LaunchIndex index) {
    world_.launches[index].state = LaunchRun::State::running;
    world_.inspector.started(index);
    world_.traffic.join(index);
}

void Rank::part_done(LaunchIndex index) {
    if (alive_ && --world_.launches[index].parts_left == 0) finish(index);
}

void Rank::finish(LaunchIndex index) {
    LaunchRun& run = world_.launches[index];
    run.state = LaunchRun::State::done;
    world_.inspector.finished(index);
    if (run.seq != kUnrecorded) {
        view_.done[run.seq & view_.mask].value.store(run.seq + 1);
        world_.manager_of(index_).look_soon(index_, random_.spread(10'000, s_.timing.poll_high_ns));
    }
    if (run.plan != nullptr) {
        for (const Part& part : *run.parts) {
            auto& family = family_of(part.comm);
            if (!family.empty() && family.front() == index) family.pop_front();
        }
        auto& stream = streams_[run.plan->stream].items;
        if (!stream.empty() && stream.front().kind == Item::Kind::kernel && stream.front().index == index)
            stream.pop_front();
    }
    run_streams();
    wake_host();
}

bool Rank::in_turn(const LaunchRun& run, LaunchIndex index) const {
    return std::all_of(run.parts->begin(), run.parts->end(),
                       [&](const Part& part) { return family_of(part.comm).front() == index; });
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
    if (drained) wake_host();
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
            const LaunchRun& run = world_.launches[item.index];
            if (run.state != LaunchRun::State::running && in_turn(run, item.index)) begin_launch(item.index);
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
        static constexpr const char* kCalls[] = {"create", "launch", "compute", "record", "wait", "sync", "destroy"};
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
        const LaunchRun& run = world_.launches[item.index];
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
