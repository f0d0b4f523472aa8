// What kernels take and what few of them compute, on the stand-in GPU; and what is said of calls that it refuses.
#include <doctest/doctest.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <string>

#include "engine/model.h"
#include "ranks.h"

using namespace opus::standin;
using namespace opus::standin::test;

// What the host code of a program has; declared by nobody.
struct uint3;
extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);

namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;
constexpr std::int64_t kLaunch_ns = 3'000;
constexpr std::int64_t kEarly_ns = 100'000;  // an end is found that much before it is due, at most: threads wake late
constexpr int kHalf = 2, kSingle = 4;

// Of figures in floating point.
bool near(std::int64_t ns, double wanted) { return std::abs(static_cast<double>(ns) - wanted) <= 2; }

// A file that is removed with it.
struct File {
    std::string path = "/tmp/opus-kernels-" + std::to_string(getpid());
    explicit File(const std::string& text) { std::ofstream(path) << text; }
    ~File() { unlink(path.c_str()); }
};

// What a child with this environment says on stderr.
std::string said_by(const Environment& environment, const std::function<void()>& body, int code = 0) {
    const File file("");
    const int ended = run_alone(environment, [&] {
        const int to = open(file.path.c_str(), O_WRONLY | O_TRUNC);
        dup2(to, 2);
        body();
    });
    CHECK(ended == code);
    std::ifstream in(file.path);
    return {std::istreambuf_iterator<char>(in), {}};
}

int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

// A kernel of PyTorch's, by the mangled name that its host code registers, launched with these arguments; waits for its end.
template <std::size_t N>
void launch(const std::string& mangled, std::array<void*, N> arguments, unsigned rows = 1) {
    static std::deque<std::string> names;  // they stay where they are, as a program's do
    const char* stub = names.emplace_back(mangled).c_str();
    __cudaRegisterFunction(nullptr, stub, nullptr, stub, 0, nullptr, nullptr, nullptr, nullptr, nullptr);
    demand(cudaLaunchKernel(stub, dim3(1, rows), dim3(32), arguments.data(), 0, nullptr) == cudaSuccess);
    demand(cudaStreamSynchronize(nullptr) == cudaSuccess);
}

template <typename T>
T* device(std::initializer_list<T> values) {
    void* memory = nullptr;
    demand(cudaMalloc(&memory, values.size() * sizeof(T)) == cudaSuccess);
    demand(cudaMemcpy(memory, values.begin(), values.size() * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    return static_cast<T*>(memory);
}

template <typename T>
bool holds(const T* memory, std::initializer_list<T> values) {
    std::vector<T> got(values.size());
    demand(cudaMemcpy(got.data(), memory, values.size() * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return std::equal(got.begin(), got.end(), values.begin());
}

// vectorized_elementwise_kernel<4, FUNCTOR, std::array<char*, N>>(int, FUNCTOR, std::array<char*, N>)
std::string elementwise_name(const std::string& functor, int pointers) {
    return "_ZN2at6native29vectorized_elementwise_kernelILi4E" + functor + "St5arrayIPcLm" + std::to_string(pointers) +
           "EEEEviT0_T1_";
}
const std::string kFillLong = elementwise_name("NS0_11FillFunctorIlEE", 1);
const std::string kAddLong = elementwise_name("NS0_15CUDAFunctor_addIlEE", 3);
const std::string kSineLong = elementwise_name("NS0_11SineFunctorIlEE", 2);
// reduce_kernel<512, 1, ReduceOp<long, func_wrapper_t<long, FUNCTOR>, unsigned, long, 4, 4>>(...)
std::string reduce_name(const std::string& functor) {
    return "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIlNS0_14func_wrapper_tIl" + functor +
           "EEjlLi4ELi4EEEEEvT1_";
}
const std::string kSum = "ZNS0_11sum_functorIlllEclERNS_14TensorIteratorEEUlllE_", kLargest = "NS0_13MaxNanFunctorIlEE",
                  kSmallest = "NS0_13MinNanFunctorIlEE";

template <std::size_t N>
void apply(const std::string& name, std::int64_t functor, int elements, std::array<void*, N> pointers) {
    launch(name, std::array<void*, 3>{&elements, &functor, pointers.data()});
}

// The parameters of a reduction of a whole tensor of longs, as Reduce.cuh lays them out.
struct Reduction {
    std::array<char, 2048> bytes{};
    Reduction(const std::int64_t* from, std::int64_t* to, int elements, int outputs = 1) {
        constexpr std::size_t config = 16, input = config + 64, strides = input + 4 + 25 * 12,
                              output = input + 4 + 25 * 16, source = (output + 4 + 25 * 20 + 7) / 8 * 8;
        const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
        put(config, 8);
        put(config + 4, elements);
        put(config + 8, outputs);
        put(config + 44, 32);  // threads: 32 by 1, each with one output
        put(config + 48, 1);
        put(config + 52, 32);
        put(config + 60, 1);
        put(input, 1);
        put(strides, std::uint32_t{8});
        put(source, from);
        put(source + 8, to);
    }
};

// Of three tensors of one dimension, as Shape.cu lays its arguments out.
struct Concatenation {
    static constexpr std::size_t kMost = 64;
    std::array<const void*, kMost> from{};
    std::array<std::uint32_t, kMost> at{}, along{}, count{};
    std::array<bool, kMost> contiguous{};
    struct {
        std::uint32_t size[4], stride[4];
    } strides[kMost]{};

    Concatenation(const std::int64_t* a, std::uint32_t of_a, const std::int64_t* c, std::uint32_t of_c, std::uint32_t stride) {
        from = {a, nullptr, c};
        at = {0, of_a, of_a}, along = count = {of_a, 0, of_c};
        contiguous[0] = true;
        strides[2].stride[0] = stride;
    }
};
const std::string kJoinLong =
    "_ZN2at6native40_GLOBAL__N__f1f992fe_8_Shape_cu_49f7391c19CatArrayBatchedCopyINS1_"
    "10OpaqueTypeILj8EEEjLi1ELi64ELi64EEEvPT_"
    "NS1_25CatArrInputTensorMetadataIS5_T0_XT2_EXT3_EEENS1_16TensorSizeStrideIS8_Lj4EEEiS8_";

}  // namespace

TEST_CASE("a product takes as long as its arithmetic or its bytes, whichever is longer") {
    CHECK(run_alone({{"STANDIN_TIME_SCALE", "1"}}, [] {  // an H100: 989 and 494 TFLOP/s, 3.35 TB/s
              demand(near(matmul_ns(8192, 8192, 8192, 1, kHalf), 2.0 * 8192 * 8192 * 8192 / 989e12 * 1e9 + kLaunch_ns));
              demand(near(matmul_ns(8192, 8192, 8192, 1, kSingle), 2.0 * 8192 * 8192 * 8192 / 494e12 * 1e9 + kLaunch_ns));
              demand(near(matmul_ns(8192, 1, 8192, 1, kHalf), (8192.0 * 8192 + 2 * 8192) * 2 / 3.35e12 * 1e9 + kLaunch_ns));
              demand(near(matmul_ns(1024, 1024, 1024, 64, kHalf), 64 * 2.0 * 1024 * 1024 * 1024 / 989e12 * 1e9 + kLaunch_ns));
              demand(kernel_ns("any other") == kLaunch_ns);
          }) == 0);
    CHECK(run_alone({{"STANDIN_TIME_SCALE", "0.5"}, {"STANDIN_GPU_MODEL", "a100"}}, [] {
              demand(near(matmul_ns(8192, 8192, 8192, 1, kHalf), (2.0 * 8192 * 8192 * 8192 / 312e12 * 1e9 + kLaunch_ns) / 2));
              demand(kernel_ns("any other") == kLaunch_ns / 2);
          }) == 0);
    CHECK(run_alone({{"STANDIN_TIME_SCALE", "0"}},
                    [] { demand(matmul_ns(8192, 8192, 8192, 1, kHalf) + kernel_ns("any") == 0); }) == 0);
}

TEST_CASE("cuBLAS's shapes, types and batches are what a product's time is of, in the order of its stream") {
    CHECK(run_alone({{"STANDIN_TIME_SCALE", "1"}}, [] {
              void* blas = dlopen(OPUS_STANDIN_CUBLAS, RTLD_NOW);
              demand(blas != nullptr);
              const auto call = [&](const char* name) { return dlsym(blas, name); };
              void* handle = nullptr;
              cudaStream_t stream = nullptr;
              demand(cudaStreamCreate(&stream) == cudaSuccess);
              demand(reinterpret_cast<int (*)(void**)>(call("cublasCreate_v2"))(&handle) == 0);
              demand(reinterpret_cast<int (*)(void*, void*)>(call("cublasSetStream_v2"))(handle, stream) == 0);
              const auto multiply =
                  reinterpret_cast<int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, long long, const void*,
                                           int, int, long long, const void*, void*, int, int, long long, int, int, int)>(
                      call("cublasGemmStridedBatchedEx"));
              constexpr int kBfloat16 = 14, kDoubleReal = 1;
              // No sooner than the model says. How much later is the machine's affair.
              for (const auto& [type, bytes, n, batch] :
                   {std::array{kBfloat16, 2, 16384, 2}, std::array{kDoubleReal, 8, 8192, 8}}) {
                  const auto wanted = matmul_ns(n, 4096, 8192, batch, bytes);
                  demand(wanted > 2'000'000);
                  const auto begin = std::chrono::steady_clock::now();
                  demand(multiply(handle, 0, 0, n, 4096, 8192, nullptr, nullptr, type, n, 0, nullptr, type, 8192, 0,
                                  nullptr, nullptr, type, n, 0, batch, 0, 0) == 0);
                  demand(cudaStreamSynchronize(stream) == cudaSuccess);
                  demand((std::chrono::steady_clock::now() - begin).count() >= wanted - kEarly_ns);
              }
          }) == 0);
}

TEST_CASE("a file says what kernels take instead: the first line that fits counts") {
    const File file("# comment\ngemm 1000\n\nFillFunctorIl 7.5  # longs\nFillFunctor 0\n");
    CHECK(run_alone({{"STANDIN_TIME_SCALE", "2"}, {"STANDIN_TIME", file.path}}, [] {
              demand(matmul_ns(8192, 8192, 8192, 1, kHalf) == 2'000'000);
              demand(kernel_ns(kFillLong.c_str()) == 15'000);
              demand(kernel_ns("_ZN2at6native11FillFunctorIiE") == 0);
              demand(kernel_ns("any other") == 2 * kLaunch_ns);
          }) == 0);
}

TEST_CASE("a file of times, a GPU: what is wrong with them is said, with its line") {
    const auto ask = [] { demand(kernel_ns("any") > 0); };
    for (const char* line : {"gemm", "gemm fast", "gemm -1", "gemm 1 2"}) {
        const File file(std::string("# times\n") + line + "\n");
        CAPTURE(line);
        const Environment environment{{"STANDIN_TIME_SCALE", "1"}, {"STANDIN_TIME", file.path}};
        // Its own file of what is said has the same name: another process.
        CHECK(run_alone(environment, [&] {
                  int ends[2];
                  demand(pipe(ends) == 0);
                  dup2(ends[1], 2);
                  const int ended = run_alone({}, ask);
                  char text[512] = {};
                  demand(read(ends[0], text, sizeof text - 1) > 0);
                  demand(ended == 2);
                  demand(std::string(text) == "opus stand-in: " + file.path + ":2: not 'PART-OF-A-NAME MICROSECONDS'\n");
              }) == 0);
    }
    CHECK(said_by({{"STANDIN_TIME_SCALE", "1"}, {"STANDIN_TIME", "/nonexistent/times"}}, ask, 2) ==
          "opus stand-in: STANDIN_TIME: cannot read /nonexistent/times\n");
    CHECK(said_by(
              {{"STANDIN_GPU_MODEL", "p100"}}, [] { gpu_model(); }, 2) ==
          "opus stand-in: STANDIN_GPU_MODEL=p100: one of a100, h100, h200, b200\n");
}

TEST_CASE("a call that is not emulated is an error, and is named once") {
    const std::string said = said_by({}, [] {
        void* blas = dlopen(OPUS_STANDIN_CUBLAS, RTLD_NOW);
        demand(blas != nullptr);
        const auto refused = reinterpret_cast<int (*)()>(dlsym(blas, "cublasDaxpy_v2"));
        demand(refused != nullptr);
        for (int i = 0; i < 3; ++i) demand(refused() == 15);  // CUBLAS_STATUS_NOT_SUPPORTED
        demand(reinterpret_cast<int (*)()>(dlsym(blas, "cublasDdot_v2"))() == 15);
    });
    CHECK(count(said, "\n") == 2);
    CHECK(count(said, ": cublasDaxpy_v2 is not emulated, and refused\n") == 1);
    CHECK(count(said, ": cublasDdot_v2 is not emulated, and refused\n") == 1);
    CHECK(said.rfind("opus stand-in (pid ", 0) == 0);
}

TEST_CASE("small tensors are filled, added and reduced, as programs steer by them") {
    CHECK(run_alone({}, [] {
              auto *a = device<std::int64_t>({5, -3, 9}), *b = device<std::int64_t>({1, 2, 3}),
                   *to = device<std::int64_t>({0, 0, 0});
              apply<1>(kFillLong, 42, 2, {a});
              demand(holds<std::int64_t>(a, {42, 42, 9}));
              apply<3>(kAddLong, 10, 3, {to, a, b});  // a + 10 b
              demand(holds<std::int64_t>(to, {52, 62, 39}));
              for (const auto& [functor, wanted] :
                   {std::pair{kSum, 153L}, std::pair{kLargest, 62L}, std::pair{kSmallest, 39L}}) {
                  auto* one = device<std::int64_t>({-1});
                  Reduction reduction(to, one, 3);
                  launch(reduce_name(functor), std::array<void*, 1>{reduction.bytes.data()});
                  demand(holds<std::int64_t>(one, {wanted}));
              }
          }) == 0);
}

TEST_CASE("what is not known, or not small, is left as it is") {
    CHECK(run_alone({}, [] {
              auto *a = device<std::int64_t>({5, -3}), *to = device<std::int64_t>({7, 7});
              apply<2>(kSineLong, 0, 2, {to, a});
              demand(holds<std::int64_t>(to, {7, 7}));
              void* large = nullptr;
              constexpr int elements = (1 << 16) + 1;
              demand(cudaMalloc(&large, elements * 8) == cudaSuccess);
              demand(cudaMemset(large, 0, elements * 8) == cudaSuccess);
              apply<1>(kFillLong, 42, elements, {large});
              demand(holds<std::int64_t>(static_cast<std::int64_t*>(large), {0, 0}));
          }) == 0);
}

TEST_CASE("a reduction that is not computed, or of a large tensor, gives zero, as programs decide by it") {
    CHECK(run_alone({}, [] {
              auto *a = device<std::int64_t>({5, -3}), *one = device<std::int64_t>({-1, -1});
              const auto reduce = [&](const std::string& functor, const std::int64_t* from, int elements) {
                  Reduction reduction(from, one, elements);
                  launch(reduce_name(functor), std::array<void*, 1>{reduction.bytes.data()});
              };
              reduce("NS0_9ProductOfIlEE", a, 2);
              demand(holds<std::int64_t>(one, {0, -1}));
              reduce(kSum, a, 2);
              demand(holds<std::int64_t>(one, {2, -1}));
              reduce(kSum, a, 3);  // beyond what was allocated
              demand(holds<std::int64_t>(one, {0, -1}));
              reduce(kSum, a, 2);
              Reduction along(a, one, 2, 2);  // a dimension is left as it is
              launch(reduce_name(kSum), std::array<void*, 1>{along.bytes.data()});
              demand(holds<std::int64_t>(one, {2, -1}));
              void* large = nullptr;
              constexpr int elements = (1 << 16) + 1;
              demand(cudaMalloc(&large, elements * 8) == cudaSuccess);
              demand(cudaMemset(large, 1, elements * 8) == cudaSuccess);
              reduce(kSum, a, 2);
              reduce(kLargest, static_cast<std::int64_t*>(large), elements);
              demand(holds<std::int64_t>(one, {0, -1}));
          }) == 0);
}

TEST_CASE("a stand-in says what it is when it is loaded, once a process tree, and not to whom knows") {
    const char* command = "printf . >&2; sh -c 'printf . >&2'";
    for (const bool known : {false, true}) {
        const std::string said = said_by({{"LD_PRELOAD", OPUS_STANDIN_CUDA}}, [&] {
            known ? setenv("STANDIN_ANNOUNCED", "1", 1) : unsetenv("STANDIN_ANNOUNCED");
            execl("/bin/sh", "sh", "-c", command, nullptr);
        });
        CAPTURE(said);
        CHECK(count(said, "is not NVIDIA's: it emulates GPUs") == (known ? 0 : 1));
        CHECK(count(said, "\n") == (known ? 0 : 1));
    }
}

TEST_CASE("small tensors of one dimension are put one behind the other, also where one is empty or has gaps") {
    CHECK(run_alone({}, [] {
              std::int64_t* to = device<std::int64_t>({0, 0, 0, 0, 0});
              const auto *a = device<std::int64_t>({1, 2, 3}), *c = device<std::int64_t>({4, 0, 5});
              Concatenation tensors(a, 3, c, 2, 2);
              int dimension = 0;
              std::uint32_t unit = 1, sizes[8] = {5, 0, 0, 0, 1, 0, 0, 0};
              launch(kJoinLong, std::array<void*, 5>{&to, &tensors, sizes, &dimension, &unit}, 3);
              demand(holds(to, {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{4}, std::int64_t{5}}));
          }) == 0);
}
