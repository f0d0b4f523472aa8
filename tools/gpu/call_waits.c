/* Which of NCCL's calls wait for what runs on the GPU (docs/decisions/019): each is made while the shim's own gate is closed.
 *
 *   call_waits RANK RANKS FILE [apart]
 *
 * Each rank is told its number; rank 0 leaves NCCL's ids in FILE-0 to FILE-2, which must not be there before. Three communicators are used one after
 * another, each for calls of several kinds, twice. For each call a gate is put before it on its own stream, or on a stream that has nothing
 * to do with it (the third one; with `apart`: all), and opened HELD_MS later. Rank 0 says how long the call lasted. Without Opus.
 * Exit code 0: measured; 1: CUDA or NCCL refused something, or an id did not come; 77: no GPU. Needs CUDA's runtime and NCCL. */
#define _GNU_SOURCE
#define PROGRAM "call_waits"
#include <pthread.h>

#include "gate.h"
#include "nccl_rank.h"

enum { COMMS = 3, FLOATS = 1 << 16, HELD_MS = 300 };

static ncclComm_t comm;
static cudaStream_t stream;
static float* data; /* FLOATS that are sent, and behind them FLOATS of each rank */
static int rank, ranks;

static void all_reduce(void) { NCCL(ncclAllReduce(data, data, FLOATS, ncclFloat, ncclSum, comm, stream)); }
static void all_gather(void) { NCCL(ncclAllGather(data, data + FLOATS, FLOATS, ncclFloat, comm, stream)); }
static void reduce_scatter(void) { NCCL(ncclReduceScatter(data + FLOATS, data, FLOATS, ncclFloat, ncclSum, comm, stream)); }
static void send_receive(void) {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(data, FLOATS, ncclFloat, (rank + 1) % ranks, comm, stream));
    NCCL(ncclRecv(data + FLOATS, FLOATS, ncclFloat, (rank + ranks - 1) % ranks, comm, stream));
    NCCL(ncclGroupEnd());
}
static const struct {
    const char* name;
    void (*call)(void);
} kinds[] = {{"all-reduce", all_reduce}, {"all-gather", all_gather}, {"reduce-scatter", reduce_scatter}, {"send and receive", send_receive}};

static void* open_later(void* value) {
    usleep(HELD_MS * 1000);
    let_go(*(const uint64_t*)value);
    return NULL;
}

/* Milliseconds that the call lasted with a closed gate on `gated`. */
static double call_behind_gate(void (*call)(void), CUstream gated) {
    static uint64_t gates;
    const uint64_t value = ++gates;
    pthread_t opener;
    DO(cuCtxSynchronize);
    put_gate(gated, value);
    need(pthread_create(&opener, NULL, open_later, (void*)&value) == 0, "a thread");
    const double begin = now_us();
    call();
    const double took = (now_us() - begin) / 1e3;
    pthread_join(opener, NULL);
    DO(cuCtxSynchronize);
    return took;
}

int main(int argc, char** argv) {
    if (argc < 4) {
        const int help = argc > 1 && strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr,
                "usage: call_waits RANK RANKS FILE [apart]: which of NCCL's calls wait for what runs on the GPU\n");
        return help ? 0 : 2;
    }
    rank = atoi(argv[1]), ranks = atoi(argv[2]);
    open_driver();
    CUDA(cudaSetDevice(0));
    char more[64];
    snprintf(more, sizeof more, "a gate is closed for %d ms; a call lasts, ms", HELD_MS);
    set_up(more);
    words[BEAT].value = 1;
    CUstream other;
    DO(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void**)&data, sizeof(float) * FLOATS * (size_t)(ranks + 1)));
    for (int number = 0; number < COMMS; ++number) {
        char path[4096];
        snprintf(path, sizeof path, "%s-%d", argv[3], number);
        comm = make_comm(path, rank, ranks);
        const int apart = argc > 4 || number == 2;
        for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); ++kind) {
            const double first = call_behind_gate(kinds[kind].call, apart ? other : (CUstream)stream);
            const double second = call_behind_gate(kinds[kind].call, apart ? other : (CUstream)stream);
            if (rank == 0)
                printf("communicator %d, gate on %s stream, %-16s first %6.1f, again %6.1f\n", number + 1, apart ? "another" : "its own",
                       kinds[kind].name, first, second);
        }
        NCCL(ncclCommDestroy(comm));
    }
    return 0;
}
