#include "tools/sim/switched_rails.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "tools/replay/pattern.h"

namespace opus::sim {
namespace {

constexpr TimeNs kBegin = 1'000'000'000;  // what comes before: sessions, registration
constexpr TimeNs kForever = 1'000'000'000'000'000;
constexpr TimeNs kThinks = 20'000'000;    // the controller, about an order of circuits
constexpr std::int64_t kRealtime = 1'700'000'000'000'000'000;

}  // namespace

SwitchedRails::SwitchedRails(JobMap& map, const RailsOptions& options)
    : map_(map), options_(options), launch_pairs_(map, static_cast<std::uint32_t>(map.fabric().gpus.front().ports.size())) {
    controller::CoreOptions core;
    core.node_grace_ns = core.register_timeout_ns = kForever;  // nobody dies
    core.map_period_ns = 0;
    core.provision = options.provision;
    core.runs = options.runs;
    core.guard = options.guard;
    controller_ = std::make_unique<controller::Core>(map.fabric(), core);
    leads_.assign(map.fabric().ports.size(), kNone);
    for (const Switch& sw : map.fabric().switches) port_at_.emplace_back(sw.size(), kNone);
    for (PortId p = 0; p < map.fabric().ports.size(); ++p)
        port_at_[map.fabric().ports[p].sw][map.fabric().ports[p].sw_port - 1] = p;
    managers_.resize(map.fabric().nodes.size());
    connect();
    run_until(kBegin);
}

void SwitchedRails::connect() {
    decide(controller::Tick{});
    for (SwitchIndex s = 0; s < map_.fabric().switches.size(); ++s) decide(controller::SwitchEvent{s, SessionUp{}});
    manager::CoreOptions core;
    core.controller_silence_ns = core.heartbeat_ns = kForever;
    for (NodeIndex n = 0; n < managers_.size(); ++n) {
        managers_[n].core = std::make_unique<manager::Core>(map_.fabric().nodes[n].name, core);
        register_ranks(n);
        see(n, manager::ControllerUp{n + 1}, now_ - kBegin);
    }
}

// Zero: it is split from none.
CommId parent_id(const replay::Workload& w, std::uint32_t comm, std::uint32_t rank) {
    for (std::uint32_t p = 0; p < comm && !w.comms[comm].parent.empty(); ++p)
        if (w.comms[p].name == w.comms[comm].parent) return JobMap::comm_id(p, membership(w.comms[p], rank).group);
    return {};
}

void SwitchedRails::register_ranks(NodeIndex node) {
    const replay::Workload& w = map_.workload();
    for (std::uint32_t r = 0; r < w.world(); ++r) {
        if (map_.node_of(r) != node) continue;
        manager::RankUp up;
        up.info = {map_.local_rank(r), 1000 + r, w.places[r].gpu, 30'000, Policy::proceed, w.name};
        see(node, up, now_ - kBegin);
        for (std::uint32_t c = 0; c < w.comms.size(); ++c) {
            const replay::Membership m = membership(w.comms[c], r);
            if (m.group == replay::kNobody) continue;
            manager::CommUp comm;
            comm.rank = map_.local_rank(r);
            comm.index = comm.family = map_.comm_entry(r, c);
            comm.member.comm = map_.comm_id(c, m.group);
            comm.member.parent = parent_id(w, c, r);
            comm.member.rank_in_comm = m.rank;
            comm.member.size = static_cast<std::uint32_t>(w.comms[c].groups[m.group].size());
            comm.member.rank = comm.rank;
            comm.member.gpu = w.places[r].gpu;
            see(node, comm, now_ - kBegin);
        }
    }
}

// --- gates ----------------------------------------------------------------------------------------

bool SwitchedRails::recorded(Name name, const replay::DryRunLaunch& launch, std::int64_t now) {
    manager::Recorded event;
    event.rank = map_.local_rank(name.rank);
    event.seq = name.seq;
    event.gate = ring::Gate::stream;
    if (options_.early_release) event.flags = ring::kLaunchFenced;
    bool crosses = false;
    for (std::size_t i = 0; i < launch.operations.size(); ++i) {
        const replay::Step& step = *launch.operations[i];
        crosses |= map_.crosses(step, name.rank);
        event.stream = step.stream;
        event.ops.push_back(map_.record(step, name.rank, launch.lengths[i]));
    }
    if (!crosses) return false;
    pairs_[{name.rank, name.seq}] = &launch_pairs_.of(launch.operations, name.rank);
    if (options_.late_ns > 0) streams_[{name.rank, name.seq}] = event.stream;
    std::uint64_t& needs = phases_[name.rank].needs[name.seq];
    for (const ring::OpEntry& op : event.ops) {
        const bool transfer =
            op.kind == static_cast<std::uint32_t>(OpKind::send) || op.kind == static_cast<std::uint32_t>(OpKind::recv);
        needs = std::max(needs, (std::uint64_t{op.comm} + 1) << 32 | (transfer ? op.peer + 1 : 0));
    }
    see(map_.node_of(name.rank), std::move(event), now);
    return true;
}

void SwitchedRails::reached(Name name, std::int64_t now) {
    now_ = std::max(now_, now + kBegin);
    const Launch launch{name.rank, name.seq};
    if (ahead_.erase(launch) != 0)
        later(0, [this, name] { open_.push_back(name); });
    else
        waiting_.insert(launch);
    see_late(name, manager::Ready{map_.local_rank(name.rank), name.seq});
}

void SwitchedRails::ended(Name name, std::int64_t now) {
    now_ = std::max(now_, now + kBegin);
    see_late(name, manager::DoneSeen{map_.local_rank(name.rank), name.seq});
    streams_.erase({name.rank, name.seq});
    pairs_.erase({name.rank, name.seq});
}

double SwitchedRails::share(Name name) {
    const LaunchPairs::Pairs& pairs = *pairs_.at({name.rank, name.seq});
    Share& share = shares_[&pairs];
    if (std::exchange(share.changes, changes_) == changes_) return share.of_all;
    share.of_all = pairs.served() ? 1 : map_.packet_share();
    for (std::size_t i = 0; i < pairs.most.size(); ++i) {
        const auto lit = lit_.find(pairs.all[i]);
        if (lit != lit_.end() && lit->second != 0)
            share.of_all = std::min(share.of_all, static_cast<double>(lit->second) / pairs.most[i]);
    }
    return share.of_all;
}

// What one stream does is seen in order.
void SwitchedRails::see_late(Name name, manager::Event event) {
    const NodeIndex node = map_.node_of(name.rank);
    if (options_.late_ns == 0) return see(node, std::move(event), now_ - kBegin);
    TimeNs& seen = seen_[{name.rank, streams_[{name.rank, name.seq}]}];
    const bool ready = std::holds_alternative<manager::Ready>(event);
    // By the launch, not by its turn: a job that is played twice sees each launch as late both times.
    const std::uint64_t draw = replay::mix(replay::mix(options_.seed, name.rank), name.seq);
    const auto late = static_cast<TimeNs>(ready ? draw % static_cast<std::uint64_t>(options_.late_ns) : 0);
    seen = std::max(seen, now_ + late);
    later(seen - now_, [this, node, event = std::move(event)] { see(node, event, now_ - kBegin); });
}

std::int64_t SwitchedRails::next_ns() const {
    return calendar_.empty() ? std::numeric_limits<std::int64_t>::max() : calendar_.next_ns() - kBegin;
}

void SwitchedRails::advance(std::int64_t now, std::vector<Name>& open) {
    run_until(now + kBegin);
    open.swap(open_);
    open_.clear();
}

void SwitchedRails::run_until(TimeNs at) {
    while (calendar_.is_due(at)) {
        const auto next = calendar_.take();
        now_ = next.at_ns;
        next.what();
    }
    now_ = std::max(now_, at);
}

// --- managers -------------------------------------------------------------------------------------

void SwitchedRails::see(NodeIndex node, manager::Event event, std::int64_t now) {
    now_ = std::max(now_, now + kBegin);
    Manager& m = managers_[node];
    m.seen.push_back(std::move(event));
    if (m.look_due) return;
    m.look_due = true;
    later(options_.look_ns, [this, node] { look(node); });
}

void SwitchedRails::look(NodeIndex node) {
    Manager& m = managers_[node];
    m.look_due = false;
    manager::Actions actions;
    for (const manager::Event& event : m.seen) m.core->on(event, now_, kRealtime + now_, actions);
    m.seen.clear();
    flush(node, actions);
}

// What is left for later goes in a frame of its own.
void SwitchedRails::flush(NodeIndex node, manager::Actions& actions) {
    while (managers_[node].core->flush(now_, actions)) {
        perform(node, actions);
        actions.clear();
    }
    perform(node, actions);
}

void SwitchedRails::tell(NodeIndex node, std::vector<wire::Message> messages) {
    ++frames_down_;
    later(options_.wire_ns, [this, node, messages = std::move(messages)] {
        manager::Actions actions;
        Manager& m = managers_[node];
        for (const wire::Message& message : messages)
            m.core->on(manager::FromController{1, node + 1, message}, now_, kRealtime + now_, actions);
        flush(node, actions);
    });
}

void SwitchedRails::perform(NodeIndex node, manager::Actions& actions) {
    std::vector<wire::Message> messages;
    std::vector<manager::Retracted> retracted;
    for (manager::Action& action : actions) {
        if (auto* send = std::get_if<manager::Send>(&action)) {
            messages.push_back(std::move(send->message));
        } else if (const auto* go = std::get_if<manager::SetGo>(&action)) {
            perform(node, *go);
        } else if (const auto* offer = std::get_if<manager::ReleaseEarly>(&action)) {
            perform(node, *offer);
        } else if (const auto* back = std::get_if<manager::Retract>(&action)) {
            retracted.push_back(perform(node, *back));
        } else if (const auto* wake = std::get_if<manager::WakeAt>(&action)) {
            const std::uint64_t number = ++managers_[node].tick;
            if (wake->at_ns >= kForever) continue;
            later(std::max<TimeNs>(0, wake->at_ns - now_), [this, node, number] {
                if (number == managers_[node].tick) see(node, manager::Tick{}, now_ - kBegin);
            });
        } else if (const auto* log = std::get_if<manager::Log>(&action); log != nullptr && options_.log) {
            options_.log(map_.fabric().nodes[node].name + ": " + log->text);
        }
    }
    say(node, std::move(messages));
    for (const manager::Retracted& answer : retracted) {
        manager::Actions next;
        managers_[node].core->on(answer, now_, kRealtime + now_, next);
        flush(node, next);
    }
}

void SwitchedRails::say(NodeIndex node, std::vector<wire::Message> messages) {
    if (messages.empty()) return;
    ++frames_up_;
    later(options_.wire_ns, [this, node, messages = std::move(messages)] { hear(node, messages); });
}

void SwitchedRails::perform(NodeIndex node, const manager::SetGo& a) {
    const Name name{map_.rank_at(node, a.rank), a.seq};
    Phases& phases = phases_[name.rank];
    if (const auto needs = phases.needs.extract(name.seq); needs && needs.mapped() != phases.now) {
        phases.now = needs.mapped();
        ++phases.count;
    }
    if (waiting_.erase({name.rank, name.seq}) == 0) return;  // it has gone ahead
    later(options_.look_ns, [this, name] { open_.push_back(name); });
}

void SwitchedRails::perform(NodeIndex node, const manager::ReleaseEarly& a) {
    const Launch launch{map_.rank_at(node, a.rank), a.seq};
    if (waiting_.erase(launch) == 0)
        ahead_.insert(launch);
    else
        later(options_.look_ns, [this, launch] { open_.push_back({launch.first, launch.second}); });
}

manager::Retracted SwitchedRails::perform(NodeIndex node, const manager::Retract& a) {
    manager::Retracted answer{a.launches, {}};
    for (const wire::LocalLaunch& launch : a.launches)
        if (ahead_.erase({map_.rank_at(node, launch.rank), launch.seq}) == 0) answer.reached.push_back(launch);
    return answer;
}

double SwitchedRails::phases() const {
    std::map<NodeIndex, std::uint64_t> most;
    for (const auto& [rank, phases] : phases_)
        most[map_.node_of(rank)] = std::max(most[map_.node_of(rank)], phases.count);
    double sum = 0;
    for (const auto& [node, count] : most) sum += static_cast<double>(count);
    return sum;
}

// --- controller -----------------------------------------------------------------------------------

void SwitchedRails::log_words(NodeIndex node, const wire::Message& message) {
    const auto text_of = [&](const wire::KeyRange& range) {
        const Key& k = range.first;
        const bool transfer = k.kind == KeyKind::p2p;
        return " " + map_.workload().comms[JobMap::comm_of(k.comm)].name + "." + std::to_string(k.comm.lo - 1) +
               (transfer ? " " + std::to_string(k.src) + ">" + std::to_string(k.dst) : "") + " #" + std::to_string(k.n);
    };
    const std::string when =
        std::to_string(static_cast<double>(now_ - kBegin) / 1e6) + " ms " + map_.fabric().nodes[node].name;
    if (const auto* demand = std::get_if<wire::Demand>(&message))
        for (const wire::LaunchDemand& d : demand->launches) {
            std::string text = when + ".r" + std::to_string(d.launch.rank) + " wants:";
            for (const wire::KeyRange& range : d.keys) text += text_of(range);
            options_.log(text);
        }
}

void SwitchedRails::hear(NodeIndex node, const std::vector<wire::Message>& messages) {
    for (const wire::Message& message : messages) {
        if (options_.log) log_words(node, message);
        if (!std::holds_alternative<wire::Hello>(message)) {
            decide(controller::NodeMessage{node, node + 1, message});
            continue;
        }
        tell(node, {wire::Welcome{node + 1,
                                  1,
                                  node,
                                  {}}});
        decide(controller::NodeSession{node, node + 1});
    }
}

void SwitchedRails::decide(const controller::Event& event) {
    controller::Actions actions;
    ++decisions_;
    options_.around(nullptr, [&] { controller_->on(event, now_, actions); });
    std::map<NodeIndex, std::vector<wire::Message>> to;
    for (controller::Action& action : actions) {
        if (auto* send = std::get_if<controller::SendTo>(&action)) {
            to[send->node].push_back(std::move(send->message));
        } else if (const auto* p = std::get_if<controller::Program>(&action)) {
            program(*p);
        } else if (const auto* read = std::get_if<controller::ReadMap>(&action)) {
            later(0, [this, sw = read->sw, op = read->op] {
                decide(controller::SwitchEvent{sw, MapRead{op, DriverError::none, {}, {}}});  // all dark at first
            });
        } else if (const auto* think = std::get_if<controller::Think>(&action)) {
            later(kThinks, [this, id = think->id, task = think->task] {
                controller::plan::Order order;
                options_.around(&task->lap, [&] { order = controller::plan::find_order(*task, map_.fabric()); });
                decide(controller::Thought{id, std::move(order)});
            });
        } else if (const auto* wake = std::get_if<controller::WakeAt>(&action)) {
            const std::uint64_t number = ++controller_tick_;
            if (wake->at_ns >= kForever) continue;
            later(std::max<TimeNs>(0, wake->at_ns - now_), [this, number] {
                if (number == controller_tick_) decide(controller::Tick{});
            });
        } else if (const auto* log = std::get_if<controller::Log>(&action); log != nullptr && options_.log) {
            options_.log(std::to_string(static_cast<double>(now_ - kBegin) / 1e6) + " ms controller: " + log->text);
        }
    }
    for (auto& [node, messages] : to) tell(node, std::move(messages));
    if (fault_.empty() && decided_++ % options_.check_every == 0) fault_ = controller_->check();
}

void SwitchedRails::program(const controller::Program& p) {
    const TimeNs dark = map_.fabric().switches[p.sw].dark_ns;
    if (options_.log) {
        std::string text = "program " + map_.fabric().switches[p.sw].name + ":";
        for (const CrossConnect& c : p.changes.connect) {
            const auto port = [&](SwitchPort s) { return map_.fabric().ports[port_at(p.sw, s)].name; };
            text += " " + port(c.first) + "-" + port(c.second);
        }
        options_.log(std::to_string(static_cast<double>(now_ - kBegin) / 1e6) + " ms " + text);
    }
    const auto pair_of = [this](PortId x, PortId y) -> GpuPair {
        return std::minmax(map_.fabric().ports[x].gpu, map_.fabric().ports[y].gpu);
    };
    for (const CrossConnect& c : p.changes.connect) {
        if (!options_.keep_turns) break;
        turns_.push_back({port_at(p.sw, c.first), port_at(p.sw, c.second), now_ - kBegin, now_ - kBegin + dark});
    }
    for (const CrossConnect& c : p.changes.connect)
        for (const PortId end : {port_at(p.sw, c.first), port_at(p.sw, c.second)}) {
            const PortId other = std::exchange(leads_[end], kNone);
            if (other == kNone) continue;
            ++changes_;
            --lit_[pair_of(end, other)];
            leads_[other] = kNone;
        }
    later(dark, [this, pair_of, sw = p.sw, op = p.op, made = p.changes.connect, sent = now_] {
        for (const CrossConnect& c : made) {
            const PortId x = port_at(sw, c.first), y = port_at(sw, c.second);
            leads_[x] = y, leads_[y] = x;
            ++changes_;
            ++lit_[pair_of(x, y)];
        }
        decide(controller::SwitchEvent{sw, Applied{op, DriverError::none, {}, sent, sent, now_}});
    });
}

}  // namespace opus::sim
