/* The public C interface of libopus_shim.so. Optional: a program that never heard of it is served the
 * same. Find the calls with dlsym(RTLD_DEFAULT, ...) if the program must also run without Opus.
 * All calls are thread-safe, never block, allocate nothing, and need no NCCL. */
#ifndef OPUS_OPUS_H
#define OPUS_OPUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPUS_VERSION_MAJOR 0
#define OPUS_VERSION_MINOR 1
#define OPUS_VERSION_PATCH 0

/* "0.1.0"; static storage. */
const char* opus_version(void);

typedef enum { OPUS_STATE_OFF = 0, OPUS_STATE_INERT = 1, OPUS_STATE_OBSERVE = 2, OPUS_STATE_ENFORCE = 3 } opus_state_t;

/* What the shim does in this process now. INERT: no manager answered, or after fork in the child. */
opus_state_t opus_state(void);

typedef struct {
    uint64_t struct_bytes; /* set by the caller to sizeof(opus_stats_t) before the call */
    uint64_t recorded;     /* launches written to the ring */
    uint64_t gated;        /* launches that were held until go */
    uint64_t passed;       /* launches that needed no circuit, or were let pass */
    uint64_t lost;         /* launches that passed unrecorded: ring full, or too many operations */
    uint64_t gave_up;      /* gates opened because the manager's heartbeat stood still */
} opus_stats_t;

/* 0, or -1 when struct_bytes is smaller than this version's first member. */
int opus_stats(opus_stats_t* stats);

#ifdef __cplusplus
}
#endif
#endif
