// A libcuda.so.1 whose functions do nothing at all: what the shim does beside the driver's own work is counted
// with it (instructions_test.py). Gates are reached at once, and done is never said.
#include <cuda.h>

#include <cstdint>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuMemHostRegister
#undef cuMemHostGetDevicePointer
#undef cuStreamWriteValue64
#undef cuStreamDestroy

FAKE_EXPORT CUresult cuCtxGetCurrent(CUcontext* c) { return *c = reinterpret_cast<CUcontext>(1), CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* c) { return *c = nullptr, CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuCtxGetDevice(CUdevice* d) { return *d = 0, CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuModuleLoadData(CUmodule* m, const void*) {
    return *m = reinterpret_cast<CUmodule>(2), CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuModuleGetFunction(CUfunction* f, CUmodule, const char*) {
    return *f = reinterpret_cast<CUfunction>(3), CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    CUstream, void**, void**) {
    return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuMemHostRegister_v2(void*, size_t, unsigned) { return CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* d, void* p, unsigned) {
    return *d = reinterpret_cast<CUdeviceptr>(p), CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuStreamWriteValue64_v2(CUstream, CUdeviceptr, cuuint64_t, unsigned) { return CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
    return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuStreamCreate(CUstream* s, unsigned) { return *s = reinterpret_cast<CUstream>(99), CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuEventCreate(CUevent* e, unsigned) { return *e = reinterpret_cast<CUevent>(4), CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
