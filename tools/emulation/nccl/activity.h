// What runs on the transport thread for a communicator: launches (the kernels) and the making of
// connections.
#pragma once

#include <functional>
#include <future>
#include <vector>

#include "collective.h"
#include "comm_core.h"
#include "engine/engine.h"

namespace opus::standin {

// A call of a group, without its number.
struct KernelCall {
    bool transfer = false;
    CollectiveCall collective;
    TransferCall p2p;
};

// One run of a kernel: all that a group gave one communicator. A captured kernel runs often.
struct Launch : Activity, std::enable_shared_from_this<Launch> {
    CommRef core;
    std::vector<KernelCall> calls;  // in program order
    OpRef op;                       // completed at the end

    void start();  // transport thread
    void check() override;
    void fail(int result) override;
    bool ended() const { return ended_; }

private:
    std::vector<std::unique_ptr<Collective>> running_collectives_;
    std::vector<std::unique_ptr<Transfer>> running_transfers_;
    bool started_ = false, ended_ = false;
    void end();
    void add(TransferCall call);
    void add(CollectiveCall call);
};

// First uses, made on the host before the launch: each edge by both its ends, over the way its data will go.
struct Connecting : Activity, std::enable_shared_from_this<Connecting> {
    struct Edge {
        ConnectionId id;
        bool done = false;
    };
    CommRef core;
    std::vector<Edge> edges;
    std::promise<int> result;  // ncclResult_t

    void start();
    void connect_came(const ConnectionId& id);    // to the receiving end
    void connected_came(const ConnectionId& id);  // to the sending end
    void check() override;
    void fail(int result) override;

private:
    bool ended_ = false;
    void answer(Edge& edge);
};

void dispatch(CommCore& core, const Head& head, const std::byte* data);

}  // namespace opus::standin
