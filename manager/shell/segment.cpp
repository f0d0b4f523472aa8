#include "manager/shell/segment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "manager/shell/descriptor.h"
#include "manager/shell/printable.h"

namespace opus::manager {
namespace {

constexpr std::uint32_t kMinSlots = 64;
constexpr std::uint32_t kVersion = ring::kVersionMajor << 16 | ring::kVersionMinor;

SegmentFault failure(const std::string& path, const std::string& what, bool passing = false) {
    return {path + ": " + what, passing};
}

}  // namespace

std::string Segment::job() const { return printable(view_.header->job, sizeof view_.header->job); }

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
        throw failure(path_, std::string("cannot be mapped: ") + e.what(), true);
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
    Segment segment = [&] {
        try {
            return Segment(path, slots);
        } catch (const SegmentFault&) {
            ::unlink(path.c_str());
            throw;
        }
    }();
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
    if (::stat(path.c_str(), &status) != 0) throw failure(path, std::strerror(errno), true);
    const auto size = static_cast<std::size_t>(status.st_size);
    // Version and magic first: all else may lie elsewhere in another version. The header says how many slots there are, and
    // the size of the file must agree before all is mapped.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) throw failure(path, std::strerror(errno), true);
    struct {
        std::uint64_t magic;
        std::uint32_t version;
    } begin{};
    if (::pread(file.get(), &begin, 12, 0) < 0) throw failure(path, std::strerror(errno), true);
    if (begin.version == 0 || begin.magic != ring::kMagic) throw failure(path, "is no segment, or was never finished");
    if (begin.version >> 16 != ring::kVersionMajor)
        throw failure(path, "is a launch ring of version " + std::to_string(begin.version >> 16) + "." +
                                std::to_string(begin.version & 0xffff) + ", this manager reads version " +
                                std::to_string(ring::kVersionMajor) + "." + std::to_string(ring::kVersionMinor));
    for (std::uint32_t slots = kMinSlots; slots <= ring::kMaxSlots; slots *= 2) {
        if (ring::Layout{slots}.bytes() != size) continue;
        Segment segment(path, slots);
        const ring::SegmentHeader& h = *segment.view_.header;
        if (h.slots != slots || h.bytes != size || h.rank_id != rank) throw failure(path, "contradicts its own size");
        return segment;
    }
    throw failure(path, "has a size that no segment has");
}

}  // namespace opus::manager
