// Jobs: which ranks are of one, what their launches have done, and what is learned of it (controller/plan/learner.h).
#include <algorithm>

#include "controller/core/gangs/launches.h"
#include "controller/core/leases/runs.h"
#include "controller/core/provision/jobs.h"
#include "controller/core/provision/turns.h"

namespace opus::controller {
namespace {

constexpr TimeNs kClockSet = 10'000'000'000;
constexpr double kMostBytesNs = 1e15;  // of what a launch may say that it moves

}  // namespace

// A job's plans, and who follows them.
class Jobs::PlanFollower final : public plan::Follower {
public:
    PlanFollower(Jobs& jobs, Job& job) : jobs_(jobs), job_(job) {}

    std::vector<plan::Pair> pairs_of(const plan::SeenKey& key) const override { return jobs_.pairs_of(key); }
    TimeNs longest_dark(const plan::Order& order) const override {
        TimeNs dark = 0;
        for (const auto& pairs : order.ports)
            for (const auto& [p, q] : pairs) dark = std::max(dark, jobs_.fabric_.switch_of(p).dark_ns);
        return dark;
    }
    TimeNs unmoved_ns(const plan::Lap& lap) const override { return jobs_.unmoved_ns(lap); }
    const plan::Course* course() const override { return job_.course.get(); }
    void follow(plan::Lap lap, const plan::Order& order) override { jobs_.turns_.follow(job_, std::move(lap), order); }
    void drop() override { jobs_.turns_.drop_course(job_); }
    void end_runs(const std::string& why, bool endless) override { jobs_.end_runs(job_, why, endless); }
    std::shared_ptr<const plan::Task> think(plan::Task task) override { return jobs_.think(job_, std::move(task)); }
    void look_soon() override { jobs_.look_soon(job_); }
    void log(bool warn, const std::string& text) override { jobs_.log(warn ? LogLevel::warn : LogLevel::info, text); }

private:
    Jobs& jobs_;
    Job& job_;
};

void Jobs::join(NodeIndex node, Rank& rank) {
    if (options_.observe) return;
    const auto [at, is_new] = jobs_.try_emplace(rank.info.job);
    Job& job = at->second;
    if (is_new) {
        job.name = at->first;
        job.follower = std::make_unique<PlanFollower>(*this, job);
        job.learner =
            std::make_unique<plan::Learner>(plan::Learner::Options{options_.provision, options_.guard}, *job.follower);
    }
    rank.job = &job;
    job.ranks.insert({node, rank.info.rank});
}

void Jobs::leave(NodeIndex node, const Rank& rank) {
    if (rank.job == nullptr) return;
    Job& job = *rank.job;
    const RankName who{node, rank.info.rank};
    job.ranks.erase(who);
    job.learner->rank_left(who);
    if (!job.ranks.empty()) return;
    turns_.drop_course(job);
    due_.erase(&job);
    turns_.forget(job);
    std::erase_if(jobs_, [&job](const auto& entry) { return &entry.second == &job; });
}

// Those without end are no guess: they stay unless they are meant, too.
void Jobs::end_runs(const Job& job, const std::string& why, bool endless) {
    for (const RankName& who : job.ranks)
        if (const Rank* rank = rank_of(who.first, who.second))
            for (const auto& [id, membership] : rank->comms) runs_.revoke_of(*membership.comm, why, endless);
}

std::vector<plan::SeenKey> Jobs::keys_of(const Launch& launch) {
    std::vector<plan::SeenKey> keys;
    for (const KeyRef& r : launch.keys) keys.push_back({r.key->key, r.key->mesh});
    return keys;
}

std::vector<plan::Pair> Jobs::pairs_of(const plan::SeenKey& seen) {
    std::vector<plan::Pair> pairs;
    Comm* comm = comms_.find(seen.key.comm);
    if (comm == nullptr) return pairs;
    KeyState state = stand_in(*comm, seen.key, seen.mesh);
    const auto [begin, end] = launches_.pairs_of(state);
    for (const PairId* e = begin; e != end; ++e) pairs.emplace_back(inventory_.pair(*e).a, inventory_.pair(*e).b);
    return pairs;
}

TimeNs Jobs::unmoved_ns(const plan::Lap& lap) const {
    TimeNs moved = 0;
    for (const plan::Use& use : lap.uses)
        for (const auto& [a, b] : use.pairs) {
            const std::vector<Circuit>& up = inventory_.pair(inventory_.pair_between(a, b)).up;
            if (up.empty()) return 0;
            for (const Circuit& c : up)
                for (const PortId p : {c.a, c.b}) moved = std::max(moved, inventory_.port(p).since_ns);
        }
    return now_ - moved;
}

// What a pair's bytes of it take over one circuit; 0: not known.
TimeNs Jobs::bytes_ns(const Rank& rank, NodeIndex node, const std::vector<plan::SeenKey>& keys, std::uint64_t bytes) const {
    const auto& gpus = fabric_.nodes[node].gpus;
    if (rank.info.gpu >= gpus.size()) return 0;
    std::size_t members = 0;
    if (const auto mesh = std::ranges::find_if(keys, [](const plan::SeenKey& k) { return k.mesh; }); mesh != keys.end())
        if (const auto member = rank.comms.find(mesh->key.comm); member != rank.comms.end())
            members = member->second.comm->size;
    const double ns = planner_.bytes_ns(gpus[rank.info.gpu], Planner::pair_bytes(bytes, members));
    return static_cast<TimeNs>(std::min(ns, kMostBytesNs));
}

// `seen`: without its times, and what its bytes take.
void Jobs::note_seen(NodeIndex node, const wire::LaunchDone& done, plan::Seen seen, std::uint64_t bytes) {
    if (done.ungated || seen.keys.empty() || done.ready_ns <= 0 || done.go_ns < done.ready_ns || done.done_ns < done.go_ns)
        return;
    const RankName name{node, done.launch.rank};
    const Rank* rank = rank_of(name.first, name.second);
    if (rank == nullptr || rank->job == nullptr) return;
    // By this controller's clock: a word takes at least as long as the quickest has.
    NodeState& n = nodes_[node];
    const TimeNs late = now_ - done.done_ns;
    if (n.behind_ns > late || late - n.behind_ns > kClockSet) n.behind_ns = late;  // a clock may be set
    const TimeNs behind = n.behind_ns;
    Job& job = *rank->job;
    for (const plan::SeenKey& k : seen.keys)
        if (job.course != nullptr) turns_.begin_use(job, k.key);  // in a run it was not asked for
    seen.seq = done.launch.seq;
    seen.ready_ns = done.ready_ns + behind;
    seen.go_ns = done.go_ns + behind;
    seen.done_ns = done.done_ns + behind;
    seen.bytes_ns = bytes_ns(*rank, node, seen.keys, bytes);
    job.learner->ended(name, std::move(seen));
}

void Jobs::check_fit(const Launch& launch) {
    const Rank* rank = rank_of(launch.id.node, launch.id.rank);
    if (rank == nullptr || rank->job == nullptr || launch.keys.empty()) return;
    rank->job->learner->asked({launch.id.node, launch.id.rank}, launch.id.seq,
                              plan::signature_of(launch.op, keys_of(launch)));
}

void Jobs::handle(const Thought& e) {
    for (auto& [name, job] : jobs_)
        if (job.thought == e.id) return job.learner->found(e.order);
}

void Jobs::look() {
    for (Job* job : std::exchange(due_, {})) job->learner->look();
}

void Jobs::port_changed(PortId p) {
    const Gpu& gpu = fabric_.gpus[fabric_.ports[p].gpu];
    for (auto& [name, job] : jobs_)
        if (std::ranges::any_of(job.ranks, [&](const RankName& who) {
                const Rank* rank = who.first == gpu.node ? rank_of(who.first, who.second) : nullptr;
                return rank != nullptr && rank->info.gpu == gpu.local;
            }))
            job.learner->ports_changed();
}

std::shared_ptr<const plan::Task> Jobs::think(Job& job, plan::Task task) {
    task.usable.resize(fabric_.ports.size());
    for (PortId p = 0; p < task.usable.size(); ++p) task.usable[p] = inventory_.port(p).fenced_by == FencedBy::nobody;
    job.thought = next_thought_++;
    const auto shared = std::make_shared<const plan::Task>(std::move(task));
    act(Think{job.thought, shared});
    return shared;
}

std::vector<JobStatus> Jobs::status() const {
    std::vector<JobStatus> all;
    for (const auto& [name, job] : jobs_) {
        JobStatus& s = all.emplace_back();
        s.job = name;
        s.ranks = static_cast<std::uint32_t>(job.ranks.size());
        s.guarded = options_.provision && options_.guard;
        s.planned = job.course != nullptr;
        if (s.planned) s.planned_ports = job.course->ports().size();
        s.runs = s.planned && options_.runs;
        s.state = job.learner->state();
        s.fallbacks = job.learner->guard().stops();
        s.ratio = job.learner->guard().ratio();
        const plan::Kind* kind = job.learner->kind();
        if (kind == nullptr) continue;
        s.lap_phases = kind->lap.uses.size();
        s.plans = kind->plans;
        s.lap_ns = kind->yardstick_ns();
    }
    return all;
}

std::vector<PortPlan> Jobs::plan(const std::string& job, std::size_t most_turns) const {
    std::vector<PortPlan> all;
    const auto at = jobs_.find(job);
    if (at == jobs_.end() || at->second.course == nullptr) return all;
    const plan::Course& course = *at->second.course;
    std::size_t turns = 0;
    for (const PortId p : course.ports()) {
        if (turns >= most_turns) break;
        all.push_back({p, course.plan_of(p, fabric_.switch_of(p).dark_ns), course.next_turn(p)});
        turns += all.back().turns.size();
    }
    return all;
}

}  // namespace opus::controller
