// The manager's runtime directory (a tmpfs): socket, doorbell, steering table and one segment a rank. One
// manager owns it at a time, by a lock that its death releases.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "manager/shell/descriptor.h"
#include "opus/types.h"

namespace opus::manager {

class RuntimeDirectory {
public:
    // $XDG_RUNTIME_DIR/opus, else /run/opus.
    static std::string default_path();

    // Makes it (mode 0700) and takes the lock. Throws std::runtime_error with what to do about it.
    explicit RuntimeDirectory(std::string path);

    const std::string& path() const { return path_; }
    std::string socket_path() const { return path_ + "/manager.sock"; }
    std::string doorbell_path() const { return path_ + "/doorbell"; }
    std::string steering_path() const { return path_ + "/steering"; }
    std::string segment_path(RankId rank) const { return path_ + "/rank-" + std::to_string(rank) + ".seg"; }

    // A GPU can map what lies here: Linux lets no driver pin the pages of other files (since 6.5).
    bool on_tmpfs() const;

    // Tells it from every other directory of every machine: two managers never have the same at one time. Not 0.
    std::uint64_t seat() const;

    // Segments that lie there, by rank.
    std::vector<std::pair<RankId, std::string>> segments() const;

    // Nobody lives here any more, and no segment is left: removes what this manager, or one before it, has made.
    void remove_all();

private:
    std::string path_;
    bool made_ = false;
    Descriptor lock_;
};

}  // namespace opus::manager
