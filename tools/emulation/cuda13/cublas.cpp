// libcublas.so.13, a stand-in: products take the time that the model says and compute nothing; what is no product, and
// not part of keeping a handle, is refused.
#include "blas.h"

using namespace opus::standin;

namespace {

struct Handle {
    void* stream = nullptr;
    int math_mode = 0, pointer_mode = 0, atomics_mode = 0;
};

Handle& of(void* handle) { return *static_cast<Handle*>(handle); }

}  // namespace

extern "C" {

// --- the handle -----------------------------------------------------------------------------------------------

STANDIN_API BlasStatus cublasCreate_v2(void** handle) {
    *handle = new Handle;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasDestroy_v2(void* handle) {
    delete static_cast<Handle*>(handle);
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasSetStream_v2(void* handle, void* stream) {
    of(handle).stream = stream;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasGetStream_v2(void* handle, void** stream) {
    *stream = of(handle).stream;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasSetWorkspace_v2(void*, void*, std::size_t) { return kBlasSuccess; }
STANDIN_API BlasStatus cublasSetSmCountTarget(void*, int) { return kBlasSuccess; }
STANDIN_API BlasStatus cublasSetMathMode(void* handle, int mode) {
    of(handle).math_mode = mode;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasGetMathMode(void* handle, int* mode) {
    *mode = of(handle).math_mode;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasSetPointerMode_v2(void* handle, int mode) {
    of(handle).pointer_mode = mode;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasGetPointerMode_v2(void* handle, int* mode) {
    *mode = of(handle).pointer_mode;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasSetAtomicsMode(void* handle, int mode) {
    of(handle).atomics_mode = mode;
    return kBlasSuccess;
}
STANDIN_API BlasStatus cublasGetVersion_v2(void*, int* version) {
    *version = kBlasVersion;
    return kBlasSuccess;
}
STANDIN_API const char* cublasGetStatusString(BlasStatus status) {
    return status == kBlasSuccess        ? "CUBLAS_STATUS_SUCCESS"
           : status == kBlasNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED (stand-in)"
                                         : "cuBLAS error (stand-in)";
}

// --- products -------------------------------------------------------------------------------------------------

STANDIN_API BlasStatus cublasGemmEx(void* handle, int, int, int m, int n, int k, const void*, const void*, int type,
                                    int, const void*, int, int, const void*, void*, int, int, int, int) {
    return multiply(of(handle).stream, {m, n, k, 1, element_bytes(type)});
}
STANDIN_API BlasStatus cublasGemmStridedBatchedEx(void* handle, int, int, int m, int n, int k, const void*, const void*,
                                                  int type, int, long long, const void*, int, int, long long,
                                                  const void*, void*, int, int, long long, int batch, int, int) {
    return multiply(of(handle).stream, {m, n, k, batch, element_bytes(type)});
}
STANDIN_API BlasStatus cublasSgemmEx(void* handle, int, int, int m, int n, int k, const float*, const void*, int type,
                                     int, const void*, int, int, const float*, void*, int, int) {
    return multiply(of(handle).stream, {m, n, k, 1, element_bytes(type)});
}

#define PRODUCTS(letter, bytes)                                                                                         \
    STANDIN_API BlasStatus cublas##letter##gemm_v2(void* handle, int, int, int m, int n, int k, const void*,            \
                                                   const void*, int, const void*, int, const void*, void*, int) {       \
        return multiply(of(handle).stream, {m, n, k, 1, bytes});                                                        \
    }                                                                                                                   \
    STANDIN_API BlasStatus cublas##letter##gemmStridedBatched(void* handle, int, int, int m, int n, int k, const void*, \
                                                              const void*, int, long long, const void*, int, long long, \
                                                              const void*, void*, int, long long, int batch) {          \
        return multiply(of(handle).stream, {m, n, k, batch, bytes});                                                    \
    }                                                                                                                   \
    STANDIN_API BlasStatus cublas##letter##gemmBatched(void* handle, int, int, int m, int n, int k, const void*,        \
                                                       const void* const*, int, const void* const*, int, const void*,   \
                                                       void* const*, int, int batch) {                                  \
        return multiply(of(handle).stream, {m, n, k, batch, bytes});                                                    \
    }                                                                                                                   \
    STANDIN_API BlasStatus cublas##letter##gemv_v2(void* handle, int, int m, int n, const void*, const void*, int,      \
                                                   const void*, int, const void*, void*, int) {                         \
        return multiply(of(handle).stream, {m, 1, n, 1, bytes});                                                        \
    }
PRODUCTS(S, 4)
PRODUCTS(D, 8)
PRODUCTS(C, 8)
PRODUCTS(Z, 16)

}  // extern "C"

#define REFUSED(name) STANDIN_REFUSED(name, kBlasNotSupported)
#include "refused_cublas.h"
#undef REFUSED
