// The transport: one thread a process that owns all sockets and everything under way. Others hand it
// closures by post(), and block, if they must, on their own promise.
//
//   send() ─┬─ same process ─────────▶ loop_ (delivered in the next turn)
//           ├─ NVLink, or no fabric ───▶ Pipe: stream socket between two processes
//           └─ other node ───────────▶ RailLink: numbered, acknowledged, sent again ▶ RailPort: the optical plane
//
// Pipes join every two processes that share a communicator. They carry what is out of band, and tell of
// death: an end of file without `gone` fails the communicators shared with that process. `gone` of one that aborts or
// ends fails what is under way there, and what starts later.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm_core.h"
#include "head.h"

namespace opus::standin {

class Pipe;
class Rails;

struct Stats {
    std::atomic<std::uint64_t> frames{0}, bytes{0}, resent_frames{0}, resent_bytes{0};
};

class Transport {
public:
    static Transport& get();  // starts the thread; never destroyed

    // --- any thread ---
    void post(std::function<void()> run);
    Member self(int device) const;
    Stats stats;

    // Mail: small, out of band, between ranks of a communicator. read() waits; nullopt when the sender's
    // process died or `core` failed or is leaving.
    void write_mail(const CommCore& core, std::uint32_t to, std::uint64_t tag, std::string text);
    std::optional<std::string> read_mail(const CommCore& core, std::uint32_t from, std::uint64_t tag);
    void wake_readers();

    // All members through the process that made the id. Blocks. Empty: it cannot be reached.
    std::vector<Member> meet(std::uint16_t root_port, std::uint64_t id, std::uint32_t size, std::uint32_t rank,
                             const Member& self);
    std::uint16_t listening_port() const { return port_; }

    // Blocks until this process has a socket at every NIC port that `core` may use. Empty: it has.
    std::string attach(const CommCore& core);

    // --- transport thread ---
    void add(const CommRef& core);
    void remove(const CommRef& core, bool abort);
    void leave_all();  // the process ends
    void fail(const CommRef& core, int result);
    pid_t process() const { return process_; }
    void send(const Member& to, Way way, FrameRef frame);
    void purge(const Activity* owner);  // frames of what has failed; their memory may go
    void delivered(const FrameRef& frame);
    void arrived(const Head& head, const std::byte* data);
    void watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> handler);
    void rewatch(int fd, std::uint32_t events);
    void unwatch(int fd);
    Pipe& pipe_to(const Member& peer);
    void said_hello(int fd, std::uint64_t endpoint, std::string rest);
    void asked_for_table(int fd, const Head& head, const Member& member);
    void pipe_closed(std::uint64_t endpoint);

private:
    Transport();
    void run();
    void listen();
    void accept(int listener);
    void tell_gone(const CommRef& core, bool abort);
    void has_left(const CommRef& core);
    void drain_inbox();
    void deliver_mail(const Head& head, const std::byte* data);

    struct Meeting {
        std::vector<Member> members;
        std::vector<int> sockets;
        std::uint32_t here = 0;
    };
    using MailId = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t>;  // comm, tag, src, dst

    const pid_t process_ = getpid();
    std::uint64_t endpoint_ = 0;
    std::uint16_t port_ = 0;
    int epoll_ = -1, wake_ = -1;
    std::mutex inbox_mutex_;
    std::vector<std::function<void()>> inbox_;
    bool sleeping_ = false;

    std::mutex mail_mutex_;
    std::condition_variable mail_came_;
    std::map<MailId, std::string> mail_;
    std::set<std::uint64_t> dead_;  // endpoints, under mail_mutex_

    std::map<int, std::shared_ptr<std::function<void(std::uint32_t)>>> handlers_;
    std::map<std::uint64_t, std::unique_ptr<Pipe>> pipes_;
    std::unique_ptr<Rails> rails_;
    std::map<std::pair<std::uint64_t, std::uint32_t>, CommRef> comms_;  // by key, rank
    std::map<std::uint64_t, Meeting> meetings_;
    std::deque<FrameRef> loop_;
};

}  // namespace opus::standin
