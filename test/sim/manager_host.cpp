#include "test/sim/manager_host.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "manager/shell/go_words.h"
#include "opus/wire_codec.h"
#include "test/sim/world.h"

namespace opus::sim {

ManagerHost::ManagerHost(World& world, const Scenario& scenario, NodeIndex node)
    : world_(world), s_(scenario), node_(node), random_(scenario.seed, 0x3a6 + node) {}

// Finds the ranks that live by their segments, as manager/shell/ranks.cpp does.
void ManagerHost::start() {
    ++life_;
    manager::CoreOptions options;
    options.default_hold_ms = static_cast<std::uint32_t>(s_.timing.hold_ns / kMs);
    options.controller_silence_ns = s_.timing.silence_ns;
    options.heartbeat_ns = s_.timing.heartbeat_ns;
    core_ = std::make_unique<manager::Core>(s_.fabric.nodes[node_].name, options);
    next_rank_ = 0;
    last_scan_ns_ = heard_ns_ = world_.now;
    for (const auto& [id, rank] : numbers_)
        if (world_.ranks[rank]->alive() && world_.ranks[rank]->id() == id) {
            next_rank_ = id + 1;
            add(rank, true);
        }
    connected_ = false;
    for (auto& [id, local] : ranks_) look_at(local, true);  // before it can say hello
    for (auto& [id, local] : ranks_) world_.ranks[local.rank]->settle_gates();
    world_.inspector.manager_came(node_);
    world_.network.open(node_);
    settle();
}

void ManagerHost::die() {
    core_.reset();
    world_.inspector.manager_died(node_);
    ranks_.clear();
    actions_.clear();
    outgoing_.clear();
    taking_back_.clear();
    ++look_number_;
    ++tick_number_;
    look_at_ns_ = -1;
    reconnect_ = connected_ = false;
    world_.network.close(node_);
    for (auto& rank : world_.ranks)
        if (rank->alive() && rank->attached() && rank->plan().node == node_) rank->manager_died();
}

TimeNs ManagerHost::alone_for() const { return world_.now - heard_ns_; }

std::uint32_t ManagerHost::rank_of(RankId id) const {
    const auto it = numbers_.find(id);
    return it == numbers_.end() ? kNone : it->second;
}

bool ManagerHost::attach(std::uint32_t rank) {
    if (!alive()) return false;
    world_.ranks[rank]->set_id(next_rank_);
    numbers_[next_rank_] = rank;
    const ring::View& view = world_.ranks[rank]->view();
    view.header->hold_ms = static_cast<std::uint32_t>(s_.timing.hold_ns / kMs);
    view.header->gpu = s_.ranks[rank].gpu;
    ++next_rank_;
    add(rank, false);
    settle();
    return true;
}

void ManagerHost::add(std::uint32_t rank, bool recovered) {
    const RankPlan& plan = s_.ranks[rank];
    const Rank& process = *world_.ranks[rank];
    manager::RankUp up;
    up.info = {process.id(), 1000 + rank,
               plan.gpu,     static_cast<std::uint32_t>(s_.timing.hold_ns / kMs),
               plan.policy,  "job" + std::to_string(plan.job)};
    up.mode = plan.mode;
    up.recovered = recovered;
    up.slots = process.view().mask + 1;
    ranks_.insert_or_assign(process.id(),
                            LocalRank{rank, manager::RingReader(process.view(), process.id(), recovered), true});
    feed(up);
}

// The end of its socket or process. What it did last is read first.
void ManagerHost::rank_gone(std::uint32_t rank) {
    if (!alive()) return;
    const auto it = ranks_.find(world_.ranks[rank]->id());
    if (it == ranks_.end() || it->second.rank != rank) return;
    look_at(it->second, true);
    feed(manager::RankDown{it->first});
    settle();
}

// --- looks --------------------------------------------------------------------------------------------

void ManagerHost::look_soon(std::uint32_t rank, TimeNs after) {
    if (!alive()) return;
    if (rank != kNone)
        if (const auto it = ranks_.find(world_.ranks[rank]->id()); it != ranks_.end()) it->second.dirty = true;
    if (look_at_ns_ >= 0 && look_at_ns_ <= world_.now + after) return;
    look_at_ns_ = world_.now + after;
    world_.calendar.add(look_at_ns_, {Kind::look, node_, ++look_number_});
}

void ManagerHost::look(std::uint64_t number) {
    if (!alive() || number != look_number_) return;
    look_at_ns_ = -1;
    for (auto& [id, local] : ranks_)
        if (local.dirty) look_at(local, false);
    settle();
}

void ManagerHost::look_at(LocalRank& local, bool scan) {
    local.dirty = false;
    events_.clear();
    local.reader.look(events_, scan);
    if (local.reader.broken()) world_.fail("a ring is called broken: " + local.reader.fault());
    auto events = std::exchange(events_, {});
    for (const manager::Event& event : events) {
        if (s_.mutation == Mutation::forget_done && std::holds_alternative<manager::DoneSeen>(event) &&
            world_.mutations_left > 0 && random_.chance(200)) {
            --world_.mutations_left;
            continue;
        }
        feed(event);
    }
    events_ = std::move(events);
}

void ManagerHost::tick(std::uint64_t number) {
    if (!alive() || number != tick_number_) return;
    if (world_.now - last_scan_ns_ >= s_.timing.heartbeat_ns) {
        last_scan_ns_ = world_.now;
        for (auto& [id, local] : ranks_) look_at(local, true);
    }
    feed(manager::Tick{});
    settle();
}

void ManagerHost::feed(const manager::Event& event) {
    core_->on(event, world_.now, kRealtime + world_.now, actions_);
    perform_all();
    if (!world_.due_for_check()) return;
    if (std::string fault = core_->check(); !fault.empty())
        world_.fail("manager of " + s_.fabric.nodes[node_].name + ": check: " + fault);
}

void ManagerHost::perform_all() {
    auto actions = std::exchange(actions_, {});
    for (manager::Action& action : actions) std::visit([this](auto& a) { perform(a); }, action);
    actions.clear();
    if (actions_.empty()) actions_ = std::move(actions);
}

void ManagerHost::settle() {
    for (bool more = true; more;) {
        more = core_->flush(world_.now, actions_);
        perform_all();
        if (!outgoing_.empty()) send(std::exchange(outgoing_, {}));
    }
    if (std::exchange(reconnect_, false)) {
        connected_ = desynced_ = false;
        world_.network.close(node_);
        world_.network.open(node_);
    }
}

// --- actions ------------------------------------------------------------------------------------------

void ManagerHost::perform(manager::Send& a) {
    world_.inspector.manager_says(node_, a.message);
    outgoing_.push_back(std::move(a.message));
}

void ManagerHost::perform(const manager::SetGo& a) {
    const std::uint32_t rank = rank_of(a.rank);
    if (rank == kNone || !world_.ranks[rank]->alive()) return;
    manager::store_go(world_.ranks[rank]->view(), a.seq, a.abort, a.comm);
    world_.ranks[rank]->on_go(a.seq, a.abort);
    if (a.comm != kNone) world_.ranks[rank]->look_at_comm(a.comm);
}

void ManagerHost::perform(const manager::ReleaseEarly& a) {
    const std::uint32_t rank = rank_of(a.rank);
    if (rank == kNone || !world_.ranks[rank]->alive()) return;
    manager::store_go(world_.ranks[rank]->view(), a.seq, false, a.comm);
    world_.ranks[rank]->on_offer(a.seq);
    if (a.comm != kNone) world_.ranks[rank]->look_at_comm(a.comm);
}

void ManagerHost::perform(const manager::ReleaseAhead& a) {
    const std::uint32_t rank = rank_of(a.go.rank);
    if (rank == kNone || !world_.ranks[rank]->alive()) return;
    manager::store_comm_go(world_.ranks[rank]->view(), a.go.comm, a.go.upto);
    ++world_.outcome().ahead;
    world_.ranks[rank]->on_ahead(a.go.comm, a.go.upto);
}

// What happens between the two halves: gates are reached, messages arrive.
void ManagerHost::perform(manager::Retract& a) {
    world_.outcome().retracted += a.launches.size();
    for (const wire::LocalLaunch& launch : a.launches) {
        const std::uint32_t rank = rank_of(launch.rank);
        if (rank == kNone || !world_.ranks[rank]->alive() || s_.mutation == Mutation::retract_nothing) continue;
        if (s_.mutation == Mutation::keep_replays && manager::is_replay(launch.seq)) continue;
        manager::retract_go(world_.ranks[rank]->view(), launch.seq);
        if (world_.journal.on)
            world_.journal.add(world_.now, s_.name_of_rank(rank) + " #" + std::to_string(launch.seq) + " is retracted");
    }
    for (const manager::CommGo& go : a.comms) {
        const std::uint32_t rank = rank_of(go.rank);
        if (rank == kNone || !world_.ranks[rank]->alive() || s_.mutation == Mutation::retract_nothing) continue;
        manager::retract_comm_go(world_.ranks[rank]->view(), go.comm, go.upto);
        if (world_.journal.on)
            world_.journal.add(world_.now, s_.name_of_rank(rank) + " comm entry " + std::to_string(go.comm) +
                                               ": go is taken back to " + std::to_string(go.upto));
    }
    taking_back_.push_back(std::move(a));
    world_.after(random_.between(0, random_.chance(500) ? 10'000 : 100'000), Kind::retracted, node_, life_);
}

void ManagerHost::retracted(std::uint64_t life) {
    if (!alive() || life != life_ || taking_back_.empty()) return;
    manager::Retract back = std::move(taking_back_.front());
    taking_back_.pop_front();
    if (s_.mutation != Mutation::overlook_ahead)
        for (const manager::CommGo& go : back.comms)
            if (const auto it = ranks_.find(go.rank); it != ranks_.end()) look_at(it->second, false);
    manager::Retracted answer{std::move(back.launches), {}, std::move(back.comms)};
    for (const wire::LocalLaunch& launch : answer.launches) {
        const std::uint32_t rank = rank_of(launch.rank);
        if (rank == kNone || s_.mutation == Mutation::retract_nothing) continue;
        if (manager::is_reached(world_.ranks[rank]->view(), launch.seq)) answer.reached.push_back(launch);
    }
    if (s_.mutation != Mutation::overlook_ahead)
        for (const manager::CommGo& go : answer.comms)
            if (const auto it = ranks_.find(go.rank); it != ranks_.end())
                for (const std::uint64_t seq : it->second.reader.reached_from(go.upto))
                    answer.reached.push_back({go.rank, seq});
    world_.outcome().raced += answer.reached.size();
    feed(answer);
    settle();
}

void ManagerHost::perform(const manager::SetVerdict& a) {
    const std::uint32_t rank = rank_of(a.rank);
    if (rank == kNone || !world_.ranks[rank]->alive()) return;
    if (world_.journal.on)
        world_.journal.add(world_.now, s_.name_of_rank(rank) + " comm entry " + std::to_string(a.index) + ": verdict " +
                                           std::to_string(int(a.verdict)));
    world_.ranks[rank]->view().comms[a.index].verdict.store(static_cast<std::uint32_t>(a.verdict));
    world_.ranks[rank]->on_verdict(a.index);
}

void ManagerHost::perform(const manager::SetOpen& a) {
    world_.fail("the manager opens all gates of rank " + std::to_string(a.rank));
}

void ManagerHost::perform(const manager::Retired& a) {
    if (const auto it = ranks_.find(a.rank); it != ranks_.end()) it->second.reader.retired(a);
}

void ManagerHost::perform(const manager::FreeComm& a) {
    const auto it = ranks_.find(a.rank);
    if (it == ranks_.end()) return;
    ring::CommEntry& entry = world_.ranks[it->second.rank]->view().comms[a.index];
    entry.verdict.store(0);
    entry.go.store(0);
    entry.freed.store(a.generation);
    it->second.reader.comm_freed(a.index, a.generation);
}

void ManagerHost::perform(const manager::ForgetRank& a) { ranks_.erase(a.rank); }

void ManagerHost::perform(const manager::EndSession& a) {
    if (world_.journal.on)
        world_.journal.add(world_.now, "manager n" + std::to_string(node_) + " ends its session: " + a.reason);
    outgoing_.clear();
    reconnect_ = true;
}

void ManagerHost::perform(const manager::End& a) { world_.fail("a manager ends: " + a.reason); }

void ManagerHost::perform(const manager::WakeAt& a) {
    ++tick_number_;
    if (a.at_ns == std::numeric_limits<TimeNs>::max()) return;
    world_.calendar.add(std::max(a.at_ns, world_.now), {Kind::manager_tick, node_, tick_number_});
}

void ManagerHost::perform(const manager::Log& a) {
    if (world_.journal.on) world_.journal.add(world_.now, "manager n" + std::to_string(node_) + ": " + a.text);
}

// --- the connection: manager/shell/controller_link.cpp -------------------------------------------------

void ManagerHost::connected(std::uint64_t session) {
    if (!alive()) return;
    if (connected_) feed(manager::ControllerDown{});
    connected_ = true;
    desynced_ = false;
    session_ = session;
    epoch_ = sent_ = received_ = 0;
    outgoing_.clear();
    feed(manager::ControllerUp{session});
    settle();
}

void ManagerHost::disconnected() {
    if (!alive() || !connected_) return;
    connected_ = false;
    outgoing_.clear();
    feed(manager::ControllerDown{});
    settle();
}

void ManagerHost::hear(wire::Frame& frame) {
    if (!connected_ || desynced_ || frame.session != session_) return;
    if (frame.sequence != ++received_) {
        if (world_.journal.on)
            world_.journal.add(world_.now, "manager n" + std::to_string(node_) + ": a frame is missing");
        outgoing_.clear();
        feed(manager::ControllerDown{});
        reconnect_ = true;
        return settle();
    }
    heard_ns_ = world_.now;
    for (wire::Message& message : frame.messages) {
        if (auto* welcome = std::get_if<wire::Welcome>(&message)) {
            epoch_ = welcome->epoch;
            if (s_.mutation == Mutation::keep_runs) welcome->grace_ms = 0;
        }
        if (world_.journal.on)
            world_.journal.add(world_.now, "n" + std::to_string(node_) + " <- " + wire::message_name(message));
        if (auto* grant = std::get_if<wire::Grant>(&message); grant != nullptr && s_.mutation == Mutation::drop_grants &&
                                                              !grant->firm.empty() && world_.mutations_left > 0) {
            --world_.mutations_left;
            grant->firm.clear();
        }
        if (const auto* revoke = std::get_if<wire::Revoke>(&message);
            revoke != nullptr && s_.mutation == Mutation::ignore_revoke) {
            world_.inspector.manager_heard(node_, message);
            perform(manager::Send{wire::Returned{revoke->id, {}, {}, {}, {}}});
            continue;
        }
        if (frame.epoch == epoch_) world_.inspector.manager_heard(node_, message);
        feed(manager::FromController{frame.epoch, frame.session, std::move(message)});
        if (reconnect_) break;
    }
    settle();
}

void ManagerHost::send(std::vector<wire::Message>&& messages) {
    if (!connected_ || messages.empty()) return;
    wire::Frame frame;
    frame.epoch = std::holds_alternative<wire::Hello>(messages.front()) ? 0 : epoch_;
    frame.session = session_;
    frame.sequence = ++sent_;
    if (world_.journal.on)
        for (const wire::Message& m : messages)
            world_.journal.add(world_.now, "n" + std::to_string(node_) + " -> " + wire::message_name(m));
    frame.messages = std::move(messages);
    world_.network.send_up(node_, std::move(frame));
}

}  // namespace opus::sim
