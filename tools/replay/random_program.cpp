// A program drawn at random, such as any NCCL runs to its end on a network that is never dark. An order of operations
// is drawn for all; each rank calls its own in that order, on any stream. First uses come when they come. Then receives
// are posted earlier, where the dry run still ends. No GPU needs more than two others at a time. Communicators that no
// other is split from may be made in mid-job, and go, and be made again.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "tools/replay/dry_run.h"
#include "tools/replay/generate.h"

namespace opus::replay {
namespace {

constexpr std::size_t kPorts = 2;
constexpr std::uint32_t kStreams = 3;  // and one for receives that are posted early
constexpr StepKind kRing[] = {StepKind::all_reduce, StepKind::all_gather, StepKind::reduce_scatter, StepKind::broadcast,
                              StepKind::reduce};
constexpr StepKind kPairwise[] = {StepKind::all_to_all, StepKind::gather, StepKind::scatter};

using Item = std::vector<Step>;  // of one rank: a call, or a group
using Members = std::vector<std::uint32_t>;

class RandomProgram {
public:
    explicit RandomProgram(const GenerateOptions& o) : random_(o.seed) {
        w_.name = "random-" + std::to_string(o.seed);
        w_.source = "drawn: opus-replay generate random --seed " + std::to_string(o.seed);
        w_.iterations = o.iterations;
        for (std::uint32_t n = 0; n < o.nodes; ++n)
            for (std::uint32_t g = 0; g < o.gpus; ++g) w_.places.push_back({n, g});
        w_.streams = {"a", "b", "c", "early"};
        items_.resize(w_.world());
    }

    Workload workload() {
        draw_comms();
        const std::uint32_t count = 12 + below(20);
        for (std::uint32_t i = 0; i < count; ++i)
            if (!chance(12) || !draw_life()) draw_item();
        for (std::uint32_t c = 0; c < lives_.size(); ++c)
            if (lives_[c].there && lives_[c].goes) destroy(c);
        if (chance(10)) {
            auto& late = some_items();
            late.insert(late.begin(), {gap(StepKind::host, 500'000)});
        }
        if (chance(10)) {
            auto& busy = some_items();
            busy.insert(busy.begin() + below(busy.size() + 1), {minutes()});
        }
        write();
        const std::uint32_t moves = below(3 * w_.world());
        for (std::uint32_t i = 0; i < moves; ++i) post_early(below(w_.world()));
        return std::move(w_);
    }

private:
    // Not by std::uniform_int_distribution: its numbers are another library's on another machine.
    std::uint32_t below(std::uint64_t n) { return n == 0 ? 0 : static_cast<std::uint32_t>(random_() % n); }
    bool chance(std::uint32_t percent) { return below(100) < percent; }
    std::vector<Item>& some_items() { return items_[below(items_.size())]; }

    struct When {  // in which iterations; both as in a Step
        std::uint32_t every = 1;
        bool first_only = false;
        bool always() const { return every == 1 && !first_only; }
        bool operator==(const When&) const = default;
        void tell(Step& s) const { s.every = every, s.first_only = first_only; }
    };
    struct Life {             // of a communicator
        bool there = true;    // at this place of the order that is drawn
        bool changes = false; // it may come and go
        bool goes = false;    // in each iteration in which it came; else it stays
        bool again = false;   // it has gone before
        When made, used;      // used: in which iterations it may be
    };

    // --- communicators: the world, some of its ranks, splits of any by color, or by place ----------------

    void draw_comms() {
        Members all(w_.world());
        for (std::uint32_t r = 0; r < all.size(); ++r) all[r] = r;
        w_.comms.push_back({"world", "", {all}});
        const std::uint32_t more = 1 + below(5);
        for (std::uint32_t i = 0; i < more; ++i) {
            const Comm parent = w_.comms[below(w_.comms.size())];
            Comm comm{"c" + std::to_string(i), chance(70) ? parent.name : "", {}};
            for (const Members& group : comm.parent.empty() ? std::vector<Members>{all} : parent.groups)
                for (Members& part : parts_of(group, comm.parent.empty())) comm.groups.push_back(std::move(part));
            if (!comm.groups.empty()) w_.comms.push_back(std::move(comm));
        }
        lives_.resize(w_.comms.size());
        for (std::uint32_t c = 1; c < w_.comms.size(); ++c) {
            const bool childless = std::none_of(w_.comms.begin(), w_.comms.end(),
                                                [&](const Comm& o) { return o.parent == w_.comms[c].name; });
            if (!childless || !chance(45)) continue;
            lives_[c].changes = true;
            if (chance(70)) {
                w_.comms[c].later = true;
                lives_[c].there = false;
            } else {  // gone after the first iteration
                lives_[c].goes = true;
                lives_[c].made = lives_[c].used = {1, true};
            }
        }
    }

    // A communicator comes, or goes. False: none may.
    bool draw_life() {
        std::vector<std::uint32_t> some;
        for (std::uint32_t c = 0; c < lives_.size(); ++c)
            if (lives_[c].changes && (!lives_[c].there || lives_[c].goes)) some.push_back(c);
        if (some.empty()) return false;
        const std::uint32_t c = some[below(some.size())];
        lives_[c].there ? destroy(c) : create(c);
        return true;
    }

    void create(std::uint32_t c) {
        static constexpr When kWhen[] = {{1, false}, {1, false}, {2, false}, {1, true}};
        Life& life = lives_[c];
        if (!life.again) life.made = kWhen[below(4)];  // what has gone comes again in those iterations, and in no other
        const auto parent = std::find_if(w_.comms.begin(), w_.comms.end(),
                                         [&](const Comm& o) { return o.name == w_.comms[c].parent; });
        for (const Members& group : parent == w_.comms.end() ? w_.comms[c].groups : parent->groups)
            for (const std::uint32_t r : group) {
                Item item;
                if (parent != w_.comms.end()) item.push_back(step_of_life(StepKind::sync, kNobody, life.made));
                item.push_back(step_of_life(StepKind::create, c, life.made));
                items_[r].push_back(std::move(item));
            }
        life.there = true;
        life.goes = !life.made.first_only;  // what comes in the first iteration stays
        life.used = life.goes ? life.made : When{};
    }

    void destroy(std::uint32_t c) {
        for (const Members& group : w_.comms[c].groups)
            for (const std::uint32_t r : group) items_[r].push_back({step_of_life(StepKind::destroy, c, lives_[c].made)});
        lives_[c].there = false;
        lives_[c].again = true;
    }

    static Step step_of_life(StepKind kind, std::uint32_t comm, When when) {
        Step s;
        s.kind = kind;
        s.comm = comm;
        when.tell(s);
        return s;
    }

    std::vector<Members> parts_of(const Members& among, bool one) {
        const std::uint32_t by = below(3), colors = one ? 1 : 1 + below(3);
        std::map<std::uint32_t, Members> parts;
        for (const std::uint32_t r : among)
            if (chance(80))
                parts[one ? 0 : by == 0 ? w_.places[r].gpu : by == 1 ? w_.places[r].node : below(colors)].push_back(r);
        std::vector<Members> out;
        for (auto& [color, members] : parts)
            if (members.size() > 1) out.push_back(std::move(members));
        return out;
    }

    std::size_t nodes_of(const Members& members) const {
        std::set<std::uint32_t> nodes;
        for (const std::uint32_t r : members) nodes.insert(w_.places[r].node);
        return nodes.size();
    }

    // --- items ---------------------------------------------------------------------------------------

    struct Draft {  // of one item of all ranks
        std::map<std::uint32_t, Item> calls;
        std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<std::uint32_t>> needs;  // by node and GPU: nodes
        When when;
    };

    std::uint32_t comm_that_is_there() {
        std::uint32_t c = below(w_.comms.size());
        while (!lives_[c].there) c = below(w_.comms.size());  // the world always is
        return c;
    }

    void draw_item() {
        const std::uint32_t what = below(100);
        if (what < 15) return some_items().push_back({gap(StepKind::compute, 3'000)});
        if (what < 20) return some_items().push_back({gap(StepKind::host, 3'000)});
        if (what < 23) {
            Step sync;
            sync.kind = StepKind::sync;
            sync.stream = below(kStreams);
            return some_items().push_back({sync});
        }
        Draft draft;
        const std::uint32_t comms = what < 70 ? 1 : 1 + below(3), first = comm_that_is_there();
        draft.when = lives_[first].used;
        if (draft.when.always() && chance(15)) draft.when.every = 2 + below(2);
        if (draft.when.always() && chance(10)) draft.when.first_only = true;
        for (std::uint32_t i = 0; i < comms; ++i) {
            const std::uint32_t comm = i == 0 ? first : comm_that_is_there();
            if (!(lives_[comm].used == lives_[first].used)) continue;  // in one group with it when it is there
            const auto& groups = w_.comms[comm].groups;
            const bool collective = chance(50);
            for (const Members& members : groups)
                if (collective || what < 70) {
                    collective ? add_collective(draft, comm, members) : add_transfers(draft, comm, members, 1);
                } else {
                    add_transfers(draft, comm, members, 1 + below(2 * members.size()));
                }
        }
        finish(draft);
    }

    Step gap(StepKind kind, std::uint64_t most_us) {
        Step s;
        s.kind = kind;
        s.stream = kind == StepKind::compute ? below(kStreams) : kNobody;
        s.jitter_us = 1 + below(most_us);
        return s;
    }

    Step minutes() {  // of a host that does something else, once
        Step s = gap(StepKind::host, 1);
        s.us = 60'000'000 * std::uint64_t{1 + below(5)};
        s.first_only = true;
        return s;
    }

    Step operation(const Draft& draft, StepKind kind, std::uint32_t comm, std::uint64_t bytes) {
        Step s;
        s.kind = kind;
        s.comm = comm;
        s.stream = below(kStreams);
        s.bytes = bytes;
        draft.when.tell(s);
        return s;
    }

    std::uint64_t some_bytes() {
        static constexpr std::uint64_t kBytes[] = {0, 8, 4096, 4096, 40'000, 200'000};
        return kBytes[below(6)];
    }

    bool fits(Draft& draft, std::uint32_t gpu, std::uint32_t x, std::uint32_t y) const {
        if (x == y) return true;
        auto &a = draft.needs[{x, gpu}], &b = draft.needs[{y, gpu}];
        if ((!a.contains(y) && a.size() == kPorts) || (!b.contains(x) && b.size() == kPorts)) return false;
        a.insert(y);
        b.insert(x);
        return true;
    }

    void add_collective(Draft& draft, std::uint32_t comm, const Members& members) {
        Draft with = draft;
        std::vector<std::uint32_t> order;  // of nodes
        for (const std::uint32_t r : members)
            if (std::find(order.begin(), order.end(), w_.places[r].node) == order.end())
                order.push_back(w_.places[r].node);
        for (const std::uint32_t r : members)
            for (std::size_t i = 0; i < order.size(); ++i)
                if (!fits(with, w_.places[r].gpu, order[i], order[(i + 1) % order.size()])) return;
        const bool pairwise = order.size() <= kPorts + 1 && keeps_rails(members) && chance(30);
        const StepKind kind = pairwise ? kPairwise[below(3)] : kRing[below(5)];
        Step step = operation(draft, kind, comm, some_bytes());
        step.dtype = static_cast<DType>(below(10));
        if (is_rooted(kind)) step.peer = below(members.size());
        if (is_reduction(kind)) step.reduction = static_cast<Reduction>(below(4));
        draft.needs = std::move(with.needs);
        for (const std::uint32_t r : members) {
            step.stream = below(kStreams);
            draft.calls[r].push_back(step);
        }
    }

    // The destination's rail has a rank of the communicator on the sender's node, which NCCL sends through: no switch joins two.
    bool keeps_rail(const Members& members, const Place& from, const Place& to) const {
        return from.node == to.node || std::any_of(members.begin(), members.end(), [&](std::uint32_t r) {
                   return w_.places[r].node == from.node && w_.places[r].gpu == to.gpu;
               });
    }

    bool keeps_rails(const Members& members) const {
        return std::all_of(members.begin(), members.end(), [&](std::uint32_t from) {
            return std::all_of(members.begin(), members.end(), [&](std::uint32_t to) {
                return keeps_rail(members, w_.places[from], w_.places[to]);
            });
        });
    }

    void add_transfers(Draft& draft, std::uint32_t comm, const Members& members, std::uint32_t count) {
        const auto size = static_cast<std::uint32_t>(members.size());
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t src = below(size), dst = (src + 1 + below(size - 1)) % size;
            const Place &from = w_.places[members[src]], &to = w_.places[members[dst]];
            if (!keeps_rail(members, from, to) || !fits(draft, to.gpu, from.node, to.node)) continue;
            Step send = operation(draft, StepKind::send, comm, some_bytes());
            Step recv = operation(draft, StepKind::recv, comm, send.bytes);
            send.peer = dst;
            recv.peer = src;
            draft.calls[members[src]].push_back(send);
            draft.calls[members[dst]].push_back(recv);
        }
    }

    void finish(const Draft& draft) {
        for (const auto& [rank, steps] : draft.calls) {
            Item item = steps;
            if (steps.size() > 1) {
                Step bracket;
                bracket.kind = StepKind::group_begin;
                draft.when.tell(bracket);
                item.insert(item.begin(), bracket);
                bracket.kind = StepKind::group_end;
                item.push_back(bracket);
            }
            items_[rank].push_back(std::move(item));
        }
    }

    // --- receives posted early -------------------------------------------------------------------------

    void write() {
        w_.roles.clear();
        for (std::uint32_t r = 0; r < items_.size(); ++r) {
            w_.roles.push_back({"r" + std::to_string(r), {r}, {}});
            for (const Item& item : items_[r])
                w_.roles.back().steps.insert(w_.roles.back().steps.end(), item.begin(), item.end());
            if (w_.roles.back().steps.empty()) w_.roles.back().steps.push_back(gap(StepKind::host, 1));
        }
    }

    // What a receive is not posted before: calls of its communicator, and lives, since nothing may be under way on a parent.
    static bool keeps_back(const Item& item, std::uint32_t comm) {
        return std::any_of(item.begin(), item.end(), [comm](const Step& s) {
            return s.comm == comm || s.kind == StepKind::create || s.kind == StepKind::destroy;
        });
    }

    // NCCL connects on the host at a first use: one that is posted early would stop any program.
    bool is_connected(std::uint32_t rank, std::size_t at) const {
        const Step& recv = items_[rank][at].front();
        if (lives_[recv.comm].changes) return false;
        for (std::size_t i = 0; i < at; ++i)
            for (const Step& s : items_[rank][i])
                if (s.kind == StepKind::recv && s.comm == recv.comm && s.peer == recv.peer && s.every == 1) return true;
        return false;
    }

    void post_early(std::uint32_t rank) {
        auto& items = items_[rank];
        std::size_t at = below(items.size()), places = 1 + below(8);
        if (items.empty() || items[at].size() != 1 || items[at].front().kind != StepKind::recv || !is_connected(rank, at))
            return;
        const auto before = items;
        items[at].front().stream = kStreams;
        for (; at > 0 && places > 0 && !keeps_back(items[at - 1], items[at].front().comm); --at, --places)
            std::swap(items[at - 1], items[at]);
        write();
        if (dry_run(w_, {}).ended) return;
        items = before;
        write();
    }

    std::mt19937_64 random_;
    Workload w_;
    std::vector<Life> lives_;               // by communicator
    std::vector<std::vector<Item>> items_;  // by rank
};

}  // namespace

Workload generate_random(const GenerateOptions& options) { return RandomProgram(options).workload(); }

}  // namespace opus::replay
