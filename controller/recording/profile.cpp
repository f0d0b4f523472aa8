#include "controller/recording/profile.h"

#include <algorithm>

#include "controller/recording/op_name.h"

namespace opus::controller {
namespace {

using nlohmann::json;

constexpr TimeNs kMs = 1'000'000;
constexpr std::size_t kRecent = 1024;  // change sets that a gang may still have waited for

double ms(TimeNs ns) { return static_cast<double>(ns) / 1e6; }
TimeNs start_of(const RecordedLaunch& l) { return l.ready_ns != 0 ? l.ready_ns : l.go_ns; }
bool later(const RecordedLaunch& x, const RecordedLaunch& y) { return start_of(x) > start_of(y); }
bool is_transfer(OpKind op) { return op == OpKind::send || op == OpKind::recv; }

}  // namespace

Profile::Job* Profile::job(const std::string& name) {
    std::size_t alive = 0;
    for (auto at = jobs_.rbegin(); at != jobs_.rend(); ++at) {
        if (at->name == name && !at->ended) return &*at;
        alive += !at->ended;
    }
    if (alive >= kMaxJobsAlive) return nullptr;
    jobs_.emplace_back().name = name;
    return &jobs_.back();
}

void Profile::rank(std::uint64_t rank, const std::string& name) {
    const auto at = ranks_.find(rank);
    if (at != ranks_.end() && at->second.job->name == name) return;
    if (at == ranks_.end() && ranks_.size() >= kMaxRanks) return;
    Job* of = job(name);
    if (of == nullptr) return;
    Rank& r = ranks_[rank];
    if (r.job != nullptr) take_kept(r, 0);
    r = {};
    r.job = of;
    ++of->ranks;
}

void Profile::group(const CommId& group, std::uint32_t size) {
    if (groups_.size() >= kMaxGroups) groups_.clear();  // sizes of new ones matter more
    groups_[group] = size;
}

Profile::Kind* Profile::kind(Job& job, const RecordedLaunch& launch) {
    const auto size = groups_.find(launch.group);
    const auto key = std::pair(launch.op, size == groups_.end() ? 0 : size->second);
    const auto at = job.kinds.find(key);
    if (at != job.kinds.end()) return at->second.get();
    if (job.kinds.size() >= kMaxKinds) return nullptr;
    return (job.kinds[key] = std::make_unique<Kind>()).get();
}

void Profile::launch(const RecordedLaunch& l) {
    const auto at = ranks_.find(l.rank);
    if (at == ranks_.end()) return;
    Rank& rank = at->second;
    rank.kept.push_back(l);
    std::push_heap(rank.kept.begin(), rank.kept.end(), later);
    take_kept(rank, kKeptBack);
}

void Profile::take_kept(Rank& rank, std::size_t leave) {
    while (rank.kept.size() > leave) {
        std::pop_heap(rank.kept.begin(), rank.kept.end(), later);
        const RecordedLaunch launch = rank.kept.back();
        rank.kept.pop_back();
        take(rank, launch);
    }
}

void Profile::take(Rank& r, const RecordedLaunch& l) {
    Job& job = *r.job;
    const TimeNs start = start_of(l);
    if (job.launches++ == 0 || (start != 0 && start < job.begin_ns)) job.begin_ns = start;
    job.end_ns = std::max(job.end_ns, l.done_ns);
    if (l.held && l.go_ns > l.ready_ns && l.ready_ns != 0) {
        ++job.held;
        job.held_ns += l.go_ns - l.ready_ns;
    }
    if (start != 0 && (!r.began || r.phase != l.group || r.transfers != is_transfer(l.op))) {
        r.kind = kind(job, l);
        if (r.kind != nullptr && r.began) {
            const TimeNs window = std::max<TimeNs>(start - r.busy_until_ns, 0);
            ++r.kind->phases;
            r.kind->windows.add(window);
            r.kind->window_ns += window;
            r.kind->longest_ns = std::max(r.kind->longest_ns, window);
            r.kind->over_1ms += window > kMs;
        }
        r.phase = l.group;
        r.transfers = is_transfer(l.op);
        r.began = true;
    }
    if (r.kind != nullptr) {
        ++r.kind->launches;
        r.kind->bytes += l.bytes;
    }
    r.busy_until_ns = std::max(r.busy_until_ns, l.done_ns);
}

void Profile::change_set(TimeNs sent_ns, TimeNs settled_ns, std::uint32_t circuits) {
    if (sent_ns == 0 || settled_ns <= sent_ns) return;
    ++change_sets_;
    circuits_ += circuits;
    dark_ns_ += settled_ns - sent_ns;
    recent_.push_back({sent_ns, settled_ns, sent_ns});
    if (recent_.size() > kRecent) recent_.pop_front();
}

// Gangs come in the order of their grants, so what is waited through of a change set grows from its beginning.
void Profile::gang(std::uint64_t rank, TimeNs granted_ns, TimeNs dark_ns) {
    ++gangs_;
    const auto at = ranks_.find(rank);
    Job* job = at == ranks_.end() ? nullptr : at->second.job;
    if (job != nullptr) ++job->gangs;
    if (dark_ns <= 0) return;
    ++gangs_in_the_dark_;
    if (job != nullptr) {
        ++job->gangs_in_the_dark;
        job->waited_ns += dark_ns;
    }
    const TimeNs since = granted_ns - dark_ns;
    for (auto c = recent_.rbegin(); c != recent_.rend() && c->end_ns > since; ++c) {
        const TimeNs from = std::max(since, c->waited_to_ns), to = std::min(granted_ns, c->end_ns);
        if (to <= from) continue;
        exposed_ns_ += to - from;
        c->waited_to_ns = to;
    }
}

void Profile::job_ended(const std::string& name) {
    for (auto& [id, rank] : ranks_)
        if (rank.job->name == name) take_kept(rank, 0);
    std::erase_if(ranks_, [&name](const auto& entry) { return entry.second.job->name == name; });
    for (Job& job : jobs_)
        if (job.name == name) job.ended = true;
    while (jobs_.size() > kMaxJobs && jobs_.front().ended) jobs_.pop_front();
}

json Profile::job_json(const Job& job) {
    json phases = json::array();
    std::uint64_t windows = 0, over_1ms = 0;
    for (const auto& [key, kind] : job.kinds) {
        windows += kind->phases;
        over_1ms += kind->over_1ms;
        const double count = kind->phases > 0 ? static_cast<double>(kind->phases) : 1;
        phases.push_back({{"op", op_name(key.first)},
                          {"group_size", key.second},
                          {"windows", kind->phases},
                          {"launches", kind->launches},
                          {"bytes", kind->bytes},
                          {"window_mean_ms", ms(kind->window_ns) / count},
                          {"window_median_ms", ms(std::min(kind->windows.quantile(0.5), kind->longest_ns))},
                          {"window_p90_ms", ms(std::min(kind->windows.quantile(0.9), kind->longest_ns))},
                          {"window_max_ms", ms(kind->longest_ns)},
                          {"over_1ms_percent", 100.0 * static_cast<double>(kind->over_1ms) / count}});
    }
    return {{"job", job.name},
            {"ended", job.ended},
            {"ranks", job.ranks},
            {"launches", job.launches},
            {"held_launches", job.held},
            {"held_ms", ms(job.held_ns)},
            {"gangs", job.gangs},
            {"gangs_that_waited_for_light", job.gangs_in_the_dark},
            {"waited_for_light_ms", ms(job.waited_ns)},
            {"seconds", static_cast<double>(job.end_ns - job.begin_ns) / 1e9},
            {"windows", windows},
            {"over_1ms_percent", windows > 0 ? 100.0 * static_cast<double>(over_1ms) / static_cast<double>(windows) : 0.0},
            {"phases", phases}};
}

json Profile::summary(const std::string& only) {
    for (auto& [id, rank] : ranks_) take_kept(rank, 0);
    json jobs = json::array();
    for (const Job& job : jobs_)
        if (only.empty() || job.name == only) jobs.push_back(job_json(job));
    const TimeNs hidden = dark_ns_ - exposed_ns_;
    return {{"jobs", jobs},
            {"fabric",
             {{"gangs", gangs_},
              {"gangs_that_waited_for_light", gangs_in_the_dark_},
              {"change_sets", change_sets_},
              {"circuits_made", circuits_},
              {"dark_ms", ms(dark_ns_)},
              {"exposed_ms", ms(exposed_ns_)},
              {"hidden_ms", ms(hidden)},
              {"hidden_percent", dark_ns_ > 0 ? 100.0 * static_cast<double>(hidden) / static_cast<double>(dark_ns_) : 0.0}}}};
}

}  // namespace opus::controller
