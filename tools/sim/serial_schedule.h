// A schedule of circuits by somebody who knows the whole job: uses are taken one after the other, in an order that is
// given; each turns the ports that it lacks as soon as their last use before it is over, however long before it
// begins itself. No message, no time to decide. When a use begins each of its pairs has light, and the rest of its
// circuits has it or is being turned.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/sim/task_graph.h"

namespace opus::sim {

class SerialSchedule {
public:
    static constexpr std::uint32_t kNoUse = TaskGraph::kNoUse;

    struct Begun {
        std::int64_t full_ns = 0, begin_ns = 0;
        std::int64_t blocked_ns = 0;  // until then by the last use of its ports, which is
        std::uint32_t blocker = kNoUse;
        std::uint32_t place = 0;  // in the order
    };

    SerialSchedule(const TaskGraph& graph, std::int64_t dark_ns);

    // `rank`: by number of use; in an iteration, the one with the lowest of those that can be next is next. Those of
    // an iteration go before those of later ones.
    void play(const std::vector<double>& rank);

    const std::vector<Begun>& uses() const { return begun_; }
    const std::vector<std::uint32_t>& order() const { return order_; }
    std::int64_t end_of(std::uint32_t iteration) const;
    std::int64_t held_ns(std::uint32_t from_iteration) const;

private:
    struct Port {
        std::uint32_t peer = kNoUse;
        std::uint32_t last = kNoUse;  // use
        std::int64_t free_ns = 0;     // its last use is over
        std::int64_t lit_ns = 0;
        bool taken = false;
    };

    struct Missing {  // of a use
        const TaskGraph::Need* need = nullptr;
        std::uint32_t circuits = 0;
        std::int64_t lit_ns = 0;  // the first of the pair's
    };

    void pass(std::uint32_t moment, std::int64_t ns);
    void serve(std::uint32_t use, std::int64_t full);
    std::int64_t turn(const TaskGraph::Need& need, Begun& b, bool first);
    std::uint32_t earliest(GpuId gpu) const;

    const TaskGraph& graph_;
    std::int64_t dark_ns_;
    std::vector<std::int64_t> time_;  // of moments: the latest of what is before them, until they have come themselves
    std::vector<std::uint32_t> waits_, done_;
    std::vector<Port> ports_;
    std::vector<std::uint32_t> taken_;  // while a use is served
    std::vector<Missing> missing_;      // likewise
    std::vector<Begun> begun_;
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> due_;  // uses that can be next
};

}  // namespace opus::sim
