// A loop of ncclAllReduce for callgrind, which collects inside measured() only.  usage: bench_hook CALLS
#include <nccl.h>

#include <cstdlib>

__attribute__((noinline)) void measured(ncclComm_t comm, int calls) {
    for (int i = 0; i < calls; ++i)
        ncclAllReduce(nullptr, nullptr, 1024, ncclFloat32, ncclSum, comm, reinterpret_cast<cudaStream_t>(0x1000));
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void warm_up(ncclComm_t comm) {
    for (int i = 0; i < 10; ++i)
        ncclAllReduce(nullptr, nullptr, 1024, ncclFloat32, ncclSum, comm, reinterpret_cast<cudaStream_t>(0x1000));
}

int main(int argc, char** argv) {
    ncclComm_t comm = nullptr;
    if (argc != 2 || ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0) != ncclSuccess) return 1;
    warm_up(comm);
    measured(comm, atoi(argv[1]));
    return 0;
}
