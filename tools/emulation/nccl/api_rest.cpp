// The rest of the header: memory, registration, and what the stand-in does not do, which says so.
#include "api.h"

using namespace opus::standin;

namespace {
ncclResult_t absent(ncclComm_t comm, const char* function) {
    return group_error(say_error(comm, ncclInvalidUsage, std::string("the stand-in NCCL has no ") + function));
}
}  // namespace

STANDIN_NCCL(ncclResult_t, ncclMemAlloc, void** out, size_t bytes) {
    if (!out) return ncclInvalidArgument;
    *out = allocate(bytes, Memory::device);
    return *out ? ncclSuccess : ncclUnhandledCudaError;
}
STANDIN_NCCL(ncclResult_t, ncclMemFree, void* pointer) {
    return !pointer || release(pointer) ? ncclSuccess : ncclInvalidArgument;
}

// Registration: remembered by nobody, the buffer is its own handle.
STANDIN_NCCL(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void* buffer, size_t, void** handle) {
    const ncclResult_t result = check_comm(comm, "ncclCommRegister");
    if (result == ncclSuccess && handle) *handle = buffer;
    return result;
}
STANDIN_NCCL(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void*) {
    return check_comm(comm, "ncclCommDeregister");
}
STANDIN_NCCL(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void* buffer, size_t, ncclWindow_t* window, int) {
    const ncclResult_t result = check_comm(comm, "ncclCommWindowRegister");
    if (result == ncclSuccess && window) *window = static_cast<ncclWindow_t>(buffer);
    return result;
}
STANDIN_NCCL(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t) {
    return check_comm(comm, "ncclCommWindowDeregister");
}
STANDIN_NCCL(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t window, void** out) {
    const ncclResult_t result = check_comm(comm, "ncclWinGetUserPtr");
    if (result == ncclSuccess && out) *out = window;
    return result;
}
STANDIN_NCCL(ncclResult_t, ncclCommSuspend, ncclComm_t comm, int) { return check_ready(comm, "ncclCommSuspend"); }
STANDIN_NCCL(ncclResult_t, ncclCommResume, ncclComm_t comm) { return check_ready(comm, "ncclCommResume"); }
STANDIN_NCCL(ncclResult_t, ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t, uint64_t* value) {
    const ncclResult_t result = check_comm(comm, "ncclCommMemStats");
    if (result == ncclSuccess && value) *value = 0;
    return result;
}

// --- absent ------------------------------------------------------------------------------------------------

STANDIN_NCCL(ncclResult_t, ncclPutSignal, const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
             unsigned, ncclComm_t comm, cudaStream_t) {
    return absent(comm, "ncclPutSignal");
}
STANDIN_NCCL(ncclResult_t, ncclSignal, int, int, int, unsigned, ncclComm_t comm, cudaStream_t) {
    return absent(comm, "ncclSignal");
}
STANDIN_NCCL(ncclResult_t, ncclWaitSignal, int, ncclWaitSignalDesc_t*, ncclComm_t comm, cudaStream_t) {
    return absent(comm, "ncclWaitSignal");
}
STANDIN_NCCL(ncclResult_t, ncclSetEncryption, const ncclEncryptionConfig_t*) {
    return absent(nullptr, "ncclSetEncryption");
}

// The device API, which nccl.h does not declare.
#pragma GCC visibility push(default)
STANDIN_NCCL(ncclResult_t, ncclDevCommCreate, ncclComm_t comm, const void*, void*) {
    return absent(comm, "ncclDevCommCreate");
}
STANDIN_NCCL(ncclResult_t, ncclDevCommDestroy, ncclComm_t comm, const void*) {
    return absent(comm, "ncclDevCommDestroy");
}
STANDIN_NCCL(ncclResult_t, ncclGetLsaMultimemDevicePointer, ncclWindow_t, size_t, void**) {
    return absent(nullptr, "ncclGetLsaMultimemDevicePointer");
}
STANDIN_NCCL(ncclResult_t, ncclGetPeerDevicePointer, ncclWindow_t, size_t, int, void**) {
    return absent(nullptr, "ncclGetPeerDevicePointer");
}
#pragma GCC visibility pop
