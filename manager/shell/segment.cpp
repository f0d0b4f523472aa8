#include "manager/shell/segment.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "manager/shell/descriptor.h"

namespace opus::manager {
namespace {

constexpr std::uint32_t kMinSlots = 64;
constexpr std::uint32_t kVersion = ring::kVersionMajor << 16 | ring::kVersionMinor;

std::runtime_error failure(const std::string& path, const std::string& what) {
    return std::runtime_error(path + ": " + what);
}

}  // namespace

std::uint32_t slots_for_request(std::uint32_t wanted) {
    if (wanted == 0) return ring::kDefaultSlots;
    return std::bit_ceil(std::clamp(wanted, kMinSlots, ring::kMaxSlots));
}

Segment::Segment(std::string path, std::uint32_t slots) : path_(std::move(path)) {
    namespace ipc = boost::interprocess;
    try {
        const ipc::file_mapping file(path_.c_str(), ipc::read_write);
        region_ = ipc::mapped_region(file, ipc::read_write, 0, ring::Layout{slots}.bytes());
    } catch (const ipc::interprocess_exception& e) {
        throw failure(path_, std::string("cannot be mapped: ") + e.what());
    }
    view_ = ring::view_of(region_.get_address(), slots);
}

Segment Segment::create(const std::string& path, const Identity& identity, const attach::AttachRequest& request) {
    const std::uint32_t slots = slots_for_request(request.slots);
    const std::size_t bytes = ring::Layout{slots}.bytes();
    {
        const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!file) throw failure(path, std::strerror(errno));
        // Allocated, not only sized: a full tmpfs must refuse here, not kill with SIGBUS later.
        if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0) {
            ::unlink(path.c_str());
            throw failure(path, std::string("no room for a segment: ") + std::strerror(error));
        }
    }
    Segment segment(path, slots);
    ring::SegmentHeader& h = *segment.view_.header;
    h.magic = ring::kMagic;
    h.bytes = static_cast<std::uint32_t>(bytes);
    h.slots = slots;
    h.rank_id = identity.rank;
    h.pid = identity.pid;
    h.pid_start = identity.pid_start;
    h.hold_ms = request.hold_ms;
    h.mode = request.mode;
    h.policy = request.policy;
    h.gpu = kNone;
    std::memcpy(h.job, request.job, sizeof h.job);
    h.job[sizeof h.job - 1] = '\0';
    h.heartbeat.store(1, std::memory_order_relaxed);
    h.version.store(kVersion, std::memory_order_release);
    return segment;
}

Segment Segment::open(const std::string& path, RankId rank) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) throw failure(path, std::strerror(errno));
    const auto size = static_cast<std::size_t>(status.st_size);
    // The header says how many slots there are, and the size of the file must agree before all is mapped.
    for (std::uint32_t slots = kMinSlots; slots <= ring::kMaxSlots; slots *= 2) {
        if (ring::Layout{slots}.bytes() != size) continue;
        Segment segment(path, slots);
        const ring::SegmentHeader& h = *segment.view_.header;
        const std::uint32_t version = h.version.load(std::memory_order_acquire);
        if (version == 0 || h.magic != ring::kMagic) throw failure(path, "was never finished");
        if (version >> 16 != ring::kVersionMajor)
            throw failure(path, "is of version " + std::to_string(version >> 16) + ", this manager reads " +
                                    std::to_string(ring::kVersionMajor));
        if (h.slots != slots || h.bytes != size || h.rank_id != rank) throw failure(path, "contradicts its own size");
        return segment;
    }
    throw failure(path, "has a size that no segment has");
}

}  // namespace opus::manager
