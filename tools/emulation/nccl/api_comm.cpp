// The life of communicators.
#include <sys/random.h>

#include <cstring>
#include <future>
#include <thread>

#include "api.h"
#include "transport.h"
#include "unique_id.h"

using namespace opus::standin;

namespace {

// Runs on the transport thread, and waits for it.
void on_transport(const std::function<void()>& run) {
    std::promise<void> done;
    Transport::get().post([&] {
        run();
        done.set_value();
    });
    done.get_future().wait();
}

ncclResult_t check_config(const ncclConfig_t* config) {
    if (config && config->magic != NCCL_API_MAGIC)
        return say_error(nullptr, ncclInvalidArgument,
                         "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    return ncclSuccess;
}

ncclResult_t init_rank(ncclComm_t* out, int nranks, const ncclUniqueId& id, int rank, int device, const ncclConfig_t* config) {
    if (!out) return group_error(say_error(nullptr, ncclInvalidArgument, "CommInitRank: newcomm argument is NULL"));
    *out = nullptr;
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return group_error(say_error(nullptr, ncclInvalidArgument,
                                     "Invalid rank requested: " + std::to_string(rank) + "/" + std::to_string(nranks)));
    if (std::strcmp(id.internal, "stand-in NCCL") != 0)
        return group_error(say_error(nullptr, ncclInvalidArgument, "the unique id was not made by the stand-in NCCL"));
    const ncclResult_t valid = check_config(config);
    if (valid != ncclSuccess) return group_error(valid);
    if (device_count() == 0) return group_error(say_error(nullptr, ncclUnhandledCudaError, "stand-in: no device"));
    const ncclResult_t result = create_by_id(out, nranks, id, rank, device, config);
    if (result != ncclSuccess && result != ncclInProgress && !in_group()) *out = nullptr;
    return result;
}

// Waits while a thread of ours works for the communicator; false: it does not end.
bool settle(ncclComm* comm) {
    for (int i = 0; i < 2000 && comm->state == ncclInProgress; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return comm->state != ncclInProgress;
}

// As NCCL does, for an Abort as well (commDestroySync): it does not end while graphs hold launches of the communicator.
void wait_for_graphs(const ncclComm& comm) {
    while (const unsigned held = *comm.captured) comm.captured->wait(held);
}

void leave(ncclComm* comm, bool abort) {
    comm->core->leaving = true;
    Transport::get().wake_readers();
    on_transport([&] { Transport::get().remove(comm->core, abort); });
    wait_for_graphs(*comm);
    if (!settle(comm)) return;  // a thread still holds it
    comm->magic = 0;
    delete comm;
}

void drain(ncclComm* comm) {
    OpRef last;
    {
        std::lock_guard lock(comm->family->mutex);
        last = comm->family->last;
    }
    sync_op(last);
}

}  // namespace

STANDIN_NCCL(ncclResult_t, ncclGetUniqueId, ncclUniqueId* out) {
    if (!out) return ncclInvalidArgument;
    UniqueId id;
    if (::getrandom(&id.number, sizeof id.number, 0) != sizeof id.number) return ncclSystemError;
    id.port = Transport::get().listening_port();
    std::memcpy(out, &id, sizeof id);
    return ncclSuccess;
}

STANDIN_NCCL(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
    return init_rank(comm, nranks, id, rank, current_device(), nullptr);
}
STANDIN_NCCL(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
             ncclConfig_t* config) {
    return init_rank(comm, nranks, id, rank, current_device(), config);
}
STANDIN_NCCL(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* comm, int nranks, int rank, int ids, ncclUniqueId* id,
             ncclConfig_t* config) {
    if (!id || ids < 1)
        return group_error(say_error(nullptr, ncclInvalidArgument, "CommInitRankScalable: no unique id"));
    return init_rank(comm, nranks, id[0], rank, current_device(), config);
}

// As in NCCL: the id comes through its own public function.
STANDIN_NCCL(ncclResult_t, ncclCommInitAll, ncclComm_t* comms, int ndev, const int* devlist) {
    if (!comms || ndev < 1) return ncclInvalidArgument;
    for (int i = 0; i < ndev; ++i) {
        const int device = devlist ? devlist[i] : i;
        if (device < 0 || device >= device_count())
            return say_error(nullptr, ncclInvalidArgument, "CommInitAll: invalid device " + std::to_string(device));
        for (int j = 0; devlist && j < i; ++j)
            if (devlist[j] == device) return say_error(nullptr, ncclInvalidUsage, "CommInitAll: device used twice");
    }
    ncclUniqueId id;
    const ncclResult_t made = ncclGetUniqueId(&id);
    if (made != ncclSuccess) return made;
    group_start();
    for (int i = 0; i < ndev; ++i) group_error(init_rank(&comms[i], ndev, id, i, devlist ? devlist[i] : i, nullptr));
    return group_end(true);
}

STANDIN_NCCL(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
    ncclResult_t result = check_ready(comm, "ncclCommSplit");
    if (result == ncclSuccess) result = check_config(config);
    if (result == ncclSuccess && (!out || (color < 0 && color != NCCL_SPLIT_NOCOLOR))) result = ncclInvalidArgument;
    if (result != ncclSuccess) return group_error(result);
    return create_by_split(comm, color, key, out, config);
}

STANDIN_NCCL(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excluded, int count, ncclComm_t* out,
             ncclConfig_t* config, int flags) {
    ncclResult_t result = check_comm(comm, "ncclCommShrink");
    if (result == ncclSuccess) result = check_config(config);
    if (result != ncclSuccess) return group_error(result);
    std::set<int> out_ranks;
    for (int i = 0; excluded && i < count; ++i) out_ranks.insert(excluded[i]);
    const bool valid = out && count >= 1 && excluded && *out_ranks.begin() >= 0 &&
                       *out_ranks.rbegin() < static_cast<int>(comm->nranks) && out_ranks.size() < comm->nranks;
    if (!valid || out_ranks.count(static_cast<int>(comm->rank)))
        return group_error(say_error(comm, ncclInvalidArgument, "ncclCommShrink: invalid list of excluded ranks"));
    if (flags & NCCL_SHRINK_ABORT) {
        on_transport([&] { Transport::get().fail(comm->core, ncclSuccess); });
    } else if ((result = check_ready(comm, "ncclCommShrink")) != ncclSuccess) {
        return group_error(result);
    }
    return create_by_shrink(comm, out_ranks, (flags & NCCL_SHRINK_ABORT) == 0, out, config);
}

STANDIN_NCCL(ncclResult_t, ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId* out) {
    const ncclResult_t result = check_ready(comm, "ncclCommGetUniqueId");
    return result == ncclSuccess ? ncclGetUniqueId(out) : group_error(result);
}

// Old members keep their rank.
STANDIN_NCCL(ncclResult_t, ncclCommGrow, ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank, ncclComm_t* out,
             ncclConfig_t* config) {
    if (!out) return group_error(say_error(comm, ncclInvalidArgument, "ncclCommGrow: newcomm argument is NULL"));
    if (!comm && !id) return group_error(say_error(comm, ncclInvalidArgument, "ncclCommGrow: a new member needs the unique id"));
    if (id && std::strcmp(id->internal, "stand-in NCCL") != 0)
        return group_error(say_error(comm, ncclInvalidArgument, "the unique id was not made by the stand-in NCCL"));
    if (!comm) return init_rank(out, nranks, *id, rank, current_device(), config);
    ncclResult_t result = check_ready(comm, "ncclCommGrow");
    if (result == ncclSuccess) result = check_config(config);
    if (result != ncclSuccess) return group_error(result);
    if (rank != -1 || nranks <= static_cast<int>(comm->nranks))
        return group_error(say_error(comm, ncclInvalidArgument, "ncclCommGrow: old members give rank -1, and a larger size than before"));
    return create_by_grow(comm, nranks, id, rank, comm->device, out, config);
}

STANDIN_NCCL(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
    const ncclResult_t result = check_ready(comm, "ncclCommFinalize");
    if (result != ncclSuccess) return group_error(result);
    comm->finalized = true;
    if (comm->blocking) {
        drain(comm);
        return ncclSuccess;
    }
    comm->state = ncclInProgress;
    std::thread([comm] {
        drain(comm);
        comm->state = ncclSuccess;
    }).detach();
    return ncclInProgress;
}

STANDIN_NCCL(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
    if (!comm) return ncclSuccess;
    const ncclResult_t result = check_comm(comm, "ncclCommDestroy");
    if (result != ncclSuccess) return result;
    while (comm->state == ncclInProgress) settle(comm);
    drain(comm);
    wait_for_graphs(*comm);
    leave(comm, false);
    return ncclSuccess;
}

STANDIN_NCCL(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
    if (!comm) return ncclSuccess;
    const ncclResult_t result = check_comm(comm, "ncclCommAbort");
    if (result != ncclSuccess) return result;
    leave(comm, true);
    return ncclSuccess;
}

STANDIN_NCCL(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int flags) {
    const ncclResult_t result = check_comm(comm, "ncclCommRevoke");
    if (result != ncclSuccess) return result;
    if (flags != NCCL_REVOKE_DEFAULT) return say_error(comm, ncclInvalidArgument, "ncclCommRevoke: unknown flags");
    comm->revoked = true;
    on_transport([&] { Transport::get().fail(comm->core, ncclSuccess); });
    return ncclSuccess;
}

// --- what one may ask ----------------------------------------------------------------------------------

STANDIN_NCCL(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* error) {
    const ncclResult_t result = check_comm(comm, "ncclCommGetAsyncError");
    if (result != ncclSuccess) return result;
    if (!error) return ncclInvalidArgument;
    const int state = comm->state;
    *error = static_cast<ncclResult_t>(state == ncclSuccess || state == ncclInProgress
                                           ? (comm->core->error != ncclSuccess ? comm->core->error.load() : state)
                                           : state);
    return ncclSuccess;
}
STANDIN_NCCL(ncclResult_t, ncclCommCount, const ncclComm_t comm, int* count) {
    const ncclResult_t result = check_comm(comm, "ncclCommCount");
    if (result != ncclSuccess || !count) return result != ncclSuccess ? result : ncclInvalidArgument;
    if (comm->state == ncclInProgress) return check_ready(comm, "ncclCommCount");
    *count = static_cast<int>(comm->nranks);
    return ncclSuccess;
}
STANDIN_NCCL(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int* device) {
    const ncclResult_t result = check_comm(comm, "ncclCommCuDevice");
    if (result != ncclSuccess || !device) return result != ncclSuccess ? result : ncclInvalidArgument;
    *device = comm->device;
    return ncclSuccess;
}
STANDIN_NCCL(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int* rank) {
    const ncclResult_t result = check_comm(comm, "ncclCommUserRank");
    if (result != ncclSuccess || !rank) return result != ncclSuccess ? result : ncclInvalidArgument;
    if (comm->state == ncclInProgress) return check_ready(comm, "ncclCommUserRank");
    *rank = static_cast<int>(comm->rank);
    return ncclSuccess;
}
