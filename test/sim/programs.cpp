#include "test/sim/programs.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "test/sim/calendar.h"

namespace opus::sim {
namespace {

struct RawOp {
    std::uint32_t comm = 0;
    OpKind kind{};
    std::uint32_t peer = 0;
    std::uint32_t stream = 0;
};

struct RawCall {
    Call::Kind kind{};
    std::uint32_t index = 0, stream = 0;
    TimeNs ns = 0;
    std::vector<RawOp> ops;
};

bool is_mesh(OpKind kind) { return kind == OpKind::all_to_all || kind == OpKind::gather || kind == OpKind::scatter; }
bool is_transfer(OpKind kind) { return kind == OpKind::send || kind == OpKind::recv; }

// Programs are written step by step; a step's parts go to its ranks in one order for all, so they end. Some
// parts are moved then, where they still do.
class Writer {
public:
    Writer(Scenario& scenario, std::uint32_t job, Random random) : s_(scenario), job_(job), random_(random) {}

    void write() {
        const std::vector<std::uint32_t>& ranks = s_.jobs[job_].ranks;
        first_comm_ = static_cast<std::uint32_t>(s_.comms.size());
        for (const std::uint32_t r : ranks) {
            s_.ranks[r].streams = 1 + random_.below(3);
            raw_[r];
        }
        if (s_.fault_class == FaultClass::silence) return write_silent();
        if (s_.fault_class == FaultClass::early && s_.jobs[job_].early) return write_early();
        if (s_.jobs[job_].ring) return write_ring();
        make_comms();
        if (s_.fault_class == FaultClass::windows || random_.chance(250)) {
            iterate();
        } else {
            const std::uint32_t steps = 4 + random_.below(12);
            for (std::uint32_t i = 0; i < steps; ++i) step();
        }
        // Else the process just exits, which for its peers looks like a death.
        using F = FaultClass;
        const F c = s_.fault_class;
        const bool leaves = c != F::calm && c != F::windows && c != F::early && c != F::wide;
        if (!leaves || random_.chance(600)) barrier_and_destroy();
        resolve();
        const std::uint32_t moves = random_.below(4);
        for (std::uint32_t i = 0; i < moves; ++i) move_something();
    }

private:
    // The first job's ranks meet again and again, until one of them computes for longer than its node may be silent.
    // The second's go on all the time, with pauses.
    void write_silent() {
        add_comm(ranks());
        const bool goes_on = job_ > 0;
        const TimeNs lost = s_.timing.silence_ns + s_.timing.grace_ns;
        const std::uint32_t rounds = 6 + random_.below(8), pause = random_.below(rounds - 2);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            for (std::uint32_t i = 0; i < 2; ++i) {
                const std::uint32_t r = ranks()[i];
                TimeNs ns = random_.spread(10'000, goes_on ? lost / 2 : 5 * kMs);
                if (!goes_on && round == pause && (i == 0 || random_.chance(500)))
                    ns = i == 0 ? random_.between(lost / 4 * 3, 2 * lost) : random_.between(0, lost);
                raw_[r].push_back({Call::Kind::compute, 0, random_.below(s_.ranks[r].streams), ns, {}});
            }
            if (random_.chance(600))
                for (const std::uint32_t r : ranks())
                    raw_[r].push_back(
                        {Call::Kind::launch, 0, 0, 0, {{first_comm_, OpKind::all_reduce, 0, stream_of(r, first_comm_)}}});
            else {
                const std::uint32_t sender = random_.below(2);
                transfer(first_comm_, sender, 1 - sender);
            }
        }
        barrier_and_destroy();
        resolve();
    }

    // The second rank goes on with the third, and needs what the first one sends only when they are through; its receive
    // is posted before that. There and back in the midst of it is two dark times. Now and then a round is otherwise.
    void write_early() {
        const std::vector<std::uint32_t> all = ranks();
        const std::uint32_t sender = all[0], receiver = all[1], neighbour = all[2];
        add_comm(all);
        add_comm({receiver, neighbour});
        s_.ranks[receiver].streams = std::max(2u, s_.ranks[receiver].streams);
        const std::uint32_t rounds = 7 + random_.below(10), steps = 5 + random_.below(8), often = 1 + random_.below(3),
                            odd = random_.below(3) * 60;
        const TimeNs pace = random_.spread(50'000, 1 * kMs), ahead = pace * (1 + random_.below(steps));
        const TimeNs dark = s_.fabric.switches[0].dark_ns;
        s_.about_ns += rounds * (steps * (pace + s_.timing.wire_high_ns * 2 + kMs) + 2 * dark);
        const auto compute = [this](std::uint32_t r, TimeNs ns) {
            raw_[r].push_back({Call::Kind::compute, 0, 0, random_.between(ns, ns + ns / 8), {}});
        };
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const bool strange = random_.chance(odd), long_wait = random_.chance(odd / 2);
            const std::uint32_t length = strange ? 1 + random_.below(2 * steps) : steps;
            const std::uint32_t used = random_.chance(odd) ? random_.below(length) : length;
            compute(sender, ahead);
            raw_[sender].push_back({Call::Kind::launch, 0, 0, 0, {{first_comm_, OpKind::send, 1, 0}}});
            raw_[receiver].push_back({Call::Kind::launch, 0, 0, 0, {{first_comm_, OpKind::recv, 0, 1}}});
            const std::uint32_t event = s_.ranks[receiver].events++;
            raw_[receiver].push_back({Call::Kind::record, event, 1, 0, {}});
            for (std::uint32_t i = 0; i <= length; ++i) {
                if (i == used) raw_[receiver].push_back({Call::Kind::wait, event, 0, 0, {}});
                if (i == length) break;
                if (long_wait && i == length / 2) compute(neighbour, 1500 * kMs);
                for (const std::uint32_t r : {receiver, neighbour}) {
                    raw_[r].push_back({Call::Kind::launch, 0, 0, 0, {{first_comm_ + 1, OpKind::all_reduce, 0, 0}}});
                    compute(r, pace);
                }
            }
            transfer_on(0, first_comm_, 1, 0);
            if (round % often == 0)
                for (const std::uint32_t r : all) raw_[r].push_back({Call::Kind::sync, 0, 0, 0, {}});
        }
        barrier_and_destroy();
        resolve();
    }

    // Each rank posts its receive from the one before it, computes, sends to the next, and waits for what it receives:
    // what each wants next is often wanted of somebody who wants something else. Now and then a round is otherwise.
    void write_ring() {
        const std::vector<std::uint32_t> all = ranks();
        const auto count = static_cast<std::uint32_t>(all.size());
        const TimeNs dark = s_.fabric.switches[0].dark_ns, least = dark / 2 + 4 * s_.timing.wire_high_ns;
        std::vector<TimeNs> work;
        add_comm(all);
        const std::uint32_t pairs = first_comm_ + 1;
        for (std::uint32_t i = 0; i < count; ++i) {
            add_comm({all[i], all[(i + 1) % count]});
            s_.comms.back().family = static_cast<std::uint32_t>(s_.comms.size());  // a receive holds no send up
            s_.ranks[all[i]].streams = std::max(2u, s_.ranks[all[i]].streams);
            work.push_back(random_.spread(least, 12 * least));
        }
        // Connected one after the other: who first receives from the one before would wait all around the ring.
        for (std::uint32_t i = 0; i < count; ++i) transfer_on(0, pairs + i, 0, 1);
        const std::uint32_t rounds = 10 + random_.below(20), odd = random_.below(3) * 60;
        for (std::uint32_t round = 0; round < rounds; ++round)
            for (std::uint32_t i = 0; i < count; ++i) {
                auto& calls = raw_[all[i]];
                const std::uint32_t event = s_.ranks[all[i]].events++;
                const TimeNs ns = random_.chance(odd) ? random_.below(4) * work[i] : work[i];
                calls.push_back({Call::Kind::launch, 0, 0, 0, {{pairs + (i + count - 1) % count, OpKind::recv, 0, 1}}});
                calls.push_back({Call::Kind::record, event, 1, 0, {}});
                calls.push_back({Call::Kind::compute, 0, 0, random_.between(ns, ns + ns / 16), {}});
                calls.push_back({Call::Kind::launch, 0, 0, 0, {{pairs + i, OpKind::send, 1, 0}}});
                calls.push_back({Call::Kind::wait, event, 0, 0, {}});
            }
        barrier_and_destroy();
        resolve();
    }

    std::vector<std::uint32_t>& ranks() { return s_.jobs[job_].ranks; }
    std::uint32_t ports() const { return static_cast<std::uint32_t>(s_.fabric.gpus[0].ports.size()); }
    const Gpu& gpu_of(std::uint32_t rank) const {
        const RankPlan& r = s_.ranks[rank];
        return s_.fabric.gpus[s_.fabric.nodes[r.node].gpus[r.gpu]];
    }

    // --- communicators ----------------------------------------------------------------------------

    void make_comms() {
        add_comm(ranks());
        const std::uint32_t more = 1 + random_.below(4);
        for (std::uint32_t i = 0; i < more; ++i) {
            std::vector<std::uint32_t> members;
            if (random_.chance(400)) {  // a rail's
                const std::uint32_t gpu = gpu_of(ranks()[random_.below(ranks().size())]).local;
                for (const std::uint32_t r : ranks())
                    if (gpu_of(r).local == gpu) members.push_back(r);
            } else {
                for (const std::uint32_t r : ranks())
                    if (random_.chance(600)) members.push_back(r);
            }
            if (members.size() >= 2) add_comm(members);
        }
    }

    void add_comm(const std::vector<std::uint32_t>& members) {
        CommPlan comm;
        comm.id = {hash_mix(job_, s_.seed) | 1, s_.comms.size() + 1};
        comm.job = job_;
        const auto index = static_cast<std::uint32_t>(s_.comms.size());
        comm.family = index + 1;
        if (index > first_comm_ && random_.chance(100)) comm.family = first_comm_ + 1;  // shares the parent's resources
        comm.ranks = members;
        std::set<NodeIndex> nodes;
        for (const std::uint32_t r : members) {
            nodes.insert(s_.ranks[r].node);
            s_.ranks[r].comms.push_back(index);
            raw_[r].push_back({Call::Kind::create, index, 0, 0, {}});
        }
        comm.intra = nodes.size() == 1;
        s_.comms.push_back(std::move(comm));
        collective_.push_back(is_routable_ring(s_.comms.back(), nodes.size()));
        mesh_.push_back(is_routable_mesh(nodes.size()));
    }

    bool is_routable_ring(const CommPlan& comm, std::size_t nodes) {
        if (nodes < 3) return true;
        if (ports() < 2) return false;
        return ports_of_a_switch() > 1 || nodes % 2 == 0 || ports() > 2 || comm.intra;
    }

    // Where each port of a GPU is another switch's, an odd number of nodes needs a port more.
    bool is_routable_mesh(std::size_t nodes) const {
        return nodes <= ports() + (ports_of_a_switch() > 1 || nodes % 2 == 0 ? 1 : 0);
    }

    std::uint32_t ports_of_a_switch() const {
        return static_cast<std::uint32_t>(ports() * s_.fabric.rails.size() / s_.fabric.switches.size());
    }

    // --- steps ------------------------------------------------------------------------------------

    std::uint32_t stream_of(std::uint32_t rank, std::uint32_t comm) {
        if (random_.chance(200)) return random_.below(s_.ranks[rank].streams);
        return comm % s_.ranks[rank].streams;
    }

    std::uint32_t some_comm() { return first_comm_ + random_.below(s_.comms.size() - first_comm_); }

    void step() {
        const std::uint32_t what = random_.below(100);
        if (what < 35) return collective();
        if (what < 55) return pipeline();
        if (what < 75) return exchange();
        if (what < 82) return fused();
        const std::uint32_t r = ranks()[random_.below(ranks().size())];
        RankPlan& rank = s_.ranks[r];
        const std::uint32_t stream = random_.below(rank.streams);
        if (what < 90) {
            raw_[r].push_back({Call::Kind::compute, 0, stream, random_.spread(10 * 1000, s_.timing.compute_high_ns), {}});
        } else if (what < 97) {
            raw_[r].push_back({Call::Kind::record, rank.events, stream, 0, {}});
            raw_[r].push_back({Call::Kind::wait, rank.events, random_.below(rank.streams), 0, {}});
            ++rank.events;
        } else {
            raw_[r].push_back({Call::Kind::sync, 0, stream, 0, {}});
        }
    }

    // Training: the same steps again and again, with windows between them, so that managers foretell what comes. Then
    // something else comes now and then, or each time.
    void iterate() {
        using Body = std::map<std::uint32_t, std::vector<RawCall>>;
        std::vector<Body> bodies;
        std::map<std::uint32_t, std::uint32_t> events;  // of a body's own, from here
        const std::uint32_t kinds = 2 + random_.below(2);
        for (const std::uint32_t r : ranks()) events[r] = s_.ranks[r].events;
        for (std::uint32_t b = 0; b < kinds; ++b) {
            std::map<std::uint32_t, std::size_t> begin;
            for (const std::uint32_t r : ranks()) begin[r] = raw_[r].size();
            const std::uint32_t steps = 1 + random_.below(4);
            for (std::uint32_t i = 0; i < steps; ++i) {
                window();
                step();
            }
            Body& body = bodies.emplace_back();
            for (const std::uint32_t r : ranks()) {
                body[r].assign(raw_[r].begin() + static_cast<std::ptrdiff_t>(begin[r]), raw_[r].end());
                raw_[r].resize(begin[r]);
            }
        }
        std::map<std::uint32_t, std::uint32_t> own;
        for (const std::uint32_t r : ranks()) own[r] = s_.ranks[r].events - events[r];
        const std::uint32_t rounds = 3 + random_.below(6), surprise = random_.below(3) * 350;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const Body& body = bodies[random_.chance(surprise) ? random_.below(kinds) : 0];
            for (const std::uint32_t r : ranks()) {
                for (RawCall call : body.at(r)) {  // an event happens once
                    if (call.kind == Call::Kind::record || call.kind == Call::Kind::wait) call.index += round * own[r];
                    raw_[r].push_back(std::move(call));
                }
                s_.ranks[r].events = events[r] + (round + 1) * own[r];
            }
        }
    }

    void window() {
        for (const std::uint32_t r : ranks())
            if (random_.chance(500))
                raw_[r].push_back(
                    {Call::Kind::compute, 0, random_.below(s_.ranks[r].streams), random_.spread(100'000, 60'000'000), {}});
    }

    OpKind some_collective(const CommPlan& comm) {
        static constexpr OpKind kRing[] = {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::broadcast};
        if (s_.fault_class == FaultClass::wide) {
            const bool fits = mesh_[static_cast<std::size_t>(&comm - s_.comms.data()) - first_comm_];
            static constexpr OpKind kMesh[] = {OpKind::all_to_all, OpKind::all_to_all, OpKind::gather, OpKind::scatter};
            if (random_.chance(fits ? 500 : 20)) return kMesh[random_.below(4)];
        } else if (comm.ranks.size() <= 3 && random_.chance(100)) {
            return OpKind::all_to_all;
        }
        return kRing[random_.below(4)];
    }

    void collective() {
        const std::uint32_t c = some_comm();
        if (!collective_[c - first_comm_]) return;
        const OpKind kind = some_collective(s_.comms[c]);
        const std::uint32_t count = random_.chance(100) ? 2 : 1;
        for (const std::uint32_t r : s_.comms[c].ranks) {
            RawCall call{Call::Kind::launch, 0, 0, 0, {}};
            const std::uint32_t stream = stream_of(r, c);
            for (std::uint32_t i = 0; i < count; ++i) call.ops.push_back({c, kind, 0, stream});
            raw_[r].push_back(std::move(call));
        }
    }

    // Ports of each GPU that the step's transfers need at the same time.
    bool fits(std::map<GpuId, std::set<GpuId>>& needs, std::uint32_t c, std::uint32_t src, std::uint32_t dst) {
        const Gpu &from = gpu_of(s_.comms[c].ranks[src]), &to = gpu_of(s_.comms[c].ranks[dst]);
        if (from.node == to.node) return true;
        const GpuId via = s_.fabric.nodes[from.node].gpus[to.local], end = s_.fabric.nodes[to.node].gpus[to.local];
        auto &x = needs[via], &y = needs[end];
        if (x.size() + !x.contains(end) > ports() || y.size() + !y.contains(via) > ports()) return false;
        x.insert(end);
        y.insert(via);
        return true;
    }

    // Each rank receives, then sends on; launches of their own.
    void pipeline() {
        const std::uint32_t c = some_comm();
        const auto size = static_cast<std::uint32_t>(s_.comms[c].ranks.size());
        const std::uint32_t start = random_.below(size), hops = 1 + random_.below(size);
        const bool back = random_.chance(400);
        for (std::uint32_t i = 0; i < hops; ++i) {
            const std::uint32_t at = back ? size - 1 - (start + i) % size : (start + i) % size;
            const std::uint32_t to = back ? (at + size - 1) % size : (at + 1) % size;
            transfer(c, at, to);
        }
    }

    void transfer(std::uint32_t c, std::uint32_t src, std::uint32_t dst) {
        const std::uint32_t s = s_.comms[c].ranks[src], d = s_.comms[c].ranks[dst];
        raw_[s].push_back({Call::Kind::launch, 0, 0, 0, {{c, OpKind::send, dst, stream_of(s, c)}}});
        raw_[d].push_back({Call::Kind::launch, 0, 0, 0, {{c, OpKind::recv, src, stream_of(d, c)}}});
    }

    void transfer_on(std::uint32_t stream, std::uint32_t c, std::uint32_t src, std::uint32_t dst) {
        const auto& members = s_.comms[c].ranks;
        raw_[members[src]].push_back({Call::Kind::launch, 0, 0, 0, {{c, OpKind::send, dst, stream}}});
        raw_[members[dst]].push_back({Call::Kind::launch, 0, 0, 0, {{c, OpKind::recv, src, stream}}});
    }

    // Several transfers; each rank's in one group, or one after the other.
    void exchange() {
        const std::uint32_t c = some_comm();
        const auto size = static_cast<std::uint32_t>(s_.comms[c].ranks.size());
        std::map<GpuId, std::set<GpuId>> needs;
        std::map<std::uint32_t, RawCall> groups;
        const bool grouped = random_.chance(750);
        const std::uint32_t count = 1 + random_.below(2 * size);
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t src = random_.below(size), dst = random_.below(size);
            if (src == dst || !fits(needs, c, src, dst)) continue;
            if (!grouped) {
                transfer(c, src, dst);
                continue;
            }
            for (const bool sends : {true, false}) {
                const std::uint32_t r = s_.comms[c].ranks[sends ? src : dst];
                const auto [it, fresh] = groups.try_emplace(r, RawCall{Call::Kind::launch, 0, 0, 0, {}});
                const std::uint32_t stream = fresh ? stream_of(r, c) : it->second.ops.front().stream;
                it->second.ops.push_back({c, sends ? OpKind::send : OpKind::recv, sends ? dst : src, stream});
            }
        }
        for (auto& [r, call] : groups) raw_[r].push_back(std::move(call));
    }

    // One group over two communicators.
    void fused() {
        const std::uint32_t a = some_comm(), b = some_comm();
        if (a == b || !collective_[a - first_comm_] || !collective_[b - first_comm_]) return;
        if (ports() < 2 && !s_.comms[a].intra && !s_.comms[b].intra && s_.comms[a].ranks != s_.comms[b].ranks) return;
        const OpKind x = some_collective(s_.comms[a]), y = some_collective(s_.comms[b]);
        for (const std::uint32_t r : ranks()) {
            RawCall call{Call::Kind::launch, 0, 0, 0, {}};
            for (const auto& [c, kind] : {std::pair{a, x}, std::pair{b, y}}) {
                const auto& members = s_.comms[c].ranks;
                if (std::find(members.begin(), members.end(), r) != members.end())
                    call.ops.push_back({c, kind, 0, stream_of(r, c)});
            }
            if (!call.ops.empty()) raw_[r].push_back(std::move(call));
        }
    }

    void barrier_and_destroy() {
        if (collective_[0] && random_.chance(500))
            for (const std::uint32_t r : ranks()) {
                raw_[r].push_back({Call::Kind::launch, 0, 0, 0, {{first_comm_, OpKind::all_reduce, 0, 0}}});
            }
        for (std::uint32_t c = first_comm_; c < s_.comms.size(); ++c)
            for (const std::uint32_t r : s_.comms[c].ranks) raw_[r].push_back({Call::Kind::destroy, c, 0, 0, {}});
    }

    // --- moves ------------------------------------------------------------------------------------

    static bool touches(const RawCall& call, std::uint32_t comm) {
        return std::any_of(call.ops.begin(), call.ops.end(), [comm](const RawOp& op) { return op.comm == comm; });
    }

    // A receive posted long before its sender can send, on a stream of its own; or two neighbours swapped.
    void move_something() {
        const std::uint32_t r = ranks()[random_.below(ranks().size())];
        auto& calls = raw_[r];
        const auto before = calls;
        const std::uint32_t streams = s_.ranks[r].streams;
        std::vector<std::size_t> movable;
        for (std::size_t i = 1; i < calls.size(); ++i)
            if (calls[i].kind == Call::Kind::launch) movable.push_back(i);
        if (movable.empty()) return;
        std::size_t i = movable[random_.below(movable.size())];
        const bool receives =
            std::all_of(calls[i].ops.begin(), calls[i].ops.end(), [](const RawOp& op) { return op.kind == OpKind::recv; });
        std::size_t places = receives ? 1 + random_.below(6) : 1;
        if (receives && random_.chance(700)) {
            for (RawOp& op : calls[i].ops) op.stream = s_.ranks[r].streams;
            s_.ranks[r].streams = std::max(s_.ranks[r].streams, calls[i].ops.front().stream + 1);
        }
        for (; places > 0 && i > 0; --places, --i) {
            const RawCall& other = calls[i - 1];
            if (other.kind == Call::Kind::create || other.kind == Call::Kind::destroy) break;
            const bool meets = std::any_of(calls[i].ops.begin(), calls[i].ops.end(), [&](const RawOp& op) {
                return touches(other, op.comm) && (!is_transfer(op.kind) || !is_transfer(other.ops.front().kind));
            });
            if (meets) break;
            std::swap(calls[i - 1], calls[i]);
        }
        resolve();
        if (ends_without_opus(s_, job_)) return;
        calls = before;
        s_.ranks[r].streams = streams;
        resolve();
    }

    // --- numbers, keys, launches ------------------------------------------------------------------

    struct Numbers {
        std::uint64_t collectives = 0;
        std::map<std::uint32_t, std::uint64_t> sends, receives;
    };

    void resolve() {
        if (!resolved_) first_flow_ = static_cast<std::uint32_t>(s_.flows.size());
        resolved_ = true;
        s_.flows.resize(first_flow_);
        flows_.clear();
        for (const std::uint32_t r : ranks()) {
            std::map<std::uint32_t, Numbers> numbers;
            s_.ranks[r].calls.clear();
            for (const RawCall& raw : raw_[r]) {
                Call call;
                call.kind = raw.kind;
                call.index = raw.index;
                call.stream = raw.stream;
                call.ns = raw.ns;
                if (raw.kind == Call::Kind::launch) resolve_launches(r, raw, numbers, call);
                s_.ranks[r].calls.push_back(std::move(call));
            }
        }
    }

    void resolve_launches(std::uint32_t r, const RawCall& raw, std::map<std::uint32_t, Numbers>& numbers, Call& call) {
        // Communicators that share a stream are one launch.
        std::vector<std::vector<RawOp>> sets;
        for (const RawOp& op : raw.ops) {
            std::vector<RawOp> joined{op};
            for (std::size_t i = 0; i < sets.size();) {
                const bool meets = std::any_of(sets[i].begin(), sets[i].end(),
                                               [&](const RawOp& o) { return o.comm == op.comm || o.stream == op.stream; });
                if (!meets) {
                    ++i;
                    continue;
                }
                joined.insert(joined.begin(), sets[i].begin(), sets[i].end());
                sets.erase(sets.begin() + static_cast<std::ptrdiff_t>(i));
            }
            sets.push_back(std::move(joined));
        }
        for (const auto& set : sets) {
            LaunchPlan launch;
            launch.stream = set.front().stream;
            for (const RawOp& op : set) {
                if (op.stream != launch.stream && launch.other_streams.empty())
                    launch.other_streams.push_back(op.stream);
                add_op(r, op, numbers[op.comm], launch, call);
            }
            call.launches.push_back(std::move(launch));
        }
    }

    void add_op(std::uint32_t r, const RawOp& op, Numbers& numbers, LaunchPlan& launch, Call& call) {
        std::uint64_t& next = !is_transfer(op.kind)     ? numbers.collectives
                              : op.kind == OpKind::send ? numbers.sends[op.peer]
                                                        : numbers.receives[op.peer];
        const std::uint64_t n = next++;
        const auto same = std::find_if(launch.ops.begin(), launch.ops.end(), [&](const OpPlan& o) {
            return o.comm == op.comm && o.kind == op.kind && o.peer == op.peer && o.n + o.count == n;
        });
        if (same != launch.ops.end())
            ++same->count;
        else
            launch.ops.push_back({op.comm, op.kind, op.peer, n, 1});
        launch.parts.push_back(part_of(r, op, n, false));
        if (n != 0) return;
        call.first_uses.push_back({op.comm, op.kind, op.peer, 0, 1});
        call.first_parts.push_back(part_of(r, op, 0, true));
    }

    Part part_of(std::uint32_t r, const RawOp& op, std::uint64_t n, bool conn) {
        const CommPlan& comm = s_.comms[op.comm];
        const auto self =
            static_cast<std::uint32_t>(std::find(comm.ranks.begin(), comm.ranks.end(), r) - comm.ranks.begin());
        Key key{comm.id, conn ? KeyKind::conn : KeyKind::coll, 0, 0, n};
        const bool sends = op.kind == OpKind::send;
        if (is_transfer(op.kind)) {
            key.kind = conn ? KeyKind::conn_p2p : KeyKind::p2p;
            key.src = sends ? self : op.peer;
            key.dst = sends ? op.peer : self;
        }
        const auto [it, fresh] = flows_.try_emplace(key, static_cast<FlowIndex>(s_.flows.size()));
        if (fresh) s_.flows.push_back(plan_flow(op, key, conn));
        return {it->second, op.comm, sends};
    }

    FlowPlan plan_flow(const RawOp& op, const Key& key, bool conn) {
        Random random(hash_mix(std::hash<Key>{}(key), s_.seed));
        FlowPlan flow;
        flow.key = key;
        flow.comm = op.comm;
        const CommPlan& comm = s_.comms[op.comm];
        flow.members = is_transfer(op.kind) ? 2 : static_cast<std::uint32_t>(comm.ranks.size());
        flow.transfer_ns = conn ? random.between(10'000, 80'000) : random.spread(20'000, 4'000'000);
        flow.sender_ns = flow.transfer_ns;
        if (is_transfer(op.kind) && !conn) {
            if (random.chance(400)) flow.sender_ns = flow.transfer_ns / (1 + random.below(4));
            if (random.chance(150)) {
                flow.eager = true;
                flow.transfer_ns = std::min<TimeNs>(flow.transfer_ns, 100'000);
            }
            add_transfer_pair(flow, comm, key);
        } else if (is_transfer(op.kind)) {
            add_transfer_pair(flow, comm, key);
        } else {
            add_collective_pairs(flow, comm, is_mesh(op.kind));
        }
        std::sort(flow.pairs.begin(), flow.pairs.end());
        flow.pairs.erase(std::unique(flow.pairs.begin(), flow.pairs.end()), flow.pairs.end());
        return flow;
    }

    // docs/design.md, section 5: a transfer crosses on the destination's rail.
    void add_transfer_pair(FlowPlan& flow, const CommPlan& comm, const Key& key) {
        const Gpu &from = gpu_of(comm.ranks[key.src]), &to = gpu_of(comm.ranks[key.dst]);
        if (from.node == to.node) return;
        flow.pairs.push_back(s_.pair_of(s_.fabric.nodes[from.node].gpus[to.local], s_.fabric.nodes[to.node].gpus[to.local]));
    }

    // The ring (or mesh) of nodes by first appearance, on every rail on which the hearing node has members.
    void add_collective_pairs(FlowPlan& flow, const CommPlan& comm, bool mesh) {
        std::vector<NodeIndex> order;
        for (const std::uint32_t r : comm.ranks)
            if (std::find(order.begin(), order.end(), s_.ranks[r].node) == order.end())
                order.push_back(s_.ranks[r].node);
        for (std::size_t i = 0; i < order.size(); ++i)
            for (std::size_t k = 0; k < order.size(); ++k) {
                if (i == k || (!mesh && k != (i + 1) % order.size())) continue;
                for (const std::uint32_t r : comm.ranks)
                    if (s_.ranks[r].node == order[k])
                        flow.pairs.push_back(s_.pair_of(s_.fabric.nodes[order[i]].gpus[s_.ranks[r].gpu],
                                                        s_.fabric.nodes[order[k]].gpus[s_.ranks[r].gpu]));
            }
    }

    Scenario& s_;
    std::uint32_t job_;
    Random random_;
    std::uint32_t first_comm_ = 0, first_flow_ = 0;
    bool resolved_ = false;
    std::vector<bool> collective_, mesh_;                // by communicator: can be routed
    std::map<std::uint32_t, std::vector<RawCall>> raw_;  // by rank
    std::unordered_map<Key, FlowIndex> flows_;
};

}  // namespace

void write_programs(Scenario& scenario, std::uint32_t job, Random random) { Writer(scenario, job, random).write(); }

}  // namespace opus::sim
