#include "shim/communicator.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdlib>

#include "shim/hooks.h"
#include "shim/identity.h"
#include "shim/message.h"
#include "shim/process.h"
#include "shim/thread_state.h"

namespace opus::shim {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

constinit CommunicatorTable communicators;
constinit const std::atomic<std::uint32_t> kAlwaysIntra{std::uint32_t(Verdict::intra)};
constinit const std::atomic<std::uint32_t> kAlwaysPasses{std::uint32_t(Verdict::passes)};

namespace {

// Stands where one was, so that chains through it hold. Its handle is nobody's.
Communicator removed{};

Lock creation_lock;
Occurrences occurrences;
std::uint32_t next_family = 1;

// Communicators that were destroyed, oldest overwritten first.
constexpr std::uint32_t kRemembered = 64;
Communicator* remembered[kRemembered];
std::uint32_t remembered_next = 0;

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
    // NCCL_LAUNCH_ORDER_IMPLICIT=1 serialises all communicators of a device.
    static const char* implicit = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    if (implicit != nullptr && implicit[0] == '1') return 0x8000'0000u | creation.device;
    return creation.family != 0 ? creation.family : next_family++;
}

// GPU index of this rank on its node: OPUS_GPU, else the n-th of CUDA_VISIBLE_DEVICES where that is a
// list of numbers, else the ordinal itself.
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

// After an entry was written: the manager looks at the table when this has grown.
void tell_change() {
    process.view.header->comm_changes.fetch_add(1, std::memory_order_seq_cst);
    ring_doorbell();
}

void publish(Creation& creation) {
    const LockGuard guard(creation_lock);
    creation.family = family_of(creation);
    if (creation.size <= 1) return;
    if (process.view.header->gpu == kNone) process.view.header->gpu = local_gpu(creation.device);
    creation.index = claim_entry();
    if (creation.index == kNone) return;
    ring::CommEntry& entry = process.view.comms[creation.index];
    entry.id = creation.id;
    entry.parent = creation.parent;
    entry.rank = creation.rank;
    entry.size = creation.size;
    entry.device = creation.device;
    entry.family = creation.family;
    entry.mode = std::uint32_t(process.mode);
    creation.generation = ++entry.generation;
    entry.open.store(0, memory_order_relaxed);
    entry.lost.store(0, memory_order_relaxed);
    entry.state.store(std::uint32_t(ring::CommState::registered), std::memory_order_seq_cst);
    tell_change();
}

void retire_entry(std::uint32_t index) {
    if (index == kNone) return;
    process.view.comms[index].state.store(std::uint32_t(ring::CommState::retired), std::memory_order_seq_cst);
    tell_change();
}

void release(Communicator* c) {
    if (c == nullptr) return;
    free(c->sends);
    free(c->recvs);
    free(c);
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
    c.straight_verdict = kNotPlain;
    c.plain_verdict = c.gate == ring::Gate::none && !has_driver ? std::uint32_t(Verdict::enforced) : kNotPlain;
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

ring::CommEntry* Communicator::entry() const { return index == kNone ? nullptr : &process.view.comms[index]; }

void Communicator::count_lost() {
    process.view.header->lost.fetch_add(1, memory_order_relaxed);
    if (index == kNone) return;
    entry()->lost.fetch_add(1, std::memory_order_seq_cst);
    tell_change();
}

std::uint64_t occurrence_of(const CommId& what) {
    const LockGuard guard(creation_lock);
    return occurrences.next(what);
}

void register_early(Creation& creation) {
    if (creation.device == kNone) creation.device = current_device();
    creation.context = driver_context();
    if (creation.rank != kNone && creation.size != kNone) publish(creation);
}

Communicator* conclude(Creation& creation, ncclResult_t result) {
    ncclComm_t handle = creation.out != nullptr ? *creation.out : nullptr;
    const bool made = (result == ncclSuccess || result == ncclInProgress) && handle != nullptr;
    auto* c = made ? static_cast<Communicator*>(calloc(1, sizeof(Communicator))) : nullptr;
    if (c == nullptr) {
        retire_entry(creation.index);
        return nullptr;
    }
    c->handle = handle;
    c->id = creation.id;
    c->parent = creation.parent;
    c->split_shares = creation.split_shares;
    c->shrink_shares = creation.shrink_shares;
    c->context = creation.context != nullptr && creation.context->handle != nullptr ? creation.context : driver_context();
    c->gate = gate_of(*c->context);
    c->index = kNone;
    c->verdict = &kAlwaysPasses;
    bool whole = creation.size != kNone;
    if (!whole && result == ncclSuccess && ask_nccl(handle, creation)) {
        publish(creation);
        whole = true;
    }
    if (!whole) {
        c->slow = kSlowIncomplete;
        c->device = creation.device;
        c->family = creation.family;
    } else if (!settle(*c, creation)) {
        retire_entry(creation.index);
        release(c);
        return nullptr;
    }
    {
        const LockGuard guard(creation_lock);
        release(communicators.remove(handle));  // a pointer that came back without a destroy we saw
        if (!communicators.insert(handle, c)) {
            retire_entry(creation.index);
            release(c);
            return nullptr;
        }
    }
    return result == ncclSuccess && c->index != kNone && process.mode == Mode::enforce ? c : nullptr;
}

bool complete(Communicator& c) {
    Creation creation;
    creation.id = c.id;
    creation.parent = c.parent;
    creation.device = c.device;
    creation.family = c.family;
    if (!ask_nccl(c.handle, creation)) return false;
    publish(creation);
    if (!settle(c, creation)) return false;
    c.slow &= ~kSlowIncomplete;
    return true;
}

Communicator* forget(ncclComm_t comm) {
    const LockGuard guard(creation_lock);
    return communicators.remove(comm);
}

void retire(Communicator* c) {
    if (c == nullptr) return;
    retire_entry(c->index);
    const LockGuard guard(creation_lock);
    release(remembered[remembered_next]);
    remembered[remembered_next] = c;
    remembered_next = (remembered_next + 1) % kRemembered;
}

Verdict await_verdict(Communicator& c) {
    ring::SegmentHeader& header = *process.view.header;
    const std::uint64_t start = monotonic_ns();
    std::uint64_t beat = header.heartbeat.load(memory_order_relaxed);
    std::uint64_t beat_seen = start;
    for (;;) {
        const std::uint32_t word = c.verdict->load(memory_order_acquire);
        if (word != std::uint32_t(Verdict::unknown)) return static_cast<Verdict>(word);
        if (header.open.load(memory_order_relaxed) != 0 || c.entry()->open.load(memory_order_relaxed) != 0) break;
        const std::uint64_t now = monotonic_ns();
        const std::uint64_t new_beat = header.heartbeat.load(memory_order_relaxed);
        if (new_beat != beat) {
            beat = new_beat;
            beat_seen = now;
        }
        if (beat == header.dead_beat.load(memory_order_relaxed)) break;
        if (now - beat_seen > process.hold_ns || now - start > process.hold_ns) {
            if (now - beat_seen > process.hold_ns) header.dead_beat.store(beat, memory_order_relaxed);
            say_once(
                Level::warn,
                "the members of a communicator of %u ranks are not all known after OPUS_HOLD_MS; it runs without Opus",
                c.size);
            break;
        }
        const timespec slice{0, 20'000'000};
        syscall(SYS_futex, c.verdict, FUTEX_WAIT, word, &slice, nullptr, 0);
    }
    // Others may come to wait for our launches: the manager has to know that they will not be asked for.
    c.count_lost();
    c.verdict = &kAlwaysPasses;
    return Verdict::passes;
}

}  // namespace opus::shim
