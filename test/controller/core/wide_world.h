// The core alone with many nodes: one rail, one GPU of two ports a node, one switch that obeys at once. No sockets.
// What the core does with an event that is `watched` runs inside measured_event(), which callgrind counts, and its CPU
// time is added up. For growth_test.py and for bench_core_scaling.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "controller/core/core.h"

namespace opus::controller::test {

double cpu_us();    // of this thread
double clock_us();  // by the clock: for what is shorter than cpu_us takes

class WideWorld {
public:
    explicit WideWorld(std::uint32_t nodes, CoreOptions options = {});

    // Before start(): a communicator of the nodes in this order.
    void join(CommId comm, const std::vector<std::uint32_t>& order);
    void start();

    // The launches of nodes from .. to - 1 for their n-th collective of `comm`.
    void demand(CommId comm, std::uint64_t n, std::uint32_t from, std::uint32_t to);
    void done(std::uint32_t from, std::uint32_t to);     void give_back();                                    // every node: the run that is asked back, with nothing started
    void expect(std::uint64_t granted);                  // since the last time; throws
    void wake();                                         // at the time that the core asked for
    void pass_time(TimeNs ns) { now_ += ns; }
    // Another controller takes over; the n-th collective of `comm` is in flight, and its circuits are up.
    void restart(CommId comm, std::uint64_t n);
    void lose_circuit();  // another hand turns the first that there is; seen when the map is read again

    std::uint32_t nodes() const { return std::uint32_t(fabric_.nodes.size()); }
    const Fabric& fabric() const { return fabric_; }
    const Core& core() const { return *core_; }
    TimeNs now() const { return now_; }

    void watch(bool yes) { watched_ = yes; }
    double last_us() const { return last_us_; }  // of the last event from outside
    double spent_us() const { return spent_us_; }
    double longest_us() const { return longest_us_; }
    void time_by_cpu(bool yes) { clock_ = yes ? cpu_us : clock_us; }
    void forget() { spent_us_ = longest_us_ = 0; }
    // Watched events end with std::runtime_error once they have taken so long.
    void give_up_after(double us) { limit_us_ = us; }

private:
    void feed(const Event& event);
    void on(const Event& event);
    void take_answers(std::vector<Event>& answers);
    void turn(const Program& program);
    wire::Snapshot snapshot_of(std::uint32_t node) const;
    void begin();

    Fabric fabric_;
    CoreOptions options_;
    std::unique_ptr<Core> core_;
    Actions actions_;
    std::vector<std::vector<wire::CommMember>> members_;       // by node
    std::vector<std::vector<wire::LaunchSnapshot>> launches_;  // by node, of the next snapshot
    std::vector<std::uint64_t> seq_;
    std::vector<PortId> peer_;
    std::vector<std::pair<NodeIndex, std::uint64_t>> asked_back_;  // node, run
    std::uint64_t session_ = 0;                                    // of all nodes
    TimeNs now_ = 0, wake_ = -1;
    bool watched_ = true;
    double last_us_ = 0, spent_us_ = 0, longest_us_ = 0, limit_us_ = 0;
    double (*clock_)() = clock_us;
    std::uint64_t granted_ = 0;
};

}  // namespace opus::controller::test
