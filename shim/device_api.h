// What NCCL exports to the host without nccl.h declaring it (nccl_device/host.h, since 2.28): their types need CUDA C++.
#pragma once

#include <nccl.h>

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
extern "C" {
// requirements: ncclDevCommRequirements_t; made: ncclDevComm_t.
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* requirements, void* made);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void* made);
}
#endif
