#include "manager/shell/daemon.h"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <utility>

#include "manager/shell/clock.h"
#include "manager/shell/futex.h"
#include "manager/shell/go_words.h"
#include "manager/shell/host_gpus.h"
#include "manager/shell/host_name.h"
#include "manager/shell/poller.h"

namespace opus::manager {
namespace {

constexpr TimeNs kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr TimeNs kScanInterval = kSecond / 2;
constexpr TimeNs kLongUnrung = 100 * kUs, kBurst = kMs, kFlurry = 100 * kUs;
constexpr TimeNs kLongQuiet = 100 * kMs;     // then the next launch rings, whatever it may do
constexpr TimeNs kRest = kSecond;            // without a grant: when what goes anyway goes is not to be learned closely
constexpr std::uint32_t kMeasureEvery = 16;  // looks: asking for CPU time is a system call
constexpr std::uint32_t kAskForWaitsEvery = 64;

// Who we are, to a controller that hears of two.
CoreOptions core_options(const RuntimeDirectory& directory) {
    CoreOptions options;
    options.where = host_name() + ", pid " + std::to_string(::getpid()) + ", " + directory.path();
    for (char& c : options.where)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    options.where.resize(std::min<std::size_t>(options.where.size(), wire::kMaxName));
    options.seat = directory.seat();
    options.host_gpus = host_gpus();
    return options;
}

}  // namespace

Daemon::Daemon(const DaemonOptions& options)
    : options_(options),
      directory_(options.runtime_directory),
      poller_(::epoll_create1(EPOLL_CLOEXEC)),
      signals_(catch_signals({SIGTERM, SIGINT})),
      doorbell_(open_doorbell(directory_.doorbell_path())),
      steering_(directory_.steering_path()),
      core_(options.node, core_options(directory_)) {
    if (!directory_.on_tmpfs())
        spdlog::warn(
            "{} is not on a tmpfs: no GPU can map the launch rings there (Linux 6.5 and later), and launches are held on the "
            "host; choose a folder of /run or /dev/shm with --runtime-dir or OPUS_RUNTIME_DIR",
            directory_.path());
    ::prctl(PR_SET_TIMERSLACK, 1UL);  // the default adds 50 us to every short sleep
    watch(poller_.get(), signals_.get());
    watch(poller_.get(), doorbell_.get());
    started_ = now_ns();
    recover_ranks();
    server_ = std::make_unique<AttachServer>(
        directory_.socket_path(), poller_.get(),
        AttachServer::Sink{
            [this](pid_t pid, const auto& request, auto& accepted) { return attach(pid, request, accepted); },
            [this](RankId rank) { check_rank(rank, false); }, [](const std::string& text) { spdlog::warn("{}", text); }});
    link_ = std::make_unique<ControllerLink>(
        options_.controller,
        ControllerLink::Sink{[this](std::uint64_t session) {
                                 outgoing_.clear();
                                 to_greet_ = session;
                                 greet();
                             },
                             [this] {
                                 outgoing_.clear();
                                 to_greet_ = 0;
                                 feed(ControllerDown{});
                             },
                             [this](std::uint64_t epoch, std::uint64_t session, wire::Message&& message) {
                                 feed(FromController{epoch, session, std::move(message)});
                             },
                             [](const std::string& text) { spdlog::error("controller: {}", text); }});
    watch_link();
}

bool Daemon::run() {
    while (!stopping_) {
        const bool heard = hear_link();  // an answer first: its launch waits for nothing else
        calm_bells();
        account(look(false) || heard);
        if (fed_ || !retracts_.empty()) settle();
        // Off the way of a launch: every rank's line is written. What no rank told of: the tables are long.
        const TimeNs now = now_ns();
        beat(now);
        if (!unserved_.empty()) recover_later(now);
        if (to_greet_ != 0) greet();
        if (now - last_scan_ >= kScanInterval && look(true)) settle();
        wait();
    }
    server_.reset();
    link_.reset();
    set_asleep(ring::kAwake);
    for (auto& entry : ranks_) entry.second.ring.take_back();
    std::erase_if(ranks_, [this](const auto& entry) {
        if (entry.second.lives()) return false;
        ::unlink(entry.second.segment.path().c_str());
        return true;
    });
    if (ranks_.empty() && unserved_.empty()) {
        directory_.remove_all();
    } else {
        ::unlink(directory_.socket_path().c_str());
        spdlog::info("{} ranks live on; a manager in {} finds them again", ranks_.size() + unserved_.size(),
                     directory_.path());
    }
    return !second_;
}

// --- one look -------------------------------------------------------------------------------------

bool Daemon::look(bool scan) {
    const TimeNs now = now_ns();
    if (scan) last_scan_ = now;
    events_.clear();
    for (auto& [id, rank] : ranks_) {
        rank.ring.look(events_, scan, now);
        if (!rank.ring.broken() || rank.fault_told) continue;
        rank.fault_told = true;
        spdlog::error("rank {} (pid {}): its launch ring is broken: {}; its launches are no longer held", id, rank.pid,
                      rank.ring.fault());
        open_gates(rank, ring::Open::pass);
    }
    if (events_.empty()) return false;
    last_event_ = now;
    std::vector<Event> events;
    events.swap(events_);
    const TimeNs realtime_ns = clock_ns(CLOCK_REALTIME);
    for (const Event& event : events) feed(event, now, realtime_ns);
    events.swap(events_);  // its memory serves again
    return true;
}

void Daemon::feed(const Event& event) { feed(event, now_ns(), clock_ns(CLOCK_REALTIME)); }

void Daemon::feed(const Event& event, TimeNs now, TimeNs realtime_ns) {
    fed_ = true;
    core_.on(event, now, realtime_ns, actions_);
    perform_all();
}

void Daemon::perform_all() {
    Actions actions;
    actions.swap(actions_);
    for (Action& action : actions) std::visit([this](auto& a) { perform(a); }, action);
    actions.clear();
    if (actions_.empty()) actions_.swap(actions);  // its memory serves again
}

void Daemon::settle() {
    for (bool more = true; more;) {
        answer_retracts();
        fed_ = false;
        more = core_.flush(now_ns(), actions_);
        perform_all();
        if (outgoing_.empty()) continue;
        link_->send(std::move(outgoing_));
        outgoing_.clear();
        link_spoke_ = true;  // sending may have taken the signal of what arrived
        hear_link();
        more |= fed_;
    }
    if (reconnect_) {
        reconnect_ = false;
        link_->restart();
    }
    watch_link();
}

// Asking ZeroMQ costs system calls: only when its descriptors, or a call of ours, give reason to.
bool Daemon::hear_link() {
    if (!link_spoke_ && !monitor_spoke_) return false;
    const bool monitor = std::exchange(monitor_spoke_, false);
    link_spoke_ = false;
    link_->receive(monitor);
    return true;
}

// --- actions --------------------------------------------------------------------------------------

void Daemon::perform(Send& a) {
    if (auto* beat = std::get_if<wire::Heartbeat>(&a.message)) beat->bystanders = bystanders_.found();
    outgoing_.push_back(std::move(a.message));
}

void Daemon::perform(const SetGo& a) {
    const auto it = ranks_.find(a.rank);
    if (it == ranks_.end()) return;
    store_go(it->second.segment.view(), a.seq, a.abort, a.comm);
}

void Daemon::perform(const ReleaseEarly& a) {
    if (const auto it = ranks_.find(a.rank); it != ranks_.end())
        store_go(it->second.segment.view(), a.seq, false, a.comm);
}

void Daemon::perform(const ReleaseAhead& a) {
    if (const auto it = ranks_.find(a.go.rank); it != ranks_.end())
        store_comm_go(it->second.segment.view(), a.go.comm, a.go.upto);
}

// All are retracted before the first is looked at: when the events at hand are told, for what is recorded by then comes first.
void Daemon::perform(Retract& a) {
    for (const wire::LocalLaunch& launch : a.launches)
        if (const auto it = ranks_.find(launch.rank); it != ranks_.end())
            retract_go(it->second.segment.view(), launch.seq);
    Taken taken;
    for (const CommGo& go : a.comms) {
        const auto it = ranks_.find(go.rank);
        if (it == ranks_.end()) continue;
        retract_comm_go(it->second.segment.view(), go.comm, go.upto);
        taken.heads.emplace_back(go.rank, it->second.ring.head());  // what is recorded from there on finds the word taken back
    }
    taken.what = std::move(a);
    taken.since = now_ns();
    retracts_.push_back(std::move(taken));
}

// False: a thread has its place in a ring, and has not committed yet (RingReader::read_all). Others behind it may have
// gone. One that stands still for as long as this is stopped, and the fabric does not wait for it.
bool Daemon::has_read(const Taken& taken) {
    constexpr TimeNs most = kSecond;
    std::vector<Event> events;
    for (const auto& [rank, head] : taken.heads)
        if (const auto it = ranks_.find(rank); it != ranks_.end()) it->second.ring.look(events, false, now_ns());
    for (const Event& event : events) feed(event);
    if (now_ns() - taken.since > most) return true;
    return std::ranges::all_of(taken.heads, [this](const auto& entry) {
        const auto it = ranks_.find(entry.first);
        return it == ranks_.end() || it->second.ring.has_read(entry.second);
    });
}

void Daemon::answer_retracts() {
    while (!retracts_.empty() && has_read(retracts_.front())) {
        Retract a = std::move(retracts_.front().what);
        retracts_.pop_front();
        Retracted answer;
        for (const wire::LocalLaunch& launch : a.launches)
            if (const auto it = ranks_.find(launch.rank);
                it != ranks_.end() && is_reached(it->second.segment.view(), launch.seq))
                answer.reached.push_back(launch);
        for (const CommGo& go : a.comms)
            if (const auto it = ranks_.find(go.rank); it != ranks_.end())
                for (const std::uint64_t seq : it->second.ring.reached_from(go.upto))
                    answer.reached.push_back({go.rank, seq});
        answer.launches = std::move(a.launches);
        answer.comms = std::move(a.comms);
        feed(answer);
    }
}

void Daemon::perform(const SetVerdict& a) {
    if (const auto it = ranks_.find(a.rank); it != ranks_.end()) it->second.perform(a);
}

void Daemon::perform(const SetOpen& a) {
    if (const auto it = ranks_.find(a.rank); it != ranks_.end()) open_gates(it->second, a.open);
}

void Daemon::open_gates(LocalRank& rank, ring::Open how) {
    const ring::View& view = rank.segment.view();
    view.header->open.store(static_cast<std::uint32_t>(how), std::memory_order_seq_cst);
    for (std::uint32_t i = 0; i <= view.mask; ++i)
        if (view.ready[i].waiter.load(std::memory_order_relaxed) != 0) futex_wake(view.go[i].value);
    for (std::uint32_t i = 0; i < ring::kMaxComms; ++i) futex_wake(view.comms[i].verdict);
}

void Daemon::perform(const Retired& a) {
    if (const auto it = ranks_.find(a.rank); it != ranks_.end()) it->second.ring.retired(a);
}

void Daemon::perform(const FreeComm& a) {
    if (const auto it = ranks_.find(a.rank); it != ranks_.end()) it->second.perform(a);
}

void Daemon::perform(const Steer& a) {
    if (const std::size_t beyond = steering_.steer(a.ports); beyond != 0)
        spdlog::error("{} ports beyond the steering table ({} GPUs of {} ports): not steered", beyond,
                      steering::kMaxGpus, steering::kMaxPorts);
}

void Daemon::perform(const SetNode& a) { steering_.set_node(a.node); }

void Daemon::perform(const ForgetRank& a) {
    const auto it = ranks_.find(a.rank);
    if (it == ranks_.end()) return;
    if (it->second.watch) watches_.erase(it->second.watch.get());
    if (server_) server_->forget(a.rank);
    ::unlink(it->second.segment.path().c_str());
    ranks_.erase(it);
    pace_beats();
}

void Daemon::perform(const EndSession&) {
    outgoing_.clear();
    reconnect_ = true;
}

void Daemon::perform(const End& a) {
    if (!second_) spdlog::error("ends: {}", a.reason);
    stopping_ = second_ = true;
}

void Daemon::perform(const WakeAt& a) { wake_at_ = a.at_ns; }

void Daemon::perform(const Log& a) {
    static constexpr std::array levels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};
    spdlog::log(levels[static_cast<std::size_t>(a.level)], "{}", a.text);
}

// --- waiting --------------------------------------------------------------------------------------

// The word by which gates tell a living manager from a dead one. A rank that holds for less than a few
// seconds needs to see it more often than once a second.
void Daemon::beat(TimeNs now) {
    if (now - last_beat_ < kMs) return;
    last_beat_ = now;
    opus::manager::beat(ranks_);
}

void Daemon::pace_beats() {
    beat_interval_ = kSecond + kSecond / 8;  // the controller's heartbeat usually wakes us before
    for (const auto& entry : ranks_)
        if (const TimeNs hold = entry.second.segment.view().header->hold_ms * kMs; hold > 0)
            beat_interval_ = std::min(beat_interval_, std::max<TimeNs>(10 * kMs, hold / 4));
}

TimeNs Daemon::until_next_deadline(TimeNs now) const {
    TimeNs at = wake_at_;
    if (!ranks_.empty()) at = std::min(at, last_beat_ + beat_interval_);
    for (const Unserved& segment : unserved_) at = std::min(at, segment.again_at);
    return std::clamp<TimeNs>(at - now, 0, 3600 * kSecond);
}

void Daemon::wait() {
    const TimeNs now = now_ns();
    PollHint hint;
    hint.quiet = now - last_event_;
    for (auto& [id, rank] : ranks_)
        rank.ring.await(hint, now, [this, id = id](std::uint64_t seq) { return core_.awaits_end({id, seq}); });
    if (core_.goes_ahead() && hint.quiet < kLongQuiet) {
        hint.any = hint.unawaited = true;  // of what is recorded by then nobody rings
        hint.rests = now - core_.lit_ns() > kRest && !core_.holds_back();
    }
    const bool poll = hint.any;
    TimeNs timeout = until_next_deadline(now);
    if (poll) {
        if (polled_at_ != 0) pace_.looked(now - polled_at_, polled_for_);
        timeout = std::min(timeout, pace_.interval(hint, now));
        polled_at_ = now;
        polled_for_ = timeout;
        if (timeout > 0 && ++polls_ % kMeasureEvery == 0) cpu_before_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        if (timeout > 0 && polls_ % kAskForWaitsEvery == 0) {
            const CoreWaits::Sample s = core_waits_.sample();
            if (s.cpu > 0) pace_.waited(s.cpu, s.waited);
        }
    } else {
        polled_at_ = 0;
    }
    // Ringing costs the application a system call: not for each of a burst, nor for the sake of a moment.
    const bool rung = !poll || (timeout > kLongUnrung && (hint.due == 0 || hint.quiet > kBurst));
    const std::uint32_t told = !rung ? ring::kAwake : poll ? ring::kDozes : ring::kAsleep;
    if (told != told_asleep_) {
        // Told first, looked again then: a word stored in between is seen here, a later one rings.
        set_asleep(told);
        if (told != ring::kAwake && look(false)) return settle();
    }
    if (!retracts_.empty()) timeout = std::min(timeout, kLongUnrung);  // a thread is to commit
    if (link_spoke_ || monitor_spoke_) timeout = 0;
    if (poll && timeout == 0) ::sched_yield();  // what is watched for may be written by one who waits for this core
    std::array<epoll_event, 64> ready{};
    const int count = await(poller_.get(), ready, timeout);
    if (count == 0 && timeout > 0) pace_.overslept(now_ns() - now - timeout);
    for (int i = 0; i < count; ++i) handle_ready(ready[static_cast<std::size_t>(i)].data.fd);
    if (now_ns() >= wake_at_) {
        wake_at_ = std::numeric_limits<TimeNs>::max();
        check_unwatched();
        feed(Tick{});
    }
}

// What a sleep and a look cost, where there was nothing else to do.
void Daemon::account(bool found) {
    if (cpu_before_ != 0 && !found && !fed_) pace_.measured(clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_before_);
    cpu_before_ = 0;
}

bool Daemon::handle_ready(int fd) {
    if (fd == signals_.get()) {
        on_signal();
    } else if (fd == doorbell_.get()) {
        drain(fd);
    } else if (const auto it = watches_.find(fd); it != watches_.end()) {
        check_rank(RankId(it->second), true);
    } else if (fd == link_descriptors_[0]) {
        link_spoke_ = true;
    } else if (fd == link_descriptors_[1]) {
        monitor_spoke_ = true;
    } else {
        return server_->handle(fd);
    }
    return true;
}

void Daemon::on_signal() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) stopping_ = true;
}

// Ranks go on ringing for the few microseconds of a look: telling all of them that we are awake, and soon that we
// are not, would cost each launch more. Where one wake follows another, many may ring: then they are told.
void Daemon::calm_bells() {
    const TimeNs now = now_ns();
    if (told_asleep_ != ring::kAwake && now - last_wake_ < kFlurry) set_asleep(ring::kAwake);
    last_wake_ = now;
}

void Daemon::set_asleep(std::uint32_t value) {
    told_asleep_ = value;
    tell_asleep(ranks_, value);
}

// ZeroMQ's descriptors change with each new socket; epoll forgets the closed ones by itself. A new socket may
// have spoken before it was watched.
void Daemon::watch_link() {
    if (link_->opened() == link_opened_) return;
    link_opened_ = link_->opened();
    link_descriptors_ = {link_->descriptor(), link_->monitor_descriptor()};
    for (const int fd : link_descriptors_) watch(poller_.get(), fd);
    link_spoke_ = monitor_spoke_ = true;
}

}  // namespace opus::manager
