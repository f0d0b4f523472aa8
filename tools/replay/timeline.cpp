#include "tools/replay/timeline.h"

#include <ctime>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tools/replay/player.h"

namespace opus::replay {

std::int64_t realtime_ns() {
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

void Timeline::add(const std::string& name, const char* kind, std::uint32_t stream, std::int64_t begin_ns,
                   std::int64_t end_ns) {
    const std::lock_guard lock(mutex_);
    if (spans_.size() < kMaxSpans)
        spans_.push_back({name, kind, stream, begin_ns, end_ns});
    else
        ++dropped_;
}

void Timeline::write(const std::string& path, std::uint32_t rank, const std::vector<std::string>& streams) const {
    const std::lock_guard lock(mutex_);
    std::ofstream out(path);
    using Json = nlohmann::ordered_json;
    const auto emit = [&](const Json& j) { out << j.dump() << '\n'; };
    emit({{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", "rank " + std::to_string(rank)}}}});
    for (std::size_t s = 0; s < streams.size(); ++s)
        emit({{"ph", "M"}, {"pid", rank}, {"tid", s}, {"name", "thread_name"}, {"args", {{"name", streams[s]}}}});
    for (const Span& s : spans_)
        emit({{"ph", "X"},
              {"pid", rank},
              {"tid", s.stream},
              {"name", s.name},
              {"cat", s.kind},
              {"ts", static_cast<double>(s.begin_ns) / 1e3},
              {"dur", static_cast<double>(s.end_ns - s.begin_ns) / 1e3}});
    if (dropped_ != 0)
        emit({{"ph", "M"},
              {"pid", rank},
              {"name", "process_labels"},
              {"args", {{"labels", std::to_string(dropped_) + " spans not kept"}}}});
    if (!out) throw PlayError(kExitUsage, "cannot write " + path);
}

}  // namespace opus::replay
