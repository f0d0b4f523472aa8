// The Unix socket at which ranks come (opus/attach.h). Checks who they are and hands out descriptors; what
// a rank becomes is its owner's.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "manager/shell/descriptor.h"
#include "opus/attach.h"
#include "opus/types.h"

namespace opus::manager {

class AttachServer {
public:
    struct Accepted {
        RankId rank = kNone;
        std::uint32_t slots = 0, bytes = 0;
        Descriptor segment, doorbell;  // sent to the rank
    };
    struct Sink {
        // Makes a rank, or says why not.
        std::function<attach::AttachStatus(pid_t pid, const attach::AttachRequest&, Accepted&)> attach;
        std::function<void(RankId)> hung_up;  // end of file: the process died, or ran another program
        std::function<void(const std::string&)> complain;
    };

    // Listens at `path`, in place of what is there (the caller holds the directory's lock). `poller`: an
    // epoll descriptor; events of the descriptors it adds there go to handle(). Throws std::runtime_error.
    AttachServer(const std::string& path, int poller, Sink sink);

    // False: not a descriptor of this server.
    bool handle(int fd);
    void forget(RankId rank);  // closes its connection

private:
    void accept_all();
    void serve(int fd);
    bool answer(int fd, attach::AttachStatus status, const Accepted& accepted);
    std::optional<pid_t> peer_of(int fd);
    void watch(int fd);

    struct Connection {
        Descriptor socket;
        RankId rank = kNone;  // none yet
    };
    std::string path_;
    int poller_;
    Sink sink_;
    Descriptor listener_;
    std::map<int, Connection> connections_;
    std::size_t strangers_ = 0;  // connections that have not asked yet
};

}  // namespace opus::manager
