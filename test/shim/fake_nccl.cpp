// A libnccl.so.2 that does nothing but log: for tests of the shim alone. It calls itself through the PLT
// where the real one does, fails groups that had a failing call, says ncclInProgress for non-blocking
// communicators, and ends a program that uses a communicator after its end.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "shim/device_api.h"
#include "test/shim/fake_log.h"

#ifdef FAKE_NCCL_IS_OLD  // a library from before ncclCommShrink
#define ncclCommShrink fake_no_shrink
#define pncclCommShrink fake_no_pshrink
#endif

struct ncclComm {
    int rank, size, device;
    bool blocking;
    std::atomic<int> looks;  // ncclCommGetAsyncError calls that still say ncclInProgress
    std::atomic<ncclComm*> child{nullptr};  // made when they are through: a non-blocking parent's
    ncclComm** child_out = nullptr;
    volatile unsigned alive = 0xa11fe;
};

namespace {

std::mutex mutex;
char text[1 << 20];
std::size_t used = 0;
int child_rank = 0, child_size = 2, in_progress = 0;
std::atomic<int> launches{0}, fail_next{0};
std::atomic<int> poll_hold{0};  // 1: the next poll is held, 2: it is, with its answer
thread_local int depth = 0, grouped = 0;
thread_local std::vector<ncclComm_t> in_group;
thread_local ncclResult_t group_error = ncclSuccess;
thread_local bool group_in_progress = false;

ncclResult_t note(ncclResult_t result) {
    if (depth > 0 && result != ncclSuccess && result != ncclInProgress) group_error = result;
    return result;
}

void check_alive(const char* name, ncclComm_t comm) {
    if (comm->alive == 0xa11fe) return;
    fprintf(stderr, "fake NCCL: %s on a communicator that has ended\n", name);
    _exit(99);
}

ncclResult_t end(const char* name, ncclComm_t comm) {
    check_alive(name, comm);
    fake_log("%s rank=%d", name, comm->rank);
    comm->alive = 0;
    delete comm;
    return ncclSuccess;
}

ncclResult_t launch(const char* name, ncclComm_t comm) {
    if (const int failing = fail_next.exchange(0); failing != 0) return note(ncclResult_t(failing));
    if (comm == nullptr) return note(ncclInvalidArgument);
    check_alive(name, comm);
    fake_log("%s rank=%d", name, comm->rank);
    if (!comm->blocking) {
        comm->looks = in_progress;
        group_in_progress = true;
    }
    if (depth > 0) {
        ++grouped;
        in_group.push_back(comm);
        return ncclSuccess;
    }
    ++launches;
    return comm->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t create(const char* name, ncclComm_t* out, int rank, int size, int device, const ncclConfig_t* config) {
    if (const int failing = fail_next.exchange(0); failing != 0) return note(ncclResult_t(failing));
    fake_log("%s rank=%d size=%d", name, rank, size);
    const bool blocking = config == nullptr || config->blocking != 0;
    *out = new ncclComm{rank, size, device, blocking, blocking ? 0 : in_progress};
    return blocking ? ncclSuccess : ncclInProgress;
}

// As NCCL: a non-blocking parent is in progress, and the child's pointer null, until the child is whole.
ncclResult_t create_child(const char* name, ncclComm_t parent, ncclComm_t* out, const ncclConfig_t* config) {
    if (const char* gate = getenv("FAKE_CREATION_GATE"); gate != nullptr)
        while (access(gate, F_OK) != 0) usleep(1000);
    ncclComm_t child = nullptr;
    const ncclResult_t result = create(name, &child, child_rank, child_size, parent->device, config);
    *out = parent->blocking ? child : nullptr;
    if (parent->blocking || child == nullptr) return result == ncclInProgress ? ncclSuccess : result;
    child->looks = 0;
    parent->looks = in_progress;
    parent->child_out = out;
    parent->child = child;  // last: others poll meanwhile
    if (depth > 0) group_in_progress = true;
    return ncclInProgress;
}

// As NCCL: nobody hears of success before the pointer is there, whoever puts it there.
void hand_out_child(ncclComm& parent) {
    static ncclComm handing{0, 0, 0, true, 0};
    ncclComm* child = parent.child;
    if (child != nullptr && child != &handing && parent.child.compare_exchange_strong(child, &handing)) {
        *parent.child_out = child;
        parent.child = nullptr;
    }
    while (parent.child == &handing) {}
}

ncclResult_t simple(const char* name, ncclComm_t comm) {
    fake_log("%s rank=%d", name, comm->rank);
    return ncclSuccess;
}

// Ends with its group, as a launch does, but launches nothing.
ncclResult_t register_with(const char* name, ncclComm_t comm) {
    if (const int failing = fail_next.exchange(0); failing != 0) return note(ncclResult_t(failing));
    check_alive(name, comm);
    return simple(name, comm);
}

ncclResult_t end_group(const char* name, bool launches_them) {
    if (depth == 0) return ncclInvalidUsage;
    if (--depth > 0) return ncclSuccess;
    const ncclResult_t result = group_error != ncclSuccess ? group_error
                                : group_in_progress        ? ncclInProgress
                                                           : ncclSuccess;
    if (launches_them && (result == ncclSuccess || result == ncclInProgress)) launches += grouped;
    fake_log("%s result=%d", name, int(result));
    grouped = 0;
    group_error = ncclSuccess;
    group_in_progress = false;
    for (const ncclComm_t comm : in_group) check_alive(name, comm);
    in_group.clear();
    return result;
}

// Bodies of the hooked functions; those of collectives and transfers come from the shim's own table.
namespace body {

#define OPUS_HOOK(name, params, args)
#define OPUS_COLL(name, params, args, kind, root, elements) ncclResult_t name params;
#include "shim/hook_table.h"
#define OPUS_HOOK(name, params, args)
#define OPUS_P2P(name, params, args, kind) \
    ncclResult_t name params { return launch(#name, comm); }
#define OPUS_PASS(name, params, args) \
    ncclResult_t name params { return launch(#name, comm); }
#include "shim/hook_table.h"

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static std::atomic<int> next{1};
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "unique %d", next++);
    fake_log("ncclGetUniqueId");
    return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId, int rank) {
    return create("ncclCommInitRank", comm, rank, nranks, 0, nullptr);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId, int rank, ncclConfig_t* config) {
    return create("ncclCommInitRankConfig", comm, rank, nranks, 0, config);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int, ncclUniqueId*, ncclConfig_t* config) {
    return create("ncclCommInitRankScalable", comm, rank, nranks, 0, config);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devices) {
    ncclUniqueId id;
    ::ncclGetUniqueId(&id);
    for (int i = 0; i < ndev; ++i)
        create("ncclCommInitAll", comm + i, i, ndev, devices != nullptr ? devices[i] : i, nullptr);
    return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int, ncclComm_t* newcomm, ncclConfig_t* config) {
    if (color == NCCL_SPLIT_NOCOLOR) {
        fake_log("ncclCommSplit nocolor");
        *newcomm = nullptr;
        return ncclSuccess;
    }
    return create_child("ncclCommSplit", comm, newcomm, config);
}
ncclResult_t ncclCommShrink(ncclComm_t comm, int*, int, ncclComm_t* newcomm, ncclConfig_t* config, int) {
    return create_child("ncclCommShrink", comm, newcomm, config);
}
ncclResult_t ncclCommGrow(ncclComm_t, int nranks, const ncclUniqueId*, int rank, ncclComm_t* newcomm, ncclConfig_t* config) {
    return create("ncclCommGrow", newcomm, rank, nranks, 0, config);
}
ncclResult_t ncclCommGetUniqueId(ncclComm_t, ncclUniqueId* id) { return body::ncclGetUniqueId(id); }
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return simple("ncclCommFinalize", comm); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end("ncclCommDestroy", comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end("ncclCommAbort", comm); }
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) { return simple("ncclCommRevoke", comm); }
ncclResult_t ncclCommSuspend(ncclComm_t comm, int) { return simple("ncclCommSuspend", comm); }
ncclResult_t ncclCommResume(ncclComm_t comm) { return simple("ncclCommResume", comm); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    check_alive("ncclCommGetAsyncError", comm);
    int looks = comm->looks;
    while (looks > 0 && !comm->looks.compare_exchange_weak(looks, looks - 1)) {}
    *error = looks > 0 ? ncclInProgress : ncclSuccess;
    if (looks <= 0) hand_out_child(*comm);
    if (int armed = 1; poll_hold.compare_exchange_strong(armed, 2))
        while (poll_hold == 2) usleep(200);
    return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void*, size_t, ncclWindow_t*, int) {
    return register_with("ncclCommWindowRegister", comm);
}
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void*, void*) { return register_with("ncclDevCommCreate", comm); }
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void*) { return simple("ncclDevCommDestroy", comm); }
ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned int,
                           ncclComm_t comm, cudaStream_t) {
    return launch("ncclPutSignal", comm);
}
ncclResult_t ncclSignal(int, int, int, unsigned int, ncclComm_t comm, cudaStream_t) {
    return launch("ncclSignal", comm);
}
ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return end_group("ncclGroupEnd", true); }
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) { return end_group("ncclGroupSimulateEnd", false); }

#define OPUS_HOOK(name, params, args)
#define OPUS_COLL(name, params, args, kind, root, elements) \
    [[maybe_unused]] ncclResult_t name params { return launch(#name, comm); }
#define ncclBcast ncclBcast_from_table
#include "shim/hook_table.h"
#undef ncclBcast
// As NCCL does it: by its own public function, through the PLT.
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return ::ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

}  // namespace body
}  // namespace

extern "C" {

#define FAKE_EXPORT __attribute__((visibility("default")))
#define OPUS_HOOK(name, params, args)                                   \
    FAKE_EXPORT ncclResult_t p##name params { return body::name args; } \
    FAKE_EXPORT ncclResult_t name params { return body::name args; }
#include "shim/hook_table.h"

FAKE_EXPORT ncclResult_t ncclGetVersion(int* version) {
    const char* given = getenv("FAKE_NCCL_VERSION");
    return *version = given != nullptr ? atoi(given) : NCCL_VERSION_CODE, ncclSuccess;
}
FAKE_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int* n) {
    return comm->looks > 0 ? ncclInProgress : (*n = comm->size, ncclSuccess);
}
FAKE_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* n) {
    return comm->looks > 0 ? ncclInProgress : (*n = comm->rank, ncclSuccess);
}
FAKE_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* n) { return *n = comm->device, ncclSuccess; }

FAKE_EXPORT void fake_log(const char* format, ...) {
    const std::lock_guard guard(mutex);
    va_list args;
    va_start(args, format);
    const std::size_t room = sizeof text - used;
    const int n = vsnprintf(text + used, room, format, args);
    va_end(args);
    if (n < 0 || std::size_t(n) + 2 > room) return;
    used += std::size_t(n);
    text[used++] = '\n';
    text[used] = '\0';
}
FAKE_EXPORT const char* fake_log_text(void) { return text; }
FAKE_EXPORT void fake_log_clear(void) {
    used = 0;
    text[0] = '\0';
}
FAKE_EXPORT void fake_set_child(int rank, int size) { child_rank = rank, child_size = size; }
FAKE_EXPORT void fake_set_in_progress(int looks) { in_progress = looks; }
FAKE_EXPORT void fake_fail_next(int result) { fail_next = result; }
FAKE_EXPORT void fake_hold_poll(void) { poll_hold = 1; }
FAKE_EXPORT int fake_poll_is_held(void) { return poll_hold == 2; }
FAKE_EXPORT void fake_release_poll(void) { poll_hold = 0; }
FAKE_EXPORT int fake_launches(void) { return launches; }
}
