#include "test/sim/optical_plane.h"

#include <algorithm>

#include "test/sim/world.h"

namespace opus::sim {

OpticalPlane::OpticalPlane(World& world, const Scenario& scenario)
    : world_(world),
      s_(scenario),
      random_(scenario.seed, 0x61a55),
      switches_(scenario.fabric.switches.size()),
      lit_(scenario.fabric.gpus.size() * scenario.fabric.gpus.size()) {
    for (SwitchIndex i = 0; i < switches_.size(); ++i) {
        switches_[i].ports.resize(s_.fabric.switches[i].size() + 1);
        switches_[i].cable.assign(s_.fabric.switches[i].size() + 1, kNone);
    }
    for (PortId p = 0; p < s_.fabric.ports.size(); ++p)
        switches_[s_.fabric.ports[p].sw].cable[s_.fabric.ports[p].sw_port] = p;
    // What others left behind.
    for (SwitchIndex i = 0; i < switches_.size(); ++i)
        for (PortId a = 0; a < s_.fabric.ports.size(); ++a)
            for (PortId b = a + 1; b < s_.fabric.ports.size(); ++b) {
                const Port &x = s_.fabric.ports[a], &y = s_.fabric.ports[b];
                if (x.sw != i || !s_.fabric.can_join(a, b) || x.gpu == y.gpu || !random_.chance(150)) continue;
                auto& ports = switches_[i].ports;
                if (ports[x.sw_port].peer != 0 || ports[y.sw_port].peer != 0) continue;
                ports[x.sw_port].peer = y.sw_port;
                ports[y.sw_port].peer = x.sw_port;
                ports[x.sw_port].light = ports[y.sw_port].light = true;
                ++lit_[s_.pair_of(x.gpu, y.gpu)];
            }
}

PairIndex OpticalPlane::pair_of(SwitchIndex sw, SwitchPort a, SwitchPort b) const {
    const PortId p = switches_[sw].cable[a], q = switches_[sw].cable[b];
    if (p == kNone || q == kNone || s_.fabric.ports[p].gpu == s_.fabric.ports[q].gpu) return kNone;
    return s_.pair_of(s_.fabric.ports[p].gpu, s_.fabric.ports[q].gpu);
}

bool OpticalPlane::at_work() const {
    for (const SwitchModel& sw : switches_)
        for (const std::uint32_t id : sw.pending)
            if (!commands_[id].read) return true;
    return answers_due_ > 0;
}

PortId OpticalPlane::says(PortId port) const {
    const Port& p = s_.fabric.ports[port];
    const SwitchPort peer = switches_[p.sw].ports[p.sw_port].peer;
    return peer == 0 ? kNone : switches_[p.sw].cable[peer] == kNone ? kNone - 1 : switches_[p.sw].cable[peer];
}

// --- mirrors ------------------------------------------------------------------------------------------

void OpticalPlane::cut(SwitchIndex sw, SwitchPort port, const Command* by) {
    auto& ports = switches_[sw].ports;
    Mirror& x = ports[port];
    if (x.peer == 0) return;
    const SwitchPort other = x.peer;
    Mirror& y = ports[other];
    const PairIndex pair = pair_of(sw, port, other);
    const bool was_lit = x.light;
    if (by != nullptr && x.decided != 0) by = &commands_[x.decided - 1];  // it was decided then
    if (pair != kNone && was_lit && by != nullptr && !x.strange) world_.inspector.cut(pair, by->life, by->sent_ns);
    x.peer = y.peer = 0;
    x.light = y.light = x.strange = y.strange = false;
    x.condemned = y.condemned = x.decided = y.decided = 0;
    ++x.version;
    ++y.version;
    if (pair == kNone || !was_lit) return;
    if (by == nullptr) {  // the first of several is what the controller believes in
        if (x.taken == 0) x.taken = x.robbed = other;
        if (y.taken == 0) y.taken = y.robbed = port;
        x.taken_ns = y.taken_ns = world_.now;
    }
    if (--lit_[pair] == 0) world_.traffic.light_changed(pair);
}

void OpticalPlane::light(SwitchIndex sw, const CrossConnect& c) {
    auto& ports = switches_[sw].ports;
    ports[c.first].light = ports[c.second].light = true;
    const PairIndex pair = pair_of(sw, c.first, c.second);
    if (pair == kNone) return;
    if (++lit_[pair] == 1) world_.traffic.light_changed(pair);
}

bool OpticalPlane::robbed(PairIndex pair) const {
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    if (lit(pair)) return false;
    for (const PortId p : s_.fabric.gpus[pair / gpus].ports) {
        const Port& port = s_.fabric.ports[p];
        const SwitchPort led = switches_[port.sw].ports[port.sw_port].robbed;
        if (led != 0 && pair_of(port.sw, port.sw_port, led) == pair) return true;
    }
    return false;
}

bool OpticalPlane::darkened_by_others(PairIndex pair) const {
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    for (const PortId p : s_.fabric.gpus[pair / gpus].ports) {
        const Port& port = s_.fabric.ports[p];
        const SwitchPort taken = switches_[port.sw].ports[port.sw_port].taken;
        if (taken != 0 && pair_of(port.sw, port.sw_port, taken) == pair) return true;
    }
    return false;
}

void OpticalPlane::cut_for_test(PairIndex pair) {
    for (SwitchIndex i = 0; i < switches_.size(); ++i)
        for (SwitchPort p = 1; p < switches_[i].ports.size(); ++p)
            if (switches_[i].ports[p].peer > p && pair_of(i, p, switches_[i].ports[p].peer) == pair) {
                Command command;
                command.sent_ns = world_.now;
                return cut(i, p, &command);
            }
}

// --- decided, and not yet done --------------------------------------------------------------------------

void OpticalPlane::condemn(std::uint32_t id, SwitchPort port) {
    auto& ports = switches_[commands_[id].sw].ports;
    if (port == 0 || port >= ports.size() || ports[port].peer == 0) return;
    const PairIndex pair = pair_of(commands_[id].sw, port, ports[port].peer);
    Mirror &x = ports[port], &y = ports[x.peer];
    // By a change that has not been carried out yet, or was refused: it has believed it gone since. Before it counts
    // on it again it reads the map, and says so when it takes it away.
    const bool known = x.decided != 0 && commands_[x.decided - 1].life == commands_[id].life;
    if (!known) x.decided = y.decided = id + 1;
    if (x.condemned != 0) return;
    if (!known && pair != kNone && x.light && !x.strange) world_.inspector.decided_to_cut(pair);
    x.condemned = y.condemned = id + 1;
}

void OpticalPlane::counted_on(const Circuit& circuit) {
    const Port &a = s_.fabric.ports[circuit.a], &b = s_.fabric.ports[circuit.b];
    auto& ports = switches_[a.sw].ports;
    if (ports[a.sw_port].peer == b.sw_port) ports[a.sw_port].decided = ports[b.sw_port].decided = 0;
}

void OpticalPlane::pardon(std::uint32_t id) {
    for (Mirror& m : switches_[commands_[id].sw].ports)
        if (m.condemned == id + 1) m.condemned = 0;
}

bool OpticalPlane::stays_lit(PairIndex pair) const {
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    for (const PortId p : s_.fabric.gpus[pair / gpus].ports) {
        const SwitchIndex sw = s_.fabric.ports[p].sw;
        const Mirror& m = switches_[sw].ports[s_.fabric.ports[p].sw_port];
        if (!m.light || pair_of(sw, s_.fabric.ports[p].sw_port, m.peer) != pair) continue;
        // What a controller that is gone has ordered, the living one cannot know.
        if (m.condemned == 0 || commands_[m.condemned - 1].life != world_.controller.life()) return true;
    }
    return false;
}

// --- commands -----------------------------------------------------------------------------------------

std::uint32_t OpticalPlane::new_command(SwitchIndex sw, OpId op, TimeNs timeout_ns) {
    Command c;
    c.sw = sw;
    c.op = op;
    c.generation = switches_[sw].generation;
    c.life = world_.controller.life();
    c.sent_ns = world_.now;
    c.deadline_ns = world_.now + timeout_ns;
    commands_.push_back(std::move(c));
    return static_cast<std::uint32_t>(commands_.size() - 1);
}

void OpticalPlane::program(const controller::Program& p) {
    SwitchModel& sw = switches_[p.sw];
    if (world_.journal.on) {
        std::string text = s_.fabric.switches[p.sw].name + " <- op " + std::to_string(p.op) + ":";
        for (const SwitchPort d : p.changes.disconnect) text += " -" + std::to_string(d);
        for (const auto& [a, b] : p.changes.connect) text += " " + std::to_string(a) + "=" + std::to_string(b);
        world_.journal.add(world_.now, text);
    }
    if (!sw.session)
        return answer(p.sw, Applied{p.op, DriverError::unreachable, "no session", world_.now, 0, 0}, 1'000, true);
    const std::uint32_t id = new_command(p.sw, p.op, p.timeout_ns);
    commands_[id].changes = p.changes;
    for (const SwitchPort d : p.changes.disconnect) condemn(id, d);
    for (const auto& [a, b] : p.changes.connect) {
        condemn(id, a);
        condemn(id, b);
    }
    sw.pending.push_back(id);
    world_.calendar.add(std::max(world_.now + random_.spread(30'000, 1'000'000), sw.busy_until), {Kind::command, id});
}

void OpticalPlane::read_map(const controller::ReadMap& r) {
    SwitchModel& sw = switches_[r.sw];
    if (!sw.session) return answer(r.sw, MapRead{r.op, DriverError::unreachable, "no session", {}}, 1'000, true);
    const std::uint32_t id = new_command(r.sw, r.op, r.timeout_ns);
    commands_[id].read = true;
    sw.pending.push_back(id);
    world_.calendar.add(std::max(world_.now + random_.spread(30'000, 1'000'000), sw.busy_until), {Kind::command, id});
}

bool OpticalPlane::applies(const ChangeSet& changes, SwitchModel& sw) const {
    return std::all_of(changes.connect.begin(), changes.connect.end(), [&](const CrossConnect& c) {
        return c.first != c.second && c.first > 0 && c.second > 0 && c.first < sw.ports.size() &&
               c.second < sw.ports.size();
    });
}

void OpticalPlane::execute(std::uint32_t id) {
    Command& c = commands_[id];
    SwitchModel& sw = switches_[c.sw];
    if (c.lost || sw.down) return;
    if (const TimeNs at = std::max(sw.busy_until, c.not_before_ns); world_.now < at)
        return world_.calendar.add(at, {Kind::command, id});
    if (c.read) {
        MapRead map{c.op, DriverError::none, {}, {}};
        for (SwitchPort p = 1; p < sw.ports.size(); ++p)
            if (sw.ports[p].peer > p) map.circuits.emplace_back(p, sw.ports[p].peer);
        std::erase(sw.pending, id);
        if (!c.answered) answer(c.sw, std::move(map), random_.spread(20'000, 200'000));
        c.answered = true;
        return;
    }
    const TimeNs dark = s_.fabric.switches[c.sw].dark_ns;
    if (!applies(c.changes, sw)) {
        world_.fail("a change set that the switch cannot do");
        return;
    }
    if (sw.refuse_all > 0 || (sw.refuse > 0 && random_.chance(500)))
        return answer_command(id, DriverError::refused, 50'000);
    if (s_.mutation == Mutation::lying_switch && random_.chance(300))
        return answer_command(id, DriverError::none, dark);
    const bool partly = sw.partial > 0 && random_.chance(500);
    for (const SwitchPort p : c.changes.disconnect) cut(c.sw, p, &c);
    for (const auto& [a, b] : c.changes.connect) {
        if (partly && random_.chance(500)) continue;
        cut(c.sw, a, &c);
        cut(c.sw, b, &c);
        Mirror &x = sw.ports[a], &y = sw.ports[b];
        x.peer = b;
        y.peer = a;
        ++x.version;
        ++y.version;
        c.moving.push_back({{a, b}, x.version});
    }
    pardon(id);  // what it has left as it was stays so
    if (partly) c.error = DriverError::refused;
    TimeNs takes = c.changes.connect.empty() ? 0 : dark * random_.between(700, 1000) / 1000;
    if (sw.slow > 0 && random_.chance(600)) {
        takes = random_.chance(300) ? c.deadline_ns - world_.now + random_.spread(1'000'000, 100'000'000)
                                    : takes * random_.between(1, 4);
        // Whoever asks next is answered after it.
        sw.busy_until = std::max(sw.busy_until, world_.now + takes);
        if (world_.now + takes > c.deadline_ns) {
            c.slow = true;
            const TimeNs left = c.deadline_ns - world_.now;
            answer_command(id, DriverError::timeout, std::max<TimeNs>(left, 0));
        }
    }
    ++moving_;
    world_.calendar.add(world_.now + takes, {Kind::settled, id});
    if (s_.mutation == Mutation::early_answer && world_.mutations_left > 0) {
        --world_.mutations_left;
        answer_command(id, DriverError::none, 1'000);
    }
}

void OpticalPlane::settle(std::uint32_t id) {
    Command& c = commands_[id];
    SwitchModel& sw = switches_[c.sw];
    --moving_;
    bool dark = false;
    for (const auto& [circuit, version] : c.moving) {
        const auto [a, b] = circuit;
        if (sw.down || sw.ports[a].version != version || sw.ports[a].peer != b) {
            dark = true;  // somebody was faster
        } else if (sw.stuck.contains(a) || sw.stuck.contains(b)) {
            dark = true;
        } else {
            light(c.sw, circuit);
            // What the controller lost there before is of no account now.
            for (Mirror* m : {&sw.ports[a], &sw.ports[b]}) m->taken = m->robbed = 0;
        }
    }
    if (c.error == DriverError::none && dark) c.error = DriverError::no_light;
    answer_command(id, c.error,
                   c.error == DriverError::no_light ? std::max<TimeNs>(c.deadline_ns - world_.now, 0) / 2
                                                    : random_.spread(20'000, 200'000));
}

void OpticalPlane::answer_command(std::uint32_t id, DriverError error, TimeNs after) {
    Command& c = commands_[id];
    std::erase(switches_[c.sw].pending, id);
    if (c.moving.empty()) pardon(id);
    if (c.answered) return;
    c.answered = true;
    if (error == DriverError::none) switches_[c.sw].carried_out_ns = world_.now;
    Applied applied{c.op, error, {}, c.sent_ns, 0, error == DriverError::none ? world_.now : 0};
    const bool current = c.generation == switches_[c.sw].generation;
    if (current) answer(c.sw, std::move(applied), after);
}

void OpticalPlane::answer(SwitchIndex sw, DriverEvent event, TimeNs after, bool always) {
    answers_due_ += std::holds_alternative<Applied>(event);
    answers_.push_back({std::move(event), switches_[sw].generation, always, life_, world_.now});
    world_.after(after, Kind::answer, sw, answers_.size() - 1);
}

void OpticalPlane::deliver(SwitchIndex sw, std::uint64_t index) {
    Answer& a = answers_[index];
    answers_due_ -= std::holds_alternative<Applied>(a.event);
    if (!drivers_ || a.life != life_ || (!a.always && a.generation != switches_[sw].generation)) return;
    if (world_.journal.on) {
        std::string text = s_.fabric.switches[sw].name + " -> ";
        if (const auto* x = std::get_if<Applied>(&a.event))
            text += "applied op " + std::to_string(x->op) + " error " + std::to_string(int(x->error));
        else if (const auto* m = std::get_if<MapRead>(&a.event)) {
            text += "map op " + std::to_string(m->op) + " error " + std::to_string(int(m->error)) + ":";
            for (const auto& [p, q] : m->circuits) text += " " + std::to_string(p) + "=" + std::to_string(q);
        } else
            text += std::holds_alternative<SessionUp>(a.event) ? "session up" : "session down";
        world_.journal.add(world_.now, text);
    }
    const auto* map = std::get_if<MapRead>(&a.event);
    const bool is_read = map != nullptr && map->error == DriverError::none;
    const TimeNs made_ns = a.made_ns;
    if (is_read) map_is_read(sw, made_ns);
    world_.controller.hear(sw, a.event);
    if (is_read) map_is_read(sw, made_ns);  // of ports that it has had in doubt until now
}

// What another hand has done before the map was made is known now, but for ports that the controller has in doubt: what
// it reads of these may be what a command of its own, under way, has not done yet.
void OpticalPlane::map_is_read(SwitchIndex sw, TimeNs made_ns) {
    auto& ports = switches_[sw].ports;
    for (Mirror& m : ports)
        if (m.taken_ns <= made_ns) m.taken = 0;
    if (std::ranges::none_of(ports, &Mirror::strange) || !world_.controller.alive()) return;
    std::vector<bool> in_doubt(ports.size());
    for (const controller::PortStatus& status : world_.controller.core()->ports()) {
        const Port& port = s_.fabric.ports[status.port];
        if (port.sw == sw) in_doubt[port.sw_port] = status.use == controller::PortUse::unknown;
    }
    for (SwitchPort p = 1; p < ports.size(); ++p)
        if (ports[p].taken_ns <= made_ns && !in_doubt[p] && !in_doubt[ports[p].peer]) ports[p].strange = false;
}

// --- sessions -----------------------------------------------------------------------------------------

void OpticalPlane::start_drivers() {
    drivers_ = true;
    ++life_;
    for (SwitchIndex i = 0; i < switches_.size(); ++i) reconnect(i);
}

void OpticalPlane::end_drivers() {
    drivers_ = false;
    for (SwitchIndex i = 0; i < switches_.size(); ++i) drop_session(i, "the controller is gone");
}

void OpticalPlane::reconnect(SwitchIndex sw) {
    ++switches_[sw].generation;
    world_.after(random_.spread(500'000, 50'000'000), Kind::driver_up, sw, switches_[sw].generation);
}

void OpticalPlane::driver_up(SwitchIndex i, std::uint64_t generation) {
    SwitchModel& sw = switches_[i];
    if (!drivers_ || sw.generation != generation || sw.session) return;
    if (sw.down) return world_.after(50'000'000, Kind::driver_up, i, generation);
    sw.session = true;
    const Switch& d = s_.fabric.switches[i];
    answer(i, SessionUp{{"Opus", "model", d.name, "0", d.ingress, d.egress}}, 1'000);
}

// A controller waits so long before it believes what it reads: for its own command, and for one before it.
TimeNs OpticalPlane::latest(const Command& c) const {
    const TimeNs own = c.sent_ns + 3 * s_.fabric.switches[c.sw].dark_ns + 50 * kMs;
    return std::max(world_.now, world_.controller.alive() ? std::min(own, c.deadline_ns)
                                                          : c.deadline_ns - s_.fabric.switches[c.sw].dark_ns);
}

// What has reached the switch it does; what has not is lost. Each command is answered, whatever happens.
void OpticalPlane::drop_session(SwitchIndex i, const char* why) {
    SwitchModel& sw = switches_[i];
    if (!sw.session) return;
    sw.session = false;
    answer(i, SessionDown{why}, 1'000, true);
    for (const std::uint32_t id : sw.pending) {
        Command& c = commands_[id];
        c.lost = c.read || (c.moving.empty() && random_.chance(500));
        if (c.lost) pardon(id);
        if (!c.lost && c.moving.empty() && random_.chance(300))
            c.not_before_ns = random_.between(world_.now, latest(c));
        if (c.answered) continue;
        c.answered = true;
        if (c.read)
            answer(i, MapRead{c.op, DriverError::unreachable, why, {}}, 2'000, true);
        else
            answer(i, Applied{c.op, DriverError::unreachable, why, c.sent_ns, 0, 0}, 2'000, true);
    }
    sw.pending.clear();
    ++sw.generation;
}

// --- faults -------------------------------------------------------------------------------------------

void OpticalPlane::begin(const Fault& f) {
    SwitchModel& sw = switches_[f.target];
    const bool session = sw.session;
    Random random(f.detail);
    switch (f.kind) {
        case FaultKind::slow: ++sw.slow; break;
        case FaultKind::refuse: ++sw.refuse; break;
        case FaultKind::refuse_all: ++sw.refuse_all; break;
        case FaultKind::partial: ++sw.partial; break;
        case FaultKind::stuck: sw.stuck.insert(1 + random.below(sw.ports.size() - 1)); break;
        case FaultKind::session_drop:
            drop_session(f.target, "connection reset");
            if (drivers_ && session) reconnect(f.target);
            break;
        case FaultKind::reboot: {
            drop_session(f.target, "the switch reboots");
            sw.down = true;
            const bool forgets = random.chance(500);
            for (SwitchPort p = 1; p < sw.ports.size(); ++p) {
                const SwitchPort peer = sw.ports[p].peer;
                if (peer < p) continue;
                const bool lit = sw.ports[p].light;
                cut(f.target, p, nullptr);
                if (forgets || !lit) continue;
                sw.ports[p].peer = peer;  // dark until it is back
                sw.ports[peer].peer = p;
            }
            if (drivers_ && session) reconnect(f.target);
            break;
        }
        case FaultKind::foreign_hand: {
            const std::uint32_t count = 1 + random.below(3);
            for (std::uint32_t i = 0; i < count; ++i) {
                const SwitchPort a = 1 + random.below(sw.ports.size() - 1), b = 1 + random.below(sw.ports.size() - 1);
                cut(f.target, a, nullptr);
                const bool sided = s_.fabric.switches[f.target].sidedness == Sidedness::two_sided;
                const std::uint32_t in = s_.fabric.switches[f.target].ingress;
                if (a == b || random.chance(500) || (sided && (a <= in) == (b <= in))) continue;
                cut(f.target, b, nullptr);
                sw.ports[a].peer = b;
                sw.ports[b].peer = a;
                ++sw.ports[a].version;
                ++sw.ports[b].version;
                light(f.target, {a, b});
                for (Mirror* m : {&sw.ports[a], &sw.ports[b]}) m->strange = true, m->taken_ns = world_.now;
            }
            // Without it the controller does not know before it reads the map again.
            if (random.chance(500)) break;
            drop_session(f.target, "dropped for another client");
            if (drivers_ && session) reconnect(f.target);
            break;
        }
        default: break;
    }
}

void OpticalPlane::end(const Fault& f) {
    SwitchModel& sw = switches_[f.target];
    Random random(f.detail);
    switch (f.kind) {
        case FaultKind::slow: --sw.slow; break;
        case FaultKind::refuse: --sw.refuse; break;
        case FaultKind::refuse_all: --sw.refuse_all; break;
        case FaultKind::partial: --sw.partial; break;
        case FaultKind::stuck: {
            const SwitchPort port = 1 + random.below(sw.ports.size() - 1);
            sw.stuck.erase(sw.stuck.find(port));
            Mirror& x = sw.ports[port];
            if (x.peer != 0 && !x.light && !sw.stuck.contains(port) && !sw.stuck.contains(x.peer))
                light(f.target, {port, x.peer});
            break;
        }
        case FaultKind::reboot:
            sw.down = false;
            for (SwitchPort p = 1; p < sw.ports.size(); ++p)
                if (sw.ports[p].peer > p && !sw.ports[p].light) light(f.target, {p, sw.ports[p].peer});
            break;
        default: break;
    }
}

}  // namespace opus::sim
