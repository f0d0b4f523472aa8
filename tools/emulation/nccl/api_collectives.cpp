// ncclAllReduce and the rest of what moves data.
#include "api.h"

using namespace opus::standin;

namespace {

struct Call {
    const char* name;
    CollectiveKind kind;
    const void* send;
    void* receive;
    std::size_t count;
    ncclDataType_t type;
    ncclRedOp_t op = ncclSum;
    int root = 0;
    bool rooted = false;
};

ncclResult_t check_buffers(const Call& call, ncclComm* comm) {
    const bool root = static_cast<int>(comm->rank) == call.root;
    bool need_send = true, need_receive = true;
    if (call.kind == CollectiveKind::broadcast || call.kind == CollectiveKind::scatter) need_send = root;
    if (call.kind == CollectiveKind::reduce || call.kind == CollectiveKind::gather) need_receive = root;
    if ((need_send && !call.send) || (need_receive && !call.receive))
        return say_error(comm, ncclInvalidArgument, std::string(call.name) + ": a buffer is NULL");
    return ncclSuccess;
}

ncclResult_t find_reduction(const Call& call, ncclComm* comm, Reduction& reduction) {
    reduction.type = call.type;
    reduction.op = call.op;
    if (call.op >= 0 && call.op < ncclNumOps) return ncclSuccess;
    const auto it = comm->reductions.find(call.op);
    if (it == comm->reductions.end() || it->second.type != call.type)
        return say_error(comm, ncclInvalidArgument,
                         std::string(call.name) + ": invalid reduction operation " + std::to_string(call.op));
    reduction = it->second;
    return ncclSuccess;
}

ncclResult_t collective(const Call& call, ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = check_ready(comm, call.name);
    if (result != ncclSuccess) return group_error(result);
    if (call.rooted && (call.root < 0 || call.root >= static_cast<int>(comm->nranks)))
        return group_error(say_error(comm, ncclInvalidArgument,
                                     std::string(call.name) + ": invalid root " + std::to_string(call.root)));
    if (type_bytes(call.type) == 0)
        return group_error(say_error(comm, ncclInvalidArgument,
                                     std::string(call.name) + ": invalid type " + std::to_string(call.type)));
    Task task;
    result = find_reduction(call, comm, task.collective.reduction);
    if (result == ncclSuccess && call.count > 0) result = check_buffers(call, comm);
    if (result != ncclSuccess) return group_error(result);
    if (call.count == 0) return ncclSuccess;  // of collectives only: an empty transfer meets its peer
    task.comm = comm;
    task.stream = stream;
    task.collective.kind = call.kind;
    task.collective.send = static_cast<const std::byte*>(call.send);
    task.collective.receive = static_cast<std::byte*>(call.receive);
    task.collective.count = call.count;
    task.collective.root = static_cast<std::uint32_t>(call.root);
    return add(std::move(task));
}

ncclResult_t transfer(const char* name, bool sending, const void* buffer, std::size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t result = check_ready(comm, name);
    if (result != ncclSuccess) return group_error(result);
    if (peer < 0 || peer >= static_cast<int>(comm->nranks))
        return group_error(
            say_error(comm, ncclInvalidArgument, std::string(name) + ": invalid peer " + std::to_string(peer)));
    if (type_bytes(type) == 0 || (count > 0 && !buffer))
        return group_error(say_error(comm, ncclInvalidArgument, std::string(name) + ": invalid type or buffer"));
    Task task;
    task.comm = comm;
    task.stream = stream;
    task.transfer = true;
    task.p2p.sending = sending;
    task.p2p.peer = static_cast<std::uint32_t>(peer);
    task.p2p.buffer = static_cast<std::byte*>(const_cast<void*>(buffer));
    task.p2p.bytes = count * type_bytes(type);
    return add(std::move(task));
}

}  // namespace

// Each collective and its Config form, whose settings have no meaning here: name, parameters of its own, Call.
#define STANDIN_COLLECTIVE(name, PARAMS, ...)                                                                                \
    STANDIN_NCCL(ncclResult_t, name, PARAMS, ncclComm_t comm, cudaStream_t stream) {                                         \
        return collective(Call{#name, __VA_ARGS__}, comm, stream);                                                           \
    }                                                                                                                        \
    STANDIN_NCCL(ncclResult_t, name##Config, PARAMS, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) { \
        if (config && config->magic != NCCL_API_MAGIC)                                                                       \
            return group_error(say_error(comm, ncclInvalidArgument, #name "Config: config is not initialized"));             \
        return collective(Call{#name "Config", __VA_ARGS__}, comm, stream);                                                  \
    }
#define STANDIN_PARAMS(...) __VA_ARGS__

STANDIN_COLLECTIVE(ncclAllReduce,
                   STANDIN_PARAMS(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op),
                   CollectiveKind::all_reduce, send, receive, count, type, op)
STANDIN_COLLECTIVE(ncclReduce,
                   STANDIN_PARAMS(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root),
                   CollectiveKind::reduce, send, receive, count, type, op, root, true)
STANDIN_COLLECTIVE(ncclBroadcast,
                   STANDIN_PARAMS(const void* send, void* receive, size_t count, ncclDataType_t type, int root),
                   CollectiveKind::broadcast, send, receive, count, type, ncclSum, root, true)
STANDIN_COLLECTIVE(ncclReduceScatter,
                   STANDIN_PARAMS(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op),
                   CollectiveKind::reduce_scatter, send, receive, count, type, op)
STANDIN_COLLECTIVE(ncclAllGather, STANDIN_PARAMS(const void* send, void* receive, size_t count, ncclDataType_t type),
                   CollectiveKind::all_gather, send, receive, count, type)
STANDIN_COLLECTIVE(ncclAlltoAll, STANDIN_PARAMS(const void* send, void* receive, size_t count, ncclDataType_t type),
                   CollectiveKind::all_to_all, send, receive, count, type)
STANDIN_COLLECTIVE(ncclGather, STANDIN_PARAMS(const void* send, void* receive, size_t count, ncclDataType_t type, int root),
                   CollectiveKind::gather, send, receive, count, type, ncclSum, root, true)
STANDIN_COLLECTIVE(ncclScatter, STANDIN_PARAMS(const void* send, void* receive, size_t count, ncclDataType_t type, int root),
                   CollectiveKind::scatter, send, receive, count, type, ncclSum, root, true)

// As in NCCL: through its own public function, so that whoever interposes it sees the call twice.
STANDIN_NCCL(ncclResult_t, ncclBcast, void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
             cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

STANDIN_NCCL(ncclResult_t, ncclSend, const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
             cudaStream_t stream) {
    return transfer("ncclSend", true, buffer, count, type, peer, comm, stream);
}
STANDIN_NCCL(ncclResult_t, ncclRecv, void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
             cudaStream_t stream) {
    return transfer("ncclRecv", false, buffer, count, type, peer, comm, stream);
}

// --- groups --------------------------------------------------------------------------------------------

STANDIN_NCCL(ncclResult_t, ncclGroupStart, ) {
    group_start();
    return ncclSuccess;
}
STANDIN_NCCL(ncclResult_t, ncclGroupEnd, ) { return group_end(true); }
STANDIN_NCCL(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t* info) {
    if (info) info->estimatedTime = 0.0f;
    return group_end(false);
}

// --- reductions of one's own -----------------------------------------------------------------------------

// A scalar in device memory is read here and now, where NCCL reads it when the collective runs.
STANDIN_NCCL(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar, ncclDataType_t type,
             ncclScalarResidence_t, ncclComm_t comm) {
    const ncclResult_t result = check_ready(comm, "ncclRedOpCreatePreMulSum");
    if (result != ncclSuccess) return result;
    if (!op || !scalar || type_bytes(type) == 0) return ncclInvalidArgument;
    Reduction reduction;
    reduction.type = type;
    reduction.scaled = true;
    const auto* from = static_cast<const std::byte*>(scalar);
    std::copy(from, from + type_bytes(type), reduction.scalar);
    *op = static_cast<ncclRedOp_t>(comm->next_reduction++);
    comm->reductions[*op] = reduction;
    return ncclSuccess;
}
STANDIN_NCCL(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
    const ncclResult_t result = check_comm(comm, "ncclRedOpDestroy");
    if (result != ncclSuccess) return result;
    return comm->reductions.erase(op) ? ncclSuccess : ncclInvalidArgument;
}
