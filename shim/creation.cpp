// How a communicator comes to be known: what is said of it before NCCL's creation, and after.
#include <cstdlib>

#include "shim/communicator.h"
#include "shim/hooks.h"
#include "shim/message.h"
#include "shim/mutation.h"
#include "shim/nccl_settings.h"
#include "shim/process.h"
#include "shim/thread_state.h"

namespace opus::shim {

using std::memory_order_acquire;
using std::memory_order_relaxed;

// A child that NCCL goes on to make. Its pointer is null until that ends, and only its parent says when (ncclCommSplit and
// ncclCommShrink of a non-blocking communicator, init.cc).
struct PendingChild {
    PendingChild* next;
    Creation creation;
    Communicator* made;  // it is there, and its user is not told before it is judged
};

namespace {

std::uint32_t next_family = 1;

bool free_for_use(const ring::CommEntry& entry) {
    const auto state = static_cast<ring::CommState>(entry.state.load(memory_order_acquire));
    if (state == ring::CommState::free) return true;
    return state == ring::CommState::retired && entry.freed.load(memory_order_acquire) == entry.generation;
}

// Under creation_lock. kNone: all of the segment's entries are taken.
std::uint32_t claim_entry() {
    static std::uint32_t from = 0;
    for (std::uint32_t i = 0; i < ring::kMaxComms; ++i) {
        const std::uint32_t index = (from + i) % ring::kMaxComms;
        if (!free_for_use(process.view.comms[index])) continue;
        from = index + 1;
        return index;
    }
    say_once(Level::warn, "more than %u communicators at once; the others run without Opus", ring::kMaxComms);
    return kNone;
}

std::uint32_t family_of(const Creation& creation) {
    if (nccl_says("NCCL_LAUNCH_ORDER_IMPLICIT", creation.in_order)) return 0x8000'0000u | creation.device;
    return creation.family != 0 ? creation.family : next_family++;
}

// GPU index of this rank on its node, where nobody knows the GPU itself (identity_of): OPUS_GPU, else the n-th of
// CUDA_VISIBLE_DEVICES where that is a list of numbers, else the ordinal itself.
std::uint32_t local_gpu(std::uint32_t device) {
    std::uint64_t n = 0;
    const char* given = process.settings.OPUS_GPU;
    if (given[0] != '\0') {
        if (parse_number(given, n) && n < kNone) return std::uint32_t(n);
        say_once(Level::warn, "OPUS_GPU=%.80s is not a GPU index; give 0, 1, ... (using the CUDA device)", given);
    }
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible == nullptr) return device;
    for (std::uint32_t at = 0;; ++at) {
        std::uint64_t value = 0;
        const char* digit = visible;
        for (; *digit >= '0' && *digit <= '9' && value < 1'000'000; ++digit)
            value = value * 10 + std::uint64_t(*digit - '0');
        if (digit == visible || (*digit != ',' && *digit != '\0')) return device;  // names, not numbers
        if (at == device) return std::uint32_t(value);
        if (*digit == '\0') return device;
        visible = digit + 1;
    }
}

// Which GPU it runs on. OPUS_GPU overrides what the driver says.
void name_gpu(ring::CommEntry& entry, std::uint32_t device) {
    const GpuIdentity gpu = process.settings.OPUS_GPU[0] == '\0' ? identity_of(device) : GpuIdentity{};
    entry.device = device;
    entry.pci = gpu.pci;
    entry.uuid = gpu.uuid;
    entry.ways = nccl_ways();
}

void publish(Creation& creation) {
    const LockGuard guard(creation_lock);
    creation.family = family_of(creation);
    if (creation.size <= 1) return;  // kNone: a child, of which only NCCL's creation can tell
    if (process.view.header->gpu == kNone) process.view.header->gpu = local_gpu(creation.device);
    creation.index = claim_entry();
    if (creation.index == kNone) return;
    ring::CommEntry& entry = process.view.comms[creation.index];
    entry.id = creation.id;
    entry.parent = creation.parent;
    entry.also = creation.also;
    entry.rank = creation.rank;
    entry.size = creation.size;
    name_gpu(entry, creation.device);
    entry.family = creation.family;
    entry.mode = std::uint32_t(process.mode);
    creation.generation = ++entry.generation;
    entry.open.store(0, memory_order_relaxed);
    entry.lost.store(0, memory_order_relaxed);
    entry.creation.store(std::uint32_t(CreationState::entered), memory_order_relaxed);
    const auto state = creation.size == kNone ? ring::CommState::entering : ring::CommState::registered;
    entry.state.store(std::uint32_t(state), std::memory_order_seq_cst);
    tell_change();
}

// NCCL's creation has returned: the entry has its rank and size now, unless it is alone in it.
void publish_created(Creation& creation) {
    if (creation.index == kNone) return;
    ring::CommEntry& entry = process.view.comms[creation.index];
    entry.creation.store(std::uint32_t(CreationState::returned), std::memory_order_seq_cst);
    if (entry.state.load(memory_order_relaxed) == std::uint32_t(ring::CommState::entering)) {
        if (creation.size <= 1) {
            retire_entry(creation.index);
            creation.index = kNone;
            return;
        }
        entry.rank = creation.rank;
        entry.size = creation.size;
        entry.state.store(std::uint32_t(ring::CommState::registered), std::memory_order_seq_cst);
        tell_change();
    } else if (entry.verdict.load(memory_order_relaxed) == std::uint32_t(Verdict::unknown)) {
        tell_change();  // else nobody waits for others any more
    }
}

// The members' counters, and the word that says what becomes of its launches.
bool settle(Communicator& c, const Creation& creation) {
    c.rank = creation.rank;
    c.size = creation.size;
    c.device = creation.device;
    c.family = creation.family;
    c.index = creation.index;
    c.generation = creation.generation;
    // Nothing of CUDA to do and nothing held: recorded, and that is all.
    c.close_fast_path();
    c.unconnected = 2 * (c.size - 1);
    const bool settled = (c.slow.load(memory_order_relaxed) & ~kSlowCreating) == 0;
    c.plain_verdict = c.gate == ring::Gate::none && !has_driver && settled ? std::uint32_t(Verdict::enforced) : kNotPlain;
    c.sends = static_cast<PeerSequence*>(calloc(creation.size, sizeof(PeerSequence)));
    c.recvs = static_cast<PeerSequence*>(calloc(creation.size, sizeof(PeerSequence)));
    if (c.sends == nullptr || c.recvs == nullptr) return false;
    if (c.size <= 1)
        c.verdict = &kAlwaysIntra;
    else
        c.verdict = c.index == kNone ? &kAlwaysPasses : &process.view.comms[c.index].verdict;
    return true;
}

ring::Gate gate_of(const DriverContext& context) {
    if (process.mode != Mode::enforce || process.gate == GateChoice::none) return ring::Gate::none;
    return process.gate != GateChoice::host && context.gate != nullptr ? ring::Gate::stream : ring::Gate::host;
}

// Rank, size and device from NCCL, for children. False while it is not ready.
bool ask_nccl(ncclComm_t handle, Creation& creation) {
    int rank = -1, size = -1, device = -1;
    const Inside inside;
    if (getters.ncclCommCount == nullptr || getters.ncclCommUserRank == nullptr) return false;
    if (getters.ncclCommCount(handle, &size) != ncclSuccess || getters.ncclCommUserRank(handle, &rank) != ncclSuccess)
        return false;
    if (size < 1 || rank < 0) return false;
    if (getters.ncclCommCuDevice != nullptr && getters.ncclCommCuDevice(handle, &device) == ncclSuccess && device >= 0)
        creation.device = std::uint32_t(device);
    creation.rank = std::uint32_t(rank);
    creation.size = std::uint32_t(size);
    return true;
}

// NCCL may have made it, and the process have no memory for it: nobody is to wait.
Communicator* give_up(const Creation& creation, Communicator* c) {
    retire_entry(creation.index);
    release(c);
    return nullptr;
}

// NCCL goes on to make a child, and gives its pointer when that ends.
bool defer_child(const Creation& creation) {
    Communicator* parent = creation.from == nullptr ? nullptr : communicators.find(creation.from);
    auto* child = parent == nullptr ? nullptr : static_cast<PendingChild*>(malloc(sizeof(PendingChild)));
    if (child == nullptr) return false;
    child->creation = creation;
    child->made = nullptr;
    const LockGuard guard(parent->settling);
    child->next = parent->children;
    parent->children = child;
    parent->settle_later(kSlowChildren);
    parent->plain_verdict = kNotPlain;
    parent->close_fast_path();
    return true;
}

bool wants_verdict(const Communicator& c) { return c.size > 1 && process.mode == Mode::enforce; }

}  // namespace

void register_early(Creation& creation) {
    if (creation.device == kNone) creation.device = current_device();
    if (creation.context == nullptr) creation.context = driver_context();
    publish(creation);
}

Communicator* conclude(Creation& creation, ncclResult_t result) {
    ncclComm_t handle = creation.out != nullptr ? *creation.out : nullptr;
    const bool is_late = handle == nullptr && result == ncclInProgress && kMutation != Mutation::forget_late_children;
    if (is_late && defer_child(creation)) return nullptr;
    const bool made = (result == ncclSuccess || result == ncclInProgress) && handle != nullptr;
    auto* c = made ? static_cast<Communicator*>(calloc(1, sizeof(Communicator))) : nullptr;
    if (c == nullptr) return give_up(creation, nullptr);
    c->handle = handle;
    c->id = creation.id;
    c->parent = creation.parent;
    c->joined = creation.joins;
    c->split_shares = creation.split_shares;
    c->shrink_shares = creation.shrink_shares;
    c->in_order = creation.in_order;
    c->context = creation.context != nullptr && creation.context->handle != nullptr ? creation.context : driver_context();
    c->gate = gate_of(*c->context);
    c->device = creation.device;
    c->family = creation.family;
    c->index = creation.index;
    c->generation = creation.generation;
    c->verdict = &kAlwaysPasses;
    const bool whole = creation.size != kNone || (result == ncclSuccess && ask_nccl(handle, creation));
    const bool ended = whole && result != ncclInProgress;
    if (!ended) c->settle_later(kSlowCreating);
    if (ended) publish_created(creation);
    if (whole && !settle(*c, creation)) return give_up(creation, c);
    {
        const LockGuard guard(creation_lock);
        release(communicators.remove(handle));  // a pointer that came back without a destroy we saw
        if (!communicators.insert(handle, c)) return give_up(creation, c);
    }
    return ended && wants_verdict(*c) ? c : nullptr;
}

void created(Communicator& c, ncclResult_t result) {
    if (result == ncclInProgress) return;
    Creation creation;
    creation.device = c.device;
    creation.family = c.family;
    creation.index = c.index;
    creation.generation = c.generation;
    creation.rank = c.rank;
    creation.size = c.size;
    const bool whole = c.sends != nullptr;
    if (result == ncclSuccess && !whole && !ask_nccl(c.handle, creation)) return;
    if (result == ncclSuccess) {
        publish_created(creation);
        if (!whole && !settle(c, creation)) result = ncclSystemError;
    }
    if (result != ncclSuccess) {
        retire_entry(c.index);
        c.index = kNone;
        c.verdict = &kAlwaysPasses;
    } else if (process.require == Require::enforcement && wants_verdict(c)) {
        c.made_ns = monotonic_ns();
        c.settle_later(kSlowRequired);
    }
    c.settled(kSlowCreating);
}

ncclResult_t settle_children(Communicator& parent, ncclResult_t result) {
    if (result == ncclInProgress) return result;
    PendingChild** at = &parent.children;
    while (*at != nullptr) {
        PendingChild* child = *at;
        ncclResult_t state = ncclSuccess;
        if (child->made == nullptr) {
            Communicator* made = conclude(child->creation, result);
            if (made != nullptr && process.require == Require::enforcement) {
                made->made_ns = monotonic_ns();
                child->made = made;
            }
        }
        if (child->made != nullptr && (state = required_state(*child->made)) != ncclSuccess) result = state;
        if (state == ncclInProgress) {
            at = &child->next;
            continue;
        }
        if (state != ncclSuccess) refuse(*child->made, child->creation.out);
        *at = child->next;
        free(child);
    }
    if (parent.children == nullptr) parent.settled(kSlowChildren);
    return result;
}

void forget_children(Communicator& parent) {
    const LockGuard guard(parent.settling);
    while (PendingChild* child = parent.children) {
        if (child->made == nullptr) retire_entry(child->creation.index);
        parent.children = child->next;
        free(child);
    }
    parent.settled(kSlowChildren);
}

}  // namespace opus::shim
