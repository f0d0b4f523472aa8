// Every operation, type and reduction against a reference computed here, bit for bit. The 16- and 8-bit
// types are converted by CUDA's own headers, which share nothing with the stand-in's conversions.
#include <doctest/doctest.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstring>

#include "ranks.h"

using namespace opus::standin::test;

namespace {

struct TypeOf {
    ncclDataType_t type;
    std::size_t bytes;
    double largest;  // integers up to here are exact
};
constexpr TypeOf kTypes[] = {
    {ncclInt8, 1, 127},     {ncclUint8, 1, 255},    {ncclInt32, 4, 1e9},     {ncclUint32, 4, 1e9},
    {ncclInt64, 8, 1e15},   {ncclUint64, 8, 1e15},  {ncclFloat16, 2, 2048},  {ncclFloat32, 4, 16e6},
    {ncclFloat64, 8, 1e15}, {ncclBfloat16, 2, 256}, {ncclFloat8e4m3, 1, 16}, {ncclFloat8e5m2, 1, 8},
};

template <typename T>
void put(std::byte* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

void store(ncclDataType_t type, std::byte* at, double v) {
    switch (type) {
        case ncclInt8: return put(at, static_cast<std::int8_t>(v));
        case ncclUint8: return put(at, static_cast<std::uint8_t>(v));
        case ncclInt32: return put(at, static_cast<std::int32_t>(v));
        case ncclUint32: return put(at, static_cast<std::uint32_t>(v));
        case ncclInt64: return put(at, static_cast<std::int64_t>(v));
        case ncclUint64: return put(at, static_cast<std::uint64_t>(v));
        case ncclFloat16: return put(at, __float2half_rn(static_cast<float>(v)));
        case ncclFloat32: return put(at, static_cast<float>(v));
        case ncclFloat64: return put(at, v);
        case ncclBfloat16: return put(at, __float2bfloat16_rn(static_cast<float>(v)));
        case ncclFloat8e4m3: return put(at, __nv_cvt_float_to_fp8(static_cast<float>(v), __NV_SATFINITE, __NV_E4M3));
        default: return put(at, __nv_cvt_float_to_fp8(static_cast<float>(v), __NV_SATFINITE, __NV_E5M2));
    }
}

// Small whole numbers: sums of 8 ranks stay exact in every type, whatever the order.
double sample(int rank, std::size_t i, std::uint32_t seed) {
    return static_cast<double>((rank * 7 + i * 3 + seed) % 2);
}
// Products stay exact when at most three ranks give 2.
double factor(int rank, std::size_t i) { return (rank + static_cast<int>(i)) % 3 == 0 && rank < 8 ? 2 : 1; }

double input(ncclRedOp_t op, int rank, std::size_t i) { return op == ncclProd ? factor(rank, i) : sample(rank, i, 1); }

double reduced(ncclRedOp_t op, int ranks, std::size_t i) {
    double v = input(op, 0, i);
    for (int r = 1; r < ranks; ++r) {
        const double x = input(op, r, i);
        if (op == ncclProd)
            v *= x;
        else if (op == ncclMax)
            v = std::max(v, x);
        else if (op == ncclMin)
            v = std::min(v, x);
        else
            v += x;
    }
    return v;
}

std::vector<std::byte> filled(const TypeOf& t, std::size_t count, const std::function<double(std::size_t)>& value) {
    std::vector<std::byte> bytes(count * t.bytes);
    for (std::size_t i = 0; i < count; ++i) store(t.type, bytes.data() + i * t.bytes, value(i));
    return bytes;
}

bool whole(ncclDataType_t type) { return type <= ncclUint64; }

// What an average is: the sum, rounded to the type at no step, divided once.
double averaged(const TypeOf& t, int ranks, std::size_t i) {
    const double sum = reduced(ncclSum, ranks, i);
    if (t.type == ncclFloat64) return sum / ranks;
    return whole(t.type) ? static_cast<double>(static_cast<long>(sum) / ranks)
                         : static_cast<double>(static_cast<float>(sum) / static_cast<float>(ranks));
}

struct Job {
    const Rank& r;
    ncclComm_t comm;
    cudaStream_t stream;

    void expect(const std::vector<std::byte>& got, const std::vector<std::byte>& wanted, const std::string& what) const {
        if (got.size() == wanted.size() && std::memcmp(got.data(), wanted.data(), got.size()) == 0) return;
        give_up("rank " + std::to_string(r.rank) + " of " + std::to_string(r.size) + ": " + what, __FILE__, __LINE__);
    }
    void finish() const { demand(cudaStreamSynchronize(stream) == cudaSuccess); }
};

void reductions(const Job& job, const TypeOf& t, std::size_t count) {
    const int n = job.r.size, me = job.r.rank;
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
        const auto want = [&](std::size_t i) { return op == ncclAvg ? averaged(t, n, i) : reduced(op, n, i); };
        const std::string what =
            "type " + std::to_string(t.type) + " op " + std::to_string(op) + " count " + std::to_string(count);
        const auto mine = filled(t, count, [&](std::size_t i) { return input(op, me, i); });
        std::vector<std::byte> out(mine.size());
        demand_nccl(ncclAllReduce(mine.data(), out.data(), count, t.type, op, job.comm, job.stream));
        job.finish();
        job.expect(out, filled(t, count, want), "AllReduce " + what);
        out = mine;
        demand_nccl(ncclAllReduce(out.data(), out.data(), count, t.type, op, job.comm, job.stream));
        job.finish();
        job.expect(out, filled(t, count, want), "AllReduce in place " + what);
        const int root = n - 1;
        out.assign(mine.size(), std::byte{});
        demand_nccl(ncclReduce(mine.data(), me == root ? out.data() : nullptr, count, t.type, op, root, job.comm, job.stream));
        job.finish();
        if (me == root) job.expect(out, filled(t, count, want), "Reduce " + what);
        const std::size_t all = count * static_cast<std::size_t>(n);
        const auto long_one = filled(t, all, [&](std::size_t i) { return input(op, me, i); });
        demand_nccl(ncclReduceScatter(long_one.data(), out.data(), count, t.type, op, job.comm, job.stream));
        job.finish();
        job.expect(out, filled(t, count, [&](std::size_t i) { return want(i + static_cast<std::size_t>(me) * count); }),
                   "ReduceScatter " + what);
    }
}

void moves(const Job& job, const TypeOf& t, std::size_t count) {
    const int n = job.r.size, me = job.r.rank, root = n / 2;
    const std::size_t all = count * static_cast<std::size_t>(n);
    const std::string what = "type " + std::to_string(t.type) + " count " + std::to_string(count);
    const auto from = [&](int rank, std::size_t i) { return sample(rank, i, 0) + rank % 8; };
    const auto block_of = [&](std::size_t i) { return static_cast<int>(i / count); };
    const auto mine = filled(t, count, [&](std::size_t i) { return from(me, i); });
    const auto everyones = filled(t, all, [&](std::size_t i) { return from(block_of(i), i % count); });
    std::vector<std::byte> out(all * t.bytes), one(mine.size());
    demand_nccl(ncclAllGather(mine.data(), out.data(), count, t.type, job.comm, job.stream));
    job.finish();
    job.expect(out, everyones, "AllGather " + what);
    demand_nccl(ncclBroadcast(me == root ? mine.data() : nullptr, one.data(), count, t.type, root, job.comm, job.stream));
    job.finish();
    job.expect(one, filled(t, count, [&](std::size_t i) { return from(root, i); }), "Broadcast " + what);
    one = mine;
    demand_nccl(ncclBcast(one.data(), count, t.type, 0, job.comm, job.stream));
    job.finish();
    job.expect(one, filled(t, count, [&](std::size_t i) { return from(0, i); }), "Bcast " + what);
    const auto cross = [&](int src, int dst, std::size_t i) { return sample(src + 3 * dst, i, 0) + (src + dst) % 8; };
    const auto given = filled(t, all, [&](std::size_t i) { return cross(me, block_of(i), i % count); });
    demand_nccl(ncclAlltoAll(given.data(), out.data(), count, t.type, job.comm, job.stream));
    job.finish();
    job.expect(out, filled(t, all, [&](std::size_t i) { return cross(block_of(i), me, i % count); }), "AlltoAll " + what);
    out.assign(out.size(), std::byte{});
    demand_nccl(ncclGather(mine.data(), me == root ? out.data() : nullptr, count, t.type, root, job.comm, job.stream));
    job.finish();
    if (me == root) job.expect(out, everyones, "Gather " + what);
    demand_nccl(ncclScatter(me == root ? everyones.data() : nullptr, one.data(), count, t.type, root, job.comm, job.stream));
    job.finish();
    job.expect(one, mine, "Scatter " + what);
    const int next = (me + 1) % n, previous = (me + n - 1) % n;
    demand_nccl(ncclGroupStart());
    demand_nccl(ncclSend(mine.data(), count, t.type, next, job.comm, job.stream));
    demand_nccl(ncclRecv(one.data(), count, t.type, previous, job.comm, job.stream));
    demand_nccl(ncclGroupEnd());
    job.finish();
    job.expect(one, filled(t, count, [&](std::size_t i) { return from(previous, i); }), "Send/Recv " + what);
}

void everything(const Rank& r, const std::vector<std::size_t>& counts) {
    demand(cudaSetDevice(0) == cudaSuccess);
    cudaStream_t stream = nullptr;
    demand(cudaStreamCreate(&stream) == cudaSuccess);
    ncclComm_t comm = r.comm();
    const Job job{r, comm, stream};
    for (const TypeOf& t : kTypes)
        for (const std::size_t count : counts) {
            reductions(job, t, count);
            moves(job, t, count);
        }
    demand_nccl(ncclCommDestroy(comm));
}

}  // namespace

TEST_CASE(
    "every operation gives the reference's bits, for every type, on groups of one to eight ranks and one to four "
    "nodes") {
    const std::vector<std::vector<int>> shapes = {{1},    {2},       {1, 1}, {3},       {2, 1},
                                                  {2, 2}, {1, 1, 1}, {4, 1}, {2, 2, 2}, {2, 2, 2, 2}};
    for (const auto& shape : shapes) {
        CAPTURE(shape.size());
        CAPTURE(shape.front());
        const auto codes = run_ranks(nodes_of(shape), [](const Rank& r) { everything(r, {1, 5, 1000}); });
        CHECK(all_well(codes));
    }
}

TEST_CASE("long buffers, in many pieces, give the reference's bits") {
    const auto codes = run_ranks(nodes_of({2, 2}), [](const Rank& r) {
        cudaStream_t stream = nullptr;
        demand(cudaStreamCreate(&stream) == cudaSuccess);
        ncclComm_t comm = r.comm();
        const Job job{r, comm, stream};
        reductions(job, kTypes[7], 1'000'003);
        moves(job, kTypes[2], 300'001);
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
}

TEST_CASE("a node's ranks may be scattered over the communicator") {
    Layout layout;
    layout.node = {1, 0, 1, 0, 2};
    layout.gpu = {0, 0, 1, 1, 0};
    const auto codes = run_ranks(layout, [](const Rank& r) { everything(r, {33}); });
    CHECK(all_well(codes));
}

TEST_CASE("sums that rounding makes depend on the order are the same bits in every run and on every rank") {
    const auto run = [](const Rank& r) {
        ncclComm_t comm = r.comm();
        const std::size_t count = 50'000;
        std::vector<float> in(count), out(count);
        for (std::size_t i = 0; i < count; ++i)
            in[i] = 1.0f / static_cast<float>(i * 7 + static_cast<std::size_t>(r.rank) + 1);
        std::uint64_t first = 0;
        for (int round = 0; round < 5; ++round) {
            if (round % 2 == r.rank % 2) {  // another order of arrival
                const timespec t{0, 3'000'000};
                nanosleep(&t, nullptr);
            }
            demand_nccl(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, ncclSum, comm, nullptr));
            demand(cudaStreamSynchronize(nullptr) == cudaSuccess);
            std::uint64_t hash = 14695981039346656037ull;
            for (const float f : out) {
                std::uint32_t bits;
                std::memcpy(&bits, &f, 4);
                hash = (hash ^ bits) * 1099511628211ull;
            }
            if (round == 0) first = hash;
            demand(hash == first);
        }
        r.shared->word[static_cast<std::size_t>(r.rank)] = first;
        r.barrier(10);
        demand(r.shared->word[0] == first);
        demand_nccl(ncclCommDestroy(comm));
    };
    const auto codes = run_ranks(nodes_of({2, 2}), run);
    CHECK(all_well(codes));
}

TEST_CASE("PreMulSum multiplies each rank's data first") {
    const auto codes = run_ranks(nodes_of({2, 1}), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        float scalar = 3;
        ncclRedOp_t op;
        demand_nccl(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
        std::vector<float> data(100, static_cast<float>(r.rank + 1));
        demand_nccl(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, op, comm, nullptr));
        demand(cudaStreamSynchronize(nullptr) == cudaSuccess);
        for (const float f : data) demand(f == 18.0f);
        demand_nccl(ncclRedOpDestroy(op, comm));
        demand(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, op, comm, nullptr) == ncclInvalidArgument);
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
}
