/* What a small all-reduce costs: the calling thread, which only enqueues, and the stream.
 *
 *   call_cost RANK RANKS FILE [ROUNDS]
 *
 * Each rank is told its number; FILE is where rank 0 leaves NCCL's id, and must not be there before. A round enqueues CALLS all-reduces
 * of 256 bytes and waits for the last. Rank 0 says the median of the rounds: microseconds a call of the host, before it waits, and of all.
 * Exit code 0: measured; 1: CUDA or NCCL refused something, or the id did not come. Needs CUDA's runtime and NCCL. */
#define _GNU_SOURCE
#define PROGRAM "call_cost"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_rank.h"

enum { CALLS = 100, MOST_ROUNDS = 1000, FLOATS = 64 };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

int main(int argc, char** argv) {
    if (argc < 4) {
        const int help = argc > 1 && strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr,
                "usage: call_cost RANK RANKS FILE [ROUNDS]: what a small all-reduce costs host and stream\n");
        return help ? 0 : 2;
    }
    const int rank = atoi(argv[1]), ranks = atoi(argv[2]), wanted = argc > 4 ? atoi(argv[4]) : 20;
    const int rounds = wanted < 1 ? 1 : wanted > MOST_ROUNDS ? MOST_ROUNDS : wanted;
    CUDA(cudaSetDevice(0));
    ncclComm_t comm = make_comm(argv[3], rank, ranks);
    cudaStream_t stream;
    float* data;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void**)&data, FLOATS * sizeof(float)));
    static double host[MOST_ROUNDS], all[MOST_ROUNDS];
    for (int round = -1; round < rounds; ++round) { /* the first connects, and does not count */
        const double begin = now_us();
        for (int i = 0; i < CALLS; ++i) NCCL(ncclAllReduce(data, data, FLOATS, ncclFloat, ncclSum, comm, stream));
        const double enqueued = now_us();
        CUDA(cudaStreamSynchronize(stream));
        if (round < 0) continue;
        host[round] = (enqueued - begin) / CALLS;
        all[round] = (now_us() - begin) / CALLS;
    }
    qsort(host, (size_t)rounds, sizeof *host, ascending);
    qsort(all, (size_t)rounds, sizeof *all, ascending);
    if (rank == 0) printf("host %.2f us a call, all %.1f us a call\n", host[rounds / 2], all[rounds / 2]);
    NCCL(ncclCommDestroy(comm));
    CUDA(cudaFree(data));
    CUDA(cudaStreamDestroy(stream));
    return 0;
}
