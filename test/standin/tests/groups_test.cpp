// Groups, first uses, splits, endings and errors of the stand-in NCCL.
#include <doctest/doctest.h>

#include <signal.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "ranks.h"

using namespace opus::standin::test;
using namespace std::chrono_literals;

namespace {

cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    demand(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

void sync(cudaStream_t s) { demand(cudaStreamSynchronize(s) == cudaSuccess); }

void check_sum(const Rank& r, ncclComm_t comm, cudaStream_t s = nullptr) {
    int size = 0, rank = 0;
    demand_nccl(ncclCommCount(comm, &size));
    demand_nccl(ncclCommUserRank(comm, &rank));
    std::vector<std::int64_t> data(777, rank + 1);
    demand_nccl(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt64, ncclSum, comm, s));
    sync(s);
    for (const auto v : data) demand(v == size * (size + 1) / 2);
    (void)r;
}

ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 20'000 && state == ncclInProgress; ++i) {
        demand_nccl(ncclCommGetAsyncError(comm, &state));
        std::this_thread::sleep_for(1ms);
    }
    return state;
}

}  // namespace

TEST_CASE("nothing is enqueued before the outermost GroupEnd") {
    const auto codes = run_ranks(nodes_of({1, 1}), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        cudaStream_t s = new_stream();
        check_sum(r, comm);
        std::vector<int> data(10, 1);
        demand_nccl(ncclGroupStart());
        demand_nccl(ncclGroupStart());
        demand_nccl(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, s));
        demand_nccl(ncclGroupEnd());
        std::this_thread::sleep_for(30ms);
        demand(cudaStreamQuery(s) == cudaSuccess && data[0] == 1);
        r.barrier(1);
        demand_nccl(ncclGroupEnd());
        sync(s);
        demand(data[0] == 2);
        demand_nccl(ncclGroupStart());
        demand_nccl(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, s));
        demand_nccl(ncclGroupSimulateEnd(nullptr));
        sync(s);
        demand(data[0] == 2);
        demand(ncclGroupEnd() == ncclInvalidUsage);
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
}

TEST_CASE("a group with a wrong call launches nothing and says why") {
    const auto codes = run_ranks(nodes_of({1, 1}), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        std::vector<int> data(10, 1);
        demand_nccl(ncclGroupStart());
        demand_nccl(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, nullptr));
        demand(ncclBroadcast(data.data(), data.data(), 10, ncclInt32, 9, comm, nullptr) == ncclInvalidArgument);
        demand(std::strstr(ncclGetLastError(comm), "root"));
        demand(ncclGroupEnd() == ncclInvalidArgument);
        demand(data[0] == 1);
        demand(ncclSend(data.data(), 1, ncclInt32, 2, comm, nullptr) == ncclInvalidArgument);
        demand(ncclAllReduce(data.data(), data.data(), 1, ncclNumTypes, ncclSum, comm, nullptr) == ncclInvalidArgument);
        demand(ncclAllReduce(nullptr, data.data(), 1, ncclInt32, ncclSum, comm, nullptr) == ncclInvalidArgument);
        demand(ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
        demand_nccl(ncclAllReduce(data.data(), data.data(), 0, ncclInt32, ncclSum, comm, nullptr));  // empty: dropped
        check_sum(r, comm);
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
}

TEST_CASE("a launch waits for all streams of its group, and they for it") {
    const auto codes = run_ranks(nodes_of({2}), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        check_sum(r, comm);
        cudaStream_t a = new_stream(), b = new_stream();
        std::vector<int> x(10, 1), y(10, 1);
        std::atomic<bool> open{false};
        demand(cudaLaunchHostFunc(
                   a,
                   [](void* p) {
                       while (!*static_cast<std::atomic<bool>*>(p)) std::this_thread::sleep_for(1ms);
                   },
                   &open) == cudaSuccess);
        demand_nccl(ncclGroupStart());
        demand_nccl(ncclAllReduce(x.data(), x.data(), 10, ncclInt32, ncclSum, comm, a));
        demand_nccl(ncclAllReduce(y.data(), y.data(), 10, ncclInt32, ncclSum, comm, b));
        demand_nccl(ncclGroupEnd());
        std::this_thread::sleep_for(30ms);
        demand(cudaStreamQuery(b) == cudaErrorNotReady && y[0] == 1);
        open = true;
        sync(a);
        demand(x[0] == 2 && y[0] == 2);
        sync(b);
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
}

TEST_CASE("one group may hold several communicators, in any order, collectives and transfers") {
    const auto codes = run_ranks(nodes_of({2, 2}), [](const Rank& r) {
        ncclComm_t world = r.comm(0), second = r.comm(1);
        cudaStream_t s = new_stream(), t = new_stream();
        for (int round = 0; round < 20; ++round) {
            std::vector<int> a(100, 1), b(1000, r.rank), out(1000, -1), c(4, 1);
            const int next = (r.rank + 1) % r.size, previous = (r.rank + r.size - 1) % r.size;
            demand_nccl(ncclGroupStart());
            for (int i = 0; i < 2; ++i) {
                if ((i + r.rank) % 2)
                    demand_nccl(ncclAllReduce(a.data(), a.data(), 100, ncclInt32, ncclSum, world, s));
                else
                    demand_nccl(ncclAllReduce(c.data(), c.data(), 4, ncclInt32, ncclSum, second, t));
            }
            demand_nccl(ncclSend(b.data(), 1000, ncclInt32, next, second, t));
            demand_nccl(ncclRecv(out.data(), 1000, ncclInt32, previous, second, t));
            demand_nccl(ncclSend(b.data(), 7, ncclInt32, r.rank, world, s));  // to itself
            demand_nccl(ncclRecv(b.data() + 500, 7, ncclInt32, r.rank, world, s));
            demand_nccl(ncclGroupEnd());
            sync(s);
            sync(t);
            demand(a[99] == 4 && c[3] == 4 && out[999] == previous && out[0] == previous);
        }
        demand_nccl(ncclCommDestroy(second));
        demand_nccl(ncclCommDestroy(world));
    });
    CHECK(all_well(codes));
}

TEST_CASE("a stream goes on only when all that a collective read has been sent") {
    const auto codes = run_ranks(nodes_of({2}), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        check_sum(r, comm);
        cudaStream_t s = new_stream();
        std::vector<int> data(4'000'000, 1);
        for (int round = 0; round < 10; ++round) {
            if (r.rank == 1) std::this_thread::sleep_for(5ms);  // so that the root has all of it to send at once
            demand_nccl(ncclBroadcast(data.data(), data.data(), data.size(), ncclInt32, 0, comm, s));
            if (r.rank == 0) demand(cudaMemsetAsync(data.data(), 0, data.size() * sizeof(int), s) == cudaSuccess);
            sync(s);
            for (const int v : data) demand(v == (r.rank == 0 ? 0 : 1));
            std::fill(data.begin(), data.end(), 1);
        }
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
}

TEST_CASE("transfers between two ranks keep their order, receives posted first or last") {
    const auto codes = run_ranks(nodes_of({1, 1}), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        cudaStream_t s = new_stream();
        std::vector<std::vector<int>> buffers;
        for (int i = 0; i < 20; ++i) buffers.emplace_back(static_cast<std::size_t>(1 + i * 3000), r.rank == 0 ? i : -1);
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            auto& buffer = buffers[i];
            if (r.rank == 0)
                demand_nccl(ncclSend(buffer.data(), buffer.size(), ncclInt32, 1, comm, s));
            else
                demand_nccl(ncclRecv(buffer.data(), buffer.size(), ncclInt32, 0, comm, s));
            if (i % 7 == static_cast<std::size_t>(r.rank)) std::this_thread::sleep_for(5ms);
        }
        sync(s);
        for (std::size_t i = 0; i < buffers.size(); ++i) demand(buffers[i].back() == static_cast<int>(i));
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
}

namespace {

// Of two ranks: an all-reduce, an all-to-all, a transfer from rank 0 to rank 1, one the other way, an empty one.
void use(const Rank& r, ncclComm_t comm, char what, std::vector<int>& values, cudaStream_t s) {
    int* out = values.data() + 2;
    const bool sends = (what == 'r') != (r.rank == 0);
    const std::size_t count = what == 'e' ? 0 : 1;
    if (what == 'a')
        demand_nccl(ncclAllReduce(values.data(), out, 1, ncclInt32, ncclSum, comm, s));
    else if (what == 't')
        demand_nccl(ncclAlltoAll(values.data(), out, 1, ncclInt32, comm, s));
    else if (sends)
        demand_nccl(ncclSend(values.data(), count, ncclInt32, 1 - r.rank, comm, s));
    else
        demand_nccl(ncclRecv(out, count, ncclInt32, 1 - r.rank, comm, s));
}

// Rank 1 calls once rank 0 was found to have come back, or not to.
void check_use(const Rank& r, ncclComm_t comm, char what, bool blocks, int word) {
    cudaStream_t s = new_stream();
    std::vector<int> values(4, r.rank);
    if (r.rank == 0) {
        std::atomic<bool> back{false};
        std::thread call([&] {
            use(r, comm, what, values, s);
            back = true;
        });
        if (blocks) {
            std::this_thread::sleep_for(50ms);
            demand(!back);
        } else {
            call.join();  // comes back although the peer has not called
            demand(cudaStreamQuery(s) == cudaErrorNotReady);
        }
        r.barrier(word);
        if (blocks) call.join();
    } else {
        r.barrier(word);
        use(r, comm, what, values, s);
    }
    sync(s);
    demand(cudaStreamDestroy(s) == cudaSuccess);
}

}  // namespace

TEST_CASE("a first use blocks its caller until the peer is there; later uses do not") {
    // An all-reduce connects the ring; transfers connect their pair, and an all-to-all the pairs that it finds unconnected.
    const std::string sequences[] = {"Ss",     "Aa",   "Ee",    "SAsa",  "ASsa", "Ttsr",
                                     "STtrsA", "SRtA", "TAtas", "ATsre", "Es"};
    const auto codes = run_ranks(nodes_of({1, 1}), [&](const Rank& r) {
        int word = 0;
        for (const std::string& sequence : sequences) {
            ncclComm_t comm = nullptr;
            if (r.rank == 0) demand_nccl(ncclGetUniqueId(r.shared->id));
            r.barrier(word++);
            demand_nccl(ncclCommInitRank(&comm, 2, r.shared->id[0], r.rank));
            for (const char what : sequence)
                check_use(r, comm, static_cast<char>(std::tolower(what)), std::isupper(what) != 0, word++);
            demand_nccl(ncclCommDestroy(comm));
        }
    });
    CHECK(all_well(codes));
}

TEST_CASE("splits and shrinks have the ranks that keys and exclusions give") {
    const auto codes = run_ranks(nodes_of({2, 2, 1}), [](const Rank& r) {
        ncclComm_t world = r.comm();
        ncclComm_t half = nullptr, none = nullptr, shared = nullptr;
        demand_nccl(ncclCommSplit(world, r.rank % 2, -r.rank, &half, nullptr));
        int size = 0, rank = -1;
        demand_nccl(ncclCommCount(half, &size));
        demand_nccl(ncclCommUserRank(half, &rank));
        demand(size == (r.rank % 2 ? 2 : 3) && rank == size - 1 - r.rank / 2);  // keys turn the order round
        check_sum(r, half);
        demand_nccl(ncclCommSplit(world, r.rank == 4 ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, nullptr));
        demand((none == nullptr) == (r.rank == 4));
        if (none) check_sum(r, none);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.splitShare = 1;
        demand_nccl(ncclCommSplit(world, 0, r.rank, &shared, &config));
        check_sum(r, shared);
        check_sum(r, world);
        ncclComm_t smaller = nullptr;
        int excluded[] = {1, 3};
        if (r.rank != 1 && r.rank != 3) {
            demand_nccl(ncclCommShrink(world, excluded, 2, &smaller, nullptr, NCCL_SHRINK_DEFAULT));
            check_sum(r, smaller);
            demand_nccl(ncclCommDestroy(smaller));
        }
        for (ncclComm_t c : {half, none, shared, world})
            if (c) demand_nccl(ncclCommDestroy(c));
    });
    CHECK(all_well(codes));
}

TEST_CASE("launches take turns where communicators share resources, or order all of a device, and nowhere else") {
    const ncclConfig_t plain = NCCL_CONFIG_INITIALIZER;
    ncclConfig_t shares = plain, orders = plain, older = plain;
    shares.splitShare = 1;
    orders.launchOrderImplicit = 1;
    older.launchOrderImplicit = 1;
    older.size = offsetof(ncclConfig_t, launchOrderImplicit);  // a program's of NCCL 2.30: the rest is not its config
    const struct {
        ncclConfig_t parent;
        const ncclConfig_t* child;  // null: as the parent
        bool turns;
    } cases[] = {{plain, nullptr, false}, {plain, &shares, false}, {shares, nullptr, true}, {shares, &plain, true},
                 {orders, nullptr, true}, {orders, &plain, false}, {older, &older, false}};
    const auto codes = run_ranks(nodes_of({1, 1}), [&](const Rank& r) {
        int word = 0;
        for (const auto& c : cases) {
            ncclConfig_t parent_config = c.parent, child_config = c.child ? *c.child : plain;
            ncclComm_t parent = nullptr, child = nullptr;
            if (r.rank == 0) demand_nccl(ncclGetUniqueId(r.shared->id));
            r.barrier(word++);
            demand_nccl(ncclCommInitRankConfig(&parent, 2, r.shared->id[0], r.rank, &parent_config));
            demand_nccl(ncclCommSplit(parent, 0, r.rank, &child, c.child ? &child_config : nullptr));
            check_sum(r, parent);  // connected from here on
            check_sum(r, child);
            std::vector<int> one(10, 1), two(10, 1);
            cudaStream_t first = new_stream(), second = new_stream();
            const auto sum = [](std::vector<int>& data, ncclComm_t comm, cudaStream_t stream) {
                demand_nccl(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, comm, stream));
            };
            if (r.rank == 0) sum(one, parent, first);
            sum(two, child, second);
            if (!c.turns) sync(second);  // ends although rank 1 has not come to the first
            r.barrier(word++);
            if (c.turns) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it would end if it could
            if (c.turns) demand(cudaStreamQuery(second) == cudaErrorNotReady);
            r.barrier(word++);
            if (r.rank == 1 && !c.turns) sum(one, parent, first);
            if (!c.turns) sync(first);
            demand(c.turns || (one[9] == 2 && two[9] == 2));
            for (const ncclComm_t comm : {child, parent})  // with turns each rank waits for the other by now
                demand_nccl(c.turns ? ncclCommAbort(comm) : ncclCommDestroy(comm));
            demand(cudaStreamDestroy(first) == cudaSuccess && cudaStreamDestroy(second) == cudaSuccess);
        }
    });
    CHECK(all_well(codes));
}

TEST_CASE("one process may hold all ranks, by InitAll or by a group of InitRank") {
    CHECK(run_alone({}, [] {
              ncclComm_t comms[4];
              const int devices[] = {3, 1, 0, 2};
              demand_nccl(ncclCommInitAll(comms, 4, devices));
              std::vector<std::vector<int>> data(4, std::vector<int>(1000, 1));
              cudaStream_t streams[4];
              for (int i = 0; i < 4; ++i) {
                  int device = -1;
                  demand_nccl(ncclCommCuDevice(comms[i], &device));
                  demand(device == devices[i] && cudaSetDevice(device) == cudaSuccess);
                  streams[i] = new_stream();
              }
              demand_nccl(ncclGroupStart());
              for (std::size_t i = 0; i < 4; ++i)
                  demand_nccl(ncclAllReduce(data[i].data(), data[i].data(), 1000, ncclInt32, ncclSum, comms[i], streams[i]));
              demand_nccl(ncclGroupEnd());
              for (int i = 0; i < 4; ++i) sync(streams[i]);
              for (const auto& d : data) demand(d[999] == 4);
              for (ncclComm_t c : comms) demand_nccl(ncclCommDestroy(c));
          }) == 0);
}

TEST_CASE("a non-blocking communicator is in progress until it is done") {
    const auto codes = run_ranks(nodes_of({1, 1}), [](const Rank& r) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ncclComm_t comm = nullptr;
        const ncclUniqueId id = r.id();
        demand(ncclCommInitRankConfig(&comm, r.size, id, r.rank, &config) == ncclInProgress);
        demand(comm != nullptr);
        demand_nccl(settled(comm));
        std::vector<int> data(100, 1);
        cudaStream_t s = new_stream();
        const ncclResult_t first = ncclAllReduce(data.data(), data.data(), 100, ncclInt32, ncclSum, comm, s);
        demand(first == ncclInProgress);
        demand_nccl(settled(comm));
        sync(s);
        demand(data[0] == 2);
        ncclComm_t child = comm;  // its parent is in progress, and the pointer null, until it is whole
        demand(ncclCommSplit(comm, 0, r.rank, &child, nullptr) == ncclInProgress);
        demand_nccl(settled(comm));
        demand(child != nullptr && child != comm);
        int count = 0;
        demand_nccl(ncclCommCount(child, &count));
        demand(count == r.size);
        demand_nccl(ncclCommDestroy(child));
        demand(ncclCommFinalize(comm) == ncclInProgress);
        demand_nccl(settled(comm));
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
}

TEST_CASE("the death of a peer ends kernels and calls with an error, never with a hang") {
    const auto codes = run_ranks(nodes_of({2, 1}), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        ncclComm_t pair = nullptr;
        demand_nccl(ncclCommSplit(comm, r.rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, 0, &pair, nullptr));
        check_sum(r, comm);
        if (r.rank == 2) {
            r.barrier(1);
            kill(getpid(), SIGKILL);
        }
        cudaStream_t s = new_stream();
        std::vector<float> data(1 << 20, 1.0f);
        r.barrier(1);
        demand(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, s) != ncclInvalidArgument);
        sync(s);  // ends, undone
        ncclResult_t error = ncclSuccess;
        for (int i = 0; i < 10'000 && error == ncclSuccess; ++i) {
            demand_nccl(ncclCommGetAsyncError(comm, &error));
            std::this_thread::sleep_for(1ms);
        }
        demand(error == ncclRemoteError);
        demand(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclSum, comm, s) == ncclRemoteError);
        demand_nccl(ncclCommAbort(comm));
        check_sum(r, pair);  // those who live go on
        demand_nccl(ncclCommDestroy(pair));
    });
    CHECK(codes == std::vector<int>{0, 0, 128 + SIGKILL});
}

TEST_CASE("abort and revoke end what is under way; what was revoked can be shrunk") {
    const auto codes = run_ranks(nodes_of({1, 1}), [](const Rank& r) {
        ncclComm_t comm = r.comm(0), other = r.comm(1);
        check_sum(r, comm);
        check_sum(r, other);
        cudaStream_t s = new_stream();
        std::vector<int> data(100, 1);
        if (r.rank == 0) {
            demand_nccl(ncclAllReduce(data.data(), data.data(), 100, ncclInt32, ncclSum, comm, s));
            std::this_thread::sleep_for(20ms);
            demand(cudaStreamQuery(s) == cudaErrorNotReady);
            demand_nccl(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
            sync(s);
            demand(ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, comm, s) == ncclInvalidUsage);
            demand_nccl(ncclAllReduce(data.data(), data.data(), 100, ncclInt32, ncclSum, other, s));
            demand_nccl(ncclCommAbort(other));
            sync(s);
        }
        r.barrier(1);
        if (r.rank == 1) {
            ncclResult_t error = ncclSuccess;  // once it wants something of the other one
            demand(ncclAllReduce(data.data(), data.data(), 100, ncclInt32, ncclSum, other, s) != ncclInvalidUsage);
            sync(s);
            while (error == ncclSuccess) demand_nccl(ncclCommGetAsyncError(other, &error));
            demand(error == ncclRemoteError);
            demand_nccl(ncclCommAbort(other));
        }
        demand_nccl(ncclCommAbort(comm));
    });
    CHECK(all_well(codes));
}

TEST_CASE("the library names itself a stand-in and has the header's version") {
    CHECK(run_alone({}, [] {
              int version = 0;
              demand_nccl(ncclGetVersion(&version));
              demand(version == NCCL_VERSION_CODE);
              demand(std::strstr(ncclGetErrorString(ncclSystemError), "stand-in"));
              ncclUniqueId id;
              demand_nccl(ncclGetUniqueId(&id));
              demand(std::strstr(id.internal, "stand-in"));
              ncclUniqueId other{};
              ncclComm_t comm;
              demand(ncclCommInitRank(&comm, 1, other, 0) == ncclInvalidArgument);
          }) == 0);
}
