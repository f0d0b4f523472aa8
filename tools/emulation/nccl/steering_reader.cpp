#include "steering_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace opus::standin {

namespace {
constexpr std::int64_t kLookAgain_ns = 100'000'000;
}

SteeringReader::SteeringReader(std::string path) : path_(std::move(path)) {
    if (used()) map();
}

SteeringReader::~SteeringReader() {
    if (table_) ::munmap(const_cast<steering::Table*>(table_), sizeof(steering::Table));
}

void SteeringReader::map() {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat info {};
    if (::fstat(fd, &info) == 0 && info.st_size >= static_cast<off_t>(sizeof(steering::Table)) && info.st_ino != file_) {
        void* at = ::mmap(nullptr, sizeof(steering::Table), PROT_READ, MAP_SHARED, fd, 0);
        const auto* table = static_cast<const steering::Table*>(at);
        if (at != MAP_FAILED && table->version.load(std::memory_order_acquire) == steering::kVersion &&
            table->magic == steering::kMagic) {
            if (table_) ::munmap(const_cast<steering::Table*>(table_), sizeof(steering::Table));
            table_ = table;
            file_ = info.st_ino;
        } else if (at != MAP_FAILED) {
            ::munmap(at, sizeof(steering::Table));
        }
    }
    ::close(fd);
}

void SteeringReader::refresh(std::int64_t now_ns) {
    if (!used() || now_ns - looked_ns_ < kLookAgain_ns) return;
    looked_ns_ = now_ns;
    map();
}

Lead SteeringReader::lead(std::uint32_t gpu, std::uint32_t port) {
    Lead lead;
    if (!table_) map();
    if (!table_ || gpu >= steering::kMaxGpus || port >= steering::kMaxPorts) return lead;
    const steering::Entry& entry = table_->port[gpu][port];
    for (int tries = 0; tries < 100; ++tries) {
        const std::uint32_t before = entry.epoch.load(std::memory_order_acquire);
        lead.lit = entry.state.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(steering::PortState::lit);
        lead.node = entry.peer_node.load(std::memory_order_relaxed);
        lead.gpu = entry.peer_gpu.load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (before % 2 == 0 && entry.epoch.load(std::memory_order_relaxed) == before) return lead;
    }
    return {};
}

}  // namespace opus::standin
