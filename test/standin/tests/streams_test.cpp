// Streams, hardware queues, events, memory operations and the gate, on the stand-in GPU.
#include <doctest/doctest.h>

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "opus/launch_ring.h"
#include "ranks.h"

using namespace opus::standin::test;
using namespace std::chrono_literals;

namespace {

cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream = nullptr;
    demand(cudaStreamCreateWithFlags(&stream, flags) == cudaSuccess);
    return stream;
}

// What a gate needs, as the launch ring has it.
struct Words {
    opus::ring::GateWord ready_word{};
    std::uint64_t go = 0, heartbeat = 1, gave_up = 0, dead_beat = 0;
    std::uint32_t open_segment = 0, open_comm = 0;
};

template <typename T>
void set(T& word, T value) {
    std::atomic_ref<T>(word).store(value);
}
template <typename T>
T get(T& word) {
    return std::atomic_ref<T>(word).load();
}

CUfunction gate_function() {
    static CUmodule module = nullptr;
    CUfunction function = nullptr;
    if (!module)
        demand(cuModuleLoadData(&module, ".version 7.0\n.visible .entry opus_gate(.param .u64 a) { ret; }") == CUDA_SUCCESS);
    demand(cuModuleGetFunction(&function, module, "opus_gate") == CUDA_SUCCESS);
    return function;
}

void launch_gate(Words& w, std::uint64_t value, std::uint64_t hold_ns, cudaStream_t stream) {
    auto* ready = reinterpret_cast<std::uint64_t*>(&w.ready_word);
    std::uint64_t *go = &w.go, *heartbeat = &w.heartbeat, *gave_up = &w.gave_up;
    std::uint32_t *open_segment = &w.open_segment, *open_comm = &w.open_comm;
    void* params[] = {&ready, &go, &value, &heartbeat, &open_segment, &open_comm, &hold_ns, &gave_up};
    demand(cuLaunchKernel(gate_function(), 1, 1, 1, 32, 1, 1, 0, reinterpret_cast<CUstream>(stream), params, nullptr) ==
           CUDA_SUCCESS);
}

constexpr std::uint64_t kHour = 3'600'000'000'000;

void add_one(void* number) { ++*static_cast<std::atomic<int>*>(number); }
void wait_until_positive(void* number) {
    while (*static_cast<std::atomic<int>*>(number) <= 0) std::this_thread::sleep_for(1ms);
}

// A gate closed on one stream with work behind it, and work on a second stream: does that run?
bool second_stream_runs() {
    Words w;
    cudaStream_t a = new_stream(), b = new_stream();
    std::atomic<int> behind{0}, beside{0};
    launch_gate(w, 1, kHour, a);
    demand(cudaLaunchHostFunc(a, add_one, &behind) == cudaSuccess);
    demand(cudaLaunchHostFunc(b, add_one, &beside) == cudaSuccess);
    std::this_thread::sleep_for(100ms);
    const bool ran = cudaStreamQuery(b) == cudaSuccess;
    demand(behind == 0);
    set<std::uint64_t>(w.go, 1);
    demand(cudaDeviceSynchronize() == cudaSuccess);
    demand(behind == 1 && beside == 1);
    return ran;
}

}  // namespace

TEST_CASE("with one hardware queue a closed gate stops other streams; with two it does not") {
    // One queue: the operation behind the gate holds it. Two: the streams have one each (the default stream has the
    // first).
    CHECK(run_alone({{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}, [] { demand(!second_stream_runs()); }) == 0);
    CHECK(run_alone({{"CUDA_DEVICE_MAX_CONNECTIONS", "2"}}, [] { demand(second_stream_runs()); }) == 0);
    CHECK(run_alone({{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}}, [] { demand(second_stream_runs()); }) == 0);
}

TEST_CASE("a gate says ready, waits for go, and leaves when told by any of its words") {
    CHECK(run_alone({}, [] {
              const auto passes = [](auto open) {
                  Words w;
                  cudaStream_t s = new_stream();
                  launch_gate(w, 7, kHour, s);
                  while (w.ready_word.value != 7) std::this_thread::sleep_for(1ms);
                  std::this_thread::sleep_for(20ms);
                  demand(cudaStreamQuery(s) == cudaErrorNotReady);
                  demand(w.ready_word.waiter == 1);  // whoever writes go is to wake it
                  open(w);
                  demand(cudaStreamSynchronize(s) == cudaSuccess);
                  demand(w.ready_word.waiter == 0);
                  demand(w.gave_up == 0);
              };
              passes([](Words& w) { set<std::uint64_t>(w.go, 7); });
              passes([](Words& w) { set<std::uint64_t>(w.go, 9); });
              passes([](Words& w) { set<std::uint32_t>(w.open_segment, 1); });
              passes([](Words& w) { set<std::uint32_t>(w.open_comm, 1); });
              Words stale;
              cudaStream_t s = new_stream();
              launch_gate(stale, 1, 30'000'000, s);
              demand(cudaStreamSynchronize(s) == cudaSuccess);
              demand(stale.gave_up == 1);
          }) == 0);
}

TEST_CASE("a heartbeat that one gate gave up waiting for holds no other, until it beats again") {
    CHECK(run_alone({}, [] {
              Words w;
              cudaStream_t s = new_stream();
              launch_gate(w, 1, 30'000'000, s);
              for (std::uint64_t n = 2; n <= 5; ++n) launch_gate(w, n, kHour, s);  // enqueued before anybody gave up
              demand(cudaStreamSynchronize(s) == cudaSuccess);
              demand(w.gave_up == 5);
              set<std::uint64_t>(w.heartbeat, 2);
              launch_gate(w, 6, kHour, s);
              while (w.ready_word.value != 6) std::this_thread::sleep_for(1ms);
              std::this_thread::sleep_for(20ms);
              demand(cudaStreamQuery(s) == cudaErrorNotReady);
              set<std::uint64_t>(w.go, 6);
              demand(cudaStreamSynchronize(s) == cudaSuccess);
              demand(w.gave_up == 5);
          }) == 0);
}

TEST_CASE("a trap kills the device's context, and every call says so") {
    for (const bool by_segment : {false, true}) {
        CHECK(run_alone({}, [=] {
                  Words w;
                  cudaStream_t s = new_stream();
                  std::atomic<int> behind{0};
                  launch_gate(w, 1, kHour, s);
                  demand(cudaLaunchHostFunc(s, add_one, &behind) == cudaSuccess);
                  if (by_segment)
                      set<std::uint32_t>(w.open_segment, 2);
                  else
                      set<std::uint64_t>(w.go, 1 | 1ull << 63);
                  demand(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
                  demand(cudaGetLastError() == cudaErrorLaunchFailure);
                  demand(cudaGetLastError() == cudaErrorLaunchFailure);  // sticky
                  void* p = nullptr;
                  demand(cudaMalloc(&p, 16) == cudaErrorLaunchFailure);
                  demand(behind == 0);
              }) == 0);
    }
}

TEST_CASE("streams run in order, apart from each other, and meet at events") {
    CHECK(run_alone({}, [] {
              cudaStream_t a = new_stream(), b = new_stream();
              cudaEvent_t event;
              demand(cudaEventCreate(&event) == cudaSuccess);
              std::atomic<int> open{0}, after{0};
              demand(cudaLaunchHostFunc(a, wait_until_positive, &open) == cudaSuccess);
              demand(cudaEventRecord(event, a) == cudaSuccess);
              demand(cudaStreamWaitEvent(b, event, 0) == cudaSuccess);
              demand(cudaLaunchHostFunc(b, add_one, &after) == cudaSuccess);
              std::this_thread::sleep_for(20ms);
              demand(after == 0 && cudaEventQuery(event) == cudaErrorNotReady && cudaStreamQuery(b) == cudaErrorNotReady);
              open = 1;
              demand(cudaStreamSynchronize(b) == cudaSuccess);
              demand(after == 1 && cudaEventQuery(event) == cudaSuccess);
              cudaEvent_t later;
              demand(cudaEventCreate(&later) == cudaSuccess && cudaEventRecord(later, b) == cudaSuccess);
              demand(cudaEventSynchronize(later) == cudaSuccess);
              float ms = -1;
              demand(cudaEventElapsedTime(&ms, event, later) == cudaSuccess && ms >= 0);
              demand(cudaEventDestroy(event) == cudaSuccess && cudaEventDestroy(later) == cudaSuccess);
              demand(cudaStreamDestroy(a) == cudaSuccess);
          }) == 0);
}

TEST_CASE("the default stream waits for blocking streams and they for it; non-blocking ones do not care") {
    CHECK(run_alone({}, [] {
              cudaStream_t blocking = new_stream(cudaStreamDefault), apart = new_stream();
              std::atomic<int> open{0}, first{0}, second{0}, third{0};
              demand(cudaLaunchHostFunc(blocking, wait_until_positive, &open) == cudaSuccess);
              demand(cudaLaunchHostFunc(nullptr, add_one, &first) == cudaSuccess);
              demand(cudaLaunchHostFunc(new_stream(cudaStreamDefault), add_one, &second) == cudaSuccess);
              demand(cudaLaunchHostFunc(apart, add_one, &third) == cudaSuccess);
              demand(cudaStreamSynchronize(apart) == cudaSuccess && third == 1);
              std::this_thread::sleep_for(20ms);
              demand(first == 0 && second == 0);
              open = 1;
              demand(cudaDeviceSynchronize() == cudaSuccess);
              demand(first == 1 && second == 1);
          }) == 0);
}

TEST_CASE("stream memory operations write in order and wait for a value") {
    CHECK(run_alone({}, [] {
              auto* words = static_cast<std::uint64_t*>(std::calloc(4, 8));
              demand(cuMemHostRegister(words, 32, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS);
              demand(cuMemHostRegister(words, 32, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
              CUdeviceptr at = 0;
              demand(cuMemHostGetDevicePointer(&at, words, 0) == CUDA_SUCCESS);
              const auto s = reinterpret_cast<CUstream>(new_stream());
              demand(cuStreamWaitValue64(s, at, 5, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
              demand(cuStreamWriteValue64(s, at + 8, 42, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS);
              std::this_thread::sleep_for(20ms);
              demand(get(words[1]) == 0 && cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
              set<std::uint64_t>(words[0], 6);
              demand(cuStreamSynchronize(s) == CUDA_SUCCESS && words[1] == 42);
              demand(cuStreamWriteValue64(s, at + 3, 1, 0) == CUDA_ERROR_INVALID_VALUE);
              demand(cuMemHostUnregister(words) == CUDA_SUCCESS);
              demand(cuMemHostGetDevicePointer(&at, words, 0) == CUDA_ERROR_INVALID_VALUE);
              std::free(words);
          }) == 0);
}

TEST_CASE("copies and fills of any size are done in stream order") {
    CHECK(run_alone({}, [] {
              for (const std::size_t bytes : {std::size_t{64}, std::size_t{4} << 20}) {
                  void *device = nullptr, *pinned = nullptr;
                  demand(cudaMalloc(&device, bytes) == cudaSuccess && cudaMallocHost(&pinned, bytes) == cudaSuccess);
                  cudaStream_t s = new_stream();
                  demand(cudaMemsetAsync(device, 7, bytes, s) == cudaSuccess);
                  demand(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, s) == cudaSuccess);
                  demand(cudaStreamSynchronize(s) == cudaSuccess);
                  demand(static_cast<char*>(pinned)[bytes - 1] == 7);
                  cudaPointerAttributes attributes;
                  demand(cudaPointerGetAttributes(&attributes, device) == cudaSuccess &&
                         attributes.type == cudaMemoryTypeDevice);
                  demand(cudaFree(device) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess);
                  demand(cudaFree(device) == cudaErrorInvalidValue);
              }
          }) == 0);
}

TEST_CASE("memory that is not pinned is read before a copy returns, and written when it does") {
    CHECK(run_alone({}, [] {
              for (const std::size_t bytes : {std::size_t{64}, std::size_t{4} << 20}) {
                  void* device = nullptr;
                  demand(cudaMalloc(&device, bytes) == cudaSuccess);
                  std::vector<char> own(bytes, 7), back(bytes, 0);
                  static std::atomic<bool> open;
                  open = false;
                  cudaStream_t s = new_stream();
                  demand(cudaLaunchHostFunc(
                             s,
                             [](void*) {
                                 while (!open) std::this_thread::yield();
                             },
                             nullptr) == cudaSuccess);
                  demand(cudaMemcpyAsync(device, own.data(), bytes, cudaMemcpyHostToDevice, s) == cudaSuccess);
                  std::fill(own.begin(), own.end(), 9);
                  std::thread opening([] { open = true; });
                  demand(cudaMemcpyAsync(back.data(), device, bytes, cudaMemcpyDeviceToHost, s) == cudaSuccess);
                  demand(std::ranges::all_of(back, [](char c) { return c == 7; }));
                  opening.join();
                  demand(cudaFree(device) == cudaSuccess);
              }
          }) == 0);
}

TEST_CASE("devices are those that are visible, with the bus ids of their places on the node") {
    CHECK(run_alone({{"STANDIN_GPUS", "4"}, {"CUDA_VISIBLE_DEVICES", "2,0"}}, [] {
              int count = 0;
              demand(cudaGetDeviceCount(&count) == cudaSuccess && count == 2);
              char first[16], second[16];
              demand(cudaDeviceGetPCIBusId(first, sizeof first, 0) == cudaSuccess);
              demand(cuDeviceGetPCIBusId(second, sizeof second, 1) == CUDA_SUCCESS);
              demand(std::strcmp(first, "0000:12:00.0") == 0 && std::strcmp(second, "0000:10:00.0") == 0);
              demand(cudaSetDevice(2) == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice);
              cudaDeviceProp properties;
              demand(cudaGetDeviceProperties(&properties, 1) == cudaSuccess &&
                     std::strstr(properties.name, "stand-in"));
          }) == 0);
    // What a cgroup leaves of the node is counted from 0 again.
    CHECK(run_alone({{"STANDIN_GPUS", "4"}, {"STANDIN_OPEN_GPUS", "1,3"}, {"CUDA_VISIBLE_DEVICES", "1"}}, [] {
              int count = 0;
              demand(cudaGetDeviceCount(&count) == cudaSuccess && count == 1);
              char id[16];
              demand(cuDeviceGetPCIBusId(id, sizeof id, 0) == CUDA_SUCCESS && std::strcmp(id, "0000:13:00.0") == 0);
          }) == 0);
    const std::vector<std::pair<std::string, std::string>> by_uuid = {
        {"STANDIN_GPUS", "4"},
        {"STANDIN_NODE", "5"},
        {"CUDA_VISIBLE_DEVICES", "GPU-7374616e-6469-6e00-0000-000500000002,0,GPU-8,1"}};
    CHECK(run_alone(by_uuid, [] {
              int count = 0;
              demand(cudaGetDeviceCount(&count) == cudaSuccess && count == 2);  // the third word names none
              char id[16];
              demand(cuDeviceGetPCIBusId(id, sizeof id, 0) == CUDA_SUCCESS && std::strcmp(id, "0000:12:00.0") == 0);
              CUuuid uuid;
              demand(cuDeviceGetUuid(&uuid, 0) == CUDA_SUCCESS && std::memcmp(uuid.bytes, "standin", 7) == 0);
              demand(uuid.bytes[11] == 5 && uuid.bytes[15] == 2);
          }) == 0);
    CHECK(run_alone({{"CUDA_VISIBLE_DEVICES", ""}}, [] {
              int count = 1;
              demand(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
          }) == 0);
}

TEST_CASE("kernels of modules that a program loads are launched, take their time and compute nothing") {
    CHECK(run_alone({{"STANDIN_TIME_SCALE", "100000"}}, [] {  // 0.3 s each
              const auto path = std::filesystem::temp_directory_path() / ("module-" + std::to_string(getpid()));
              std::ofstream(path, std::ios::binary) << "\177ELF, as of a compiler";
              CUmodule module = nullptr;
              demand(cuModuleLoad(&module, (path / "not there").c_str()) == CUDA_ERROR_FILE_NOT_FOUND);
              demand(cuModuleLoad(&module, path.c_str()) == CUDA_SUCCESS);
              std::filesystem::remove(path);
              CUfunction function = nullptr, again = nullptr, other = nullptr;
              demand(cuModuleGetFunction(&function, module, "triton_poi_fused") == CUDA_SUCCESS);
              demand(cuModuleGetFunction(&other, module, "triton_red_fused") == CUDA_SUCCESS);
              demand(cuModuleGetFunction(&again, module, "triton_poi_fused") == CUDA_SUCCESS && again == function &&
                     other != function);
              int threads = 0, registers = 0;
              demand(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function) == CUDA_SUCCESS &&
                     threads == 1024);
              demand(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function) == CUDA_SUCCESS && registers > 0);
              demand(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100'000) == CUDA_SUCCESS);

              cudaStream_t s = nullptr;
              demand(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
              std::atomic<int> called{0};
              const auto count = [](void* to) { ++*static_cast<std::atomic<int>*>(to); };
              int value = 7;
              void* params[] = {&value};
              demand(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, s, params, nullptr) == CUDA_SUCCESS);
              CUlaunchConfig config{};
              config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY =
                  config.blockDimZ = 1;
              config.hStream = s;
              demand(cuLaunchKernelEx(&config, other, params, nullptr) == CUDA_SUCCESS);
              demand(cudaLaunchHostFunc(s, count, &called) == cudaSuccess);
              demand(cudaStreamQuery(s) == cudaErrorNotReady && called == 0);
              demand(cudaStreamSynchronize(s) == cudaSuccess && called == 1 && value == 7);
              demand(cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, s, params, nullptr) == CUDA_ERROR_INVALID_VALUE);
              demand(cuModuleUnload(module) == CUDA_SUCCESS);
          }) == 0);
}

TEST_CASE("what is unknown is a proper error: kernels, symbols, handles, captures") {
    CHECK(run_alone({}, [] {
              CUmodule module = nullptr;
              CUfunction function = nullptr;
              demand(cuModuleLoadData(&module, ".version 7.0\n") == CUDA_ERROR_INVALID_PTX);
              demand(cuModuleLoadData(&module, ".version 7.0\n.entry other() { ret; }") == CUDA_SUCCESS);
              demand(cuModuleGetFunction(&function, module, "opus_gate") == CUDA_ERROR_NOT_FOUND);
              demand(cuModuleUnload(module) == CUDA_SUCCESS);
              demand(cudaLaunchKernel(&function, 1, 1, nullptr, 0, nullptr) == cudaErrorInvalidDeviceFunction);
              int not_a_stream = 0;
              demand(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(&not_a_stream)) == cudaErrorInvalidResourceHandle);
              demand(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed) == cudaErrorStreamCaptureUnsupported);
              void* found = nullptr;
              CUdriverProcAddressQueryResult result;
              demand(cuGetProcAddress("cuStreamWriteValue64", &found, 12000, 0, &result) == CUDA_SUCCESS && found);
              demand(cuGetProcAddress("cuNoSuchThing", &found, 12000, 0, &result) == CUDA_ERROR_NOT_FOUND && !found);
              demand(cudaGetDriverEntryPoint("cuNoSuchThing", &found, 0, nullptr) == cudaSuccess && !found);
          }) == 0);
}
