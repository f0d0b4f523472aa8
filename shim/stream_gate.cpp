#include "shim/stream_gate.h"

#include <sys/mman.h>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "shim/gate_ptx.h"
#include "shim/message.h"
#include "shim/process.h"

namespace opus::shim {

namespace {

// Hardware queues of the device: streams beyond their number share them, and a gate stops its queue. With closed gates
// on as many streams nothing else ran (docs/results/gpu.md). Set before the first context has a gate.
std::uint64_t queues = 8;

std::uint64_t hardware_queues() {
    std::uint64_t n = 0;
    const char* given = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return given != nullptr && parse_number(given, n) && n >= 1 && n <= 32 ? n : 8;
}

// What the choice of the host gate means to a program that did not ask for it.
#define OPUS_HELD_ON_HOST \
    "launches are held on the host, where a program stops that posts receives before their senders can send"

// Why the environment forbids gates on streams, and says so; else true.
bool environment_allows() {
    const char* blocking = getenv("CUDA_LAUNCH_BLOCKING");
    if (blocking != nullptr && strcmp(blocking, "1") == 0) {
        say_once(Level::warn,
                 "CUDA_LAUNCH_BLOCKING=1 makes each launch wait for its end, which a gate on a stream would put off; so "
                 OPUS_HELD_ON_HOST " (unset it; OPUS_GATE=host if that is meant)");
        return false;
    }
    if (hardware_queues() > 1) return true;
    say_once(Level::warn,
             "CUDA_DEVICE_MAX_CONNECTIONS=1 leaves the GPU one hardware queue, which a gate may stop for every stream; so "
             OPUS_HELD_ON_HOST " (set it to 32; OPUS_GATE=host if that is meant)");
    return false;
}

// The streams that were gated so far: one less than there are queues, at most. Those that are never gated are not seen:
// the program may have others that share a queue with a gate. Lock-free: entries are only added.
bool within_queues(cudaStream_t stream) {
    static std::atomic<cudaStream_t> seen[32];
    const auto key = reinterpret_cast<cudaStream_t>(reinterpret_cast<std::uintptr_t>(stream) + 1);
    for (std::uint64_t i = 0; i + 1 < queues; ++i) {
        cudaStream_t at = seen[i].load(std::memory_order_relaxed);
        if (at == key) return true;
        if (at == nullptr && seen[i].compare_exchange_strong(at, key, std::memory_order_relaxed)) return true;
        if (at == key) return true;
    }
    say_once(Level::warn,
             "launches come on as many streams as the GPU has hardware queues (%llu), or more, and one must be left "
             "for all else; on the last of them " OPUS_HELD_ON_HOST " (set CUDA_DEVICE_MAX_CONNECTIONS=32, or OPUS_GATE=stream)",
             static_cast<unsigned long long>(queues));
    return false;
}

bool launch(CUfunction function, GateArguments& a, CUstream stream) {
    GateArguments::List list;
    a.list(list);
    return driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, list, nullptr) == CUDA_SUCCESS;
}

bool launch_end(CUfunction function, CUdeviceptr ended, CUstream stream) {
    void* list[] = {&ended};
    return driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, list, nullptr) == CUDA_SUCCESS;
}

// Gates on words of our own that are open before they start. On a stream of its own: the null stream
// would wait for the program's.
void touch(DriverContext& context) {
    if (driver.cuStreamCreate == nullptr || driver.cuStreamSynchronize == nullptr || driver.cuStreamDestroy == nullptr)
        return;
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    CUstream stream = nullptr;
    CUdeviceptr base = 0;
    if (driver.cuMemHostRegister(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS &&
        driver.cuMemHostGetDevicePointer(&base, page, 0) == CUDA_SUCCESS &&
        driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        GateArguments a{base, base + 64, 0, base + 128, base + 192, base + 256, 0, base + 320};
        static_cast<std::uint64_t*>(page)[8] = 1;  // go, of the first replay too
        if (!launch(context.gate, a, stream) || driver.cuStreamSynchronize(stream) != CUDA_SUCCESS) context.gate = nullptr;
        a.ready = base + offsetof(ring::GateWord, replays);
        const bool replays = context.gate_replayed != nullptr && context.replay_ended != nullptr &&
                             launch(context.gate_replayed, a, stream) && launch_end(context.replay_ended, base + 384, stream) &&
                             driver.cuStreamSynchronize(stream) == CUDA_SUCCESS;
        if (!replays) context.gate_replayed = nullptr;
        driver.cuStreamDestroy(stream);
    }
    // The page stays registered: 4 kB once a context, against a call that may wait for the device.
}

CUfunction function_of(CUmodule module, const char* name) {
    CUfunction function = nullptr;
    return driver.cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS ? function : nullptr;
}

void find_gates(CUmodule module, DriverContext& context) {
    if (process.policy == Policy::abort) {
        context.gate = function_of(module, "opus_gate_strict");
        context.gate_replayed = function_of(module, "opus_gate_replayed_strict");
    }
    context.gate_traps = context.gate != nullptr;
    if (context.gate == nullptr) context.gate = function_of(module, "opus_gate");
    if (context.gate_replayed == nullptr) context.gate_replayed = function_of(module, "opus_gate_replayed");
    context.replay_ended = function_of(module, "opus_replay_ended");
}

}  // namespace

void prepare_gate(DriverContext& context) {
    if (process.mode != Mode::enforce || context.gate != nullptr) return;
    const bool wanted =
        process.gate == GateChoice::stream || (process.gate == GateChoice::automatic && environment_allows());
    if (!wanted) return;
    queues = hardware_queues();
    const bool able = driver.cuModuleLoadData != nullptr && driver.cuModuleGetFunction != nullptr &&
                      driver.cuLaunchKernel != nullptr && device_address(process.view.header) != 0;
    CUmodule module = nullptr;
    if (able && driver.cuModuleLoadData(&module, OPUS_GATE_PTX) == CUDA_SUCCESS) {
        find_gates(module, context);
        if (context.gate != nullptr) touch(context);
    }
    if (context.gate == nullptr && device_address(process.view.header) == 0)
        say_once(Level::warn, "the GPU cannot see the launch ring (OPUS_GATE=%s); so " OPUS_HELD_ON_HOST,
                 process.settings.OPUS_GATE);
    else if (context.gate == nullptr)
        say_once(Level::warn, "the CUDA driver refuses the gate kernel (OPUS_GATE=%s); so " OPUS_HELD_ON_HOST,
                 process.settings.OPUS_GATE);
}

bool stream_gate_serves(cudaStream_t stream) { return process.gate == GateChoice::stream || within_queues(stream); }

void fill_gate_arguments(GateArguments& a, const Communicator& c) {
    const ring::SegmentHeader& header = *process.view.header;
    a.heartbeat = device_address(&header.heartbeat);
    a.open_segment = device_address(&header.open);
    a.open_comm = device_address(&c.entry()->open);
    a.hold_ns = process.hold_ns;
    a.gave_up = device_address(&header.gave_up);
}

// What opens a gate of this slot from outside. `fused`: it holds several communicators.
static inline void fill_openers(GateArguments& a, const Communicator& c, std::uint64_t slot, bool fused) {
    fill_gate_arguments(a, c);
    if (!fused) return;
    ring::GateWord& ready = process.view.ready[slot];
    ready.opened.store(0, std::memory_order_release);
    a.open_comm = device_address(&ready.opened);
}

static bool enqueue_gate(const Communicator& c, std::uint64_t seq, cudaStream_t stream, bool fused, const void* go) {
    const std::uint64_t slot = seq & process.view.mask;
    GateArguments a{};
    fill_openers(a, c, slot, fused);
    a.ready = device_address(&process.view.ready[slot].value);
    a.go = device_address(go);
    a.value = seq + 1;
    return launch(c.context->gate, a, stream);
}

bool enqueue_gate(const Communicator& c, std::uint64_t seq, cudaStream_t stream, bool fused) {
    return enqueue_gate(c, seq, stream, fused, &process.view.go[seq & process.view.mask].value);
}

bool enqueue_comm_gate(const Communicator& c, std::uint64_t seq, cudaStream_t stream) {
    return enqueue_gate(c, seq, stream, false, &c.entry()->go);
}

bool enqueue_replayed_gate(const Communicator& c, std::uint64_t seq, cudaStream_t stream, bool fused) {
    const ring::View& view = process.view;
    const std::uint64_t slot = seq & view.mask;
    GateArguments a{};
    fill_openers(a, c, slot, fused);
    a.ready = device_address(&view.ready[slot].replays);
    a.go = device_address(&view.go[slot].replays);
    return launch(c.context->gate_replayed, a, stream);
}

bool enqueue_replay_end(const DriverContext& context, std::uint64_t seq, cudaStream_t stream) {
    const ring::View& view = process.view;
    return launch_end(context.replay_ended, device_address(&view.done[seq & view.mask].replays), stream);
}

namespace {

bool holds(const ring::View& view, std::uint64_t seq, std::uint32_t count, std::uint32_t comm) {
    bool found = view.record(seq).op.comm == comm;
    for (std::uint32_t i = 1; i < count; ++i) found = found || view.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2].comm == comm;
    return found;
}

}  // namespace

// Of the launches that lie in the ring, also of those that it has been round since.
void open_fused_gates(std::uint32_t comm) {
    const ring::View& view = process.view;
    for (std::uint64_t slot = 0; slot <= view.mask; ++slot) {
        const ring::LaunchRecord& record = view.record(slot);
        const std::uint64_t commit = record.commit.load(std::memory_order_acquire);
        const std::uint64_t seq = (commit & ring::kSeqMask) - 1;
        if ((commit & ~ring::kSeqMask) != ring::kCommitTag || (seq & view.mask) != slot) continue;  // no first slot of one
        const std::uint32_t count = record.op_count;
        if (record.gate == std::uint16_t(ring::Gate::stream) && count > 1 && count <= ring::kMaxOps && holds(view, seq, count, comm))
            view.ready[slot].opened.store(1, std::memory_order_release);
    }
}

}  // namespace opus::shim
