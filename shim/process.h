// What this process is to Opus: its settings, its segment, and whether it still takes part.
// One object, constant-initialised: it is used before any constructor has run.
#pragma once

#include <atomic>
#include <cstdint>

#include "opus/launch_ring.h"
#include "opus/opus.h"
#include "opus/types.h"
#include "shim/lock.h"
#include "shim/settings.h"

namespace opus::shim {

// The segment, and what this process remembers of it.
struct Ring : ring::View {
    std::atomic<std::uint64_t>* head = nullptr;  // the header's: one instruction less on the way of a push
    // Slots from the head to here may be claimed, by the manager's words as last looked at. Only grows; spares the usual
    // push the manager's cache line.
    std::atomic<std::uint64_t> limit{0};
    // The heartbeat through which somebody waited for a slot in vain. While it stays that, nobody waits again.
    std::atomic<std::uint64_t> full_beat{0};

    void lie_on(const ring::View& view) {
        static_cast<ring::View&>(*this) = view;
        head = view.header != nullptr ? &view.header->head : nullptr;
        limit.store(0, std::memory_order_relaxed);
        full_beat.store(0, std::memory_order_relaxed);
    }
};

// A descriptor in a process whose program may close all that it does not know, and use the number for a file of its own
// (daemons do): it is known by its inode, and looked at before each use.
class OwnDescriptor {
public:
    void take(int fd);
    bool is_ours() const;
    int fd() const { return fd_.load(std::memory_order_relaxed); }
    void close_if_ours();

protected:
    bool is_same(int fd) const;
    std::atomic<int> fd_{-1};
    std::uint64_t device_ = 0, inode_ = 0;
};

// Wakes the manager; opened again where the program has closed it.
class Doorbell : public OwnDescriptor {
public:
    void take(int fd);
    void ring();

private:
    void reopen();
    char path_[256] = {};
};

struct Process {
    Settings settings;
    Mode mode = Mode::off;
    Policy policy = Policy::proceed;
    GateChoice gate = GateChoice::automatic;
    Require require = Require::nothing;
    std::uint64_t hold_ns = 0;
    bool unfit = false;            // NCCL is told what circuits cannot serve (nccl_settings.h)
    std::uint16_t lone_flags = 0;  // of the record of a launch on one stream

    // Valid once attached; then constant until the process ends.
    Ring view;
    OwnDescriptor socket;
    Doorbell doorbell;
    std::atomic<bool> attached{false};

    void read_settings();
    // Registers the fork handler: the child is inert. False: it could not be, so neither are we active.
    bool watch_fork();
    // Meets the manager, at the first communicator. `meeting`: what names that (job_name.h). False, now and ever after:
    // this process is inert.
    bool attach(const CommId& meeting);
    // Stops taking part, for good.
    void retreat();

    opus_state_t state() const;

private:
    Lock attach_lock_;
    bool attach_tried_ = false;

    static void in_child();
};

[[gnu::visibility("hidden")]] extern Process process;

// The manager knows what this minor version of the ring has.
inline bool serves_minor(std::uint32_t minor) {
    return (process.view.header->version.load(std::memory_order_relaxed) & 0xffff) >= minor;
}

// Wakes a sleeping manager. After a sequentially consistent store of a word that it waits for.
void ring_doorbell_now();
inline void ring_doorbell() {
    if (process.view.header->asleep.load(std::memory_order_seq_cst) != 0) [[unlikely]]
        ring_doorbell_now();
}

std::uint64_t monotonic_ns();

}  // namespace opus::shim
