#include "shim/process.h"

#include <pthread.h>
#include <unistd.h>
#include <ctime>

#include "shim/attach.h"
#include "shim/hooks.h"
#include "shim/message.h"
#include "shim/nccl_settings.h"
#include "shim/road_notes.h"

namespace opus::shim {

constinit Process process;

void Process::read_settings() {
    settings.read();
    mode = settings.mode();
    policy = settings.policy();
    gate = settings.gate();
    require = settings.require();
    hold_ns = settings.OPUS_HOLD_MS * 1'000'000;
}

bool Process::watch_fork() { return pthread_atfork(nullptr, nullptr, &Process::in_child) == 0; }

// The parent's segment is not the child's, nor is its place at the manager: the socket's end tells the
// manager of a death, so no child may keep it open.
void Process::in_child() {
    if (!process.attached.load(std::memory_order_relaxed)) {
        process.attach_lock_.reset();
        return;
    }
    close(process.socket);
    close(process.doorbell);
    process.retreat();
}

bool Process::attach() {
    if (attached.load(std::memory_order_acquire)) return true;
    const LockGuard guard(attach_lock_);
    if (attach_tried_) return attached.load(std::memory_order_relaxed);
    attach_tried_ = true;
    const Attachment met = meet_manager(settings, mode, policy);
    note_road("state\t%s\t%s", met.base == nullptr ? "inert" : mode == Mode::enforce ? "enforce" : "observe", met.why);
    if (met.base == nullptr) {
        if (require != Require::nothing)
            say(Level::error, "%s; %s (start opus-manager, or set OPUS_SOCKET)", met.why,
                require == Require::enforcement ? "OPUS_REQUIRE=enforce: it makes no communicator"
                                                : "this process runs without Opus");
        if (require != Require::enforcement) retreat();  // else the hooks refuse
        return false;
    }
    unfit = mode == Mode::enforce && !nccl_settings_fit();
    lone_flags = std::uint16_t(ring::kLaunchSkips | ring::kLaunchHostDone | (mode == Mode::observe ? ring::kLaunchUngated : 0));
    view.lie_on(ring::view_of(met.base, met.slots));
    socket = met.socket;
    doorbell = met.doorbell;
    attached.store(true, std::memory_order_release);
    return true;
}

void Process::retreat() {
    attached.store(false, std::memory_order_relaxed);
    point_slots_at_real();
}

opus_state_t Process::state() const {
    if (attached.load(std::memory_order_acquire))
        return mode == Mode::enforce ? OPUS_STATE_ENFORCE : OPUS_STATE_OBSERVE;
    return mode == Mode::off ? OPUS_STATE_OFF : OPUS_STATE_INERT;
}

void ring_doorbell_now() {
    const char byte = 1;
    const ssize_t ignored = write(process.doorbell, &byte, 1);
    (void)ignored;
}

std::uint64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::uint64_t(now.tv_sec) * 1'000'000'000 + std::uint64_t(now.tv_nsec);
}

}  // namespace opus::shim
