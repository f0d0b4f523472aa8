// The node's steering table (opus/steering.h): the manager is its only writer. What an earlier manager
// wrote is kept, for its circuits are still there.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <string>
#include <vector>

#include "opus/steering.h"
#include "opus/wire.h"

namespace opus::manager {

class SteeringTable {
public:
    explicit SteeringTable(const std::string& path);  // throws std::runtime_error

    // Entries beyond the table are left out; returns how many.
    std::size_t steer(const std::vector<wire::PortSteering>& ports);
    void set_node(NodeIndex node);

private:
    boost::interprocess::mapped_region region_;
    steering::Table* table_ = nullptr;
};

}  // namespace opus::manager
