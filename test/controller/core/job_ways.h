// By which NICs a job's bytes go between nodes. Written apart from the core on purpose: it is what the core is held to.
#pragma once

#include <set>
#include <utility>

#include "test/controller/core/harness.h"

namespace opus::controller::test {

using NicOf = std::pair<NodeIndex, std::uint32_t>;         // node, local GPU
using NicPairs = std::set<std::pair<NicOf, NicOf>>;        // the lesser first

struct JobWays {
    const Job& job;
    std::uint32_t domain = 0;  // hosts of an NVLink domain; 0: NVLink ends at the host

    // What NCCL calls the node of a member.
    NodeIndex nccl_node(std::size_t comm, std::size_t rank) const;
    bool intra(std::size_t comm) const;
    NicPairs transfer(std::size_t comm, std::size_t from, std::size_t to) const;
    NicPairs mesh(std::size_t comm) const;
    NicPairs ring(std::size_t comm) const;
};

}  // namespace opus::controller::test
