// The handlers of everything that makes, changes or ends a communicator.
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "shim/group.h"
#include "shim/hooks.h"
#include "shim/host_gate.h"
#include "shim/identity.h"
#include "shim/launch.h"
#include "shim/message.h"
#include "shim/nccl_settings.h"
#include "shim/process.h"
#include "shim/stream_gate.h"
#include "shim/thread_state.h"

namespace opus::shim {

namespace {

// Where ncclCommInitAll's own unique id is to be kept, when NCCL asks itself for one.
thread_local ncclUniqueId* wanted_id __attribute__((tls_model("initial-exec"))) = nullptr;

CommId unique(const ncclUniqueId& id, int rank) {
    // Several ranks of one process may use the same id, so each rank counts for itself.
    CommId what = hash_bytes(Origin::unique_id, &id, sizeof id);
    what.lo ^= std::uint64_t(std::uint32_t(rank)) * 0x9e3779b97f4a7c15ull;
    return id_of_unique(&id, sizeof id, occurrence_of(what));
}

// A member of the caller's config, off if its version has it not or it was not set. Without a config: as the parent has it.
bool config_says(const ncclConfig_t* config, std::size_t offset, bool inherited) {
    if (config == nullptr) return inherited;
    if (config->size < offset + sizeof(int)) return false;
    int value = 0;
    memcpy(&value, reinterpret_cast<const char*>(config) + offset, sizeof value);
    return value != NCCL_CONFIG_UNDEF_INT && value != 0;
}

void read_sharing(Creation& creation, const ncclConfig_t* config) {
    creation.split_shares = config_says(config, offsetof(ncclConfig_t, splitShare), creation.split_shares);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    creation.shrink_shares = config_says(config, offsetof(ncclConfig_t, shrinkShare), creation.shrink_shares);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
    creation.in_order = config_says(config, offsetof(ncclConfig_t, launchOrderImplicit), creation.in_order);
#endif
}

// Ends a creation after the real call, now or, in a group, at its end.
ncclResult_t concluded(Creation& creation, ncclResult_t result) {
    const bool fine = result == ncclSuccess || result == ncclInProgress;
    if (thread_words.depth != 0 && fine) {
        GroupBuffers* group = group_buffers();
        if (group != nullptr && group->creations.add(creation)) return result;
    }
    Communicator* c = conclude(creation, result);
    return c != nullptr && thread_words.depth == 0 ? admit_created(*c, creation.out) : result;
}

// OPUS_REQUIRE=enforce, and there is no manager to hold it.
bool is_refused(int size) {
    return process.require == Require::enforcement && process.mode == Mode::enforce && size > 1 && !process.attached;
}

// The same, because circuits cannot serve what NCCL is told.
bool is_unfit(int size, const ncclConfig_t* config) {
    if (process.mode != Mode::enforce || size < 2) return false;
    const bool connects_late = nccl_connects_late();
    const bool fits = nccl_config_fits(config) && connects_late && !process.unfit;
    return process.require == Require::enforcement && !fits;
}

template <class Call>
ncclResult_t create_root(ncclComm_t* out, const ncclUniqueId* id, int size, int rank, const ncclConfig_t* config, Call call) {
    if (thread_words.inside != 0 || out == nullptr || id == nullptr || size < 1 || rank < 0 || rank >= size) return call();
    if (!process.attach(hash_bytes(Origin::unique_id, id, sizeof *id)))
        return is_refused(size) ? ncclSystemError : call();
    if (is_unfit(size, config)) return ncclInvalidUsage;
    const Inside inside;
    Creation creation;
    creation.out = out;
    creation.id = unique(*id, rank);
    creation.rank = std::uint32_t(rank);
    creation.size = std::uint32_t(size);
    read_sharing(creation, config);
    *out = nullptr;  // as NCCL does first; a failed call leaves no pointer of ours behind
    register_early(creation);
    return concluded(creation, call());
}

// Of a communicator that it has joined a member knows what the others call it once that is judged.
void learn_name(Communicator& c) {
    if (!c.joined || c.index == kNone) return;
    if (await_verdict(c) == Verdict::unknown) return;
    const CommId known_as = c.entry()->known_as;
    if (known_as != CommId{}) c.id = known_as;
    c.joined = false;
}

// Fills in what a child has from its parent.
Creation child_of(Communicator& parent, ncclComm_t* out, const ncclConfig_t* config) {
    learn_name(parent);
    Creation creation;
    creation.out = out;
    creation.from = parent.handle;
    creation.parent = parent.id;
    creation.device = parent.device;
    creation.split_shares = parent.split_shares;
    creation.shrink_shares = parent.shrink_shares;
    creation.in_order = parent.in_order;
    read_sharing(creation, config);
    return creation;
}

// Launches of it that are not yet marked done are settled while the pointer still means something.
Communicator* leave(ncclComm_t comm) {
    Communicator* c = forget(comm);
    if (c == nullptr) return nullptr;
    await_waiting(*c);
    settle_for_good(*c, ncclSuccess);
    return c;
}

void left(Communicator* c) {
    GroupBuffers* group = thread_words.depth != 0 ? group_buffers() : nullptr;
    if (c == nullptr || (group != nullptr && group->leaving.add(c))) return;
    settle_for_good(*c, ncclSystemError);
    retire(c);
}

// What waits on the host gets away: after this NCCL ends what it would be launched on.
void open_gates(Communicator* c, ring::CommOpen open) {
    if (c == nullptr || c->index == kNone) return;
    c->entry()->open.store(std::uint32_t(open), std::memory_order_seq_cst);
    open_fused_gates(c->index);
    ring_doorbell();
    let_waiting_leave(*c);
}

}  // namespace

ncclResult_t handlers::ncclGetUniqueId(ncclUniqueId* id) {
    const ncclResult_t result = real.ncclGetUniqueId(id);
    if (result == ncclSuccess && wanted_id != nullptr && id != nullptr) *wanted_id = *id;
    return result;
}

ncclResult_t handlers::ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
    return create_root(comm, &id, nranks, rank, nullptr, [&] { return real.ncclCommInitRank(comm, nranks, id, rank); });
}

ncclResult_t handlers::ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    return create_root(comm, &id, nranks, rank, config,
                       [&] { return real.ncclCommInitRankConfig(comm, nranks, id, rank, config); });
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
ncclResult_t handlers::ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int nids, ncclUniqueId* ids,
                                                ncclConfig_t* config) {
    return create_root(comm, nids > 0 ? ids : nullptr, nranks, rank, config,
                       [&] { return real.ncclCommInitRankScalable(comm, nranks, rank, nids, ids, config); });
}
#endif

ncclResult_t handlers::ncclCommInitAll(ncclComm_t* comms, int ndev, const int* devices) {
    if (thread_words.inside != 0 || comms == nullptr || ndev < 1 || !process.attach({}))
        return real.ncclCommInitAll(comms, ndev, devices);
    const Inside inside;
    ncclUniqueId id{};
    memcpy(id.internal, &comms, sizeof comms);  // never used by others: should NCCL not ask us, any id will do
    wanted_id = &id;
    const ncclResult_t result = real.ncclCommInitAll(comms, ndev, devices);
    wanted_id = nullptr;
    if (result != ncclSuccess) return result;
    const CommId all = unique(id, -1);
    for (int rank = 0; rank < ndev; ++rank) {
        Creation creation;
        creation.out = &comms[rank];
        creation.id = all;
        creation.rank = std::uint32_t(rank);
        creation.size = std::uint32_t(ndev);
        creation.device = std::uint32_t(devices != nullptr ? devices[rank] : rank);
        register_early(creation);
        conclude(creation, result);
    }
    // Only now can the last member be known, and with it the verdict: they are on one node.
    for (int rank = 0; rank < ndev && process.mode == Mode::enforce; ++rank) {
        Communicator* c = communicators.find(comms[rank]);
        if (c != nullptr && c->index != kNone) await_verdict(*c);
    }
    return result;
}

ncclResult_t handlers::ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
    Communicator* parent = thread_words.inside != 0 || newcomm == nullptr ? nullptr : communicators.find(comm);
    if (parent == nullptr) return real.ncclCommSplit(comm, color, key, newcomm, config);
    const Inside inside;
    settle_slow(*parent);
    Creation creation = child_of(*parent, newcomm, config);
    creation.id = id_of_split(parent->id, parent->splits++, color);
    if (nccl_says("NCCL_COMM_SPLIT_SHARE_RESOURCES", parent->split_shares)) creation.family = parent->family;
    creation.context = parent->context;
    *newcomm = nullptr;
    if (color == NCCL_SPLIT_NOCOLOR) return real.ncclCommSplit(comm, color, key, newcomm, config);
    register_early(creation);
    return concluded(creation, real.ncclCommSplit(comm, color, key, newcomm, config));
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
ncclResult_t handlers::ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* newcomm,
                                      ncclConfig_t* config, int flags) {
    Communicator* parent = thread_words.inside != 0 || newcomm == nullptr || excluded == nullptr || count < 1
                               ? nullptr
                               : communicators.find(comm);
    if (parent == nullptr) return real.ncclCommShrink(comm, excluded, count, newcomm, config, flags);
    const Inside inside;
    if ((flags & NCCL_SHRINK_ABORT) != 0) open_gates(parent, ring::CommOpen::revoked);
    Creation creation = child_of(*parent, newcomm, config);
    const CommId list = id_of_shrink(parent->id, excluded, std::size_t(count), 0);
    creation.id = id_of_shrink(parent->id, excluded, std::size_t(count), occurrence_of(list));
    if ((flags & NCCL_SHRINK_ABORT) == 0 && nccl_says("NCCL_COMM_SHRINK_SHARE_RESOURCES", parent->shrink_shares))
        creation.family = parent->family;
    creation.context = parent->context;
    *newcomm = nullptr;
    register_early(creation);
    return concluded(creation, real.ncclCommShrink(comm, excluded, count, newcomm, config, flags));
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
ncclResult_t handlers::ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
    return real.ncclCommGetUniqueId(comm, id);
}

namespace {

// An older manager joins nobody: its launches, and those of its children, pass.
ncclResult_t tell_unjoined(int ranks) {
    const bool required = process.require == Require::enforcement;
    say(required ? Level::error : Level::warn,
        "ncclCommGrow to %d ranks%s: this opus-manager cannot tell the members of a grown communicator, so its launches "
        "are not held for circuits; update opus-manager",
        ranks, required ? " is refused (OPUS_REQUIRE=enforce)" : "");
    return required ? ncclInvalidUsage : ncclSuccess;
}

}  // namespace

// Old members know their parent and how often it has grown, new ones the unique id, and who made that both. So it has two
// ids, and who has both says so: managers and controller join them.
ncclResult_t handlers::ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm,
                                    ncclConfig_t* config) {
    const auto call = [&] { return real.ncclCommGrow(comm, nranks, id, rank, newcomm, config); };
    if (thread_words.inside != 0 || newcomm == nullptr || nranks < 1) return call();
    Communicator* parent = comm != nullptr ? communicators.find(comm) : nullptr;
    const CommId growing = id != nullptr ? id_of_growing(id, sizeof *id) : CommId{};
    if (comm == nullptr ? id == nullptr || rank < 0 || rank >= nranks : parent == nullptr) return call();
    if (comm == nullptr && !process.attach(growing)) return is_refused(nranks) ? ncclSystemError : call();
    if (is_unfit(nranks, config)) return ncclInvalidUsage;
    const Inside inside;
    if (process.mode == Mode::enforce && !serves_minor(7)) {
        const ncclResult_t result = tell_unjoined(nranks);
        return result == ncclSuccess ? call() : result;
    }
    Creation creation;
    if (parent != nullptr) {
        settle_slow(*parent);
        creation = child_of(*parent, newcomm, config);
        creation.id = id_of_grow(parent->id, parent->grows++);
        creation.also = growing;
        creation.rank = parent->rank;
        creation.context = parent->context;
    } else {
        creation.out = newcomm;
        creation.id = growing;
        creation.joins = true;
        creation.rank = std::uint32_t(rank);
        read_sharing(creation, config);
    }
    creation.size = std::uint32_t(nranks);
    *newcomm = nullptr;
    register_early(creation);
    return concluded(creation, call());
}
#endif

// Neither opens a gate: they drain, and what is pending still needs its circuits. So does what another thread has in a host
// gate: its call would have been over without Opus.
ncclResult_t handlers::ncclCommFinalize(ncclComm_t comm) {
    if (thread_words.inside != 0) return real.ncclCommFinalize(comm);
    const Inside inside;
    if (Communicator* c = communicators.find(comm); c != nullptr) {
        await_waiting(*c);
        settle_slow(*c);
    }
    return real.ncclCommFinalize(comm);
}

ncclResult_t handlers::ncclCommDestroy(ncclComm_t comm) {
    if (thread_words.inside != 0) return real.ncclCommDestroy(comm);
    const Inside inside;
    Communicator* c = leave(comm);
    const ncclResult_t result = real.ncclCommDestroy(comm);
    left(c);
    return result;
}

ncclResult_t handlers::ncclCommAbort(ncclComm_t comm) {
    if (thread_words.inside != 0) return real.ncclCommAbort(comm);
    const Inside inside;
    Communicator* c = forget(comm);
    open_gates(c, ring::CommOpen::aborted);
    if (c != nullptr) forget_children(*c);
    if (c != nullptr) settle_for_good(*c, ncclSystemError);
    const ncclResult_t result = real.ncclCommAbort(comm);
    left(c);
    return result;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
ncclResult_t handlers::ncclCommRevoke(ncclComm_t comm, int flags) {
    if (thread_words.inside != 0) return real.ncclCommRevoke(comm, flags);
    const Inside inside;
    open_gates(communicators.find(comm), ring::CommOpen::revoked);
    return real.ncclCommRevoke(comm, flags);
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
// A suspended communicator keeps its identity; NCCL drains it and refuses launches until it resumes.
ncclResult_t handlers::ncclCommSuspend(ncclComm_t comm, int flags) {
    if (thread_words.inside != 0) return real.ncclCommSuspend(comm, flags);
    const Inside inside;
    if (Communicator* c = communicators.find(comm); c != nullptr) settle_slow(*c);
    return real.ncclCommSuspend(comm, flags);
}

ncclResult_t handlers::ncclCommResume(ncclComm_t comm) {
    if (thread_words.inside != 0) return real.ncclCommResume(comm);
    const Inside inside;
    return real.ncclCommResume(comm);
}
#endif

ncclResult_t handlers::ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    const ncclResult_t result = real.ncclCommGetAsyncError(comm, error);
    if (thread_words.inside != 0 || result != ncclSuccess || error == nullptr) return result;
    Communicator* c = communicators.find(comm);
    if (c == nullptr || c->is_settled() || *error == ncclInProgress) return result;
    const Inside inside;
    *error = settle_slow(*c, *error);
    return result;
}

}  // namespace opus::shim
