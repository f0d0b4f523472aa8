// A loop of NCCL calls for callgrind, which collects inside measured() only.
//
//   bench_hook CALLS lone|send|group PEERS       group: a send to and a receive from each of PEERS peers
//
// BENCH_CUDA names a driver to have in the process.
#include <dlfcn.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>

namespace {

cudaStream_t stream() { return reinterpret_cast<cudaStream_t>(0x1000); }

void exchange(ncclComm_t comm, int peers) {
    ncclGroupStart();
    for (int peer = 1; peer <= peers; ++peer) {
        ncclSend(nullptr, 1024, ncclFloat32, peer, comm, stream());
        ncclRecv(nullptr, 1024, ncclFloat32, peer, comm, stream());
    }
    ncclGroupEnd();
}

void all_calls(ncclComm_t comm, int calls, char what, int peers) {
    if (what == 'l')
        for (int i = 0; i < calls; ++i) ncclAllReduce(nullptr, nullptr, 1024, ncclFloat32, ncclSum, comm, stream());
    else if (what == 's')
        for (int i = 0; i < calls; ++i) ncclSend(nullptr, 1024, ncclFloat32, 1, comm, stream());
    else
        for (int i = 0; i < calls; ++i) exchange(comm, peers);
}

}  // namespace

__attribute__((noinline)) void measured(ncclComm_t comm, int calls, char what, int peers) {
    all_calls(comm, calls, what, peers);
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char** argv) {
    ncclComm_t comm = nullptr;
    if (argc != 4) return 1;
    const int peers = atoi(argv[3]);
    if (const char* cuda = getenv("BENCH_CUDA"); cuda != nullptr && dlopen(cuda, RTLD_NOW | RTLD_GLOBAL) == nullptr)
        return 1;
    if (ncclCommInitRank(&comm, 64, ncclUniqueId{}, 0) != ncclSuccess) return 1;
    all_calls(comm, 10, argv[2][0], peers);
    measured(comm, atoi(argv[1]), argv[2][0], peers);
    return 0;
}
