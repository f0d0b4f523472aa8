// What strangers say at the manager's socket: a request is answered, refused or hung up on, and nothing else happens.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <unistd.h>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "manager/shell/attach_server.h"

namespace {

using namespace opus;
using manager::AttachServer;
using manager::Descriptor;

void demand(bool holds) {
    if (!holds) std::abort();
}

// A manager's end without a manager: ranks are numbers.
class Door {
public:
    Door()
        : path_(folder() + "/socket"), poller_(epoll_create1(EPOLL_CLOEXEC)), server_(path_, poller_.get(), sink()) {}
    ~Door() { std::filesystem::remove_all(std::filesystem::path(path_).parent_path()); }

    Descriptor knock() const {
        Descriptor client(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
        demand(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        return client;
    }
    void serve() {
        std::array<epoll_event, 16> events{};
        int count = 0;
        while ((count = epoll_wait(poller_.get(), events.data(), int(events.size()), 0)) > 0)
            for (int i = 0; i < count; ++i) server_.handle(events[std::size_t(i)].data.fd);
    }
    int inside = 0;  // ranks that were let in and have not left

private:
    static std::string folder() {
        std::string name = (std::filesystem::temp_directory_path() / "fuzz-XXXXXX").string();
        demand(mkdtemp(name.data()) != nullptr);
        return name;
    }
    AttachServer::Sink sink() {
        const auto attach = [this](pid_t, const attach::AttachRequest& request, AttachServer::Accepted& accepted) {
            demand(request.mode <= std::uint32_t(Mode::enforce) && request.policy <= std::uint32_t(Policy::abort));
            demand(strnlen(request.job, sizeof request.job) < sizeof request.job);
            if (request.slots == 1) return attach::AttachStatus::full;
            accepted = {next_++, 64, 4096, Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)),
                        Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC))};
            ++inside;
            return attach::AttachStatus::ok;
        };
        return {attach, [this](RankId) { --inside; }, [](const std::string&) {}};
    }

    std::string path_;
    Descriptor poller_;
    RankId next_ = 0;
    AttachServer server_;
};

}  // namespace

// The first byte: how much of a good request stands before the input's own bytes. The second: how the bytes are cut.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Door door;
    if (size < 2) return 0;
    attach::AttachRequest good{attach::kMagic, attach::kVersionMajor, attach::kVersionMinor, 2, 0, 1000, 0, "job"};
    std::string said(reinterpret_cast<const char*>(&good), std::min<std::size_t>(data[0], sizeof good));
    said.append(reinterpret_cast<const char*>(data + 2), size - 2);
    {
        const Descriptor client = door.knock();
        for (std::size_t at = 0; at < said.size(); at += sizeof good + data[1])
            send(client.get(), said.data() + at, std::min(said.size() - at, sizeof good + data[1]), MSG_NOSIGNAL);
        door.serve();
        attach::AttachReply reply{};
        const ssize_t got = recv(client.get(), &reply, sizeof reply, 0);
        demand(got <= 0 || (got == sizeof reply && reply.magic == attach::kMagic));
        demand((door.inside == 1) == (got > 0 && reply.status == attach::AttachStatus::ok));
    }
    door.serve();
    demand(door.inside == 0);  // it hung up
    return 0;
}
