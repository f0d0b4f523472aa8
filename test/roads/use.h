/* One little use of NCCL: a communicator of two, three collectives, the end of it. */
#ifndef OPUS_TEST_ROADS_USE_H
#define OPUS_TEST_ROADS_USE_H
#include <nccl.h>

/* NCCL as a program has found it. */
struct nccl_functions {
    ncclResult_t (*get_unique_id)(ncclUniqueId*);
    ncclResult_t (*comm_init_rank)(ncclComm_t*, int, ncclUniqueId, int);
    ncclResult_t (*all_reduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
    ncclResult_t (*comm_destroy)(ncclComm_t);
};

/* 0, or which of its calls failed. */
static inline int use_nccl(const struct nccl_functions* nccl) {
    ncclUniqueId id;
    ncclComm_t comm;
    char buffer[64];
    if (nccl->get_unique_id(&id) != ncclSuccess) return 10;
    if (nccl->comm_init_rank(&comm, 2, id, 0) != ncclSuccess) return 11;
    for (int i = 0; i < 3; ++i)
        if (nccl->all_reduce(buffer, buffer, 4, ncclFloat, ncclSum, comm, 0) != ncclSuccess) return 12;
    return nccl->comm_destroy(comm) == ncclSuccess ? 0 : 13;
}

#endif
