#include "manager/observer/observer.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "manager/shell/clock.h"
#include "manager/shell/host_gpus.h"
#include "manager/shell/poller.h"
#include "manager/shell/process_watch.h"
#include "opus/opus.h"

namespace opus::manager {
namespace {

constexpr TimeNs kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr TimeNs kScanInterval = kSecond / 2, kFlushInterval = kSecond / 2;
constexpr TimeNs kGrace = 2 * kSecond;  // for ranks that outlive who started them
constexpr std::size_t kFlushAt = 1u << 18;
constexpr std::uint32_t kMeasureEvery = 16;  // looks: asking for CPU time is a system call

// Between looks, and so what times are good to: a tenth of a millisecond after something has come, growing to one; up to one, where
// a look costs so much that it would take more than a hundredth of a core. Ranks that are silent for longer ring when they are not.
constexpr TimeNs kShortest = 100 * kUs, kLongest = kMs, kShare = 100, kAwake = kSecond / 4;
// Where it has to wait for a core, others do for its sake, too: then it looks up to so many times more seldom.
constexpr TimeNs kMostStretch = 5;
constexpr std::uint32_t kAskForWaitsEvery = 32;  // looks

std::string counted(std::uint64_t n, const std::string& one, const std::string& more) {
    return std::to_string(n) + " " + (n == 1 ? one : more);
}

}  // namespace

Observer::Observer(const ObserverOptions& options, Descriptor lock)
    : options_(options),
      lock_(std::move(lock)),
      directory_(options.runtime_directory),
      poller_(::epoll_create1(EPOLL_CLOEXEC)),
      signals_(catch_signals({SIGTERM, SIGINT, SIGHUP, SIGQUIT})),
      doorbell_(open_doorbell(directory_.doorbell_path())),
      realtime_offset_(clock_ns(CLOCK_REALTIME) - now_ns()),
      file_(options.file, std::ios::trunc),
      writer_(text_, "", std::string("opus-observer ") + OPUS_PROGRAM_VERSION, real(now_ns()), options.node),
      observation_(writer_, options.node, host_gpus()) {
    if (!file_) throw std::runtime_error("cannot write the recording " + options.file + ": " + std::strerror(errno));
    watch(poller_.get(), signals_.get());
    watch(poller_.get(), doorbell_.get());
    if (!options.until_signal) watch(poller_.get(), STDIN_FILENO);
    server_ = std::make_unique<AttachServer>(
        directory_.socket_path(), poller_.get(),
        AttachServer::Sink{
            [this](pid_t pid, const auto& request, auto& accepted) { return attach(pid, request, accepted); },
            [this](RankId rank) { check_rank(rank, false); },
            [this](const std::string& text) { complaints_.push_back(text); }});
    flush();
}

void Observer::run() {
    while (!released_ || (!ranks_.empty() && now_ns() - released_at_ < kGrace)) {
        const TimeNs now = now_ns();
        look(now - last_scan_ >= kScanInterval);
        beat(now);
        if (text_.size() >= kFlushAt || now - last_flush_ >= kFlushInterval) flush();
        wait();
    }
    look(true);
    server_.reset();
    set_asleep(0);
    for (auto& [id, rank] : ranks_) {
        count(id, rank);
        ::unlink(rank.segment.path().c_str());  // those that live on pass unrecorded
    }
    ranks_.clear();
    observation_.end();
    flush();
    file_.close();
    if (!file_ && !failed_) complaints_.push_back("cannot write " + options_.file + ": " + std::strerror(errno));
    directory_.remove_all();
}

std::vector<std::string> Observer::report() const {
    const Observation::Totals& t = observation_.totals();
    std::vector<std::string> lines;
    if (t.ranks == 0) return {"nothing is recorded: no process of this node has made a communicator"};
    lines.push_back("recorded " + counted(t.launches, "launch", "launches") + " of " +
                    counted(t.ranks, "rank", "ranks") + " of node " + options_.node + ": " + options_.file);
    if (t.lost != 0)
        lines.push_back("not recorded: " + counted(t.lost, "launch", "launches") + " of " +
                        counted(t.losing, "rank", "ranks") +
                        ": their rings had no room (--ring-slots 65536), or NCCL refused them");
    if (t.passed != 0)
        lines.push_back("not recorded: " + counted(t.passed, "call", "calls") +
                        " captured into CUDA graphs, or of communicators beyond the 256th of a process");
    if (t.under_way != 0)
        lines.push_back("processes ended with " + counted(t.under_way, "launch", "launches") + " under way");
    lines.insert(lines.end(), complaints_.begin(), complaints_.end());
    return lines;
}

// --- one look -------------------------------------------------------------------------------------

bool Observer::look(bool scan) {
    const TimeNs now = now_ns();
    if (scan) last_scan_ = now;
    events_.clear();
    for (auto& [id, rank] : ranks_) {
        rank.ring.look(events_, scan, now);
        if (rank.ring.broken() && !rank.fault_told) {
            rank.fault_told = true;
            complaints_.push_back("rank " + std::to_string(id) + " (pid " + std::to_string(rank.pid) +
                                  "): its launch ring is broken: " + rank.ring.fault() +
                                  "; its launches from there on are not recorded");
        }
        if (scan) count(id, rank);
    }
    if (scan) check_unwatched();
    if (events_.empty()) return false;
    last_event_ = now;
    const std::vector<Event> events = std::move(events_);
    feed(events);
    return true;
}

void Observer::feed(const std::vector<Event>& events) {
    const TimeNs at = real(now_ns());
    for (const Event& event : events) observation_.on(event, at, actions_);
    for (const Action& action : std::exchange(actions_, {})) perform(action);
}

void Observer::perform(const Action& action) {
    const auto with = [this](RankId id, auto&& f) {
        if (const auto at = ranks_.find(id); at != ranks_.end()) f(at->second);
    };
    if (const auto* retired = std::get_if<Retired>(&action)) {
        with(retired->rank, [&](LocalRank& rank) { rank.ring.retired(*retired); });
    } else if (const auto* free = std::get_if<FreeComm>(&action)) {
        with(free->rank, [&](LocalRank& rank) { rank.perform(*free); });
    } else if (const auto* set = std::get_if<SetVerdict>(&action)) {
        with(set->rank, [&](LocalRank& rank) { rank.perform(*set); });
    }
}

void Observer::count(RankId id, const LocalRank& rank) {
    const ring::SegmentHeader& h = *rank.segment.view().header;
    observation_.counted(id, {h.lost.load(std::memory_order_relaxed), h.passed.load(std::memory_order_relaxed)});
}

// A rank that waits to hear of a communicator sees that somebody is here.
void Observer::beat(TimeNs now) {
    if (now - last_beat_ < kMs) return;
    last_beat_ = now;
    opus::manager::beat(ranks_);
}

void Observer::flush() {
    last_flush_ = now_ns();
    if (!failed_ && !text_.empty()) {
        file_ << text_;
        file_.flush();
        failed_ = !file_;
        if (failed_)
            complaints_.push_back("cannot write " + options_.file + " any further: " + std::strerror(errno) +
                                  "; what comes after is not recorded");
    }
    text_.clear();
}

// --- ranks that come and go -----------------------------------------------------------------------

attach::AttachStatus Observer::attach(pid_t pid, const attach::AttachRequest& request, AttachServer::Accepted& accepted) {
    if (ranks_.size() >= options_.max_ranks) return attach::AttachStatus::full;
    const std::uint64_t start = start_time_of(pid).value_or(0);
    if (start == 0) return attach::AttachStatus::refused;
    const RankId id = next_rank_;
    try {
        Segment segment = accept_rank(directory_, id, pid, start, request, accepted);
        ++next_rank_;
        add_rank(id, std::move(segment), static_cast<std::uint32_t>(pid), start);
        return attach::AttachStatus::ok;
    } catch (const std::runtime_error& e) {
        complaints_.push_back("pid " + std::to_string(pid) + " is not recorded: " + e.what());
        return attach::AttachStatus::full;
    }
}

void Observer::add_rank(RankId id, Segment segment, std::uint32_t pid, std::uint64_t pid_start) {
    RankUp up;
    up.info.rank = id;
    up.info.pid = pid;
    up.info.job = segment.job();
    up.mode = Mode::observe;
    up.slots = segment.view().mask + 1;
    ranks_.emplace(id, serve_rank(std::move(segment), id, pid, pid_start, false, poller_.get(), watches_));
    set_asleep(0);
    last_event_ = now_ns();
    feed({std::move(up)});
}

// End of its socket, or (`ended`) of its process. A process that only closed every descriptor it found lives on.
void Observer::check_rank(RankId id, bool ended) {
    const auto at = ranks_.find(id);
    if (at == ranks_.end()) return;
    LocalRank& rank = at->second;
    if (!ended && rank.lives()) return;
    // What it did last: its launches that ended, ended.
    std::vector<Event> events;
    rank.ring.look(events, true);
    feed(events);
    count(id, rank);
    feed({RankDown{id}});
    if (rank.watch) watches_.erase(rank.watch.get());
    if (server_) server_->forget(id);
    ::unlink(rank.segment.path().c_str());
    ranks_.erase(id);
}

// Kernels without pidfd.
void Observer::check_unwatched() {
    for (const RankId id : unwatched(ranks_)) check_rank(id, false);
}

// --- waiting --------------------------------------------------------------------------------------

TimeNs Observer::pace(TimeNs now) const {
    return stretch_ * std::max(std::clamp((now - last_event_) / 8, kShortest, kLongest), std::min(cost_ * kShare, kLongest));
}

void Observer::wait() {
    const TimeNs now = now_ns();
    TimeNs timeout = kScanInterval;
    if (!ranks_.empty() && (observation_.pending() || now - last_event_ < kAwake)) {
        if (told_asleep_) set_asleep(0);
        timeout = pace(now);
    } else if (!ranks_.empty() && !told_asleep_) {
        // Told first, looked again then: what came in between is seen here, what comes later rings.
        set_asleep(1);
        if (look(false)) return;
    }
    const bool measured = ++looks_ % kMeasureEvery == 0;
    if (looks_ % kAskForWaitsEvery == 0) {
        const CoreWaits::Sample s = core_waits_.sample();
        stretch_ = std::clamp<TimeNs>(stretch_ + (s.waited > s.cpu / 4 ? 1 : -1), 1, kMostStretch);
    }
    const TimeNs before = measured ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
    std::array<epoll_event, 64> ready{};
    const int count = await(poller_.get(), ready, timeout);
    for (int i = 0; i < count; ++i) handle_ready(ready[static_cast<std::size_t>(i)].data.fd);
    if (!measured) return;
    look(false);
    cost_ += (std::min(clock_ns(CLOCK_THREAD_CPUTIME_ID) - before, kMs) - cost_) / 4;
}

void Observer::release() {
    released_ = true;
    released_at_ = now_ns();
}

void Observer::handle_ready(int fd) {
    if (fd == STDIN_FILENO) {
        std::array<char, 512> bytes{};
        const ssize_t n = ::read(fd, bytes.data(), bytes.size());
        if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
        ::epoll_ctl(poller_.get(), EPOLL_CTL_DEL, fd, nullptr);
        release();
    } else if (fd == signals_.get() || fd == doorbell_.get()) {
        drain(fd);
        if (fd != signals_.get()) return;
        last_flush_ = 0;  // there may be no time for more
        if (options_.until_signal) release();
    } else if (const auto at = watches_.find(fd); at != watches_.end()) {
        check_rank(RankId(at->second), true);
    } else {
        server_->handle(fd);
    }
}

void Observer::set_asleep(std::uint32_t value) {
    told_asleep_ = value != 0;
    tell_asleep(ranks_, value);
}

}  // namespace opus::manager
