#include "shim/cuda_driver.h"

#include <cstring>
#include <utility>

#include "shim/library.h"
#include "shim/lock.h"
#include "shim/message.h"
#include "shim/process.h"
#include "shim/stream_gate.h"

namespace opus::shim {

constinit Driver driver{};
bool stream_writes = false;
bool has_driver = false;
std::uint64_t device_offset = 0;  // from a host address of the segment to the device's

namespace {

Lock driver_lock;
bool looked_up = false;
bool registered = false;
constexpr unsigned kMostContexts = 17;
DriverContext contexts[kMostContexts];  // [0]: no context, or more than can be kept: no stream gate
unsigned context_count = 1;

template <class F>
void find(Library library, F& into, const char* symbol, const char* older) {
    void* at = library.symbol(symbol);
    if (at == nullptr && older != nullptr) at = library.symbol(older);
    into = reinterpret_cast<F>(at);
}

void look_up() {
    if (looked_up) return;
    const Library cuda = Library::open("libcuda.so.1", true);
    if (!cuda) return;  // perhaps later: the runtime loads it at its first call
    looked_up = true;
#define OPUS_DRIVER_FIND(name, symbol, older) find(cuda, driver.name, symbol, older);
    OPUS_DRIVER_CALLS(OPUS_DRIVER_FIND)
#undef OPUS_DRIVER_FIND
    find(cuda, driver.cuStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo_v2", nullptr);
    has_driver = true;
}

void look_up_runtime() {
    if (driver.cudaGetDevice != nullptr) return;
    for (const char* name : {"libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
        const Library runtime = Library::open(name, true);
        if (!runtime) continue;
        find(runtime, driver.cudaGetDevice, "cudaGetDevice", nullptr);
        find(runtime, driver.cudaLaunchHostFunc, "cudaLaunchHostFunc", nullptr);
        has_driver = true;
        return;
    }
}

// The GPU reads and writes gate words in place.
void register_segment() {
    if (registered || driver.cuMemHostRegister == nullptr || driver.cuMemHostGetDevicePointer == nullptr) return;
    void* base = process.view.header;
    const std::size_t bytes = process.view.header->bytes;
    CUdeviceptr at = 0;
    static bool tried = false;
    if (std::exchange(tried, true)) return;
    const CUresult result =
        driver.cuMemHostRegister(base, bytes, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);
    if (result != CUDA_SUCCESS) {
        // Linux has pinned no pages of files for long, but of tmpfs and hugetlbfs, since 6.5 (mm/gup: FOLL_LONGTERM).
        say_once(Level::warn,
                 "the CUDA driver does not map the launch ring (cuMemHostRegister: error %d), so the GPU neither waits for "
                 "circuits nor says what has ended. The usual cause: the manager's runtime directory is on no tmpfs; put it "
                 "below /run or /dev/shm",
                 int(result));
        return;
    }
    if (driver.cuMemHostGetDevicePointer(&at, base, 0) != CUDA_SUCCESS) return;
    device_offset = at - reinterpret_cast<std::uintptr_t>(base);
    registered = true;
    if (driver.cuStreamWriteValue64 == nullptr) return;
    stream_writes = true;
    process.lone_flags &= std::uint16_t(~ring::kLaunchHostDone);
}

}  // namespace

DriverContext* driver_context() {
    const LockGuard guard(driver_lock);
    look_up();
    look_up_runtime();
    CUcontext current = nullptr;
    if (driver.cuCtxGetCurrent != nullptr && (driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr))
        return &contexts[0];
    if (driver.cuLaunchKernel == nullptr && driver.cuStreamWriteValue64 == nullptr) return &contexts[0];
    for (unsigned i = 1; i < context_count; ++i)
        if (contexts[i].handle == current) return &contexts[i];
    if (context_count == kMostContexts) return &contexts[0];
    DriverContext& made = contexts[context_count++];
    made.handle = current;
    const BesideCaptures beside;
    register_segment();
    prepare_gate(made);
    return &made;
}

std::uint32_t current_device() {
    {
        const LockGuard guard(driver_lock);
        look_up();
        look_up_runtime();
    }
    int device = 0;
    if (driver.cudaGetDevice != nullptr && driver.cudaGetDevice(&device) == cudaSuccess) return std::uint32_t(device);
    CUdevice ordinal = 0;
    if (driver.cuCtxGetDevice != nullptr && driver.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS)
        return std::uint32_t(ordinal);
    return 0;
}

GpuIdentity identity_of(std::uint32_t device) {
    {
        const LockGuard guard(driver_lock);
        look_up();
    }
    GpuIdentity found;
    CUdevice handle = 0;
    if (driver.cuDeviceGet == nullptr || driver.cuDeviceGet(&handle, int(device)) != CUDA_SUCCESS) return found;
    char pci[32] = "";
    CUuuid uuid;
    if (driver.cuDeviceGetPCIBusId != nullptr && driver.cuDeviceGetPCIBusId(pci, sizeof pci, handle) == CUDA_SUCCESS)
        found.pci = parse_pci(pci, strnlen(pci, sizeof pci));
    if (driver.cuDeviceGetUuid != nullptr && driver.cuDeviceGetUuid(&uuid, handle) == CUDA_SUCCESS)
        memcpy(found.uuid.bytes, uuid.bytes, sizeof found.uuid.bytes);
    return found;
}

bool gpu_maps_memory() {
    const std::uint32_t device = current_device();
    int maps = 1;
    if (driver.cuDeviceGetAttribute == nullptr) return true;
    constexpr auto kMaps = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return driver.cuDeviceGetAttribute(&maps, kMaps, CUdevice(device)) != CUDA_SUCCESS || maps != 0;
}

InContext::InContext(const DriverContext& context) {
    if (context.handle == nullptr || driver.cuCtxPushCurrent == nullptr || driver.cuCtxPopCurrent == nullptr) return;
    CUcontext current = nullptr;
    if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context.handle) return;
    pushed_ = driver.cuCtxPushCurrent(context.handle) == CUDA_SUCCESS;
}

InContext::~InContext() {
    CUcontext popped = nullptr;
    if (pushed_) driver.cuCtxPopCurrent(&popped);
}

CUdeviceptr device_address(const void* word) {
    return registered ? reinterpret_cast<std::uintptr_t>(word) + device_offset : 0;
}

bool capturing(cudaStream_t stream) {
    if (driver.cuStreamIsCapturing == nullptr) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    // An error is the legacy stream while another captures: no operation of ours may be added then either.
    return driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace opus::shim
