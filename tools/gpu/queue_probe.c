/* What holds other streams of this GPU, and how quick a gate is. Uses the shim's own gate (shim/gate_ptx.h), as the shim does: PTX that
 * the driver compiles, words in shared memory that is registered with it.
 *
 *   for n in 1 2 8 32; do CUDA_DEVICE_MAX_CONNECTIONS=$n queue_probe; done
 *
 * A line for each thing that may stand on a stream and wait: it is put there and kept waiting for HELD_MS, while each of the other
 * streams gets a kernel of one thread. 'free N of M': so many of these ran meanwhile. Then what a gate costs. Nothing waits longer than
 * HOLD_MS, whatever happens. Exit code 0: measured; 1: the driver refused something; 77: there is no GPU. Needs libc alone. */
#define _GNU_SOURCE
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

enum { STREAMS = 40, GATED = 8, HELD_MS = 150, HOLD_MS = 2000, ROUNDS = 300, MOST_S = 5 };

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
static CUstream streams[STREAMS];

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

static void check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    printf("queue_probe: %s: driver error %d\n", what, (int)result);
    exit(1);
}
#define DO(name, ...) check(p_##name(__VA_ARGS__), #name)

static void lacks(const char* what) {
    printf("queue_probe: not measured: %s\n", what);
    exit(77);
}

static void open_driver(void) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) lacks(dlerror());
#define FIND(name, parameters)                                                    \
    if ((*(void**)&p_##name = dlsym(library, #name)) == NULL) lacks("the driver has no " #name);
    CALLS(FIND)
    int devices = 0;
    if (p_cuInit(0) != CUDA_SUCCESS || p_cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0) lacks("no GPU");
}

/* --- what the shim does ---------------------------------------------------------------------------------------------- */

static CUdeviceptr there(int word) { return words_there + sizeof(Word) * (size_t)word; }

static void set_up(void) {
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
    const char* connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    printf("queue_probe: %s, driver CUDA %d.%d, %s connections, %d streams\n", name, version / 1000, version % 1000 / 10,
           connections != NULL ? connections : "unset (8)", STREAMS);
    const int file = memfd_create("opus-queue-probe", MFD_CLOEXEC);
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
    for (int i = 0; i < STREAMS; ++i) DO(cuStreamCreate, &streams[i], CU_STREAM_NON_BLOCKING);
}

static void put_gate_by(CUfunction function, CUstream stream, uint64_t value) {
    const size_t counts = function == replayed_gate ? offsetof(Word, replays) : 0;
    CUdeviceptr ready = there(READY) + counts, go = there(GO) + counts, beat = there(BEAT), open = there(OPEN), gave_up = there(GAVE_UP);
    CUdeviceptr open_comm = open + offsetof(Word, waiter);
    uint64_t hold_ns = (uint64_t)HOLD_MS * 1000000;
    void* parameters[] = {&ready, &go, &value, &beat, &open, &open_comm, &hold_ns, &gave_up};
    DO(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}
static void put_gate(CUstream stream, uint64_t value) { put_gate_by(gate, stream, value); }
static void put_kernel(CUstream stream) {
    CUdeviceptr ran = there(RAN);
    void* parameters[] = {&ran};
    DO(cuLaunchKernel, ended, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}
static void put_done(CUstream stream, uint64_t value) { DO(cuStreamWriteValue64_v2, stream, there(DONE), value, 0); }

static void let_go(uint64_t value) {
    words[GO].value = words[GO].replays = value;
    if (words[READY].waiter == 0) return; /* a GPU never says that it sleeps */
    syscall(SYS_futex, &words[GO].value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    syscall(SYS_futex, &words[GO].replays, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* --- what may wait on a stream ---------------------------------------------------------------------------------------- */

static void gate_alone(void) { put_gate(streams[0], 1); }
static void gate_and_kernel(void) { put_gate(streams[0], 1), put_kernel(streams[0]); }
static void gate_and_event(void) {
    static CUevent event;
    if (event == NULL) DO(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    put_gate(streams[0], 1);
    DO(cuEventRecord, event, streams[0]);
}
static void gate_and_done(void) { put_gate(streams[0], 1), put_done(streams[0], 1); }
static void launch(void) { gate_and_kernel(), put_done(streams[0], 1); }
static void replay(void) {
    static CUgraphExec executable;
    if (executable == NULL) {
        CUgraph graph;
        DO(cuStreamBeginCapture_v2, streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        put_gate_by(replayed_gate, streams[0], 0);
        put_kernel(streams[0]);
        DO(cuStreamEndCapture, streams[0], &graph);
        DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    }
    DO(cuGraphLaunch, executable, streams[0]);
}
static void wait_for_value(void) { DO(cuStreamWaitValue64_v2, streams[0], there(GO), 1, CU_STREAM_WAIT_VALUE_GEQ); }
static void wait_and_kernel(void) { wait_for_value(), put_kernel(streams[0]); }
static void sleep_until_go(void* unused) {
    (void)unused;
    for (int i = 0; i < HOLD_MS && words[GO].value == 0; ++i) usleep(1000);
}
static void function_and_kernel(void) {
    DO(cuLaunchHostFunc, streams[0], sleep_until_go, NULL);
    put_kernel(streams[0]);
}
static void several_launches(void) {
    for (int i = 0; i < GATED; ++i) put_gate(streams[i], 1), put_kernel(streams[i]);
}

static const struct {
    const char* name;
    void (*put)(void);
    int others; /* the first stream that has nothing of it */
} rows[] = {
    {"a gate", gate_alone, 1},
    {"a gate, and a kernel behind it", gate_and_kernel, 1},
    {"a gate, and an event behind it", gate_and_event, 1},
    {"a gate, and its done word behind it", gate_and_done, 1},
    {"a launch as the shim makes one: gate, kernel, done word", launch, 1},
    {"a graph: gate and kernel, replayed", replay, 1},
    {"a wait for a value", wait_for_value, 1},
    {"a wait for a value, and a kernel behind it", wait_and_kernel, 1},
    {"a host function that waits, and a kernel behind it", function_and_kernel, 1},
    {"gates and kernels on eight streams", several_launches, GATED},
};

static void measure_row(int row) {
    CUevent events[STREAMS];
    memset(words, 0, sizeof(Word) * WORDS);
    words[BEAT].value = 1;
    rows[row].put();
    for (int i = rows[row].others; i < STREAMS; ++i) {
        DO(cuEventCreate, &events[i], CU_EVENT_DISABLE_TIMING);
        put_kernel(streams[i]);
        DO(cuEventRecord, events[i], streams[i]);
    }
    usleep(HELD_MS * 1000);
    int free_ones = 0;
    for (int i = rows[row].others; i < STREAMS; ++i) free_ones += p_cuEventQuery(events[i]) == CUDA_SUCCESS;
    let_go(1);
    DO(cuCtxSynchronize);
    printf("%-56s free %2d of %d%s\n", rows[row].name, free_ones, STREAMS - rows[row].others,
           words[GAVE_UP].value != 0 ? ", and it gave up by itself" : "");
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return x < y ? -1 : x > y;
}

/* The CPU sees ready, says go, and sees done; and what the calling thread pays for a gate and a done word. */
static void measure_costs(void) {
    static double round_trips[ROUNDS], calls[ROUNDS];
    memset(words, 0, sizeof(Word) * WORDS);
    words[BEAT].value = 1;
    const double until = now_us() + MOST_S * 1e6;
    uint64_t n = 0;
    for (uint64_t i = 0; i < ROUNDS && now_us() < until; ++i, ++n) {
        put_gate(streams[0], i + 1);
        put_done(streams[0], i + 1);
        while (words[READY].value <= i && now_us() < until) {}
        const double at = now_us();
        let_go(i + 1);
        while (words[DONE].value <= i && now_us() < until) {}
        round_trips[i] = now_us() - at;
    }
    for (uint64_t i = 0; i < ROUNDS; ++i) {
        let_go(ROUNDS + i + 1);
        const double at = now_us();
        put_gate(streams[0], ROUNDS + i + 1);
        put_done(streams[0], ROUNDS + i + 1);
        calls[i] = now_us() - at;
    }
    DO(cuCtxSynchronize);
    qsort(round_trips, n, sizeof *round_trips, ascending);
    qsort(calls, ROUNDS, sizeof *calls, ascending);
    printf("from go to done, as the CPU sees them: median %.1f us, 99 of 100 below %.1f us\n", round_trips[n / 2],
           round_trips[n * 99 / 100]);
    printf("the calling thread, for a gate and a done word: median %.1f us\n", calls[ROUNDS / 2]);
}

int main(int argc, char** argv) {
    if (argc > 1) {
        const int help = strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr, "usage: queue_probe: says which operations of ours hold other streams of this GPU\n");
        return help ? 0 : 2;
    }
    open_driver();
    set_up();
    put_gate(streams[0], 0), put_kernel(streams[0]); /* loads them */
    DO(cuCtxSynchronize);
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows); ++row) measure_row(row);
    measure_costs();
    return 0;
}
