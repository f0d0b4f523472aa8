// What decode() takes for a message, and msgpack's own parser for the same bytes when it makes nothing of them: medians
// of rounds that alternate. docs/decisions/026-the-reader-of-messages.md.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <msgpack.hpp>
#include <vector>

#include "opus/wire_codec.h"

namespace {

using namespace opus::wire;

bool decoded(const std::string& bytes) { return std::holds_alternative<Frame>(decode(bytes)); }
bool parsed(const std::string& bytes) {
    msgpack::null_visitor nothing;
    return msgpack::parse(bytes.data(), bytes.size(), nothing);
}
double ns(bool (*read)(const std::string&), const std::string& bytes) {
    const std::size_t times = 20'000'000 / bytes.size();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < times; ++i)
        if (!read(bytes)) std::abort();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    return took.count() / static_cast<double>(times);
}
double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

}  // namespace

int main() {
    constexpr std::int64_t kToday = 1'800'000'000'000'000'000;
    Demand demand;
    Snapshot snapshot;
    for (std::uint32_t i = 0; i < 512; ++i) {
        const opus::Key key{{0x123456789abcdef0, 0x0fedcba987654321}, opus::KeyKind::coll, 0, 0, 1000};
        const LaunchDemand launch{{i, 1000}, {{key}}, opus::OpKind::all_reduce, 1 << 20, kToday};
        if (i < 16) demand.launches.push_back(launch);
        snapshot.launches.push_back({launch, LaunchState::in_flight, i});
    }
    const Message messages[] = {demand,
                                snapshot,
                                Demand{{demand.launches[0]}},
                                Grant{1000, {{3, 1000}}, {}, {}},
                                Done{{{{3, 1000}, kToday, kToday, kToday}}},
                                Heartbeat{kToday}};
    std::printf("| message | bytes | decode ns | parse ns |\n| --- | --- | --- | --- |\n");
    for (const Message& message : messages) {
        std::string bytes;
        encode({1'800'000'000'000, 0x123456789abcdef0, 1000, {message}}, bytes);
        std::vector<double> decode_ns, parse_ns;
        for (int round = 0; round < 11; ++round) {
            decode_ns.push_back(ns(decoded, bytes));
            parse_ns.push_back(ns(parsed, bytes));
        }
        std::printf("| %s | %zu | %.0f | %.0f |\n", message_name(message), bytes.size(), median(decode_ns), median(parse_ns));
    }
}
