// Who cannot have yet what it wants first lets its light go to who sends to it meanwhile (docs/protocol.md).
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "tools/replay/workload_builder.h"
#include "tools/sim/columns.h"
#include "tools/sim/job_map.h"

using namespace opus;
using namespace opus::sim;

namespace {

constexpr double kDarkMs = 25;
constexpr std::uint32_t kLearned = 2;  // launches of each rank before what is looked at
constexpr std::uint32_t kBusyMs = 60, kSendMs = 400;

// Four stages in a ring. After two transfers each, by which ports prove themselves, each is to send to the next and to
// receive from the one before; the third sends first, and the fourth sends before that.
replay::Workload ring() {
    using replay::StepKind;
    replay::WorkloadBuilder b("ring", 4, 1, 1);
    for (std::uint32_t i = 0; i < 4; ++i) b.comm("to" + std::to_string((i + 1) % 4), "", {{i, (i + 1) % 4}});
    const auto send = [&](std::uint32_t from, const char* stream) {
        b.transfer(StepKind::send, "to" + std::to_string((from + 1) % 4), 1, stream, 1024);
    };
    const auto receive = [&](std::uint32_t to, const char* stream) {
        b.transfer(StepKind::recv, "to" + std::to_string(to), 0, stream, 1024);
    };
    const std::uint32_t sends_after_ms[] = {900, kSendMs, 600, 300};
    for (std::uint32_t r = 0; r < 4; ++r) {
        b.role("r" + std::to_string(r), {r});
        b.compute("c", 50'000);
        r % 2 != 0 ? send(r, "c") : receive(r, "c");
        b.compute("c", 50'000);
        r % 2 != 0 ? receive(r, "c") : send(r, "c");
        b.after("r", "c", "begun");
        if (r == 1) b.compute("r", 1000 * kBusyMs);
        receive(r, "r");
        b.compute("c", 1000 * sends_after_ms[r]);
        send(r, "c");
    }
    return b.workload();
}

wire::Expectation transfer_to(std::uint32_t to, std::uint64_t n, std::uint32_t due_ms) {
    wire::KeyRange range;
    range.first.kind = KeyKind::p2p;
    range.first.comm = JobMap::comm_id((to + 3) % 4, 0);
    range.first.src = 0;
    range.first.dst = 1;
    range.first.n = n;
    return {0, {range}, true, due_ms};
}

// How long the second rank's last transfer waits. The third has said that it wants the fourth, the second in the end
// that it wants the third, and that that is due then.
double waits_ms(bool fourth_is_busy, std::uint32_t due_ms) {
    ColumnOptions o;
    o.dark_ns = static_cast<TimeNs>(kDarkMs * 1e6);
    o.learned = 0;
    o.rehearsal.iterations = 1;
    o.rehearsal.bytes_per_us *= 1024;
    o.rails.runs = false;
    std::vector<std::uint32_t> done(4);
    o.rails.tamper = [&](NodeIndex node, std::vector<wire::Message>& messages) {
        std::erase_if(messages, [](const auto& m) { return std::holds_alternative<wire::Next>(m); });
        bool asks = false, ends = false;
        for (const wire::Message& message : messages) {
            asks |= std::holds_alternative<wire::Demand>(message);
            if (const auto* d = std::get_if<wire::Done>(&message); d != nullptr && !d->launches.empty()) {
                ends = true;
                done[node] += static_cast<std::uint32_t>(d->launches.size());
            }
        }
        std::optional<wire::Expectation> word;
        if (ends && done[node] == 1) word = transfer_to(node % 2 != 0 ? node : node + 1, 0, 0);
        if (ends && done[node] == kLearned && node == 2) word = transfer_to(3, 1, 600);
        if (ends && done[node] == kLearned && node % 3 == 0 && fourth_is_busy) word = transfer_to(0, 1, 300);
        if (asks && done[node] == kLearned && node == 1) word = transfer_to(2, 1, due_ms);
        if (word) messages.push_back(wire::Next{{*word}});
    };
    const Column column = play(ring(), Rails::provisioned, o);
    REQUIRE(column.ended);
    CHECK(column.fault == "");
    CHECK(column.counters.suspensions == 0);
    for (const replay::RehearsedLaunch& launch : column.run.ranks[1])
        if (launch.seq == kLearned + 1) return static_cast<double>(launch.begin_ns - launch.ready_ns) / 1e6;
    return -1;
}

}  // namespace

TEST_CASE("who cannot have yet what it wants first lets its light go to who sends to it soon") {
    CHECK(waits_ms(true, 100) < 1);
    CHECK(waits_ms(false, 100) >= kDarkMs);  // the fourth has not said that it wants something else
    CHECK(waits_ms(true, 600) >= kDarkMs);   // what the fourth wants may be over by then
    CHECK(waits_ms(true, 0) >= kDarkMs);     // a manager that does not say when
}
