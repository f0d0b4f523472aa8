/* What the programs of this folder share: CUDA's driver by handle, and the shim's own gate (shim/gate_ptx.h) on words in shared memory
 * that is registered with it, placed as the shim places it. For one thread, but for let_go(). What the driver refuses ends the program
 * with 1, what this machine lacks with 77. PROGRAM, its name, is defined before. Needs libc alone. */
#pragma once
#include <dlfcn.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#include "shim/gate_ptx.h"

enum { HOLD_MS = 2000 }; /* no gate waits longer, whatever happens */

/* A cache line each, as in a launch ring (opus/launch_ring.h, GateWord). */
typedef struct {
    _Alignas(64) volatile uint64_t value;
    volatile uint32_t waiter;
    uint32_t unused[5];
    volatile uint64_t replays;
} Word;
_Static_assert(offsetof(Word, replays) == 32, "");
enum { READY, GO, DONE, BEAT, OPEN, GAVE_UP, RAN, WORDS };
static Word* words;
static CUdeviceptr words_there;

static CUfunction gate, replayed_gate, ended;

/* --- the driver, by handle ------------------------------------------------------------------------------------------- */

#define CALLS(X)                                                                                                              \
    X(cuInit, (unsigned)) X(cuDeviceGetCount, (int*)) X(cuDeviceGet, (CUdevice*, int)) X(cuDeviceGetName, (char*, int, CUdevice))   \
    X(cuDriverGetVersion, (int*)) X(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice)) X(cuCtxSetCurrent, (CUcontext))             \
    X(cuCtxSynchronize, (void)) X(cuModuleLoadData, (CUmodule*, const void*))                                                    \
    X(cuModuleGetFunction, (CUfunction*, CUmodule, const char*)) X(cuStreamCreate, (CUstream*, unsigned))                        \
    X(cuEventCreate, (CUevent*, unsigned)) X(cuEventRecord, (CUevent, CUstream)) X(cuEventQuery, (CUevent))                      \
    X(cuMemHostRegister_v2, (void*, size_t, unsigned)) X(cuMemHostGetDevicePointer_v2, (CUdeviceptr*, void*, unsigned))          \
    X(cuStreamWriteValue64_v2, (CUstream, CUdeviceptr, cuuint64_t, unsigned))                                                    \
    X(cuStreamWaitValue64_v2, (CUstream, CUdeviceptr, cuuint64_t, unsigned)) X(cuLaunchHostFunc, (CUstream, CUhostFn, void*))     \
    X(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode)) X(cuStreamEndCapture, (CUstream, CUgraph*))                      \
    X(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, unsigned long long)) X(cuGraphLaunch, (CUgraphExec, CUstream))        \
    X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**))

#define DECLARE(name, parameters) static CUresult(*p_##name) parameters;
CALLS(DECLARE)

static inline void check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    printf(PROGRAM ": %s: driver error %d\n", what, (int)result);
    exit(1);
}
#define DO(name, ...) check(p_##name(__VA_ARGS__), #name)

static inline void lacks(const char* what) {
    printf(PROGRAM ": not measured: %s\n", what);
    exit(77);
}

static inline void open_driver(void) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) lacks(dlerror());
#define FIND(name, parameters)                                                    \
    if ((*(void**)&p_##name = dlsym(library, #name)) == NULL) lacks("the driver has no " #name);
    CALLS(FIND)
    int devices = 0;
    if (p_cuInit(0) != CUDA_SUCCESS || p_cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0) lacks("no GPU");
}

/* --- what the shim does ---------------------------------------------------------------------------------------------- */

static inline CUdeviceptr there(int word) { return words_there + sizeof(Word) * (size_t)word; }

/* The first device, its name and driver in one line that ends with `more`, the words and the kernels. */
static inline void set_up(const char* more) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    char name[128] = "";
    int version = 0;
    DO(cuDeviceGet, &device, 0);
    DO(cuDeviceGetName, name, sizeof name, device);
    DO(cuDriverGetVersion, &version);
    DO(cuDevicePrimaryCtxRetain, &context, device);
    DO(cuCtxSetCurrent, context);
    printf(PROGRAM ": %s, driver CUDA %d.%d, %s\n", name, version / 1000, version % 1000 / 10, more);
    const int file = memfd_create(PROGRAM, MFD_CLOEXEC);
    const size_t bytes = 1 << 16;
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) lacks("no shared memory");
    words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (words == MAP_FAILED) lacks("no shared memory");
    DO(cuMemHostRegister_v2, words, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    DO(cuMemHostGetDevicePointer_v2, &words_there, words, 0);
    DO(cuModuleLoadData, &module, OPUS_GATE_PTX);
    DO(cuModuleGetFunction, &gate, module, "opus_gate");
    DO(cuModuleGetFunction, &replayed_gate, module, "opus_gate_replayed");
    DO(cuModuleGetFunction, &ended, module, "opus_replay_ended");
}

static inline void put_gate_by(CUfunction function, CUstream stream, uint64_t value) {
    const size_t counts = function == replayed_gate ? offsetof(Word, replays) : 0;
    CUdeviceptr ready = there(READY) + counts, go = there(GO) + counts, beat = there(BEAT), open = there(OPEN), gave_up = there(GAVE_UP);
    CUdeviceptr open_comm = open + offsetof(Word, waiter);
    uint64_t hold_ns = (uint64_t)HOLD_MS * 1000000;
    void* parameters[] = {&ready, &go, &value, &beat, &open, &open_comm, &hold_ns, &gave_up};
    DO(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}
static inline void put_gate(CUstream stream, uint64_t value) { put_gate_by(gate, stream, value); }
static inline void put_kernel(CUstream stream) {
    CUdeviceptr ran = there(RAN);
    void* parameters[] = {&ran};
    DO(cuLaunchKernel, ended, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}
static inline void put_done(CUstream stream, uint64_t value) { DO(cuStreamWriteValue64_v2, stream, there(DONE), value, 0); }

static inline void let_go(uint64_t value) {
    words[GO].value = words[GO].replays = value;
    if (words[READY].waiter == 0) return; /* a GPU never says that it sleeps */
    syscall(SYS_futex, &words[GO].value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    syscall(SYS_futex, &words[GO].replays, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Of a clock that only goes forward. */
static inline double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}
