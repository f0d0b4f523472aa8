/* As nccl.c, in place of the CUDA runtime. */
#define NAME(f) \
    void f(void) {}
// clang-format off
NAME(cudaGetDeviceCount)
NAME(cudaSetDevice) NAME(cudaGetErrorString) NAME(cudaMalloc) NAME(cudaFree) NAME(cudaMallocHost) NAME(cudaFreeHost)
    NAME(cudaMemcpyAsync) NAME(cudaStreamCreateWithFlags) NAME(cudaStreamDestroy) NAME(cudaStreamSynchronize)
        NAME(cudaStreamWaitEvent) NAME(cudaEventCreateWithFlags) NAME(cudaEventRecord) NAME(cudaEventDestroy)
            NAME(cudaLaunchHostFunc)
    // clang-format on
