// Every hooked function of NCCL, once. Included with one or more of these defined:
//
//   OPUS_HOOK(name, (params), (args))                                any hooked function
//   OPUS_COLL(name, (params), (args), kind, root, elements)          a collective; root: rank, or 0
//   OPUS_P2P(name, (params), (args), kind)                           a transfer with `peer`
//   OPUS_PASS(name, (params), (args))                                seen, counted, let pass
//
// What is not defined falls back to OPUS_HOOK. Parameters are written as in nccl.h, whose prototypes the
// exported functions are checked against (device_api.h: what it does not declare): a wrong type does not compile. A
// collective's `elements` is what one rank's buffer holds of `datatype`.
//
// To hook a function: add its line, under the version that brought it (facts: nccl.h history).
// An OPUS_HOOK line also wants a handler (lifecycle.cpp, group.cpp, windows.cpp, one_sided.cpp); the linker says so.
//
// Deliberately without an include guard.
#ifndef OPUS_HOOK
#error "define OPUS_HOOK(name, params, args) before including hook_table.h"
#endif
#ifndef OPUS_COLL
#define OPUS_COLL(name, params, args, kind, root, elements) OPUS_HOOK(name, params, args)
#endif
#ifndef OPUS_P2P
#define OPUS_P2P(name, params, args, kind) OPUS_HOOK(name, params, args)
#endif
#ifndef OPUS_PASS
#define OPUS_PASS(name, params, args) OPUS_HOOK(name, params, args)
#endif

// clang-format off

// --- lifecycle ----------------------------------------------------------------------------------
OPUS_HOOK(ncclGetUniqueId, (ncclUniqueId* id), (id))
OPUS_HOOK(ncclCommInitRank, (ncclComm_t* comm, int nranks, ncclUniqueId id, int rank), (comm, nranks, id, rank))
OPUS_HOOK(ncclCommInitAll, (ncclComm_t* comm, int ndev, const int* devlist), (comm, ndev, devlist))
OPUS_HOOK(ncclCommInitRankConfig, (ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config), (comm, nranks, id, rank, config))
OPUS_HOOK(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config), (comm, color, key, newcomm, config))
OPUS_HOOK(ncclCommFinalize, (ncclComm_t comm), (comm))
OPUS_HOOK(ncclCommDestroy, (ncclComm_t comm), (comm))
OPUS_HOOK(ncclCommAbort, (ncclComm_t comm), (comm))
OPUS_HOOK(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error), (comm, error))
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
OPUS_HOOK(ncclCommInitRankScalable, (ncclComm_t* comm, int nranks, int rank, int nids, ncclUniqueId* ids, ncclConfig_t* config), (comm, nranks, rank, nids, ids, config))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
OPUS_HOOK(ncclCommShrink, (ncclComm_t comm, int* excluded, int count, ncclComm_t* newcomm, ncclConfig_t* config, int flags), (comm, excluded, count, newcomm, config, flags))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
OPUS_HOOK(ncclCommRevoke, (ncclComm_t comm, int flags), (comm, flags))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
OPUS_HOOK(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id), (comm, id))
OPUS_HOOK(ncclCommGrow, (ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm, ncclConfig_t* config), (comm, nranks, id, rank, newcomm, config))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
OPUS_HOOK(ncclCommSuspend, (ncclComm_t comm, int flags), (comm, flags))
OPUS_HOOK(ncclCommResume, (ncclComm_t comm), (comm))
#endif

// --- windows, device communicators ---------------------------------------------------------------
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
OPUS_HOOK(ncclCommWindowRegister, (ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags), (comm, buffer, size, window, flags))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
OPUS_HOOK(ncclDevCommCreate, (ncclComm_t comm, const void* requirements, void* made), (comm, requirements, made))
OPUS_HOOK(ncclDevCommDestroy, (ncclComm_t comm, const void* made), (comm, made))
#endif

// --- groups -------------------------------------------------------------------------------------
OPUS_HOOK(ncclGroupStart, (), ())
OPUS_HOOK(ncclGroupEnd, (), ())
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
OPUS_HOOK(ncclGroupSimulateEnd, (ncclSimInfo_t* info), (info))
#endif

// --- collectives --------------------------------------------------------------------------------
OPUS_COLL(ncclAllReduce, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream), (src, dst, count, datatype, op, comm, stream), all_reduce, 0, count)
OPUS_COLL(ncclAllGather, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream), (src, dst, count, datatype, comm, stream), all_gather, 0, count)
OPUS_COLL(ncclReduceScatter, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream), (src, dst, count, datatype, op, comm, stream), reduce_scatter, 0, count)
OPUS_COLL(ncclReduce, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream), (src, dst, count, datatype, op, root, comm, stream), reduce, root, count)
OPUS_COLL(ncclBroadcast, (const void* src, void* dst, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream), (src, dst, count, datatype, root, comm, stream), broadcast, root, count)
OPUS_COLL(ncclBcast, (void* buffer, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream), (buffer, count, datatype, root, comm, stream), broadcast, root, count)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
OPUS_COLL(ncclAlltoAll, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream), (src, dst, count, datatype, comm, stream), all_to_all, 0, count * ranks)
OPUS_COLL(ncclGather, (const void* src, void* dst, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream), (src, dst, count, datatype, root, comm, stream), gather, root, count)
OPUS_COLL(ncclScatter, (const void* src, void* dst, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream), (src, dst, count, datatype, root, comm, stream), scatter, root, count)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
OPUS_COLL(ncclAllReduceConfig, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config), (src, dst, count, datatype, op, comm, stream, config), all_reduce, 0, count)
OPUS_COLL(ncclAllGatherConfig, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config), (src, dst, count, datatype, comm, stream, config), all_gather, 0, count)
OPUS_COLL(ncclReduceScatterConfig, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config), (src, dst, count, datatype, op, comm, stream, config), reduce_scatter, 0, count)
OPUS_COLL(ncclReduceConfig, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config), (src, dst, count, datatype, op, root, comm, stream, config), reduce, root, count)
OPUS_COLL(ncclBroadcastConfig, (const void* src, void* dst, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config), (src, dst, count, datatype, root, comm, stream, config), broadcast, root, count)
OPUS_COLL(ncclAlltoAllConfig, (const void* src, void* dst, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config), (src, dst, count, datatype, comm, stream, config), all_to_all, 0, count * ranks)
OPUS_COLL(ncclGatherConfig, (const void* src, void* dst, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config), (src, dst, count, datatype, root, comm, stream, config), gather, root, count)
OPUS_COLL(ncclScatterConfig, (const void* src, void* dst, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config), (src, dst, count, datatype, root, comm, stream, config), scatter, root, count)
#endif

// --- transfers ----------------------------------------------------------------------------------
OPUS_P2P(ncclSend, (const void* src, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream), (src, count, datatype, peer, comm, stream), send)
OPUS_P2P(ncclRecv, (void* dst, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream), (dst, count, datatype, peer, comm, stream), recv)

// --- one-sided operations ------------------------------------------------------------------------
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
OPUS_HOOK(ncclPutSignal, (const void* src, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t window, size_t offset, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream), (src, count, datatype, peer, window, offset, signal, context, flags, comm, stream))
OPUS_HOOK(ncclSignal, (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream), (peer, signal, context, flags, comm, stream))
OPUS_PASS(ncclWaitSignal, (int count, ncclWaitSignalDesc_t* signals, ncclComm_t comm, cudaStream_t stream), (count, signals, comm, stream))
#endif

// clang-format on
#undef OPUS_HOOK
#undef OPUS_COLL
#undef OPUS_P2P
#undef OPUS_PASS
