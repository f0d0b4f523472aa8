#include "test/controller/core/wide_world.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <stdexcept>
#include <string>
#include <utility>

// Its name is what callgrind goes by (test/shim/callgrind.py).
extern "C" __attribute__((noinline)) void measured_event(opus::controller::Core& core, const opus::controller::Event& event,
                                                         opus::TimeNs now, opus::controller::Actions& out) {
    core.on(event, now, out);
}

namespace opus::controller::test {
namespace {

constexpr TimeNs kStep = 1'000;
constexpr TimeNs kSettled = 2'000'000'000;

Fabric make_fabric(std::uint32_t nodes) {
    Fabric f;
    f.name = "wide";
    Switch sw;
    sw.name = "ocs";
    sw.ingress = 2 * nodes;
    sw.dark_ns = 25'000'000;
    f.switches.push_back(sw);
    f.rails.push_back({"r0", {0}, {}});
    for (std::uint32_t n = 0; n < nodes; ++n) {
        const std::string name = "n" + std::to_string(n);
        f.nodes.push_back({name, {n}});
        f.rails[0].gpus.push_back(n);
        f.gpus.push_back({name + ".g0", n, 0, 0, "", "", {2 * n, 2 * n + 1}});
        for (std::uint32_t p = 0; p < 2; ++p)
            f.ports.push_back({name + ".g0.p" + std::to_string(p), n, p, 0, 2 * n + p + 1});
    }
    return f;
}

}  // namespace

double cpu_us() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) * 1e6 + double(t.tv_nsec) / 1e3;
}
double clock_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

WideWorld::WideWorld(std::uint32_t nodes, CoreOptions options)
    : fabric_(make_fabric(nodes)),
      options_(options),
      members_(nodes),
      launches_(nodes),
      seq_(nodes),
      peer_(fabric_.ports.size(), kNone) {
    options_.map_period_ns = 0;
}

void WideWorld::join(CommId comm, const std::vector<std::uint32_t>& order) {
    for (std::uint32_t i = 0; i < order.size(); ++i) {
        wire::CommMember m;
        m.comm = comm;
        m.rank_in_comm = i;
        m.size = std::uint32_t(order.size());
        m.rank = 0;
        m.gpu = 0;
        m.generation = 1;
        members_[order[i]].push_back(m);
    }
}

wire::Snapshot WideWorld::snapshot_of(std::uint32_t node) const {
    wire::Snapshot s;
    s.ranks.push_back({0, 1, 0, 30'000, Policy::proceed, "wide"});
    s.comms = members_[node];
    s.launches = launches_[node];
    return s;
}

void WideWorld::begin() {
    core_ = std::make_unique<Core>(fabric_, options_);
    ++session_;
    feed(SwitchEvent{0, SessionUp{}});
    for (std::uint32_t n = 0; n < nodes(); ++n) {
        feed(NodeSession{n, session_});
        feed(NodeMessage{n, session_, snapshot_of(n)});
    }
    now_ += kSettled;  // what a switch was told before this controller's time is over by then
    feed(Tick{});
    granted_ = 0;
}

void WideWorld::start() { begin(); }

void WideWorld::restart(CommId comm, std::uint64_t n) {
    ++options_.epoch;
    for (std::uint32_t node = 0; node < nodes(); ++node) {
        wire::LaunchSnapshot l;
        l.state = wire::LaunchState::in_flight;
        l.demand.launch = {0, seq_[node]};
        l.demand.keys.push_back({{comm, KeyKind::coll, 0, 0, n}, 1});
        l.demand.op = OpKind::all_reduce;
        launches_[node] = {l};
    }
    begin();
}

void WideWorld::demand(CommId comm, std::uint64_t n, std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t node = from; node < to; ++node) {
        wire::LaunchDemand d;
        d.launch = {0, seq_[node]};
        if (n == 0) d.keys.push_back({{comm, KeyKind::conn, 0, 0, 0}, 1});
        d.keys.push_back({{comm, KeyKind::coll, 0, 0, n}, 1});
        d.op = OpKind::all_reduce;
        d.bytes = 1 << 20;
        ++seq_[node];
        feed(NodeMessage{node, session_, wire::Demand{{d}}});
    }
}

void WideWorld::done(std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t node = from; node < to; ++node)
        feed(NodeMessage{node, session_, wire::Done{{{{0, seq_[node] - 1}, 1, 1, 1, false}}}});
}

void WideWorld::give_back() {
    for (const auto& [node, run] : std::exchange(asked_back_, {})) {
        wire::Returned answer;
        answer.id = run;
        feed(NodeMessage{node, session_, std::move(answer)});
    }
}

void WideWorld::expect(std::uint64_t granted) {
    if (granted_ != granted)
        throw std::runtime_error(std::to_string(granted_) + " launches granted, not " + std::to_string(granted));
    granted_ = 0;
}

void WideWorld::wake() {
    now_ = std::max(now_, wake_);
    feed(Tick{});
}

void WideWorld::lose_circuit() {
    const auto lit = std::find_if(peer_.begin(), peer_.end(), [](PortId p) { return p != kNone; });
    const PortId peer = std::exchange(*lit, kNone);
    peer_[peer] = kNone;
    watched_ = false;
    feed(SwitchEvent{0, SessionDown{"for a moment"}});
    watched_ = true;
    feed(SwitchEvent{0, SessionUp{}});
}

void WideWorld::feed(const Event& event) {
    std::vector<Event> events;
    const double start = clock_();
    on(event);
    last_us_ = clock_() - start;
    for (take_answers(events); !events.empty();) {
        const std::vector<Event> now = std::exchange(events, {});
        for (const Event& answer : now) {
            on(answer);
            take_answers(events);
        }
    }
}

void WideWorld::on(const Event& event) {
    actions_.clear();
    now_ += kStep;
    if (!watched_) return core_->on(event, now_, actions_);
    const double start = limit_us_ > 0 ? cpu_us() : 0;
    measured_event(*core_, event, now_, actions_);
    if (limit_us_ == 0) return;
    const double took = cpu_us() - start;
    spent_us_ += took;
    longest_us_ = std::max(longest_us_, took);
    if (spent_us_ > limit_us_) throw std::runtime_error("took longer than " + std::to_string(int(limit_us_ / 1e6)) + " s");
}

void WideWorld::turn(const Program& program) {
    const auto port = [&](SwitchPort p) { return PortId(p - 1); };
    const auto darken = [&](PortId p) {
        if (const PortId peer = std::exchange(peer_[p], kNone); peer != kNone) peer_[peer] = kNone;
    };
    for (const SwitchPort p : program.changes.disconnect) darken(port(p));
    for (const auto& [a, b] : program.changes.connect) {
        darken(port(a));
        darken(port(b));
        peer_[port(a)] = port(b);
        peer_[port(b)] = port(a);
    }
}

void WideWorld::take_answers(std::vector<Event>& answers) {
    for (const Action& action : actions_) {
        if (const auto* read = std::get_if<ReadMap>(&action)) {
            MapRead map{read->op, DriverError::none, "", {}};
            for (PortId p = 0; p < peer_.size(); ++p)
                if (peer_[p] != kNone && p < peer_[p]) map.circuits.emplace_back(p + 1, peer_[p] + 1);
            answers.push_back(SwitchEvent{read->sw, std::move(map)});
        } else if (const auto* program = std::get_if<Program>(&action)) {
            turn(*program);
            answers.push_back(SwitchEvent{program->sw, Applied{program->op, DriverError::none, "", now_, now_, now_}});
        } else if (const auto* wake = std::get_if<WakeAt>(&action)) {
            wake_ = wake->at_ns;
        } else if (const auto* send = std::get_if<SendTo>(&action)) {
            if (const auto* grant = std::get_if<wire::Grant>(&send->message)) granted_ += grant->firm.size();
            if (const auto* revoke = std::get_if<wire::Revoke>(&send->message))
                asked_back_.emplace_back(send->node, revoke->id);
        }
    }
}

}  // namespace opus::controller::test
