// Jobs: which ranks are of one, whether it is provisioned, and which rank's laps say so (guard.h).
#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {

// Also of one that is told again: its manager may have a new session, and know nothing of what was said before.
void Core::Impl::join_job(NodeIndex node, Rank& rank) {
    if ((!options.guard && !options.plan) || options.observe) return;
    const auto [at, fresh] = jobs.try_emplace(rank.info.job);
    Job& job = at->second;
    if (fresh) job.guard = Guard(options.provision, options.runs && !options.plan);
    rank.job = &job;
    job.ranks.insert({node, rank.info.rank});
    pacers_due |= options.guard && !options.plan && (fresh || !job.guarded());
    tell_provision(job, {node, rank.info.rank});
}

void Core::Impl::leave_job(NodeIndex node, const Rank& rank) {
    if (rank.job == nullptr) return;
    Job& job = *rank.job;
    const RankName who{node, rank.info.rank};
    job.ranks.erase(who);
    job.log.drop(who);
    if (job.pacer == who) {
        job.pacer = {kNone, kNone};
        pacers_due = !options.plan;
    }
    if (!job.ranks.empty()) return;
    drop_course(job);
    jobs_due.erase(&job);
    for (PortUser& user : users)
        if (user.job == &job) user.job = nullptr;
    std::erase_if(jobs, [&job](const auto& entry) { return &entry.second == &job; });
}

// The first whose manager can do it and is heard; it stays the one as long as that holds.
void Core::Impl::choose_pacers() {
    pacers_due = false;
    if (options.plan) return;  // the controller times it itself
    for (auto& [name, job] : jobs) choose_pacer(name, job);
}

void Core::Impl::choose_pacer(const std::string& name, Job& job) {
    const auto can = [this](const RankName& who) {
        const NodeState& node = nodes[who.first];
        const auto rank = node.ranks.find(who.second);
        return node.up() && rank != node.ranks.end() && rank->second.info.paces;
    };
    if (job.guarded() && can(job.pacer)) return;
    const RankName before = job.pacer;
    const auto found = std::find_if(job.ranks.begin(), job.ranks.end(), can);
    job.pacer = found != job.ranks.end() ? *found : RankName{kNone, kNone};
    if (job.pacer == before) return;
    job.guard.start_over();
    rule_changed(name, job);  // also where the rule is the same: all are told, and with it who is timed
}

// What a job that is not guarded does is what the options say: its managers know of no other rule.
Guard::Rule Core::Impl::rule_of(const Job* job) const {
    return job != nullptr && job->guarded() ? job->guard.rule() : Guard::Rule{options.provision, options.runs};
}

Guard::Rule Core::Impl::rule_of(const RankName& who) const {
    const auto& ranks = nodes[who.first].ranks;
    const auto rank = ranks.find(who.second);
    return rule_of(rank != ranks.end() ? rank->second.job : nullptr);
}

void Core::Impl::tell_provision(const Job& job, const RankName& who) {
    const auto rank = nodes[who.first].ranks.find(who.second);
    if (rank == nodes[who.first].ranks.end()) return;
    const Guard::Rule rule = rule_of(&job);
    nodes[who.first].provisions.push_back({who.second, job.number, rule.provision, rule.runs && !options.plan, who == job.pacer,
                                             job.guard.stage() == Guard::Stage::measuring, options.plan});
    owed.insert(who.first);
}

void Core::Impl::rule_changed(const std::string& name, Job& job) {
    ++job.number;
    for (const RankName& who : job.ranks) tell_provision(job, who);
    if (!job.guarded()) return;
    log(job.guard.stage() == Guard::Stage::away ? LogLevel::warn : LogLevel::info, "job " + name + ": " + job.guard.text());
    if (!job.guard.rule().runs) end_job_runs(job, "its job goes on on demand");
}

// Those without end stay: they are no guess.
void Core::Impl::end_job_runs(const Job& job, const std::string& why) {
    for (const RankName& who : job.ranks)
        if (const Rank* rank = rank_of(who.first, who.second))
            for (const auto& [id, membership] : rank->comms)
                for (const std::uint64_t grant : std::vector<std::uint64_t>(membership.comm->runs))
                    if (Run& run = runs.at(grant); !run.endless) revoke(run, why);
}

void Core::Impl::hear(NodeIndex node, const wire::Pace& m) {
    for (const wire::RankPace& p : m.ranks) {
        const Rank* rank = rank_of(node, p.rank);
        if (rank == nullptr || rank->job == nullptr) continue;
        Job& job = *rank->job;
        if (job.pacer != RankName{node, p.rank} || p.number != job.number || !job.guard.hear(p)) continue;
        rule_changed(rank->info.job, job);
    }
}

std::vector<JobStatus> Core::jobs() const {
    std::vector<JobStatus> all;
    for (const auto& [name, job] : impl_->jobs) {
        JobStatus& s = all.emplace_back();
        const Guard::Rule rule = impl_->rule_of(&job);
        s.job = name;
        s.ranks = static_cast<std::uint32_t>(job.ranks.size());
        s.guarded = job.guarded();
        s.provision = rule.provision;
        s.runs = rule.runs;
        s.state = job.guarded() ? job.guard.text() : "not timed: its managers cannot";
        const Guard* guard = &job.guard;
        if (impl_->options.plan && impl_->options.guard) {
            s.guarded = true;
            guard = job.kind != nullptr ? &job.kind->guard : nullptr;
            s.provision = job.course != nullptr;
            s.state = guard == nullptr ? "on demand: it has done nothing twice yet"
                      : job.course == nullptr && impl_->may_plan(job) ? impl_->why_no_plan(*job.kind)
                                                                      : guard->text();
        }
        if (job.kind != nullptr) {
            s.lap_phases = job.kind->lap.uses.size();
            s.plans = job.kind->plans;
            s.planned = job.course != nullptr;
        }
        if (guard == nullptr) continue;
        s.laps = guard->laps();
        s.fallbacks = guard->fallbacks();
        s.lap_ns = guard->lap_ns();
        s.ratio = guard->ratio();
    }
    return all;
}

}  // namespace opus::controller
