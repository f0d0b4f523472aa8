/* What holds other streams of this GPU, and how quick a gate is. Uses the shim's own gate (shim/gate_ptx.h), as the shim does: PTX that
 * the driver compiles, words in shared memory that is registered with it.
 *
 *   for n in 1 2 8 32; do CUDA_DEVICE_MAX_CONNECTIONS=$n queue_probe; done
 *
 * A line for each thing that may stand on a stream and wait: it is put there and kept waiting for HELD_MS, while each of the other
 * streams gets a kernel of one thread. 'free N of M': so many of these ran meanwhile. Then what a gate costs. Nothing waits longer than
 * HOLD_MS. Exit code 0: measured; 1: the driver refused something; 77: there is no GPU. Needs libc alone. */
#define _GNU_SOURCE
#define PROGRAM "queue_probe"
#include "gate.h"

enum { STREAMS = 40, GATED = 8, HELD_MS = 150, ROUNDS = 300, MOST_S = 5 };
static CUstream streams[STREAMS];

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
    char more[64];
    const char* connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    snprintf(more, sizeof more, "%s connections, %d streams", connections != NULL ? connections : "unset (8)", STREAMS);
    set_up(more);
    for (int i = 0; i < STREAMS; ++i) DO(cuStreamCreate, &streams[i], CU_STREAM_NON_BLOCKING);
    put_gate(streams[0], 0), put_kernel(streams[0]); /* loads them */
    DO(cuCtxSynchronize);
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows); ++row) measure_row(row);
    measure_costs();
    return 0;
}
