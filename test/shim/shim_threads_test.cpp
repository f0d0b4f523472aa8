// The shim's own sources in an instrumented program, used by several threads at once as PyTorch does: one launches, a
// watchdog asks for errors. With a fake NCCL and a mini manager in the same process. What ThreadSanitizer sees here is the
// shim; the fakes are not instrumented.
#define DOCTEST_CONFIG_IMPLEMENT
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <nccl.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "test/shim/mini_manager.h"

using namespace opus;

namespace {

test::MiniManager* manager;
char data[64];

template <class F>
F* fake(const char* name) {
    return reinterpret_cast<F*>(dlsym(dlopen(OPUS_FAKE_NCCL, RTLD_NOW), name));
}
void set_in_progress(int looks) { fake<void(int)>("fake_set_in_progress")(looks); }

ncclUniqueId next_id() {
    static std::atomic<int> next{0};
    ncclUniqueId id{};
    snprintf(id.internal, sizeof id.internal, "threads %d", next++);
    return id;
}

ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t error = ncclInProgress;
    while (error == ncclInProgress) REQUIRE(ncclCommGetAsyncError(comm, &error) == ncclSuccess);
    return error;
}

// Asks for errors of a communicator all the time, until it goes.
class Watchdog {
public:
    explicit Watchdog(ncclComm_t comm)
        : thread_([this, comm] {
              while (!stop_) {
                  ncclResult_t error = ncclSuccess;
                  if (ncclCommGetAsyncError(comm, &error) != ncclSuccess || (error != ncclSuccess && error != ncclInProgress))
                      ++wrong_;
              }
          }) {}
    ~Watchdog() {
        stop_ = true;
        thread_.join();
        CHECK(wrong_ == 0);
    }
    Watchdog(const Watchdog&) = delete;

private:
    std::atomic<bool> stop_{false};
    std::atomic<int> wrong_{0};
    std::thread thread_;
};

ncclComm_t non_blocking_comm() {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    set_in_progress(5);
    REQUIRE(ncclCommInitRankConfig(&comm, 2, next_id(), 0, &config) == ncclInProgress);
    return comm;
}

ncclResult_t all_reduce(ncclComm_t comm) {
    return ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, comm, reinterpret_cast<cudaStream_t>(17));
}

// All words are the segment's own: what the manager keeps of them belongs to its thread.
const ring::SegmentHeader& header() { return *manager->rank(0).view.header; }

std::size_t registered() {
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < ring::kMaxComms; ++i)
        count += manager->rank(0).view.comms[i].state == std::uint32_t(ring::CommState::registered);
    return count;
}

// All that was recorded so far is done.
void check_all_done() {
    for (int tries = 0; tries < 20'000 && header().retired != header().head; ++tries) usleep(1000);
    CHECK(header().retired == header().head);
    CHECK(header().lost == 0);
}

}  // namespace

TEST_CASE("a watchdog polls a non-blocking communicator while it is made and while it launches") {
    for (int round = 0; round < 5; ++round) {
        const ncclComm_t comm = non_blocking_comm();
        {
            const Watchdog one(comm), other(comm);
            REQUIRE(settled(comm) == ncclSuccess);
            set_in_progress(20);
            const std::uint64_t before = header().recorded;
            for (int i = 0; i < 100; ++i) {
                REQUIRE(all_reduce(comm) == ncclInProgress);
                REQUIRE(settled(comm) == ncclSuccess);
            }
            check_all_done();
            CHECK(header().recorded == before + 100);
        }
        CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
}

TEST_CASE("a watchdog polls a non-blocking communicator while children are made of it") {
    const ncclComm_t comm = non_blocking_comm();
    REQUIRE(settled(comm) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    fake<void(int, int)>("fake_set_child")(1, 2);
    std::vector<ncclComm_t> children;
    const std::size_t known = registered();
    {
        const Watchdog one(comm), other(comm);
        for (int i = 0; i < 30; ++i) {
            set_in_progress(i % 20);
            ncclComm_t child = nullptr;
            int excluded[] = {0};
            const ncclResult_t made = i % 2 == 0 ? ncclCommSplit(comm, i, 0, &child, &config)
                                                 : ncclCommShrink(comm, excluded, 1, &child, &config, NCCL_SHRINK_DEFAULT);
            REQUIRE(made == ncclInProgress);
            REQUIRE(settled(comm) == ncclSuccess);
            REQUIRE(child != nullptr);
            REQUIRE(settled(child) == ncclSuccess);
            REQUIRE(all_reduce(child) == ncclInProgress);
            REQUIRE(settled(child) == ncclSuccess);
            children.push_back(child);
        }
    }
    check_all_done();
    CHECK(registered() == known + 30);
    for (const ncclComm_t child : children) CHECK(ncclCommDestroy(child) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

int main(int argc, char** argv) {
    test::MiniManager served;
    manager = &served;
    setenv("OPUS_NCCL_LIBRARY", OPUS_FAKE_NCCL, 1);
    setenv("OPUS_SOCKET", served.socket().c_str(), 1);
    return doctest::Context(argc, argv).run();
}
