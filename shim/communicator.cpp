#include "shim/communicator.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdlib>

#include "shim/captured.h"
#include "shim/hooks.h"
#include "shim/identity.h"
#include "shim/message.h"
#include "shim/process.h"
#include "shim/thread_state.h"
#include "shim/windows.h"

namespace opus::shim {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

constinit CommunicatorTable communicators;
constinit Lock creation_lock;
constinit const std::atomic<std::uint32_t> kAlwaysIntra{std::uint32_t(Verdict::intra)};
constinit const std::atomic<std::uint32_t> kAlwaysPasses{std::uint32_t(Verdict::passes)};

namespace {

// Stands where one was, so that chains through it hold. Its handle is nobody's.
Communicator removed{};

Occurrences occurrences;

// Communicators that were destroyed, oldest overwritten first.
constexpr std::uint32_t kRemembered = 64;
Communicator* remembered[kRemembered];
std::uint32_t remembered_next = 0;

}  // namespace

bool CommunicatorTable::insert(ncclComm_t comm, Communicator* value) {
    value->handle = comm;
    for (std::atomic<Communicator*>* at = &buckets_[bucket(comm)];; ++at) {
        Communicator* found = at->load(memory_order_relaxed);
        if (found != nullptr && found != &removed) continue;
        if (found == nullptr && used_ >= kMost) return false;
        if (found == nullptr) ++used_;
        at->store(value, memory_order_release);
        return true;
    }
}

Communicator* CommunicatorTable::remove(ncclComm_t comm) {
    std::atomic<Communicator*>* at = &buckets_[bucket(comm)];
    Communicator* found = at->load(memory_order_relaxed);
    for (; found != nullptr && found->handle != comm; found = at->load(memory_order_relaxed)) ++at;
    if (found == nullptr) return nullptr;
    at->store(&removed, memory_order_release);
    // Removed ones before an empty place are on nobody's way.
    while (at[1].load(memory_order_relaxed) == nullptr && at->load(memory_order_relaxed) == &removed) {
        at->store(nullptr, memory_order_release);
        --used_;
        if (at == buckets_) break;
        --at;
    }
    return found;
}

// After an entry was written: the manager looks at the table when this has grown.
void tell_change() {
    process.view.header->comm_changes.fetch_add(1, std::memory_order_seq_cst);
    ring_doorbell();
}

void retire_entry(std::uint32_t index) {
    if (index == kNone) return;
    std::atomic<std::uint32_t>& state = process.view.comms[index].state;
    const bool placed = state.load(memory_order_relaxed) != std::uint32_t(ring::CommState::entering);
    state.store(std::uint32_t(placed ? ring::CommState::retired : ring::CommState::free), std::memory_order_seq_cst);
    tell_change();
}

void release(Communicator* c) {
    if (c == nullptr) return;
    free(c->sends);
    free(c->recvs);
    free(c->puts);
    free(c);
}

ring::CommEntry* Communicator::entry() const { return index == kNone ? nullptr : &process.view.comms[index]; }

void Communicator::count_lost() {
    process.view.header->lost.fetch_add(1, memory_order_relaxed);
    if (index == kNone) return;
    entry()->lost.fetch_add(1, std::memory_order_seq_cst);
    tell_change();
}

void Communicator::open_fast_path() {
    fast_path_verdict = std::uint32_t(Verdict::enforced);
    ring_verdict = ring_connected ? fast_path_verdict : kNotPlain;
    mesh_verdict = unconnected == 0 ? fast_path_verdict : kNotPlain;
}

std::uint64_t occurrence_of(const CommId& what) {
    const LockGuard guard(creation_lock);
    return occurrences.next(what);
}

Communicator* forget(ncclComm_t comm) {
    const LockGuard guard(creation_lock);
    return communicators.remove(comm);
}

void retire(Communicator* c) {
    if (c == nullptr) return;
    forget_children(*c);
    end_lasting(*c);
    end_pins(*c);
    retire_entry(c->index);
    const LockGuard guard(creation_lock);
    release(remembered[remembered_next]);
    remembered[remembered_next] = c;
    remembered_next = (remembered_next + 1) % kRemembered;
}

}  // namespace opus::shim
