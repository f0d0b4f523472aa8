#include "transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "activity.h"
#include "engine/engine.h"
#include "pipe.h"
#include "rails.h"
#include "settings.h"

namespace opus::standin {

namespace {

// One line of JSON a process, appended: the ranks of a job may share the file.
void write_stats() {
    const std::string& path = Settings::get().stats;
    if (path.empty()) return;
    const Stats& s = Transport::get().stats;
    FILE* file = std::fopen(path.c_str(), "ae");
    if (!file) return;
    char line[256];
    const int size = std::snprintf(
        line, sizeof line,
        "{\"pid\":%d,\"node\":%u,\"frames\":%llu,\"bytes\":%llu,\"resent_frames\":%llu,\"resent_bytes\":%llu}\n",
        getpid(), Settings::get().node, static_cast<unsigned long long>(s.frames.load()),
        static_cast<unsigned long long>(s.bytes.load()), static_cast<unsigned long long>(s.resent_frames.load()),
        static_cast<unsigned long long>(s.resent_bytes.load()));
    std::fwrite(line, 1, static_cast<std::size_t>(size), file);
    std::fclose(file);
}

// A process that ends is not one that dies: others hear of it, and whoever wants nothing of it any more goes on.
void say_goodbye() {
    Transport& transport = Transport::get();
    if (getpid() != transport.process()) return;  // a child of it has no transport thread
    const auto said = std::make_shared<std::promise<void>>();
    transport.post([&transport, said] {
        transport.leave_all();
        said->set_value();
    });
    said->get_future().wait_for(std::chrono::seconds(1));
}

}  // namespace

Transport& Transport::get() {
    static Transport* transport = [] {
        auto* made = new Transport;
        std::atexit(write_stats);
        std::atexit(say_goodbye);
        return made;
    }();
    return *transport;
}

Transport::Transport() {
    std::uint32_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) random = static_cast<std::uint32_t>(now_ns());
    const Settings& s = Settings::get();
    const auto gpu = static_cast<std::uint64_t>(s.gpu >= 0 ? s.gpu : physical_device(current_device())) & 0xff;
    endpoint_ = std::uint64_t{s.node & 0xffff} << 48 | gpu << 40 | (std::uint64_t(getpid()) & 0xffffff) << 16 |
                (random & 0xffff);
    if (endpoint_ == 0) endpoint_ = 1;
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rails_ = std::make_unique<Rails>(*this, endpoint_);
    watch(wake_, EPOLLIN, [this](std::uint32_t) {
        std::uint64_t count;
        [[maybe_unused]] const auto got = ::read(wake_, &count, sizeof count);
    });
    listen();
    std::thread([this] { run(); }).detach();
}

Member Transport::self(int device) const {
    const Settings& s = Settings::get();
    Member m;
    m.endpoint = endpoint_;
    m.node = s.node;
    m.gpu = static_cast<std::uint32_t>(s.gpu >= 0 ? s.gpu : physical_device(device));
    m.device = static_cast<std::uint32_t>(device);
    m.port = port_;
    m.own_nic = s.own_nic;
    m.domain = s.domain;
    return m;
}

void Transport::post(std::function<void()> run) {
    bool first;
    {
        std::lock_guard lock(inbox_mutex_);
        first = inbox_.empty();
        inbox_.push_back(std::move(run));
    }
    if (!first) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto wrote = ::write(wake_, &one, sizeof one);
}

// --- the thread ------------------------------------------------------------------------------------------

void Transport::run() {
    prctl(PR_SET_NAME, "standin-nccl");
    epoll_event events[64];
    for (;;) {
        drain_inbox();
        for (std::size_t left = loop_.size(); left > 0; --left) {
            const FrameRef frame = loop_.front();
            loop_.pop_front();
            arrived(frame->head, frame->data);
            delivered(frame);
        }
        const int timeout_ms = rails_->tick(now_ns());
        const int count = ::epoll_wait(epoll_, events, 64, loop_.empty() ? timeout_ms : 0);
        for (int i = 0; i < count; ++i) {
            const auto it = handlers_.find(events[i].data.fd);
            if (it == handlers_.end()) continue;
            const auto handler = it->second;  // it may unwatch itself
            (*handler)(events[i].events);
        }
    }
}

void Transport::drain_inbox() {
    std::vector<std::function<void()>> work;
    {
        std::lock_guard lock(inbox_mutex_);
        work.swap(inbox_);
    }
    for (auto& run : work) run();
}

void Transport::watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> handler) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    handlers_[fd] = std::make_shared<std::function<void(std::uint32_t)>>(std::move(handler));
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

void Transport::rewatch(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void Transport::unwatch(int fd) {
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    handlers_.erase(fd);
}

// --- communicators -----------------------------------------------------------------------------------------

void Transport::add(const CommRef& core) {
    comms_[{core->key, core->rank}] = core;
    for (const Member& m : core->members)
        if (m.endpoint != endpoint_) pipe_to(m);
}

void Transport::remove(const CommRef& core, bool abort) {
    core->leaving = true;
    if (abort) fail(core, ncclSuccess);
    if (comms_.erase({core->key, core->rank}) != 0) tell_gone(core, abort);
}

void Transport::leave_all() {
    for (const auto& [id, core] : comms_) tell_gone(core, true);
}

void Transport::tell_gone(const CommRef& core, bool abort) {
    for (std::uint32_t r = 0; r < core->size(); ++r) {
        if (r == core->rank || core->members[r].endpoint == 0) continue;
        auto frame = std::make_shared<Frame>();
        frame->head.say = Say::gone;
        frame->head.comm = core->key;
        frame->head.src = core->rank;
        frame->head.dst = r;
        frame->head.n = abort;
        if (core->members[r].endpoint == endpoint_)
            loop_.push_back(frame);
        else
            pipe_to(core->members[r]).send(frame);
    }
}

// The communicator's launches end here, undone; `result` is what CommGetAsyncError says from now on.
void Transport::fail(const CommRef& core, int result) {
    if (result != ncclSuccess) {
        int none = ncclSuccess;
        core->error.compare_exchange_strong(none, result);
    }
    const auto active = core->active;
    core->active.clear();
    core->collectives.clear();
    core->sends.clear();
    core->receives.clear();
    for (const ActivityRef& a : active) {
        purge(a.get());
        a->fail(result);
    }
    wake_readers();
}

// Another member of it has aborted, or ended without a word.
void Transport::has_left(const CommRef& core) {
    core->broken = true;
    if (!core->active.empty()) fail(core, ncclRemoteError);
    wake_readers();
}

void Transport::purge(const Activity* owner) {
    for (auto& [endpoint, pipe] : pipes_) pipe->purge(owner);
    std::erase_if(loop_, [&](const FrameRef& f) { return f->owner.get() == owner; });
    rails_->purge(owner);
}

void Transport::send(const Member& to, Way way, FrameRef frame) {
    if (frame->owner) ++frame->owner->undelivered;
    frame->head.way = way;
    if (to.endpoint == endpoint_) {
        loop_.push_back(std::move(frame));
    } else if (way == kNvlink || !Settings::get().fabric) {
        stats.frames += 1;
        stats.bytes += frame->head.bytes;
        pipe_to(to).send(std::move(frame));
    } else {
        rails_->send(to, way, std::move(frame));
    }
}

void Transport::delivered(const FrameRef& frame) {
    const ActivityRef owner = frame->owner;
    if (!owner) return;
    --owner->undelivered;
    owner->check();
}

void Transport::arrived(const Head& head, const std::byte* data) {
    if (head.say == Say::mail) return deliver_mail(head, data);
    const auto it = comms_.find({head.comm, head.dst});
    if (it == comms_.end()) return;  // left already: what comes now is late or sent twice
    const CommRef core = it->second;
    if (head.src >= core->size() || core->error != ncclSuccess) return;
    if (head.say == Say::gone) {
        core->gone.insert(head.src);
        if (head.n != 0)
            has_left(core);
        else
            rails_->has_left(core->members[head.src].endpoint, head.comm, head.src);
        return;
    }
    dispatch(*core, head, data);
}

// --- mail --------------------------------------------------------------------------------------------------

void Transport::write_mail(const CommCore& core, std::uint32_t to, std::uint64_t tag, std::string text) {
    auto frame = std::make_shared<Frame>();
    frame->head.say = Say::mail;
    frame->head.comm = core.key;
    frame->head.src = core.rank;
    frame->head.dst = to;
    frame->head.n = tag;
    frame->head.bytes = static_cast<std::uint32_t>(text.size());
    frame->data = reinterpret_cast<const std::byte*>(text.data());
    frame->keep();
    post([this, frame, peer = core.members[to]] {
        if (peer.endpoint == endpoint_)
            deliver_mail(frame->head, frame->data);
        else
            pipe_to(peer).send(frame);
    });
}

void Transport::deliver_mail(const Head& head, const std::byte* data) {
    std::lock_guard lock(mail_mutex_);
    mail_[{head.comm, head.n, head.src, head.dst}] = std::string(reinterpret_cast<const char*>(data), head.bytes);
    mail_came_.notify_all();
}

std::optional<std::string> Transport::read_mail(const CommCore& core, std::uint32_t from, std::uint64_t tag) {
    std::unique_lock lock(mail_mutex_);
    const MailId id{core.key, tag, from, core.rank};
    for (;;) {
        const auto it = mail_.find(id);
        if (it != mail_.end()) {
            std::string text = std::move(it->second);
            mail_.erase(it);
            return text;
        }
        if (core.leaving || core.broken || core.error != ncclSuccess || dead_.count(core.members[from].endpoint))
            return std::nullopt;
        mail_came_.wait(lock);
    }
}

void Transport::wake_readers() {
    std::lock_guard lock(mail_mutex_);
    mail_came_.notify_all();
}

void Transport::pipe_closed(std::uint64_t endpoint) {
    {
        std::lock_guard lock(mail_mutex_);
        dead_.insert(endpoint);
        mail_came_.notify_all();
    }
    // Not here: a write of what is failing may have found out.
    post([this, endpoint] {
        const auto comms = comms_;
        for (const auto& [id, core] : comms)
            for (std::uint32_t r = 0; r < core->size(); ++r)
                if (core->members[r].endpoint == endpoint && !core->gone.count(r)) {
                    core->broken = true;
                    fail(core, ncclRemoteError);
                    break;
                }
    });
}

Pipe& Transport::pipe_to(const Member& peer) {
    auto& pipe = pipes_[peer.endpoint];
    if (!pipe) {
        pipe = std::make_unique<Pipe>(*this, peer, endpoint_);
        if (endpoint_ < peer.endpoint) pipe->connect(Settings::get().node);
    }
    return *pipe;
}

// --- NIC ports ---------------------------------------------------------------------------------------------

std::string Transport::attach(const CommCore& core) {
    const Settings& s = Settings::get();
    if (!s.fabric || !core.crosses()) return {};
    if (!s.error.empty()) return s.error;
    std::set<std::uint32_t> gpus;
    for (const Member& m : core.members) gpus.insert(m.gpu);
    const std::int64_t deadline = now_ns() + s.attach_ns;
    for (;;) {
        std::promise<std::string> answer;
        auto missing = answer.get_future();
        post([&] { answer.set_value(rails_->attach(gpus)); });
        const std::string text = missing.get();
        if (text.empty() || now_ns() > deadline) return text;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

}  // namespace opus::standin
