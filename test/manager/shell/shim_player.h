// Plays a shim: one rank of the manager's, from within the test's own process or a child of it.
#pragma once

#include <string>
#include <vector>

#include "opus/attach.h"
#include "opus/launch_ring.h"

namespace opus::manager::test {

class ShimPlayer {
public:
    ShimPlayer() = default;
    ShimPlayer(ShimPlayer&& other) noexcept;
    ShimPlayer& operator=(ShimPlayer&&) = delete;
    ~ShimPlayer();

    // Attaches; false when there was no answer or a refusal (status()).
    bool attach(const std::string& runtime_directory, const std::string& job, std::uint32_t hold_ms = 30'000);
    bool attach(const std::string& runtime_directory, const attach::AttachRequest& request, std::size_t bytes);
    attach::AttachStatus status() const { return reply_.status; }
    RankId rank() const { return reply_.rank_id; }
    const ring::View& view() const { return view_; }
    void* base() const { return base_; }
    std::size_t bytes() const { return reply_.bytes; }

    void register_comm(std::uint32_t index, CommId id, std::uint32_t rank, std::uint32_t size);
    void retire_comm(std::uint32_t index);
    std::uint64_t record(const std::vector<ring::OpEntry>& ops, ring::Gate gate, std::uint16_t flags = 0);
    void ready(std::uint64_t seq, bool ring_bell);
    void done(std::uint64_t seq, bool ring_bell);
    void doorbell();
    // The host gate's way: futex on go. False after `timeout_ms`.
    bool wait_go(std::uint64_t seq, int timeout_ms = 10'000);
    bool wait_verdict(std::uint32_t index, Verdict verdict, int timeout_ms = 10'000);
    std::uint64_t go(std::uint64_t seq) const;

private:
    int socket_ = -1, doorbell_ = -1;
    void* base_ = nullptr;
    attach::AttachReply reply_{};
    ring::View view_;
};

}  // namespace opus::manager::test
