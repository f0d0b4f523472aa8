#include "test/sim/controller_host.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "opus/wire_codec.h"
#include "test/sim/world.h"

namespace opus::sim {
namespace {

std::string peer_name(std::uint32_t connection) { return "c" + std::to_string(connection); }
std::uint32_t connection_of(const std::string& peer) { return static_cast<std::uint32_t>(std::stoul(peer.substr(1))); }

}  // namespace

ControllerHost::ControllerHost(World& world, const Scenario& scenario)
    : world_(world), s_(scenario), random_(scenario.seed, 0xc0), thoughts_random_(scenario.seed, 0xc1), outbox_(scenario.fabric.nodes.size()) {}

// Mostly the clock has gone on since the last life; where it has not, a manager's Hello says so.
void ControllerHost::start() {
    ++life_;
    if (epoch_ == 0 || !random_.chance(100)) epoch_ = 1000 + static_cast<std::uint64_t>(world_.now / kMs) + life_;
    controller::CoreOptions options;
    options.epoch = epoch_;
    options.register_timeout_ns = s_.timing.register_ns;
    options.node_grace_ns = s_.timing.grace_ns;
    options.switch_timeout_ns = s_.timing.switch_timeout_ns;
    options.runs = world_.options.runs;
    options.provision = s_.provision;
    options.guard = s_.guard;
    options.map_period_ns = s_.timing.map_period_ns;
    options.port_trial_ns = s_.timing.port_trial_ns;
    options.rest_ns = s_.timing.rest_ns;
    options.first = life_ == 1;
    core_ = std::make_unique<controller::Core>(s_.fabric, options);
    sessions_ = std::make_unique<controller::Sessions>(s_.fabric.nodes.size());
    world_.plane.start_drivers();
    feed(controller::Tick{});
    flush();
    world_.after(s_.timing.heartbeat_ns, Kind::controller_second, 0, life_);
}

void ControllerHost::die() {
    world_.count_controller();
    world_.inspector.controller_died();
    core_.reset();
    sessions_.reset();
    for (auto& box : outbox_) box.clear();
    outbox_nodes_.clear();
    unreachable_.clear();
    strangers_.clear();
    closed_.clear();
    ++tick_number_;
    world_.plane.end_drivers();
    world_.network.controller_died();
}

void ControllerHost::tick(std::uint64_t number) {
    if (!alive() || number != tick_number_) return;
    feed(controller::Tick{});
    flush();
}

void ControllerHost::every_second(std::uint64_t life) {
    if (!alive() || life != life_) return;
    for (const NodeIndex node : sessions_->silent(world_.now, s_.timing.silence_ns))
        end_session(node, "nothing was heard of it");
    std::vector<std::pair<NodeIndex, std::uint64_t>> all;
    sessions_->each([&](controller::Session& session) { all.emplace_back(session.node, session.id); });
    std::sort(all.begin(), all.end());
    for (const auto& [node, session] : all) post(node, session, wire::Heartbeat{kRealtime + world_.now});
    flush();
    world_.after(s_.timing.heartbeat_ns, Kind::controller_second, 0, life_);
}

// A switch that only refuses everything for a while has no bad port. If it has carried something out since it first did
// so, it looks as with a bad port that is in all that it refuses.
void ControllerHost::check_fence(PortId port) {
    const SwitchIndex sw = s_.fabric.ports[port].sw;
    for (const Fault& f : s_.faults) {
        if (!is_of_switch(f.kind) || f.target != sw || f.left_out) continue;
        if (f.kind != FaultKind::refuse_all || world_.plane.carried_out_since(sw, f.at_ns)) return;
    }
    world_.fail("a port is fenced for what is its switch's fault: " + s_.fabric.ports[port].name);
}

bool ControllerHost::fences() const {
    if (!alive()) return false;
    const auto ports = core_->ports();
    return std::any_of(ports.begin(), ports.end(), [](const controller::PortStatus& p) { return p.fence.has_value(); });
}

void ControllerHost::closed(std::uint32_t connection) { closed_.insert(peer_name(connection)); }

void ControllerHost::hear(SwitchIndex sw, const DriverEvent& event) {
    if (!alive()) return;
    feed(controller::SwitchEvent{sw, event});
    flush();
}

// controller/shell/conversations.cpp
void ControllerHost::hear(std::uint32_t connection, wire::Frame& frame) {
    if (frame.messages.empty()) return;
    const std::string peer = peer_name(connection);
    if (const auto* greeting = std::get_if<wire::Hello>(&frame.messages[0])) {
        hello(peer, frame, *greeting);
        return flush();
    }
    switch (sessions_->judge(peer, frame, epoch_, world_.now)) {
        case controller::Sessions::Judgement::take: break;
        case controller::Sessions::Judgement::stale: return;
        case controller::Sessions::Judgement::stranger:
            if (strangers_.insert(peer).second)
                send(peer, {frame.epoch, frame.session, 1, {wire::Resync{"the controller knows no such session"}}});
            return;
        case controller::Sessions::Judgement::gap:
            end_session(sessions_->of_peer(peer)->node, "a frame is missing");
            return flush();
    }
    const NodeIndex node = sessions_->of_peer(peer)->node;
    for (wire::Message& message : frame.messages) {
        const controller::Session* session = sessions_->of_node(node);
        if (session == nullptr || session->peer != peer) break;
        world_.inspector.controller_heard(node, message);
        feed(controller::NodeMessage{node, session->id, std::move(message)});
    }
    flush();
}

void ControllerHost::hello(const std::string& peer, const wire::Frame& frame, const wire::Hello& hello) {
    NodeIndex node = 0;
    while (s_.fabric.nodes[node].name != hello.node) ++node;
    if (hello.known_epoch > epoch_) {  // the clock went back
        std::vector<NodeIndex> nodes;
        sessions_->each([&](controller::Session& session) { nodes.push_back(session.node); });
        std::sort(nodes.begin(), nodes.end());
        for (const NodeIndex n : nodes) end_session(n, "the epoch changes");
        epoch_ = hello.known_epoch + 1;
    }
    if (const controller::Session* before = sessions_->of_node(node))
        if (before->id == hello.session && before->peer == peer) return;
    outbox_[node].clear();
    const controller::Session& session = sessions_->open(peer, node, frame, hello.session, world_.now);
    strangers_.erase(peer);
    wire::Welcome welcome{session.id, epoch_, node, {}};
    for (const GpuId id : s_.fabric.nodes[node].gpus) {
        const Gpu& gpu = s_.fabric.gpus[id];
        welcome.gpus.push_back({gpu.local, static_cast<std::uint32_t>(gpu.ports.size()), gpu.pci,
                                s_.fabric.rails[gpu.rail].name, gpu.uuid});
    }
    welcome.grace_ms = static_cast<std::uint32_t>(s_.timing.grace_ns / kMs);
    welcome.silence_ms = static_cast<std::uint32_t>(s_.timing.silence_ns / kMs);
    const std::uint64_t id = session.id;
    post(node, id, std::move(welcome));
    feed(controller::NodeSession{node, id});
}

void ControllerHost::post(NodeIndex node, std::uint64_t session_id, wire::Message&& message) {
    const controller::Session* session = sessions_->of_node(node);
    if (session == nullptr || session->id != session_id) return;
    if (outbox_[node].empty()) outbox_nodes_.push_back(node);
    outbox_[node].push_back(std::move(message));
}

bool ControllerHost::send(const std::string& peer, wire::Frame&& frame) {
    if (closed_.contains(peer)) return false;
    return world_.network.send_down(connection_of(peer), std::move(frame));
}

void ControllerHost::send_outbox() {
    for (const NodeIndex node : outbox_nodes_) {
        controller::Session* session = sessions_->of_node(node);
        if (session != nullptr && !outbox_[node].empty() &&
            !send(session->peer, {epoch_, session->id, ++session->sent, std::move(outbox_[node])}))
            unreachable_.push_back(node);
        outbox_[node].clear();
    }
    outbox_nodes_.clear();
}

void ControllerHost::flush() {
    send_outbox();
    while (!unreachable_.empty()) {
        const NodeIndex node = unreachable_.back();
        unreachable_.pop_back();
        end_session(node, "it cannot be reached");
        send_outbox();
    }
}

void ControllerHost::end_session(NodeIndex node, const std::string& reason) {
    controller::Session* session = sessions_->of_node(node);
    if (session == nullptr) return;
    if (world_.journal.on)
        world_.journal.add(world_.now, "controller ends the session of n" + std::to_string(node) + ": " + reason);
    wire::Frame frame{epoch_, session->id, session->sent + 1, {}};
    frame.messages.swap(outbox_[node]);
    frame.messages.push_back(wire::Resync{reason});
    send(session->peer, std::move(frame));
    const std::uint64_t id = session->id;
    sessions_->close(node);
    feed(controller::NodeLost{node, id});
}

// A deliberate mistake: one node of a gang is not told.
void ControllerHost::halve(controller::Actions& actions) {
    std::vector<wire::Grant*> grants;
    for (controller::Action& action : actions)
        if (auto* send_to = std::get_if<controller::SendTo>(&action))
            if (auto* grant = std::get_if<wire::Grant>(&send_to->message); grant != nullptr && !grant->firm.empty())
                grants.push_back(grant);
    if (grants.size() < 2 || world_.mutations_left == 0) return;
    --world_.mutations_left;
    grants.back()->firm.clear();
}

void ControllerHost::feed(const controller::Event& event) {
    auto actions = std::exchange(actions_, {});
    actions.clear();
    core_->on(event, world_.now, actions);
    if (s_.mutation == Mutation::half_grant) halve(actions);
    world_.inspector.controller_did(actions);
    for (controller::Action& action : actions) carry_out(action);
    actions_ = std::move(actions);
    if (!world_.due_for_check()) return;
    if (std::string fault = core_->check(); !fault.empty()) world_.fail("controller: check: " + fault);
}

void ControllerHost::thought(std::uint64_t number) {
    const Thinking thinking = std::move(thinking_[number]);
    if (!alive() || thinking.life != life_) return;
    controller::plan::Task task = *thinking.task;
    task.trials = 20;
    controller::plan::Order order =
        thoughts_random_.chance(400) ? drawn_order(task) : controller::plan::find_order(task, s_.fabric);
    feed(controller::Thought{thinking.id, std::move(order)});
    flush();
}

// As wrong as a plan can be: any order, any ports that can be joined, any wait.
controller::plan::Order ControllerHost::drawn_order(const controller::plan::Task& task) {
    controller::plan::Order order;
    const std::size_t uses = task.lap.uses.size();
    order.place.resize(uses);
    for (std::uint32_t u = 0; u < uses; ++u) order.place[u] = u;
    for (std::size_t u = uses; u > 1; --u) std::swap(order.place[u - 1], order.place[thoughts_random_.below(u)]);
    for (const controller::plan::Use& use : task.lap.uses) {
        order.wait.push_back(thoughts_random_.between(0, 50 * kMs));
        auto& ports = order.ports.emplace_back();
        std::set<PortId> taken;
        for (const controller::plan::Pair& pair : use.pairs) {
            std::vector<std::pair<PortId, PortId>> free;
            for (const PortId p : s_.fabric.gpus[pair.first].ports)
                for (const PortId q : s_.fabric.gpus[pair.second].ports)
                    if (s_.fabric.can_join(p, q) && !taken.contains(p) && !taken.contains(q)) free.emplace_back(p, q);
            if (free.empty()) return {};
            // And now and then a second circuit, as far as there are ports.
            for (int i = 0; i < 1 + thoughts_random_.chance(300) && !free.empty(); ++i) {
                ports.push_back(free[thoughts_random_.below(free.size())]);
                taken.insert({ports.back().first, ports.back().second});
                std::erase_if(free, [&](const auto& f) { return taken.contains(f.first) || taken.contains(f.second); });
            }
        }
        order.circuits.push_back(static_cast<std::uint32_t>(1 + thoughts_random_.below(2)));
    }
    return order;
}

void ControllerHost::carry_out(controller::Action& action) {
    std::visit(
        [this](auto& a) {
            using A = std::decay_t<decltype(a)>;
            if constexpr (std::is_same_v<A, controller::SendTo>) {
                post(a.node, a.session, std::move(a.message));
            } else if constexpr (std::is_same_v<A, controller::Program>) {
                send_outbox();
                world_.plane.program(a);
            } else if constexpr (std::is_same_v<A, controller::ReadMap>) {
                world_.plane.read_map(a);
            } else if constexpr (std::is_same_v<A, controller::Think>) {
                world_.after(thoughts_random_.spread(100'000, kSecond), Kind::thought, 0, thinking_.size());
                thinking_.push_back({life_, a.id, a.task});
            } else if constexpr (std::is_same_v<A, controller::WakeAt>) {
                ++tick_number_;
                if (a.at_ns != std::numeric_limits<TimeNs>::max())
                    world_.calendar.add(std::max(a.at_ns, world_.now), {Kind::controller_tick, 0, tick_number_});
            } else if constexpr (std::is_same_v<A, controller::Trace>) {
                if (a.kind == controller::Trace::Kind::port_fenced) check_fence(a.circuit.a);
            } else if constexpr (std::is_same_v<A, controller::Log>) {
                if (world_.journal.on) world_.journal.add(world_.now, "controller: " + a.text);
            }
        },
        action);
}

}  // namespace opus::sim
