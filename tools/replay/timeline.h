// What one rank did when, as Chrome trace events (one JSON object a line), for --trace. Bounded: after
// kMaxSpans spans the rest are counted, not kept.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace opus::replay {

std::int64_t realtime_ns();

class Timeline {
public:
    static constexpr std::size_t kMaxSpans = 200'000;
    void add(const std::string& name, const char* kind, std::uint32_t stream, std::int64_t begin_ns, std::int64_t end_ns);
    void write(const std::string& path, std::uint32_t rank, const std::vector<std::string>& streams) const;

private:
    struct Span {
        std::string name;
        const char* kind;
        std::uint32_t stream;
        std::int64_t begin_ns, end_ns;
    };
    mutable std::mutex mutex_;
    std::vector<Span> spans_;
    std::uint64_t dropped_ = 0;
};

}  // namespace opus::replay
