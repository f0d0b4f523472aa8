// Ranks that leave communicators and end while others still use them.
#include <doctest/doctest.h>

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "ranks.h"

using namespace opus::standin::test;
using namespace std::chrono_literals;

namespace {

// The transport thread of this process, held where nobody can see what it does: in a signal handler.
class HeldTransport {
public:
    HeldTransport() {
        struct sigaction act{};
        act.sa_handler = [](int) {
            held_ = true;
            while (!let_go_) usleep(200);
        };
        demand(sigaction(SIGUSR1, &act, nullptr) == 0);
        demand(syscall(SYS_tgkill, getpid(), thread_named("standin-nccl"), SIGUSR1) == 0);
        while (!held_) std::this_thread::sleep_for(1ms);
    }
    // Once `thread` of this process sleeps: it waits for what the transport is to do for it.
    std::thread let_go_behind(int thread) {
        return std::thread([thread] {
            while (state_of(thread) != 'S') std::this_thread::sleep_for(1ms);
            let_go_ = true;
        });
    }

private:
    static int thread_named(const std::string& name) {
        DIR* tasks = opendir("/proc/self/task");
        int found = 0;
        while (const dirent* entry = readdir(tasks)) {
            std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
            std::string line;
            if (std::getline(file, line) && line == name) found = std::atoi(entry->d_name);
        }
        closedir(tasks);
        demand(found != 0);
        return found;
    }
    static char state_of(int thread) {
        std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
        std::string line;
        std::getline(file, line);
        const auto at = line.rfind(") ");
        return at == std::string::npos ? '?' : line[at + 2];
    }
    static inline std::atomic<bool> held_{false}, let_go_{false};
};

// Has the other end of any of this process's sockets closed?
bool a_peer_has_closed() {
    for (int fd = 3; fd < 256; ++fd) {
        pollfd one{fd, POLLRDHUP, 0};
        if (poll(&one, 1, 0) == 1 && (one.revents & (POLLRDHUP | POLLHUP)) && !(one.revents & POLLNVAL)) return true;
    }
    return false;
}

// What the transport had before this is done when it returns.
void flush_transport() {
    ncclUniqueId id;
    ncclComm_t alone = nullptr;
    demand_nccl(ncclGetUniqueId(&id));
    demand_nccl(ncclCommInitRank(&alone, 1, id, 0));
    demand_nccl(ncclCommDestroy(alone));
}

void leave_behind_one_that_has_ended(const Rank& r) {
    ncclComm_t all = r.comm(0), other = r.comm(1);
    if (r.rank == 1) {
        r.barrier(1);
        while (r.shared->word[2] == 0) std::this_thread::sleep_for(1ms);
        demand_nccl(ncclCommDestroy(other));
        demand_nccl(ncclCommDestroy(all));
        return;
    }
    r.barrier(1);
    HeldTransport held;
    r.shared->word[2] = 1;
    while (!a_peer_has_closed()) std::this_thread::sleep_for(1ms);
    // The first that is done for us is to tell the peer, which is gone, that we leave `other`: its own words are not
    // read yet.
    std::thread letting_go = held.let_go_behind(static_cast<int>(syscall(SYS_gettid)));
    demand_nccl(ncclCommDestroy(other));
    letting_go.join();
    while (a_peer_has_closed()) std::this_thread::sleep_for(1ms);  // until its end is read, and our socket closed
    flush_transport();
    ncclResult_t error = ncclInternalError;
    demand_nccl(ncclCommGetAsyncError(all, &error));
    demand_nccl(error);
    demand_nccl(ncclCommDestroy(all));
}

}  // namespace

TEST_CASE("a rank that has left all communicators and ended fails none of them, whatever is still said to it") {
    CHECK(all_well(run_ranks(nodes_of({2}), leave_behind_one_that_has_ended)));
    CHECK(all_well(run_ranks(nodes_of({1, 1}), leave_behind_one_that_has_ended)));
}

TEST_CASE("who ends without a word is an error for those alone that still want something of it") {
    const auto codes = run_ranks(nodes_of({1, 1}), [](const Rank& r) {
        static ncclComm_t comm = r.comm();  // static: rank 1 never destroys it, which is no leak
        std::vector<float> data(1000, 1.0f);
        const auto reduce = [&] {
            demand_nccl(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
            demand(cudaStreamSynchronize(nullptr) == cudaSuccess);
        };
        const auto error = [&] {
            ncclResult_t said = ncclInternalError;
            demand_nccl(ncclCommGetAsyncError(comm, &said));
            return said;
        };
        reduce();
        demand(data.front() == 2);
        r.barrier(1);
        if (r.rank == 1) {
            while (r.shared->word[2] == 0) std::this_thread::sleep_for(1ms);
            return;
        }
        HeldTransport held;
        r.shared->word[2] = 1;
        while (!a_peer_has_closed()) std::this_thread::sleep_for(1ms);
        std::thread letting_go = held.let_go_behind(static_cast<int>(syscall(SYS_gettid)));
        flush_transport();
        letting_go.join();
        while (a_peer_has_closed()) std::this_thread::sleep_for(1ms);
        flush_transport();
        demand_nccl(error());
        reduce();  // ends, undone
        demand(error() == ncclRemoteError);
        demand_nccl(ncclCommAbort(comm));
    });
    CHECK(all_well(codes));
}

TEST_CASE("a communicator ends when no graph holds a launch of it any more") {
    for (const bool abort : {false, true}) {
        const auto codes = run_ranks(nodes_of({1, 1}), [abort](const Rank& r) {
            ncclComm_t comm = r.comm();
            cudaStream_t stream = nullptr;
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t ready = nullptr;
            float* data = nullptr;
            demand(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
            demand(cudaMalloc(reinterpret_cast<void**>(&data), sizeof *data) == cudaSuccess);
            demand(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
            demand_nccl(ncclAllReduce(data, data, 1, ncclFloat, ncclSum, comm, stream));
            demand(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
            demand(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);
            demand(cudaGraphDestroy(graph) == cudaSuccess);
            demand(cudaGraphLaunch(ready, stream) == cudaSuccess);
            demand(cudaStreamSynchronize(stream) == cudaSuccess);
            std::atomic<bool> ended{false};
            std::thread ending([&] {
                demand_nccl(abort ? ncclCommAbort(comm) : ncclCommDestroy(comm));
                ended = true;
            });
            std::this_thread::sleep_for(200ms);
            demand(!ended);
            demand(cudaGraphExecDestroy(ready) == cudaSuccess);
            ending.join();
        });
        CHECK(all_well(codes));
    }
}
