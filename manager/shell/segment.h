// A rank's segment: a file of the runtime directory, mapped.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "opus/attach.h"
#include "opus/launch_ring.h"

namespace opus::manager {

// Why a segment cannot be served.
struct SegmentFault : std::runtime_error {
    SegmentFault(const std::string& what, bool may_pass) : std::runtime_error(what), passing(may_pass) {}
    bool passing;  // it may be otherwise soon: no descriptor, no memory. Else it is no segment that this manager reads
};

class Segment {
public:
    struct Identity {
        RankId rank = kNone;
        std::uint32_t pid = 0;
        std::uint64_t pid_start = 0;
    };

    // Makes the file (mode 0600, never an old one) and its header. Throws std::runtime_error.
    static Segment create(const std::string& path, const Identity& identity, const attach::AttachRequest& request);
    // Maps what another manager has made. Throws SegmentFault.
    static Segment open(const std::string& path, RankId rank);

    const ring::View& view() const { return view_; }
    std::string job() const;  // what its rank calls the job, printable
    const std::string& path() const { return path_; }

private:
    Segment(std::string path, std::uint32_t slots);

    std::string path_;
    boost::interprocess::mapped_region region_;
    ring::View view_;
};

// Slots of the ring for a rank that asked for so many: a power of two within what the ring allows.
std::uint32_t slots_for_request(std::uint32_t wanted);

}  // namespace opus::manager
