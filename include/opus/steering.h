// The steering table: which local port leads to which peer (docs/design.md, section 7a).
// One file a node, `steering` in the manager's runtime directory, mode 0600;
// the manager writes, transports on the node read. Version 1.
//
// Readers: read `epoch` (acquire) of an entry, the rest, and `epoch` again; odd or changed means that
// the manager is writing: read again. An entry with state dark leads nowhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace opus::steering {

inline constexpr std::uint64_t kMagic = 0x3152545353555045ull;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kMaxGpus = 16;
inline constexpr std::uint32_t kMaxPorts = 4;

enum class PortState : std::uint32_t { dark = 0, lit = 1 };

struct alignas(64) Entry {
    std::atomic<std::uint32_t> epoch;      // even: stable; odd: being written
    std::atomic<std::uint32_t> state;      // PortState
    std::atomic<std::uint32_t> peer_node;  // fabric node index
    std::atomic<std::uint32_t> peer_gpu;   // local index of the GPU on that node
    std::atomic<std::uint32_t> peer_port;  // port index of that GPU
};

struct Table {
    alignas(64) std::uint64_t magic;
    std::atomic<std::uint32_t> version;  // stored last
    std::uint32_t node;                  // this node's fabric index, 0xffffffff until the controller says
    std::atomic<std::uint32_t> changes;  // grows with each change of any entry; futex word
    Entry port[kMaxGpus][kMaxPorts];     // [local GPU][port]
};
static_assert(sizeof(Entry) == 64);
static_assert(sizeof(Table) == 64 + 64 * kMaxGpus * kMaxPorts);

}  // namespace opus::steering
