// Ranks that come, are found again, and go.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "manager/shell/clock.h"
#include "manager/shell/daemon.h"
#include "manager/shell/process_watch.h"

namespace opus::manager {
namespace {

constexpr TimeNs kTryAgain = 500'000'000, kLookAgain = 10'000'000'000, kLongestUngreeted = 5'000'000'000;

}  // namespace

void Daemon::recover_ranks() {
    for (const auto& [id, path] : directory_.segments()) {
        next_rank_ = std::max(next_rank_, id + 1);
        if (Unserved segment{id, path, 0, {}}; !recover(segment)) unserved_.push_back(std::move(segment));
    }
}

void Daemon::recover_later(TimeNs now) {
    std::erase_if(unserved_, [&](Unserved& segment) { return now >= segment.again_at && recover(segment); });
}

// False: it is left alone, and looked at again later. Only what nobody has is removed.
bool Daemon::recover(Unserved& segment) {
    std::string why;
    Owner owner = Owner::unknown;
    bool passing = true;
    try {
        Segment found = Segment::open(segment.path, segment.id);
        const std::uint32_t pid = found.view().header->pid;
        const std::uint64_t start = found.view().header->pid_start;
        owner = owner_of(segment.path, static_cast<pid_t>(pid), start);
        if (owner == Owner::lives) {
            add_rank(segment.id, std::move(found), pid, start, true);
            return true;
        }
        why = segment.path + ": whether its process (pid " + std::to_string(pid) + ") lives cannot be told now";
        if (owner == Owner::gone)
            spdlog::info("rank {} (pid {}) ended while no manager was here", segment.id, pid);
    } catch (const SegmentFault& fault) {
        why = fault.what();
        passing = fault.passing;
        if (!passing) owner = anyone_of(segment.path);
        if (owner == Owner::gone) spdlog::warn("{}; no process has it: removed", why);
    }
    if (owner == Owner::gone) {
        ::unlink(segment.path.c_str());
        return true;
    }
    segment.soon = owner == Owner::unknown;
    if (why != segment.said)
        spdlog::warn("{}; {}", why, segment.soon ? "tried again" : "a living process has it, which is not served: left alone");
    segment.said = why;
    segment.again_at = now_ns() + (segment.soon ? kTryAgain : kLookAgain);
    return false;
}

void Daemon::greet() {
    const bool lacks = std::any_of(unserved_.begin(), unserved_.end(), [](const Unserved& s) { return s.soon; });
    if (lacks && now_ns() - started_ < kLongestUngreeted) return;
    feed(ControllerUp{std::exchange(to_greet_, 0)});
}

attach::AttachStatus Daemon::attach(pid_t pid, const attach::AttachRequest& request, AttachServer::Accepted& accepted) {
    if (ranks_.size() >= options_.max_ranks) {
        spdlog::warn("refused pid {}: {} ranks are served already (--max-ranks)", pid, ranks_.size());
        return attach::AttachStatus::full;
    }
    const std::uint64_t start = start_time_of(pid).value_or(0);
    if (start == 0) return attach::AttachStatus::refused;
    const RankId id = next_rank_;
    try {
        Segment segment = accept_rank(directory_, id, pid, start, request, accepted);
        ++next_rank_;
        add_rank(id, std::move(segment), static_cast<std::uint32_t>(pid), start, false);
        return attach::AttachStatus::ok;
    } catch (const std::runtime_error& e) {
        spdlog::error("refused pid {}: {}", pid, e.what());
        return attach::AttachStatus::full;
    }
}

void Daemon::add_rank(RankId id, Segment segment, std::uint32_t pid, std::uint64_t pid_start, bool recovered) {
    const ring::View view = segment.view();
    const ring::SegmentHeader& header = *view.header;
    RankUp up;
    up.info = {id,
               pid,
               header.gpu < 64 ? header.gpu : kNone,
               header.hold_ms,
               header.policy == static_cast<std::uint32_t>(Policy::abort) ? Policy::abort : Policy::proceed,
               segment.job()};
    up.mode = header.mode == static_cast<std::uint32_t>(Mode::enforce) ? Mode::enforce : Mode::observe;
    up.recovered = recovered;
    up.slots = view.mask + 1;
    ranks_.emplace(id, serve_rank(std::move(segment), id, pid, pid_start, recovered, poller_.get(), watches_));
    pace_beats();
    set_asleep(0);  // all are told again before we sleep, the new one too
    feed(std::move(up));
}

// End of its socket, or (`ended`) of its process. A process that only closed every descriptor it found lives on.
void Daemon::check_rank(RankId id, bool ended) {
    const auto it = ranks_.find(id);
    if (it == ranks_.end() || (!ended && it->second.lives())) return;
    // What it did last: its launches that ended, ended.
    events_.clear();
    it->second.ring.look(events_, true);
    const std::vector<Event> events = std::move(events_);
    for (const Event& event : events) feed(event);
    feed(RankDown{id});
}

// Kernels without pidfd.
void Daemon::check_unwatched() {
    for (const RankId id : unwatched(ranks_)) check_rank(id, false);
}

}  // namespace opus::manager
