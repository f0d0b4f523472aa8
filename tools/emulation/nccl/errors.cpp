#include "api.h"

namespace opus::standin {

namespace {
thread_local std::string last_error;
}

ncclResult_t say_error(ncclComm* comm, ncclResult_t result, const std::string& text) {
    last_error = text;
    if (comm) comm->last_error = text;
    return result;
}

const char* last_error_text() { return last_error.c_str(); }

ncclResult_t check_comm(ncclComm* comm, const char* function) {
    if (!comm) return say_error(nullptr, ncclInvalidArgument, std::string(function) + ": comm argument is NULL");
    if (comm->magic != ncclComm::kMagic)
        return say_error(nullptr, ncclInvalidArgument, std::string(function) + ": corrupted comm object detected");
    return ncclSuccess;
}

ncclResult_t check_ready(ncclComm* comm, const char* function) {
    const ncclResult_t valid = check_comm(comm, function);
    if (valid != ncclSuccess) return valid;
    if (comm->state == ncclInProgress)
        return say_error(
            comm, ncclInvalidArgument,
            std::string(function) + ": communicator used before its previous operation returned ncclSuccess");
    if (comm->state != ncclSuccess) return static_cast<ncclResult_t>(comm->state.load());
    if (comm->core->error != ncclSuccess) return static_cast<ncclResult_t>(comm->core->error.load());
    if (comm->revoked || comm->finalized)
        return say_error(comm, ncclInvalidUsage, std::string(function) + ": communicator was revoked or finalized");
    return ncclSuccess;
}

}  // namespace opus::standin

using namespace opus::standin;

STANDIN_NCCL(const char*, ncclGetErrorString, ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error (stand-in)";
        case ncclSystemError: return "unhandled system error (stand-in)";
        case ncclInternalError: return "internal error (stand-in)";
        case ncclInvalidArgument: return "invalid argument (stand-in)";
        case ncclInvalidUsage: return "invalid usage (stand-in)";
        case ncclRemoteError: return "remote process exited or there was a network error (stand-in)";
        case ncclInProgress: return "NCCL operation in progress (stand-in)";
        case ncclTimeout: return "operation timed out (stand-in)";
        default: return "unknown result code (stand-in)";
    }
}

STANDIN_NCCL(const char*, ncclGetLastError, ncclComm_t comm) {
    return comm && comm->magic == ncclComm::kMagic && !comm->last_error.empty() ? comm->last_error.c_str()
                                                                                : last_error_text();
}

STANDIN_NCCL(ncclResult_t, ncclGetVersion, int* version) {
    if (!version) return ncclInvalidArgument;
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
