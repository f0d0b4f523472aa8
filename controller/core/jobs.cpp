// Jobs: which ranks are of one, what their launches have done, and what is learned of it (controller/plan/learner.h).
#include <algorithm>
#include <limits>
#include <ranges>

#include "controller/core/impl.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

constexpr TimeNs kClockSet = 10'000'000'000;
constexpr double kMostBytesNs = 1e15;  // of what a launch may say that it moves

}  // namespace

// A job's plans, and who follows them.
struct Core::Impl::PlanFollower final : plan::Follower {
    PlanFollower(Impl& impl, Job& job) : impl_(impl), job_(job) {}

    std::vector<plan::Pair> pairs_of(const plan::SeenKey& key) const override { return impl_.pairs_of(key); }
    TimeNs longest_dark(const plan::Order& order) const override {
        TimeNs dark = 0;
        for (const auto& pairs : order.ports)
            for (const auto& [p, q] : pairs) dark = std::max(dark, impl_.fabric.switch_of(p).dark_ns);
        return dark;
    }
    bool leaves_out_communicators(const plan::Lap& lap) const override { return impl_.leaves_out_communicators(lap); }
    const plan::Course* course() const override { return job_.course.get(); }
    void follow(plan::Lap lap, const plan::Order& order) override { impl_.follow(job_, std::move(lap), order); }
    void drop() override { impl_.drop_course(job_); }
    void end_runs(const std::string& why, bool endless) override { impl_.end_job_runs(job_, why, endless); }
    std::shared_ptr<const plan::Task> think(plan::Task task) override {
        task.usable.resize(impl_.fabric.ports.size());
        for (PortId p = 0; p < task.usable.size(); ++p) task.usable[p] = !impl_.inventory.port(p).fenced();
        job_.thought = impl_.next_thought++;
        const auto shared = std::make_shared<const plan::Task>(std::move(task));
        impl_.out->push_back(Think{job_.thought, shared});
        return shared;
    }
    void look_soon() override { impl_.jobs_due.insert(&job_); }
    void log(bool warn, const std::string& text) override { impl_.log(warn ? LogLevel::warn : LogLevel::info, text); }

private:
    Impl& impl_;
    Job& job_;
};

void Core::Impl::join_job(NodeIndex node, Rank& rank) {
    if (options.observe) return;
    const auto [at, is_new] = jobs.try_emplace(rank.info.job);
    Job& job = at->second;
    if (is_new) {
        job.name = at->first;
        job.follower = std::make_unique<PlanFollower>(*this, job);
        job.learner = std::make_unique<plan::Learner>(plan::Learner::Options{options.provision, options.guard}, *job.follower);
    }
    rank.job = &job;
    job.ranks.insert({node, rank.info.rank});
}

void Core::Impl::leave_job(NodeIndex node, const Rank& rank) {
    if (rank.job == nullptr) return;
    Job& job = *rank.job;
    const RankName who{node, rank.info.rank};
    job.ranks.erase(who);
    job.learner->rank_left(who);
    if (!job.ranks.empty()) return;
    drop_course(job);
    jobs_due.erase(&job);
    for (PortUser& user : users)
        if (user.job == &job) user.job = nullptr;
    std::erase_if(jobs, [&job](const auto& entry) { return &entry.second == &job; });
}

// Those without end are no guess: they stay unless they are meant, too.
void Core::Impl::end_job_runs(const Job& job, const std::string& why, bool endless) {
    for (const RankName& who : job.ranks)
        if (const Rank* rank = rank_of(who.first, who.second))
            for (const auto& [id, membership] : rank->comms)
                for (const std::uint64_t grant : std::vector<std::uint64_t>(membership.comm->runs))
                    if (Run& run = must_find(runs, grant); endless || !run.endless) revoke(run, why);
}

std::vector<plan::SeenKey> Core::Impl::keys_of(const Launch& launch) {
    std::vector<plan::SeenKey> keys;
    for (const KeyRef& r : launch.keys) keys.push_back({r.key->key, r.key->mesh});
    return keys;
}

std::vector<plan::Pair> Core::Impl::pairs_of(const plan::SeenKey& seen) {
    std::vector<plan::Pair> pairs;
    Comm* comm = comms.find(seen.key.comm);
    if (comm == nullptr) return pairs;
    KeyState state;
    state.key = seen.key;
    state.comm = comm;
    state.mesh = seen.mesh;
    const auto [begin, end] = edges_of(state);
    for (const EdgeId* e = begin; e != end; ++e) pairs.emplace_back(inventory.edge(*e).a, inventory.edge(*e).b);
    return pairs;
}

bool Core::Impl::leaves_out_communicators(const plan::Lap& lap) {
    std::set<CommId> used, split;
    std::map<CommId, Comm*> all;
    for (const auto& [sequence, s] : lap.sequences) used.insert(sequence.comm);
    for (const auto& [name, does] : lap.ranks)
        if (const Rank* rank = rank_of(name.first, name.second))
            for (const auto& [id, membership] : rank->comms) all.emplace(id, membership.comm);
    for (const auto& [id, comm] : all) split.insert(comm->parent);
    return std::ranges::any_of(all | std::views::values, [&](Comm* comm) {
        return comm->verdict == Verdict::enforced && !used.contains(comm->id) && !split.contains(comm->id) &&
               !collective_edges(*comm, false, fabric, inventory).empty();
    });
}

std::uint32_t Core::Impl::fewest_circuits(const std::vector<EdgeId>& edges) const {
    std::size_t fewest = edges.empty() ? 0 : std::numeric_limits<std::uint32_t>::max();
    for (const EdgeId e : edges) fewest = std::min(fewest, inventory.edge(e).up.size());
    return static_cast<std::uint32_t>(fewest);
}

// What a pair's bytes of it take over one circuit; 0: not known.
TimeNs Core::Impl::bytes_ns(const Rank& rank, NodeIndex node, const std::vector<plan::SeenKey>& keys,
                            std::uint64_t bytes) const {
    const auto& gpus = fabric.nodes[node].gpus;
    if (rank.info.gpu >= gpus.size()) return 0;
    std::size_t members = 0;
    if (const auto mesh = std::ranges::find_if(keys, [](const plan::SeenKey& k) { return k.mesh; }); mesh != keys.end())
        if (const auto member = rank.comms.find(mesh->key.comm); member != rank.comms.end())
            members = member->second.comm->size;
    const double ns = planner.bytes_ns(gpus[rank.info.gpu], Planner::pair_bytes(bytes, members));
    return static_cast<TimeNs>(std::min(ns, kMostBytesNs));
}

// `seen`: without its times, and what its bytes take.
void Core::Impl::note_seen(NodeIndex node, const wire::LaunchDone& done, plan::Seen seen, std::uint64_t bytes) {
    if (done.ungated || seen.keys.empty() || done.ready_ns <= 0 || done.go_ns < done.ready_ns || done.done_ns < done.go_ns)
        return;
    const RankName name{node, done.launch.rank};
    const Rank* rank = rank_of(name.first, name.second);
    if (rank == nullptr || rank->job == nullptr) return;
    // By this controller's clock: a word takes at least as long as the quickest has.
    NodeState& n = nodes[node];
    const TimeNs late = now - done.done_ns;
    if (n.behind_ns > late || late - n.behind_ns > kClockSet) n.behind_ns = late;  // a clock may be set
    const TimeNs behind = n.behind_ns;
    Job& job = *rank->job;
    for (const plan::SeenKey& k : seen.keys)
        if (job.course != nullptr) begin_use(job, k.key);  // in a run it was not asked for
    seen.seq = done.launch.seq;
    seen.ready_ns = done.ready_ns + behind;
    seen.go_ns = done.go_ns + behind;
    seen.done_ns = done.done_ns + behind;
    seen.bytes_ns = bytes_ns(*rank, node, seen.keys, bytes);
    job.learner->ended(name, std::move(seen));
}

void Core::Impl::check_fit(const Launch& launch) {
    const Rank* rank = rank_of(launch.id.node, launch.id.rank);
    if (rank == nullptr || rank->job == nullptr || rank->job->learner->kind() == nullptr || launch.keys.empty()) return;
    rank->job->learner->asked({launch.id.node, launch.id.rank}, launch.id.seq, plan::signature_of(launch.op, keys_of(launch)));
}

void Core::Impl::handle(const Thought& e) {
    for (auto& [name, job] : jobs)
        if (job.thought == e.id) return job.learner->found(e.order);
}

std::vector<JobStatus> Core::jobs() const {
    std::vector<JobStatus> all;
    for (const auto& [name, job] : impl_->jobs) {
        JobStatus& s = all.emplace_back();
        s.job = name;
        s.ranks = static_cast<std::uint32_t>(job.ranks.size());
        s.guarded = impl_->options.provision && impl_->options.guard;
        s.planned = job.course != nullptr;
        s.runs = s.planned && impl_->options.runs;
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

}  // namespace opus::controller
