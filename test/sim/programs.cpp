#include "test/sim/programs.h"

#include <algorithm>
#include <map>
#include <set>

#include "test/sim/calendar.h"
#include "test/sim/draft.h"
#include "test/sim/special_programs.h"

namespace opus::sim {
namespace {

constexpr std::size_t kMostComms = 14;  // of a job

// What any NCCL program may do, step by step; a step's parts go to its ranks in one order for all, so they end. Then
// parts are moved, wherever the reference execution still ends.
class Writer {
public:
    Writer(Scenario& scenario, std::uint32_t job, Random random)
        : s_(scenario),
          job_(job),
          random_(random),
          draft_(scenario, job),
          captures_(Random(scenario.seed, 0x6b00 + job).chance(500)) {}

    void write() {
        for (const std::uint32_t r : ranks()) s_.ranks[r].streams = 1 + random_.below(3);
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
        come_late();
        draft_.resolve();
        if (JobPlan& job = s_.jobs[job_]; job.drains)
            job.drains = ends_without_opus(s_, job_);  // else no move would be kept
        const std::uint32_t moves = random_.below(6);
        for (std::uint32_t i = 0; i < moves; ++i) move_something();
    }

private:
    const std::vector<std::uint32_t>& ranks() const { return s_.jobs[job_].ranks; }
    std::uint32_t some_rank() { return ranks()[random_.below(ranks().size())]; }
    const CommPlan& plan(std::uint32_t comm) const { return s_.comms[comm]; }

    // --- communicators ----------------------------------------------------------------------------

    void make_comms() {
        living_.push_back(draft_.create(ranks()));
        const std::uint32_t more = 1 + random_.below(3);
        for (std::uint32_t i = 0; i < more; ++i) make_comm();
    }

    std::uint32_t some_comm() { return living_[random_.below(living_.size())]; }

    // From a unique id, or children of any that lives: splits of splits.
    void make_comm() {
        if (comms_ >= kMostComms) return;
        if (random_.chance(350)) {
            const std::vector<std::uint32_t> members = some_of(ranks());
            if (members.size() > 1) living_.push_back(draft_.create(members));
        } else {
            const std::uint32_t parent = some_comm();
            const auto made = draft_.split(parent, colored(plan(parent).ranks), random_.chance(200));
            living_.insert(living_.end(), made.begin(), made.end());
        }
        comms_ = living_.size() + destroyed_;
    }

    std::vector<std::uint32_t> some_of(const std::vector<std::uint32_t>& among) {
        std::vector<std::uint32_t> members;
        const bool rail = random_.chance(400);
        const std::uint32_t gpu = draft_.gpu_of(among[random_.below(among.size())]).local;
        for (const std::uint32_t r : among)
            if (rail ? draft_.gpu_of(r).local == gpu : random_.chance(600)) members.push_back(r);
        return members;
    }

    // By rail, by node, or by chance; some have no color. Ranks as the keys say: as before, or the other way round.
    std::vector<std::vector<std::uint32_t>> colored(const std::vector<std::uint32_t>& among) {
        const std::uint32_t by = random_.below(4), colors = 1 + random_.below(3);
        const bool reversed = random_.chance(250), all = random_.chance(600);
        std::map<std::uint32_t, std::vector<std::uint32_t>> children;
        for (const std::uint32_t r : among) {
            const Gpu& gpu = draft_.gpu_of(r);
            const std::uint32_t color = by == 0 ? gpu.local : by == 1 ? gpu.node : random_.below(colors);
            if (all || random_.chance(850)) children[color].push_back(r);
        }
        std::vector<std::vector<std::uint32_t>> out;
        for (auto& [color, members] : children) {
            if (reversed) std::reverse(members.begin(), members.end());
            out.push_back(std::move(members));
        }
        return out;
    }

    void destroy_comm() {
        const std::size_t at = random_.below(living_.size());
        if (living_.size() < 2 || kept_.contains(living_[at])) return;
        draft_.destroy(living_[at]);
        living_.erase(living_.begin() + static_cast<std::ptrdiff_t>(at));
        ++destroyed_;
    }

    // --- steps ------------------------------------------------------------------------------------

    std::uint32_t some_stream(std::uint32_t rank) { return random_.below(s_.ranks[rank].streams); }
    std::uint32_t stream_of(std::uint32_t rank, std::uint32_t comm) {
        const bool alternates = comm % 3 == s_.seed % 3;  // as FSDP's gathers and scatters do
        return random_.chance(alternates ? 700 : 200) ? some_stream(rank) : comm % s_.ranks[rank].streams;
    }

    void step() {
        const std::uint32_t what = random_.below(100);
        if (what < 6) return random_.chance(600) ? make_comm() : destroy_comm();
        act(6 + random_.below(94));
    }

    // What repeats.
    void act(std::uint32_t what) {
        if (captures_ && what < 14) return graph();
        if (what < 36) return collective();
        if (what < 54) return pipeline();
        if (what < 80) return group();
        const std::uint32_t r = some_rank();
        if (what < 87) {
            draft_.compute(r, some_stream(r), random_.spread(10 * 1000, s_.timing.compute_high_ns));
        } else if (what < 90) {
            pause(r);
        } else if (what < 97) {
            const std::uint32_t event = s_.ranks[r].events++;
            draft_.record(r, some_stream(r), event);
            draft_.wait(r, some_stream(r), event);
        } else {
            draft_.sync(r, some_stream(r));
        }
    }

    // The host does something else; now and then for so long that others may wonder (a checkpoint).
    void pause(std::uint32_t r) {
        const TimeNs ns = random_.chance(60) ? random_.spread(kSecond, 20 * kSecond) : random_.spread(10'000, 10 * kMs);
        draft_.pause(r, ns);
    }

    // Training: the same steps again and again, with windows between them, so that managers foretell what comes. Every
    // so many iterations there is another one; and something else comes now and then, or each time.
    void iterate() {
        using Body = std::map<std::uint32_t, std::vector<RawCall>>;
        std::vector<Body> bodies;
        std::map<std::uint32_t, std::uint32_t> first, own;  // events of the bodies
        const std::uint32_t kinds = 2 + random_.below(2);
        for (const std::uint32_t r : ranks()) first[r] = s_.ranks[r].events;
        kept_.insert(living_.begin(), living_.end());
        if (captures_ && random_.chance(400)) graph();
        for (DrawnGraph& g : graphs_) g.kept = true;
        for (std::uint32_t b = 0; b < kinds; ++b) bodies.push_back(draw_body());
        for (const std::uint32_t r : ranks()) own[r] = s_.ranks[r].events - first[r];
        const std::uint32_t rounds = 3 + random_.below(6), surprise = random_.below(3) * 350;
        const std::uint32_t every = random_.chance(300) ? 2 + random_.below(3) : ~0u;
        s_.jobs[job_].odd_iterations = every < rounds;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const bool odd = (round + 1) % every == 0;
            const Body& body = bodies[odd ? kinds - 1 : random_.chance(surprise) ? random_.below(kinds) : 0];
            for (const std::uint32_t r : ranks()) {
                for (RawCall call : body.at(r)) {  // an event happens once
                    if (call.kind == Call::Kind::record || call.kind == Call::Kind::wait)
                        call.index += s_.ranks[r].events - first[r];
                    draft_.calls(r).push_back(std::move(call));
                }
                s_.ranks[r].events += own[r];
            }
            if (random_.chance(120)) step();
        }
    }

    std::map<std::uint32_t, std::vector<RawCall>> draw_body() {
        std::map<std::uint32_t, std::size_t> begin;
        for (const std::uint32_t r : ranks()) begin[r] = draft_.calls(r).size();
        const std::uint32_t steps = 1 + random_.below(4);
        repeats_ = true;
        for (std::uint32_t i = 0; i < steps; ++i) {
            window();
            act(6 + random_.below(94));
        }
        repeats_ = false;
        std::map<std::uint32_t, std::vector<RawCall>> body;
        for (const std::uint32_t r : ranks()) {
            auto& calls = draft_.calls(r);
            body[r].assign(calls.begin() + static_cast<std::ptrdiff_t>(begin[r]), calls.end());
            calls.resize(begin[r]);
        }
        return body;
    }

    void window() {
        for (const std::uint32_t r : ranks())
            if (random_.chance(500)) draft_.compute(r, some_stream(r), random_.spread(100'000, 60'000'000));
    }

    OpKind some_collective(std::uint32_t comm) {
        static constexpr OpKind kRing[] = {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::broadcast};
        static constexpr OpKind kMesh[] = {OpKind::all_to_all, OpKind::all_to_all, OpKind::gather, OpKind::scatter};
        const bool wide = s_.fault_class == FaultClass::wide, fits = draft_.can_mesh(comm);
        if (random_.chance(wide ? (fits ? 500 : 20) : (fits ? 120 : 2))) return kMesh[random_.below(4)];
        return kRing[random_.below(4)];
    }

    // A step captured into a CUDA graph, and the graph launched. Ranks call the collectives of a communicator in one
    // order, captured or not.
    void graph() {
        std::erase_if(graphs_, [this](const DrawnGraph& g) {
            return std::find(living_.begin(), living_.end(), g.comm) == living_.end();
        });
        if (!repeats_ && (graphs_.empty() || random_.chance(300))) {
            const std::uint32_t c = some_comm();
            if (!draft_.can_ring(c)) return;
            DrawnGraph& g = graphs_.emplace_back(DrawnGraph{c, draft_.new_graph(), {}, false});
            const std::uint32_t count = 1 + random_.below(3);
            for (std::uint32_t i = 0; i < count; ++i) g.ops.push_back({c, some_collective(c), some_root(c), 0});
            for (const std::uint32_t r : plan(c).ranks) draft_.capture(r, g.graph, stream_of(r, c), g.ops);
        }
        if (graphs_.empty()) return;
        const std::size_t at = random_.below(graphs_.size());
        const DrawnGraph& g = graphs_[at];
        for (std::uint32_t times = 1 + random_.below(repeats_ ? 1 : 4); times > 0; --times)
            for (const std::uint32_t r : plan(g.comm).ranks) draft_.replay(r, g.graph, stream_of(r, g.comm), g.ops);
        if (repeats_ || g.kept || !random_.chance(300)) return;
        for (const std::uint32_t r : plan(g.comm).ranks) draft_.forget(r, g.graph, g.ops);
        graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(at));
    }

    std::uint32_t some_root(std::uint32_t comm) { return random_.below(plan(comm).ranks.size()); }

    void collective() {
        const std::uint32_t c = some_comm();
        if (!draft_.can_ring(c)) return;
        const OpKind kind = some_collective(c);
        const std::uint32_t count = random_.chance(100) ? 2 : 1, root = some_root(c);
        for (const std::uint32_t r : plan(c).ranks) {
            std::vector<RawOp> ops;
            const std::uint32_t stream = stream_of(r, c);
            for (std::uint32_t i = 0; i < count; ++i) ops.push_back({c, kind, root, stream});
            draft_.launch(r, std::move(ops));
        }
    }

    // Each rank receives, then sends on; launches of their own.
    void pipeline() {
        const std::uint32_t c = some_comm();
        const auto size = static_cast<std::uint32_t>(plan(c).ranks.size());
        const std::uint32_t start = random_.below(size), hops = 1 + random_.below(size);
        const bool back = random_.chance(400);
        for (std::uint32_t i = 0; i < hops; ++i) {
            const std::uint32_t at = back ? size - 1 - (start + i) % size : (start + i) % size;
            const std::uint32_t to = back ? (at + size - 1) % size : (at + 1) % size;
            transfer(c, at, to);
        }
    }

    void transfer(std::uint32_t c, std::uint32_t src, std::uint32_t dst) {
        if (!draft_.keeps_rails(draft_.pairs_of_transfer(plan(c), src, dst)) && !random_.chance(2)) return;
        const std::uint32_t s = plan(c).ranks[src], d = plan(c).ranks[dst];
        draft_.launch(s, {{c, OpKind::send, dst, stream_of(s, c)}});
        draft_.launch(d, {{c, OpKind::recv, src, stream_of(d, c)}});
    }

    // GPUs that each GPU needs at the same time: no more than it has ports.
    using Needs = std::map<GpuId, std::set<GpuId>>;

    bool fits(Needs& needs, const std::vector<PairIndex>& pairs) const {
        if (!draft_.keeps_rails(pairs)) return false;
        const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
        Needs more = needs;
        for (const PairIndex pair : pairs) {
            auto &x = more[pair / gpus], &y = more[pair % gpus];
            x.insert(pair % gpus);
            y.insert(pair / gpus);
            if (x.size() > draft_.ports() || y.size() > draft_.ports()) return false;
        }
        needs = std::move(more);
        return true;
    }

    // Collectives and transfers of one communicator or several: each rank's in one group, or, without collectives, one
    // after the other.
    void group() {
        const std::uint32_t comms = random_.chance(550) ? 1 : 2 + random_.below(2);
        const bool grouped = random_.chance(800);
        Needs needs;
        std::map<std::uint32_t, std::vector<RawOp>> groups;
        std::set<std::uint32_t> taken;
        for (std::uint32_t i = 0; i < comms; ++i) {
            const std::uint32_t c = some_comm();
            if (!taken.insert(c).second) continue;
            std::map<std::uint32_t, std::uint32_t> stream;
            for (const std::uint32_t r : plan(c).ranks) stream[r] = stream_of(r, c);
            const auto add = [&](std::uint32_t r, OpKind kind, std::uint32_t peer) {
                groups[r].push_back({c, kind, peer, random_.chance(100) ? some_stream(r) : stream[r]});
            };
            if (grouped && random_.chance(comms > 1 ? 500 : 150) && draft_.can_ring(c)) {
                const OpKind kind = some_collective(c);
                const std::uint32_t root = some_root(c);
                if (fits(needs, draft_.pairs_of_collective(plan(c), is_mesh(kind))))
                    for (const std::uint32_t r : plan(c).ranks) add(r, kind, root);
                if (random_.chance(600)) continue;
            }
            const auto size = static_cast<std::uint32_t>(plan(c).ranks.size());
            const std::uint32_t count = 1 + random_.below(2 * size);
            for (std::uint32_t k = 0; k < count; ++k) {
                const std::uint32_t src = random_.below(size), dst = random_.below(size);
                if (src == dst || !fits(needs, draft_.pairs_of_transfer(plan(c), src, dst))) continue;
                if (!grouped) {
                    transfer(c, src, dst);
                    continue;
                }
                add(plan(c).ranks[src], OpKind::send, dst);
                add(plan(c).ranks[dst], OpKind::recv, src);
            }
        }
        for (auto& [r, ops] : groups) draft_.launch(r, std::move(ops));
    }

    void barrier_and_destroy() {
        if (const std::uint32_t c = living_.front(); draft_.can_ring(c) && random_.chance(500))
            for (const std::uint32_t r : plan(c).ranks) draft_.launch(r, {{c, OpKind::all_reduce, 0, 0}});
        for (const std::uint32_t c : living_) draft_.destroy(c);
    }

    // Containers, compilation and data loading take minutes, on one rank longer than on the others.
    void come_late() {
        if (!random_.chance(60)) return;
        const TimeNs ns = random_.spread(kSecond, 300 * kSecond);
        auto& calls = draft_.calls(some_rank());
        calls.insert(calls.begin(), {Call::Kind::pause, 0, 0, ns, {}, 0});
    }

    // --- moves ------------------------------------------------------------------------------------

    static bool touches(const RawCall& call, std::uint32_t comm) {
        return std::any_of(call.ops.begin(), call.ops.end(), [comm](const RawOp& op) { return op.comm == comm; });
    }

    // Of a program: `later` may come before `earlier`. Members call a communicator's collectives in one order, and
    // split it in one order; nothing comes before what it uses, or after its end. All else is for the reference to say.
    bool may_pass(const RawCall& later, const RawCall& earlier) const {
        using K = Call::Kind;
        const auto parent = [this](const RawCall& c) {
            return c.kind == K::create ? s_.creations[c.creation].parent : kNone;
        };
        const auto lives_by = [&](const RawCall& c, std::uint32_t comm) {  // it uses, splits, makes or ends it
            const bool names = (c.kind == K::create || c.kind == K::destroy) && c.index == comm;
            return names || touches(c, comm) || parent(c) == comm;
        };
        for (const auto& [x, y] : {std::pair(&later, &earlier), std::pair(&earlier, &later)}) {
            if ((x->kind == K::create || x->kind == K::destroy) && x->index != kNone && lives_by(*y, x->index))
                return false;
            if (parent(*x) != kNone && lives_by(*y, parent(*x))) return false;
            if ((x->kind == K::record || x->kind == K::wait) && (y->kind == K::record || y->kind == K::wait) &&
                x->index == y->index)
                return false;
        }
        return std::none_of(later.ops.begin(), later.ops.end(), [&](const RawOp& op) {
            return !is_transfer(op.kind) && std::any_of(earlier.ops.begin(), earlier.ops.end(), [&](const RawOp& o) {
                return o.comm == op.comm && !is_transfer(o.kind);
            });
        });
    }

    // A receive posted long before its sender can send, on a stream of its own; or anything a little earlier.
    void move_something() {
        const std::uint32_t r = some_rank();
        auto& calls = draft_.calls(r);
        const auto before = calls;
        const std::uint32_t streams = s_.ranks[r].streams;
        const auto receives = [](const RawCall& c) {
            return !c.ops.empty() &&
                   std::all_of(c.ops.begin(), c.ops.end(), [](const RawOp& op) { return op.kind == OpKind::recv; });
        };
        std::vector<std::size_t> early;
        for (std::size_t i = 1; i < calls.size(); ++i)
            if (receives(calls[i])) early.push_back(i);
        const bool posts = !early.empty() && random_.chance(500);
        if (calls.size() < 2) return;
        std::size_t i = posts ? early[random_.below(early.size())] : 1 + random_.below(calls.size() - 1);
        const std::size_t from = i;
        std::size_t places = posts ? 1 + random_.below(8) : 1 + random_.below(3);
        if (posts && random_.chance(700)) {
            for (RawOp& op : calls[i].ops) op.stream = streams;
            s_.ranks[r].streams = streams + 1;
        }
        for (; places > 0 && i > 0 && may_pass(calls[i], calls[i - 1]); --places, --i)
            std::swap(calls[i - 1], calls[i]);
        draft_.resolve();
        if (ends_without_opus(s_, job_))
            return void(s_.jobs[job_].early_receives += posts && calls[i].ops.front().stream == streams && i < from);
        calls = before;
        s_.ranks[r].streams = streams;
        draft_.resolve();
    }

    Scenario& s_;
    std::uint32_t job_;
    Random random_;
    Draft draft_;
    std::vector<std::uint32_t> living_;  // communicators
    std::set<std::uint32_t> kept_;       // used again in later iterations
    std::size_t comms_ = 1, destroyed_ = 0;
    struct DrawnGraph {
        std::uint32_t comm, graph;
        std::vector<RawOp> ops;
        bool kept = false;  // launched again in later iterations
    };
    std::vector<DrawnGraph> graphs_;
    bool captures_ = false;  // it has CUDA graphs
    bool repeats_ = false;   // what is drawn is done again and again: nothing is captured there
};

}  // namespace

void write_programs(Scenario& scenario, std::uint32_t job, Random random) {
    JobPlan& plan = scenario.jobs[job];
    plan.shape == JobShape::any ? Writer(scenario, job, random).write() : write_special(scenario, job, random);
    for (const std::uint32_t r : plan.ranks)
        for (const Call& call : scenario.ranks[r].calls)
            if (call.kind == Call::Kind::pause) plan.pauses_ns += call.ns;
}

}  // namespace opus::sim
