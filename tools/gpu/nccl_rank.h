/* A rank of a program of this folder: it makes communicators with the others, and what CUDA's runtime or NCCL refuses
 * ends it with 1. PROGRAM, a string, is defined before. Needs CUDA's runtime and NCCL. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

static inline void need(int ok, const char* what) {
    if (ok) return;
    fprintf(stderr, PROGRAM ": %s failed\n", what);
    exit(1);
}
#define CUDA(call) need((call) == cudaSuccess, #call)
#define NCCL(call) need((call) == ncclSuccess, #call)

/* NCCL's id, from rank 0 to the others by a file, which is whole as soon as it has its name. */
static inline void leave_id(const char* path, const ncclUniqueId* id) {
    char part[4096];
    need(snprintf(part, sizeof part, "%s.part", path) < (int)sizeof part, "the file's name");
    FILE* file = fopen(part, "wb");
    need(file != NULL && fwrite(id, sizeof *id, 1, file) == 1 && fclose(file) == 0 && rename(part, path) == 0, path);
}

/* Waits for it, for a minute at most. */
static inline void take_id(const char* path, ncclUniqueId* id) {
    FILE* file = NULL;
    for (int i = 0; i < 6000 && (file = fopen(path, "rb")) == NULL; ++i) usleep(10000);
    need(file != NULL && fread(id, sizeof *id, 1, file) == 1, path);
    fclose(file);
}

/* Of so many ranks; `path` must not be there before. */
static inline ncclComm_t make_comm(const char* path, int rank, int ranks) {
    ncclUniqueId id;
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        leave_id(path, &id);
    } else {
        take_id(path, &id);
    }
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, ranks, id, rank));
    return comm;
}
