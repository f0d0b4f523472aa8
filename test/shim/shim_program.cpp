// Plain NCCL programs, one a scenario, that know nothing of Opus but what opus_state() says. Run under
// LD_PRELOAD by shim_process_test; print what the fake NCCL and CUDA were asked to do. Exit code: 0, or
// the line of the check that failed.
#include <dlfcn.h>
#include <nccl.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "opus/launch_ring.h"
#include "opus/opus.h"
#include "shim/device_api.h"
#include "test/shim/fake_log.h"

namespace {

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "shim_program:%d: %s\n%s", __LINE__, #condition, fake_log_text()); \
            _exit(__LINE__ % 200 + 1);                                                         \
        }                                                                                      \
    } while (false)
#define OK(call) CHECK((call) == ncclSuccess)

int argument = 0;
char data[64];

cudaStream_t stream(std::uintptr_t n) { return reinterpret_cast<cudaStream_t>(n); }

ncclUniqueId id_named(const char* name) {
    ncclUniqueId id{};
    snprintf(id.internal, sizeof id.internal, "%s", name);
    return id;
}

ncclComm_t comm_named(const char* name, int rank = 0, int size = 2) {
    ncclComm_t comm = nullptr;
    OK(ncclCommInitRank(&comm, size, id_named(name), rank));
    return comm;
}

ncclResult_t all_reduce(ncclComm_t comm, std::uintptr_t on = 17, size_t count = 4) {
    return ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, stream(on));
}
ncclResult_t send(ncclComm_t comm, int peer, std::uintptr_t on = 17) {
    return ncclSend(data, 2, ncclFloat32, peer, comm, stream(on));
}
ncclResult_t recv(ncclComm_t comm, int peer, std::uintptr_t on = 17) {
    return ncclRecv(data, 2, ncclFloat32, peer, comm, stream(on));
}

opus_state_t state() {
    const auto ask = reinterpret_cast<opus_state_t (*)()>(dlsym(RTLD_DEFAULT, "opus_state"));
    return ask == nullptr ? OPUS_STATE_OFF : ask();
}

opus_stats_t stats() {
    opus_stats_t now{};
    now.struct_bytes = sizeof now;
    const auto ask = reinterpret_cast<int (*)(opus_stats_t*)>(dlsym(RTLD_DEFAULT, "opus_stats"));
    if (ask != nullptr) ask(&now);
    return now;
}

void identity() {
    const int rank = argument, size = 4;
    const ncclComm_t first = comm_named("same", rank, size);
    comm_named("same", rank, size);
    comm_named("other", rank, size);
    ncclComm_t comm = nullptr;
    ncclUniqueId ids[2] = {id_named("s0"), id_named("s1")};
    OK(ncclCommInitRankScalable(&comm, size, rank, 2, ids, nullptr));
    fake_set_child(rank, 3);
    OK(ncclCommSplit(first, rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, rank, &comm, nullptr));
    CHECK((comm == nullptr) == (rank == 2));
    OK(ncclCommSplit(first, 7, rank, &comm, nullptr));
    int excluded[2][2] = {{3, 1}, {1, 3}};
    OK(ncclCommShrink(first, excluded[rank % 2], 2, &comm, nullptr, NCCL_SHRINK_DEFAULT));
    OK(ncclCommShrink(first, excluded[rank % 2], 2, &comm, nullptr, NCCL_SHRINK_DEFAULT));
    int one = 1;
    OK(ncclCommShrink(first, &one, 1, &comm, nullptr, NCCL_SHRINK_DEFAULT));
}

void init_all() {
    ncclComm_t comms[3];
    OK(ncclCommInitAll(comms, 3, nullptr));
    for (ncclComm_t c : comms) OK(all_reduce(c));
}

void creation_in_group() {
    ncclComm_t a = nullptr, b = nullptr;
    OK(ncclGroupStart());
    OK(ncclCommInitRank(&a, 2, id_named("multi"), 0));
    OK(ncclCommInitRank(&b, 2, id_named("multi"), 1));
    OK(ncclGroupEnd());
    OK(all_reduce(a));
    OK(all_reduce(b));
    ncclComm_t child = nullptr;
    fake_set_child(1, 2);
    OK(ncclGroupStart());
    OK(ncclCommSplit(a, 3, 0, &child, nullptr));
    OK(ncclGroupEnd());
    OK(all_reduce(child));
}

void failed_creation() {
    ncclComm_t comm = nullptr;
    fake_fail_next(ncclSystemError);
    CHECK(ncclCommInitRank(&comm, 2, id_named("x"), 0) == ncclSystemError);
    OK(all_reduce(comm_named("y")));
}

void one_group(ncclComm_t comm) {
    OK(ncclGroupStart());
    for (int i = 0; i < 3; ++i) OK(send(comm, 1));
    for (int i = 0; i < 2; ++i) OK(recv(comm, 1));
    OK(ncclGroupStart());
    for (int i = 0; i < 2; ++i) OK(all_reduce(comm));
    OK(ncclGroupEnd());
    CHECK(stats().recorded <= 1);
    OK(ncclAllGather(data, data, 4, ncclInt8, comm, stream(17)));
    OK(ncclGroupEnd());
}

void group() {
    const ncclComm_t comm = comm_named("g");
    one_group(comm);
    one_group(comm);
}

void never_asks() {
    const ncclComm_t two = comm_named("g"), alone = comm_named("alone", 0, 1);
    OK(all_reduce(alone));
    OK(send(two, 0));            // to itself
    OK(all_reduce(two, 17, 0));  // empty
    OK(ncclGroupStart());
    OK(send(two, 0));
    OK(recv(two, 0));
    OK(all_reduce(alone));
    OK(ncclGroupEnd());
    CHECK(stats().recorded == 0);
}

void simulate() {
    const ncclComm_t comm = comm_named("g");
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    OK(ncclGroupStart());
    OK(all_reduce(comm));
    OK(ncclGroupSimulateEnd(&info));
    OK(all_reduce(comm));
    CHECK(fake_launches() == 1);
}

void group_error() {
    const ncclComm_t comm = comm_named("g");
    OK(ncclGroupStart());
    OK(all_reduce(comm));
    fake_fail_next(ncclInvalidArgument);
    CHECK(all_reduce(comm) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(stats().recorded == 0);
    OK(all_reduce(comm));
}

void lone_error() {
    const ncclComm_t comm = comm_named("g");
    fake_fail_next(ncclInvalidArgument);
    CHECK(all_reduce(comm) == ncclInvalidArgument);
}

void wide_group() {
    const ncclComm_t comm = comm_named("wide", 0, 3000);
    OK(ncclGroupStart());
    for (int peer = 1; peer < 3000; ++peer) OK(send(comm, peer));
    OK(ncclGroupEnd());
    OK(send(comm, 5));
}

void calls() {  // `argument` all-reduces
    const ncclComm_t comm = comm_named("g");
    for (int i = 0; i < argument; ++i) OK(all_reduce(comm));
    CHECK(fake_launches() == argument);
}

void streams() {  // `argument` streams, all-reduces on each, twice
    const ncclComm_t comm = comm_named("g");
    OK(all_reduce(comm));
    for (int i = 0; i < 2 * argument; ++i) OK(all_reduce(comm, static_cast<std::uintptr_t>(64 + i % argument)));
}

void order() {
    const ncclComm_t comm = comm_named("g");
    CHECK(strstr(fake_log_text(), "ends a capture") == nullptr);
    fake_log_clear();
    OK(all_reduce(comm));
    OK(all_reduce(comm));
    OK(ncclGroupStart());
    OK(all_reduce(comm, 33));
    OK(all_reduce(comm, 34));
    OK(ncclGroupEnd());
}

void merged_groups() {
    const ncclComm_t a = comm_named("a"), b = comm_named("b"), c = comm_named("c");
    for (ncclComm_t comm : {a, b, c}) OK(all_reduce(comm));
    fake_log_clear();
    OK(ncclGroupStart());
    OK(all_reduce(a, 33));
    OK(all_reduce(b, 34));
    OK(all_reduce(c, 34));
    OK(all_reduce(c, 35));
    OK(ncclGroupEnd());
}

void connecting_groups() {  // each twice: the first makes connections
    const ncclComm_t a = comm_named("a"), b = comm_named("b");
    OK(all_reduce(a, 33));
    for (int i = 0; i < 2; ++i) {
        OK(ncclGroupStart());
        OK(all_reduce(a, 33));
        OK(all_reduce(b, 34));
        OK(ncclGroupEnd());
    }
    for (int i = 0; i < 2; ++i) {
        OK(ncclGroupStart());
        OK(all_reduce(a, 33));
        OK(send(b, 1, 34));
        OK(ncclGroupEnd());
    }
}

void capture() {
    const ncclComm_t comm = comm_named("g");
    OK(all_reduce(comm, 0x101));
    OK(ncclGroupStart());
    OK(all_reduce(comm, 0x101));
    OK(ncclGroupEnd());
    CHECK(stats().recorded >= 1 && stats().passed == 0);  // the connections of the first
    OK(all_reduce(comm));
}

void exchange(ncclComm_t comm, std::uintptr_t on) {
    OK(ncclGroupStart());
    OK(send(comm, 1, on));
    OK(recv(comm, 1, on));
    OK(ncclGroupEnd());
}

void repeated() {  // what comes again, and what comes between
    const ncclComm_t comm = comm_named("g");
    OK(all_reduce(comm));
    fake_log_clear();
    OK(all_reduce(comm));
    OK(all_reduce(comm, 0x101));  // captured
    OK(all_reduce(comm, 33));
    OK(all_reduce(comm, 33));
    OK(send(comm, 1, 33));  // its first use
    OK(send(comm, 1, 33));
    OK(all_reduce(comm, 33, 0));  // empty
    fake_fail_next(ncclInvalidArgument);
    CHECK(all_reduce(comm, 33) == ncclInvalidArgument);
    exchange(comm, 33);  // the first receive
    exchange(comm, 33);
    OK(ncclGroupStart());
    OK(send(comm, 1, 33));
    fake_fail_next(ncclInvalidArgument);
    CHECK(recv(comm, 1, 33) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    OK(send(comm, 1, 33));
    OK(ncclCommDestroy(comm));
}

// Rank 0 of 3 does what USES says, a letter a call: a(ll-reduce), t(o all), g(ather) and c (scatter) to and from rank
// 0, G and C to and from rank 1, s(end) to and r(eceive) from rank 1, e(mpty send), E(mpty all-reduce). ( and ) are a
// group; a digit names the stream, @ one that is captured.
void uses() {
    const ncclComm_t comm = comm_named("g", 0, 3);
    std::uintptr_t on = 17;
    ncclWindow_t window = nullptr;
    for (const char* at = getenv("USES"); at != nullptr && *at != '\0'; ++at) switch (*at) {
            case 'a': OK(all_reduce(comm, on)); break;
            case 'E': OK(all_reduce(comm, on, 0)); break;
            case 't': OK(ncclAlltoAll(data, data, 2, ncclInt8, comm, stream(on))); break;
            case 'g':
            case 'G': OK(ncclGather(data, data, 2, ncclInt8, *at == 'G', comm, stream(on))); break;
            case 'c':
            case 'C': OK(ncclScatter(data, data, 2, ncclInt8, *at == 'C', comm, stream(on))); break;
            case 's': OK(send(comm, 1, on)); break;
            case 'r': OK(recv(comm, 1, on)); break;
            case 'l': OK(ncclAllGather(data, data, 2, ncclInt8, comm, stream(on))); break;
            case 'p': OK(ncclPutSignal(data, 2, ncclInt8, 1, nullptr, 0, 0, 0, 0, comm, stream(on))); break;
            case 'w': OK(ncclCommWindowRegister(comm, data, sizeof data, &window, NCCL_WIN_COLL_SYMMETRIC)); break;
            case 'W': OK(ncclCommWindowRegister(comm, data, sizeof data, &window, NCCL_WIN_DEFAULT)); break;
            case 'd': OK(ncclDevCommCreate(comm, nullptr, data)); break;
            case 'D': OK(ncclDevCommDestroy(comm, data)); break;
            case 'X': OK(ncclCommDestroy(comm)); break;
            case 'e': OK(ncclSend(data, 0, ncclFloat32, 1, comm, stream(on))); break;
            case '(': OK(ncclGroupStart()); break;
            case ')': OK(ncclGroupEnd()); break;
            case '@': on = 0x101; break;  // which is captured
            default: on = std::uintptr_t(32 + *at - '0');
        }
}

void non_blocking() {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    fake_set_in_progress(2);
    CHECK(ncclCommInitRankConfig(&comm, 2, id_named("n"), 0, &config) == ncclInProgress);
    ncclResult_t error = ncclInProgress;
    while (error == ncclInProgress) OK(ncclCommGetAsyncError(comm, &error));
    fake_log_clear();
    CHECK(all_reduce(comm) == ncclInProgress);
    fake_log("returned");
    error = ncclInProgress;
    while (error == ncclInProgress) OK(ncclCommGetAsyncError(comm, &error));
    fake_log("polled");
    ncclComm_t child = nullptr;
    fake_set_child(1, 2);
    CHECK(ncclCommSplit(comm, 1, 0, &child, &config) == ncclInProgress);
    CHECK(child == nullptr);
    error = ncclInProgress;
    while (error == ncclInProgress) OK(ncclCommGetAsyncError(comm, &error));
    CHECK(child != nullptr);
    CHECK(all_reduce(child) == ncclInProgress);
}

ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t error = ncclInProgress;
    while (error == ncclInProgress) OK(ncclCommGetAsyncError(comm, &error));
    return error;
}

// What this process says in its ring of its n-th communicator.
opus::ring::CommEntry& entry_of(std::size_t n) {
    FILE* maps = fopen("/proc/self/maps", "r");
    CHECK(maps != nullptr);
    void* base = nullptr;
    for (char line[512]; base == nullptr && fgets(line, sizeof line, maps) != nullptr;) {
        unsigned long begin = 0, end = 0;
        if (sscanf(line, "%lx-%lx rw-s", &begin, &end) != 2 || strstr(line, " rw-s ") == nullptr) continue;
        if (*reinterpret_cast<const std::uint64_t*>(begin) == opus::ring::kMagic) base = reinterpret_cast<void*>(begin);
    }
    fclose(maps);
    CHECK(base != nullptr);
    return opus::ring::view_of(base, static_cast<opus::ring::SegmentHeader*>(base)->slots).comms[n];
}

// Until NCCL says that it has made the n-th communicator, nobody may conclude that all its members are there.
void await_creation(ncclComm_t polled, std::size_t n) {
    const auto is = [n](opus::CreationState state) { return entry_of(n).creation == std::uint32_t(state); };
    ncclResult_t error = ncclInProgress;
    int polls = 0;
    for (; error == ncclInProgress; ++polls) {
        CHECK(is(opus::CreationState::entered));
        OK(ncclCommGetAsyncError(polled, &error));
    }
    CHECK(polls > 2);
    CHECK(error == ncclSuccess);
    CHECK(is(opus::CreationState::returned));
}

void creation_goes_on() {
    ncclComm_t comm = nullptr, split = nullptr, shrunk = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    fake_set_in_progress(2);
    CHECK(ncclCommInitRankConfig(&comm, 2, id_named("n"), 0, &config) == ncclInProgress);
    await_creation(comm, 0);
    fake_set_child(0, 2);
    CHECK(ncclCommSplit(comm, 1, 0, &split, &config) == ncclInProgress);
    await_creation(comm, 1);
    int excluded = 1;
    CHECK(ncclCommShrink(comm, &excluded, 1, &shrunk, &config, NCCL_SHRINK_DEFAULT) == ncclInProgress);
    await_creation(comm, 2);
    CHECK(split != nullptr && shrunk != nullptr);
}

// A watchdog has asked when one launch had ended, and comes to read the answer when the next is under way.
void polled_elsewhere() {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&comm, 2, id_named("n"), 0, &config) == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess);
    CHECK(all_reduce(comm) == ncclInProgress);
    fake_hold_poll();
    ncclResult_t heard = ncclSuccess;
    std::thread watchdog([&] { OK(ncclCommGetAsyncError(comm, &heard)); });
    while (fake_poll_is_held() == 0) usleep(1000);
    CHECK(settled(comm) == ncclSuccess);
    fake_set_in_progress(3);
    fake_log_clear();
    CHECK(all_reduce(comm) == ncclInProgress);
    fake_release_poll();
    watchdog.join();
    fake_log("watched");
    CHECK(settled(comm) == ncclSuccess);
}

void split() {
    const ncclComm_t comm = comm_named("g");
    ncclComm_t child = nullptr;
    fake_set_child(1, 2);
    OK(ncclCommSplit(comm, 3, 0, &child, nullptr));
    OK(all_reduce(child));
    ncclComm_t alone = nullptr;
    fake_set_child(0, 1);
    OK(ncclCommSplit(comm, 4, 0, &alone, nullptr));
    OK(all_reduce(alone));
    fake_fail_next(ncclSystemError);
    CHECK(ncclCommSplit(comm, 5, 0, &child, nullptr) == ncclSystemError);
}

// OPUS_REQUIRE=enforce; `argument`: the second communicator, and children, cannot be had.
void required() {
    ncclComm_t comm = nullptr, other = nullptr, child = nullptr;
    const ncclResult_t expected = argument != 0 ? ncclSystemError : ncclSuccess;
    OK(ncclCommInitRank(&comm, 2, id_named("g"), 0));
    OK(all_reduce(comm));
    CHECK(ncclCommInitRank(&other, 2, id_named("h"), 0) == expected);
    CHECK((other == nullptr) == (argument != 0));
    fake_set_child(1, 2);
    CHECK(ncclCommSplit(comm, 3, 0, &child, nullptr) == expected);
    CHECK((child == nullptr) == (argument != 0));
    OK(ncclGroupStart());
    OK(ncclCommInitRank(&other, 2, id_named("i"), 0));
    CHECK(ncclGroupEnd() == expected);
    CHECK((other == nullptr) == (argument != 0));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    fake_set_in_progress(2);
    CHECK(ncclCommInitRankConfig(&other, 2, id_named("n"), 0, &config) == ncclInProgress);
    CHECK(settled(other) == expected);
    CHECK(settled(other) == expected);  // for good
    OK(ncclCommAbort(other));
    OK(all_reduce(comm_named("alone", 0, 1)));
    child = nullptr;
    CHECK(ncclCommGrow(comm, 3, nullptr, -1, &child, nullptr) == expected);
    CHECK((child == nullptr) == (argument != 0));
}

void required_of_a_non_blocking_parent() {
    ncclComm_t comm = nullptr, child = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    fake_set_in_progress(2);
    CHECK(ncclCommInitRankConfig(&comm, 2, id_named("n"), 0, &config) == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess);
    fake_set_child(1, 2);
    CHECK(ncclCommSplit(comm, 1, 0, &child, &config) == ncclInProgress);
    CHECK(settled(comm) == ncclSystemError);
    CHECK(child == nullptr);
    CHECK(settled(comm) == ncclSuccess);
}

void required_without_manager() {
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRank(&comm, 2, id_named("g"), 0) == ncclSystemError);
    CHECK(ncclCommInitRank(&comm, 2, id_named("g"), 0) == ncclSystemError);
    OK(all_reduce(comm_named("alone", 0, 1)));
}

void forked() {
    const ncclComm_t comm = comm_named("g");
    OK(all_reduce(comm));
    const pid_t child = fork();
    if (child == 0) {
        CHECK(state() == OPUS_STATE_INERT);
        OK(all_reduce(comm));
        OK(all_reduce(comm_named("child")));
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(state() == OPUS_STATE_ENFORCE);
    OK(all_reduce(comm));
    CHECK(stats().recorded == 2);
}

void refused() {  // policy abort: nothing starts
    const ncclComm_t comm = comm_named("g");
    CHECK(all_reduce(comm) == ncclSystemError);
    OK(ncclGroupStart());
    OK(all_reduce(comm));
    CHECK(ncclGroupEnd() == ncclSystemError);
    CHECK(fake_launches() == 0);
    OK(ncclGroupStart());
    OK(ncclGroupEnd());
}

void unhooked() {
    const ncclComm_t comm = comm_named("g");
    OK(all_reduce(comm));
    CHECK(stats().recorded == 0);
    printf("state=%d\n", int(state()));
}

void broadcast() {
    const ncclComm_t comm = comm_named("g");
    OK(ncclBcast(data, 4, ncclInt8, 1, comm, stream(17)));
    OK(all_reduce(comm));
    CHECK(stats().recorded + stats().passed == 2);
}

void many_comms() {
    std::vector<ncclComm_t> comms;
    for (int i = 0; i < 257; ++i) comms.push_back(comm_named(std::to_string(i).c_str()));
    OK(all_reduce(comms[255]));
    OK(all_reduce(comms[256]));
    CHECK(stats().recorded == 1);
    OK(ncclCommDestroy(comms[7]));
    usleep(20'000);  // until the manager has seen it through
    OK(all_reduce(comm_named("again")));
    CHECK(stats().recorded == 2);
    for (int i = 0; i < 257; ++i)
        if (i != 7) OK(ncclCommDestroy(comms[std::size_t(i)]));
    for (int i = 0; i < 3000; ++i) OK(ncclCommDestroy(comm_named("churn", 0, 1)));
}

void threads() {
    std::vector<std::thread> all;
    for (int t = 0; t < 8; ++t)
        all.emplace_back([t] {
            const ncclComm_t comm = comm_named(std::to_string(t).c_str());
            for (int i = 0; i < 50; ++i) {
                OK(all_reduce(comm));
                OK(ncclGroupStart());
                OK(send(comm, 1));
                OK(recv(comm, 1));
                OK(ncclGroupEnd());
            }
            OK(ncclCommDestroy(comm));
        });
    for (std::thread& t : all) t.join();
    CHECK(stats().recorded == 800);
}

ncclResult_t end_comm(ncclComm_t comm, int how) {
    int excluded = 1;
    ncclComm_t child = nullptr;
    switch (how) {
        case 0: return ncclCommAbort(comm);
        case 1: return ncclCommRevoke(comm, 0);
        case 2: return ncclCommDestroy(comm);
        case 3: return ncclCommFinalize(comm);
        default: return ncclCommShrink(comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT);
    }
}

// While a launch is held on the host another thread ends its communicator, as the last digit of `argument` says (end_comm).
// 10: the launch is a group's. 20: not the first, which has connected all. Prints what the launch came to.
void ended_elsewhere() {
    const ncclComm_t comm = comm_named("g"), other = comm_named("other");
    const bool grouped = argument / 10 % 2 != 0, again = argument / 20 != 0;
    if (again) {
        OK(all_reduce(comm));
        OK(all_reduce(other));
    }
    const auto gated = stats().gated;
    std::thread waiting([=] {
        if (grouped) OK(ncclGroupStart());
        if (grouped) OK(all_reduce(other));
        ncclResult_t result = all_reduce(comm);
        if (grouped) OK(result);
        if (grouped) result = ncclGroupEnd();
        fake_log("launch result=%d", int(result));
    });
    while (stats().gated == gated) usleep(1000);
    usleep(10'000);
    OK(end_comm(comm, argument % 10));
    fake_log("ended");
    waiting.join();
    OK(all_reduce(comm_named("next")));  // the thread's group is closed, and others go on
}

bool sleeps(pid_t thread) {
    char state = 0;
    FILE* file = fopen(("/proc/self/task/" + std::to_string(thread) + "/stat").c_str(), "r");
    if (file == nullptr || fscanf(file, "%*d %*s %c", &state) != 1) state = 0;
    if (file != nullptr) fclose(file);
    return state == 'S';
}

// The same while the verdict of a non-blocking communicator is waited for.
void aborted_unjudged() {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&comm, 2, id_named("n"), 0, &config) == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess);
    std::atomic<pid_t> thread{0};
    std::thread waiting([&] {
        thread = gettid();
        if (argument != 0) OK(ncclGroupStart());
        ncclResult_t result = all_reduce(comm);
        if (argument != 0) result = ncclGroupEnd();
        CHECK(result == ncclInvalidUsage);
    });
    for (int seen = 0; seen < 10; usleep(2000)) seen = thread != 0 && sleeps(thread) ? seen + 1 : 0;
    OK(ncclCommAbort(comm));
    waiting.join();
}

void missing() {
    const ncclComm_t comm = comm_named("g");
    ncclComm_t child = nullptr;
    int excluded = 1;
    CHECK(ncclCommShrink(comm, &excluded, 1, &child, nullptr, 0) == ncclInvalidUsage);
    CHECK(strstr(fake_log_text(), "ncclCommShrink") == nullptr);
}

void refused_setting() {
    ncclComm_t comm = nullptr;
    for (int i = 0; i < 2; ++i) CHECK(ncclCommInitRank(&comm, 2, id_named("g"), 0) == ncclInvalidUsage);
    OK(ncclCommInitRank(&comm, 1, id_named("alone"), 0));
}

void refused_config() {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.collnetEnable = 0;
    OK(ncclCommInitRankConfig(&comm, 2, id_named("g"), 0, &config));
    config.collnetEnable = 1;
    for (int i = 0; i < 2; ++i)
        CHECK(ncclCommInitRankConfig(&comm, 2, id_named("g"), 0, &config) == ncclInvalidUsage);
}

void one_sided() {
    const ncclComm_t comm = comm_named("g");
    OK(ncclSignal(1, 0, 0, 0, comm, stream(17)));
    OK(ncclPutSignal(data, 1, ncclInt8, 1, nullptr, 0, 0, 0, 0, comm, stream(17)));
    OK(ncclWaitSignal(0, nullptr, comm, stream(17)));
    CHECK(stats().passed == 1 && stats().recorded == 2);
}

// A rank that starts another program, and goes on.
void exec_child() {
    const ncclComm_t comm = comm_named("g");
    OK(all_reduce(comm));
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "shim_program", "calls", "2", nullptr);
        _exit(255);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(all_reduce(comm));
}

// A program that becomes a daemon, and uses NCCL only then. `argument`: NCCL was there before, without a communicator.
void daemonised() {
    ncclUniqueId id;
    if (argument != 0) OK(ncclGetUniqueId(&id));
    const pid_t first = fork();
    if (first != 0) {
        int status = -1;
        CHECK(waitpid(first, &status, 0) == first && status == 0);
        return;
    }
    setsid();
    if (fork() != 0) _exit(0);
    for (int fd = 0; fd < 256; ++fd) close(fd);
    const ncclComm_t comm = comm_named("g");
    for (int i = 0; i < 2; ++i) OK(all_reduce(comm));
    OK(ncclCommDestroy(comm));
    _exit(0);
}

// A thread for each GPU of ncclCommInitAll, and one that makes and ends communicators meanwhile.
void init_all_threads() {
    constexpr int kGpus = 4;
    ncclComm_t comms[kGpus];
    OK(ncclCommInitAll(comms, kGpus, nullptr));
    std::vector<std::thread> all;
    for (int gpu = 0; gpu < kGpus; ++gpu)
        all.emplace_back([&comms, gpu] {
            for (int i = 0; i < 50; ++i) OK(all_reduce(comms[gpu], std::uintptr_t(33 + gpu)));
            OK(ncclCommDestroy(comms[gpu]));
        });
    all.emplace_back([] {
        for (int i = 0; i < 10; ++i) {
            const ncclComm_t comm = comm_named("passing");
            OK(all_reduce(comm, 50));
            OK(ncclCommDestroy(comm));
        }
    });
    for (std::thread& thread : all) thread.join();
}

void refused_device() {
    const ncclComm_t comm = comm_named("g");
    fake_fail_next(ncclInvalidUsage);
    CHECK(ncclDevCommCreate(comm, nullptr, data) == ncclInvalidUsage);
    OK(ncclDevCommCreate(comm, nullptr, data));
    OK(ncclDevCommDestroy(comm, data));
}

void ordered() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.launchOrderImplicit = 1;
    ncclComm_t a = nullptr, b = nullptr, child = nullptr;
    OK(ncclCommInitRankConfig(&a, 2, id_named("a"), 0, &config));
    OK(ncclCommInitRankConfig(&b, 2, id_named("b"), 0, &config));
    comm_named("c");
    fake_set_child(0, 2);
    OK(ncclCommSplit(a, 0, 0, &child, nullptr));
    ncclConfig_t silent = NCCL_CONFIG_INITIALIZER;
    OK(ncclCommSplit(a, 0, 0, &child, &silent));
    ncclConfig_t older = NCCL_CONFIG_INITIALIZER;  // of a program made with NCCL 2.30: what follows is not its
    older.launchOrderImplicit = 1;
    older.size = offsetof(ncclConfig_t, launchOrderImplicit);
    OK(ncclCommSplit(a, 0, 0, &child, &older));
}

void captured_abort() {  // a group of a non-blocking communicator is captured, and that is aborted before NCCL says that it is
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    fake_set_in_progress(2);
    CHECK(ncclCommInitRankConfig(&comm, 2, id_named("n"), 0, &config) == ncclInProgress);
    OK(settled(comm));
    fake_set_in_progress(1000);
    OK(ncclGroupStart());
    for (int i = 0; i < 2; ++i) {
        const ncclResult_t result = all_reduce(comm, 0x101);
        CHECK((result == ncclSuccess || result == ncclInProgress));
    }
    CHECK(ncclGroupEnd() == ncclInProgress);
    OK(ncclCommAbort(comm));
}

// ARGUMENT 0 and 1 are old members, of which 0 has made the unique id; 2 is new. Then all of them split it.
void grown() {
    ncclComm_t more = nullptr, child = nullptr;
    const ncclUniqueId id = id_named("more");
    if (argument < 2) {
        const ncclComm_t comm = comm_named("g", argument, 2);
        OK(ncclCommGrow(comm, 3, argument == 0 ? &id : nullptr, -1, &more, nullptr));
    } else {
        OK(ncclCommGrow(nullptr, 3, &id, 2, &more, nullptr));
    }
    OK(all_reduce(more));
    fake_set_child(argument, 3);
    OK(ncclCommSplit(more, 0, 0, &child, nullptr));
}

void draining() {  // Destroy and Finalize leave gates shut, Abort and Revoke open them
    const ncclComm_t a = comm_named("a"), b = comm_named("b"), c = comm_named("c");
    OK(ncclCommFinalize(a));
    OK(ncclCommDestroy(a));
    OK(ncclCommRevoke(b, 0));
    OK(ncclCommAbort(c));
}

bool gate_is_open(unsigned on) {
    const auto ask = reinterpret_cast<int (*)(unsigned)>(dlsym(RTLD_DEFAULT, "fake_gate_is_open"));
    CHECK(ask != nullptr);
    return ask(on) != 0;
}

// A gate that holds several communicators opens when any of them is aborted, and no gate but those that hold it.
void fused_abort() {
    const ncclComm_t a = comm_named("a"), b = comm_named("b"), c = comm_named("c");
    const auto fuse = [](ncclComm_t x, ncclComm_t y, std::uintptr_t on) {
        OK(ncclGroupStart());
        OK(all_reduce(x, on));
        OK(all_reduce(y, on));
        OK(ncclGroupEnd());
    };
    for (ncclComm_t comm : {a, b, c}) OK(all_reduce(comm, 33));
    fuse(a, b, 34);
    fuse(c, a, 35);
    OK(all_reduce(a, 36));
    for (const unsigned on : {34, 35, 36}) CHECK(!gate_is_open(on));
    OK(ncclCommAbort(b));
    CHECK(gate_is_open(34));
    CHECK(!gate_is_open(35) && !gate_is_open(36));
    for (int i = 0; i < 200; ++i) {  // the ring goes round
        fuse(a, c, 37);
        CHECK(!gate_is_open(37));
    }
    OK(ncclCommAbort(a));
    CHECK(gate_is_open(36) && gate_is_open(37));  // the slot of the one on 35 has long been another's
}

// A program closes what it does not know, as daemons do, and uses the numbers for files of its own.
void reused_descriptors() {
    const ncclComm_t comm = comm_named("g");
    OK(all_reduce(comm));
    char path[] = "/tmp/opus-shim-file-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0);
    std::vector<int> reused;
    for (int fd = 3; fd < 64; ++fd) {
        struct stat at {};
        if (fstat(fd, &at) != 0 || !(S_ISFIFO(at.st_mode) || S_ISSOCK(at.st_mode))) continue;
        CHECK(dup2(file, fd) == fd);
        reused.push_back(fd);
    }
    CHECK(reused.size() >= 2);
    OK(all_reduce(comm));
    struct stat at {};
    CHECK(fstat(file, &at) == 0 && at.st_size == 0);
    const pid_t child = fork();
    if (child == 0) {
        for (const int fd : reused) CHECK(fcntl(fd, F_GETFD) >= 0);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

void captured_elsewhere() {
    const auto mode = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "fake_capture_mode"));
    CHECK(mode != nullptr);
    const int before = mode();
    order();
    CHECK(mode() == before);
    CHECK(strstr(fake_log_text(), "ends a capture") == nullptr);
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, void (*)()> scenarios = {
#define SCENARIO(name) {#name, name}
        SCENARIO(identity),
        SCENARIO(init_all),
        SCENARIO(creation_in_group),
        SCENARIO(failed_creation),
        SCENARIO(group),
        SCENARIO(never_asks),
        SCENARIO(simulate),
        SCENARIO(group_error),
        SCENARIO(lone_error),
        SCENARIO(wide_group),
        SCENARIO(calls),
        SCENARIO(streams),
        SCENARIO(order),
        SCENARIO(merged_groups),
        SCENARIO(connecting_groups),
        SCENARIO(capture),
        SCENARIO(repeated),
        SCENARIO(creation_goes_on),
        SCENARIO(non_blocking),
        SCENARIO(forked),
        SCENARIO(refused_setting),
        SCENARIO(refused_config),
        SCENARIO(refused),
        SCENARIO(unhooked),
        SCENARIO(broadcast),
        SCENARIO(many_comms),
        SCENARIO(threads),
        SCENARIO(ended_elsewhere),
        SCENARIO(missing),
        SCENARIO(one_sided),
        SCENARIO(grown),
        SCENARIO(captured_abort),
        SCENARIO(refused_device),
        SCENARIO(ordered),
        SCENARIO(exec_child),
        SCENARIO(daemonised),
        SCENARIO(init_all_threads),
        SCENARIO(draining),
        SCENARIO(split),
        SCENARIO(required),
        SCENARIO(uses),
        SCENARIO(required_without_manager),
        SCENARIO(required_of_a_non_blocking_parent),
        SCENARIO(polled_elsewhere),
        SCENARIO(fused_abort),
        SCENARIO(reused_descriptors),
        SCENARIO(captured_elsewhere),
        SCENARIO(aborted_unjudged),
    };
    CHECK(argc >= 2);
    if (argc > 2) argument = atoi(argv[2]);
    if (const char* cuda = getenv("FAKE_CUDA"); cuda != nullptr) CHECK(dlopen(cuda, RTLD_NOW | RTLD_GLOBAL) != nullptr);
    const auto at = scenarios.find(argv[1]);
    CHECK(at != scenarios.end());
    at->second();
    fputs(fake_log_text(), stdout);
    return 0;
}
