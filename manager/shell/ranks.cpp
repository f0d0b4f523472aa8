// Ranks that come, are found again, and go.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "manager/shell/daemon.h"
#include "manager/shell/process_watch.h"

namespace opus::manager {
namespace {

std::string job_of(const ring::SegmentHeader& header) {
    std::string job(header.job, ::strnlen(header.job, sizeof header.job));
    for (char& c : job)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return job;
}

}  // namespace

void Daemon::recover_ranks() {
    for (const auto& [id, path] : directory_.segments()) {
        next_rank_ = std::max(next_rank_, id + 1);
        try {
            recover_rank(id, path);
        } catch (const std::runtime_error& e) {
            spdlog::warn("{}; removed", e.what());
            ::unlink(path.c_str());
        }
    }
}

void Daemon::recover_rank(RankId id, const std::string& path) {
    Segment segment = Segment::open(path, id);
    const ring::SegmentHeader& header = *segment.view().header;
    const std::uint32_t pid = header.pid;
    const std::uint64_t start = header.pid_start;
    if (start == 0 || start_time_of(static_cast<pid_t>(pid)) != start || !maps_file(static_cast<pid_t>(pid), path)) {
        spdlog::info("rank {} (pid {}) ended while no manager was here", id, pid);
        ::unlink(path.c_str());
        return;
    }
    add_rank(id, std::move(segment), pid, start, true);
}

attach::AttachStatus Daemon::attach(pid_t pid, const attach::AttachRequest& request, AttachServer::Accepted& accepted) {
    if (ranks_.size() >= options_.max_ranks) {
        spdlog::warn("refused pid {}: {} ranks are served already (--max-ranks)", pid, ranks_.size());
        return attach::AttachStatus::full;
    }
    const std::uint64_t start = start_time_of(pid);
    if (start == 0) return attach::AttachStatus::refused;
    const RankId id = next_rank_;
    const std::string path = directory_.segment_path(id);
    try {
        Segment segment = Segment::create(path, {id, static_cast<std::uint32_t>(pid), start}, request);
        accepted.rank = id;
        accepted.slots = segment.view().header->slots;
        accepted.bytes = segment.view().header->bytes;
        accepted.segment = Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        accepted.doorbell = Descriptor(::open(directory_.doorbell_path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
        if (!accepted.segment || !accepted.doorbell) throw std::runtime_error(path + ": " + std::strerror(errno));
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
               job_of(header)};
    up.mode = header.mode == static_cast<std::uint32_t>(Mode::enforce) ? Mode::enforce : Mode::observe;
    up.recovered = recovered;
    up.slots = view.mask + 1;
    LocalRank rank{std::move(segment),
                   RingReader(view, id, recovered),
                   watch_process(static_cast<pid_t>(pid)),
                   pid,
                   pid_start,
                   false};
    if (rank.watch) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = rank.watch.get();
        ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, rank.watch.get(), &event);
        watches_[rank.watch.get()] = id;
    }
    ranks_.emplace(id, std::move(rank));
    pace_beats();
    set_asleep(0);  // all are told again before we sleep, the new one too
    feed(std::move(up));
}

bool Daemon::lives(const LocalRank& rank) const {
    const auto pid = static_cast<pid_t>(rank.pid);
    return start_time_of(pid) == rank.pid_start && maps_file(pid, rank.segment.path());
}

// End of its socket or of its process. A process that only closed every descriptor it found lives on.
void Daemon::check_rank(RankId id) {
    const auto it = ranks_.find(id);
    if (it == ranks_.end() || lives(it->second)) return;
    // What it did last: its launches that ended, ended.
    events_.clear();
    it->second.ring.look(events_, true);
    const std::vector<Event> events = std::move(events_);
    for (const Event& event : events) feed(event);
    feed(RankDown{id});
}

// Kernels without pidfd.
void Daemon::check_unwatched() {
    std::vector<RankId> unwatched;
    for (const auto& [id, rank] : ranks_)
        if (!rank.watch) unwatched.push_back(id);
    for (const RankId id : unwatched) check_rank(id);
}

}  // namespace opus::manager
