#include "manager/shell/steering_table.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "manager/shell/descriptor.h"
#include "manager/shell/futex.h"

namespace opus::manager {

SteeringTable::SteeringTable(const std::string& path) {
    namespace ipc = boost::interprocess;
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) throw std::runtime_error(path + ": " + std::strerror(errno));
    const bool fresh = status.st_size != static_cast<off_t>(sizeof(steering::Table));
    if (fresh && (::ftruncate(file.get(), 0) != 0 || ::posix_fallocate(file.get(), 0, sizeof(steering::Table)) != 0))
        throw std::runtime_error(path + ": no room for the steering table");
    try {
        const ipc::file_mapping mapping(path.c_str(), ipc::read_write);
        region_ = ipc::mapped_region(mapping, ipc::read_write, 0, sizeof(steering::Table));
    } catch (const ipc::interprocess_exception& e) {
        throw std::runtime_error(path + ": cannot be mapped: " + e.what());
    }
    table_ = static_cast<steering::Table*>(region_.get_address());
    if (table_->magic == steering::kMagic && table_->version.load(std::memory_order_acquire) == steering::kVersion) {
        // A manager that died in the middle of an entry: what it wanted is unknown, so it leads nowhere.
        for (auto& gpu : table_->port)
            for (steering::Entry& entry : gpu)
                if (entry.epoch.load() % 2 != 0) {
                    entry.state.store(static_cast<std::uint32_t>(steering::PortState::dark));
                    entry.epoch.fetch_add(1, std::memory_order_release);
                }
        return;
    }
    std::memset(region_.get_address(), 0, sizeof(steering::Table));
    table_->magic = steering::kMagic;
    table_->node = kNone;
    table_->version.store(steering::kVersion, std::memory_order_release);
}

std::size_t SteeringTable::steer(const std::vector<wire::PortSteering>& ports) {
    std::size_t beyond = 0;
    for (const wire::PortSteering& p : ports) {
        if (p.gpu >= steering::kMaxGpus || p.port >= steering::kMaxPorts) {
            ++beyond;
            continue;
        }
        steering::Entry& entry = table_->port[p.gpu][p.port];
        const bool lit = p.peer_node != kNone;
        entry.epoch.fetch_add(1, std::memory_order_acq_rel);
        // Each after the odd epoch.
        entry.state.store(static_cast<std::uint32_t>(lit ? steering::PortState::lit : steering::PortState::dark),
                          std::memory_order_release);
        entry.peer_node.store(p.peer_node, std::memory_order_release);
        entry.peer_gpu.store(p.peer_gpu, std::memory_order_release);
        entry.peer_port.store(p.peer_port, std::memory_order_release);
        entry.epoch.fetch_add(1, std::memory_order_release);
    }
    table_->changes.fetch_add(1, std::memory_order_release);
    futex_wake(table_->changes);
    return beyond;
}

void SteeringTable::set_node(NodeIndex node) { std::atomic_ref(table_->node).store(node, std::memory_order_release); }

}  // namespace opus::manager
