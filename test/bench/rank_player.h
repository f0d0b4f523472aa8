// Plays the shim's side of one rank: attach, register, record, ready, wait for go, done. No NCCL, no
// CUDA: what is timed is the way a launch takes, not the library around it. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "opus/launch_ring.h"

namespace opus::bench {

// What a rank shares with its manager, or with the bare relay that stands in for one.
struct Segment {
    void* base = nullptr;
    std::size_t bytes = 0;
    ring::View view;
    int doorbell = -1;
    int socket = -1;  // kept open: its end tells the manager of our death
    ~Segment();
};

class RankPlayer {
public:
    // Over the manager's socket (attach.h). `gpu` is the local index of the rank's GPU. Throws
    // std::runtime_error with the reason.
    static RankPlayer attach(const std::string& socket_path, std::uint32_t gpu, const std::string& job);
    // Over a segment made elsewhere.
    explicit RankPlayer(std::unique_ptr<Segment> segment) : segment_(std::move(segment)) {}

    std::uint32_t register_comm(const CommId& id, std::uint32_t rank, std::uint32_t size);
    Verdict wait_verdict(std::uint32_t index, TimeNs timeout_ns);

    // One launch. Returns its sequence. Rings nobody: ready() does.
    std::uint64_t record(const std::vector<ring::OpEntry>& ops, ring::Gate gate = ring::Gate::host);
    void ready(std::uint64_t seq);
    // ready() in two halves, so that several ranks can be ready before the manager is woken.
    void store_ready(std::uint64_t seq);
    void ring();
    bool wait_go(std::uint64_t seq, TimeNs timeout_ns);
    void done(std::uint64_t seq);
    // As a GPU does it: nobody is rung, and go is watched without sleep. Time from the store to go, or -1.
    TimeNs ready_unrung(std::uint64_t seq, TimeNs timeout_ns);
    void done_unrung(std::uint64_t seq);
    // The manager has seen `done` and freed the slot.
    bool wait_retired(std::uint64_t seq, TimeNs timeout_ns);

private:
    std::unique_ptr<Segment> segment_;
    std::uint32_t comms_ = 0;
};

// The n-th collective of a communicator, or the n-th transfer to or from a peer.
ring::OpEntry operation(OpKind kind, std::uint32_t comm_index, std::uint64_t n, std::uint32_t peer = 0);

TimeNs now_ns();  // CLOCK_MONOTONIC
void sleep_ns(TimeNs duration);
void pin_to(int core);  // this process; negative: leaves it

}  // namespace opus::bench
