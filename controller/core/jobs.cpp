// Jobs: which ranks are of one.
#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {

void Core::Impl::join_job(NodeIndex node, Rank& rank) {
    if (options.observe) return;
    rank.job = &jobs[rank.info.job];
    rank.job->ranks.insert({node, rank.info.rank});
}

void Core::Impl::leave_job(NodeIndex node, const Rank& rank) {
    if (rank.job == nullptr) return;
    Job& job = *rank.job;
    const RankName who{node, rank.info.rank};
    job.ranks.erase(who);
    job.log.drop(who);
    if (!job.ranks.empty()) return;
    drop_course(job);
    jobs_due.erase(&job);
    for (PortUser& user : users)
        if (user.job == &job) user.job = nullptr;
    std::erase_if(jobs, [&job](const auto& entry) { return &entry.second == &job; });
}

// Those without end stay: they are no guess.
void Core::Impl::end_job_runs(const Job& job, const std::string& why) {
    for (const RankName& who : job.ranks)
        if (const Rank* rank = rank_of(who.first, who.second))
            for (const auto& [id, membership] : rank->comms)
                for (const std::uint64_t grant : std::vector<std::uint64_t>(membership.comm->runs))
                    if (Run& run = runs.at(grant); !run.endless) revoke(run, why);
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
        if (!impl_->options.provision) s.state = "on demand: the controller provisions nothing";
        else if (job.kind == nullptr) s.state = "on demand: it has done nothing twice yet";
        else if (!s.planned && impl_->may_plan(job)) s.state = impl_->why_no_plan(*job.kind);
        else s.state = s.guarded ? job.kind->guard.text() : "provisioned, whatever it costs";
        if (job.kind == nullptr) continue;
        s.lap_phases = job.kind->lap.uses.size();
        s.plans = job.kind->plans;
        s.laps = job.kind->guard.laps();
        s.fallbacks = job.kind->guard.fallbacks();
        s.lap_ns = job.kind->yardstick_ns();
        s.ratio = job.kind->guard.ratio();
    }
    return all;
}

}  // namespace opus::controller
