// Orders that are looked for beside everything else.
#include <doctest/doctest.h>
#include <poll.h>

#include <memory>
#include <vector>

#include "controller/shell/thinker.h"

using namespace opus;
using namespace opus::controller;

namespace {

std::shared_ptr<const plan::Task> no_uses() {
    plan::Task task;
    task.trials = 1;
    return std::make_shared<const plan::Task>(std::move(task));
}

std::vector<Thought> next_of(Thinker& thinker) {
    std::vector<Thought> thoughts;
    pollfd readable{thinker.descriptor(), POLLIN, 0};
    if (poll(&readable, 1, 60'000) == 1) thinker.take(thoughts);
    return thoughts;
}

}  // namespace

TEST_CASE("what nobody waits for any more is not looked for, and the rest is, in its order") {
    const Fabric fabric;
    Thinker thinker(fabric);
    const auto kept = no_uses(), again = no_uses();
    thinker.begin({1, no_uses()});
    thinker.begin({2, kept});
    thinker.begin({3, no_uses()});
    thinker.begin({4, again});
    std::vector<std::uint64_t> ids;
    while (ids.size() < 2) {
        const auto thoughts = next_of(thinker);
        REQUIRE(!thoughts.empty());
        for (const Thought& thought : thoughts) ids.push_back(thought.id);
    }
    CHECK(ids == std::vector<std::uint64_t>{2, 4});
}
