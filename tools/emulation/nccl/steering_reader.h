// Reads the manager's steering table (include/opus/steering.h).
#pragma once

#include <cstdint>
#include <string>

#include "opus/steering.h"

namespace opus::standin {

struct Lead {
    bool lit = false;
    std::uint32_t node = 0, gpu = 0;  // where the port leads
};

class SteeringReader {
public:
    explicit SteeringReader(std::string path);
    ~SteeringReader();
    SteeringReader(const SteeringReader&) = delete;
    SteeringReader& operator=(const SteeringReader&) = delete;

    bool used() const { return !path_.empty(); }  // false: every port leads everywhere
    Lead lead(std::uint32_t gpu, std::uint32_t port);
    // The manager may have been restarted with a new file: look for it, at most a few times a second.
    void refresh(std::int64_t now_ns);

private:
    void map();

    std::string path_;
    const steering::Table* table_ = nullptr;
    std::uint64_t file_ = 0;  // inode
    std::int64_t looked_ns_ = 0;
};

}  // namespace opus::standin
