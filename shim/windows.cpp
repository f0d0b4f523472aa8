#include "shim/windows.h"

#include <cstdlib>

#include "shim/device_api.h"
#include "shim/hooks.h"
#include "shim/host_gate.h"
#include "shim/launch.h"
#include "shim/message.h"
#include "shim/thread_state.h"

namespace opus::shim {

struct Lasting {
    std::uint64_t seq;
    std::atomic<std::uint32_t> users;
};

namespace {

// Null: the call is not looked at.
Communicator* find_mesh(ncclComm_t comm) {
    if (thread_words.inside != 0) return nullptr;
    Communicator* c = communicators.find(comm);
    if (c == nullptr || c->index == kNone || c->gate == ring::Gate::none) return nullptr;
    settle_slow(*c);
    if (c->sends == nullptr || c->verdict->load(std::memory_order_relaxed) == std::uint32_t(Verdict::intra))
        return nullptr;
    if (serves_minor(4)) return c;
    // Members on other nodes may wait for this one.
    c->count_lost();
    say_once(Level::warn,
             "opus-manager is older than libopus_shim.so, so communicators with windows or device communicators are "
             "not held "
             "for circuits; use one of the same version");
    return nullptr;
}

void tell_device_use(const Communicator& c) {
    if (is_enforced(c))
        say(Level::warn,
            "rank %u of a communicator of %u makes a device communicator, whose kernels move bytes without a "
            "call that could be held: the circuits between all its nodes are held until ncclDevCommDestroy",
            c.rank, c.size);
}

enum class Hold { none, held, failed };

// Circuits for the connections of a lone call.
Hold hold_mesh(Communicator& c, const ring::OpEntry& op, MeshUse use, std::uint64_t& seq) {
    if (!records(c)) {
        if (thread_words.refusal == ncclSuccess) return Hold::none;
        end_wait(c.index);
        return Hold::failed;
    }
    bool fail = false;
    seq = hold_connections(&op, 1, 0, use == MeshUse::device ? ring::kLaunchLasts : 0, fail);
    if (seq == kFull) {
        c.count_lost();
        return Hold::none;
    }
    if (!fail) return Hold::held;
    store_done(seq);
    end_wait(c.index);
    return Hold::failed;
}

void end_mesh(Communicator& c, MeshUse use, std::uint64_t seq, ncclResult_t result) {
    const bool fine = result == ncclSuccess || result == ncclInProgress;
    if (!fine) c.count_lost();
    Communicator* const one[] = {&c};
    if (fine && use == MeshUse::device)
        begin_lasting(one, 1, seq);
    else if (result == ncclInProgress)
        defer_done(c, seq, nullptr, 0);
    else
        store_done(seq);
}

template <class Call>
ncclResult_t connect_mesh(Communicator& c, MeshUse use, Call call) {
    if (thread_words.depth != 0) {
        ncclResult_t result;
        {
            const Inside inside;
            result = call();
        }
        collect(c, {&c, nullptr, 0, std::uint32_t(use), OpKind::none, 0}, result);
        return result;
    }
    const Inside inside;
    ring::OpEntry op;
    std::uint64_t seq = kFull;
    const Hold hold = note_mesh(c, use, op) ? hold_mesh(c, op, use, seq) : Hold::none;
    const ncclResult_t result = hold == Hold::failed ? ncclResult_t(thread_words.refusal) : call();
    if (use == MeshUse::device && result != ncclSuccess && result != ncclInProgress) forget_device_use(c);
    if (hold == Hold::held) end_mesh(c, use, seq, result);
    return result;
}

}  // namespace

bool note_mesh(Communicator& c, MeshUse use, ring::OpEntry& op) {
    const LockGuard guard(c.settling);
    bool connects = false;
    if (use == MeshUse::window) {
        c.windows = true;
        c.plain_verdict = kNotPlain;
        c.close_fast_path();
        connects = !c.mesh_connected;
    } else {
        connects = c.device_comms++ == 0;
        if (connects) tell_device_use(c);
    }
    c.mesh_connected = true;
    if (!connects) return false;
    op = {std::uint8_t(OpKind::all_to_all),  0, std::uint16_t(c.index), 0, c.meshes++, 1,
          ring::kOpConnects | ring::kOpMesh, 0};
    return true;
}

void begin_lasting(Communicator* const* comms, std::uint32_t count, std::uint64_t seq) {
    auto* lasting = static_cast<Lasting*>(malloc(sizeof(Lasting)));
    if (lasting == nullptr) {  // then it lasts until the process ends
        say_once(Level::warn,
                 "no memory to remember a device communicator: its circuits are held until this process ends");
        return;
    }
    lasting->seq = seq;
    lasting->users.store(count, std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < count; ++i) {
        const LockGuard guard(comms[i]->settling);
        comms[i]->lasting = lasting;
    }
}

void end_lasting(Communicator& c) {
    Lasting* lasting = nullptr;
    {
        const LockGuard guard(c.settling);
        lasting = c.lasting;
        c.lasting = nullptr;
    }
    if (lasting == nullptr || lasting->users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    store_done(lasting->seq);
    free(lasting);
}

void forget_device_use(Communicator& c) {
    bool last = false;
    {
        const LockGuard guard(c.settling);
        last = c.device_comms > 0 && --c.device_comms == 0;
    }
    if (last) end_lasting(c);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
// Windows that are not symmetric change no collective. One that is gone may have left others: its communicator's
// collectives stay meshes.
ncclResult_t handlers::ncclCommWindowRegister(ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags) {
    const auto call = [&] { return real.ncclCommWindowRegister(comm, buffer, size, window, flags); };
    Communicator* c = (flags & NCCL_WIN_COLL_SYMMETRIC) != 0 ? find_mesh(comm) : nullptr;
    return c != nullptr ? connect_mesh(*c, MeshUse::window, call) : call();
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
ncclResult_t handlers::ncclDevCommCreate(ncclComm_t comm, const void* requirements, void* made) {
    const auto call = [&] { return real.ncclDevCommCreate(comm, requirements, made); };
    Communicator* c = find_mesh(comm);
    return c != nullptr ? connect_mesh(*c, MeshUse::device, call) : call();
}

ncclResult_t handlers::ncclDevCommDestroy(ncclComm_t comm, const void* made) {
    const ncclResult_t result = real.ncclDevCommDestroy(comm, made);
    Communicator* c = result == ncclSuccess ? find_mesh(comm) : nullptr;
    if (c != nullptr) forget_device_use(*c);
    return result;
}
#endif

}  // namespace opus::shim
