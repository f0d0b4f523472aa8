// Says what was loaded, where nobody knows: one line on stderr, from the first process of a tree that loads a stand-in. Whoever
// starts a program on them on purpose sets STANDIN_ANNOUNCED. All stand-ins need this library, so it speaks for them.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

__attribute__((constructor)) void announce() {
    if (std::getenv("STANDIN_ANNOUNCED")) return;
    Dl_info own{};
    const char* path = dladdr(reinterpret_cast<void*>(&announce), &own) != 0 ? own.dli_fname : "libcuda.so.1";
    std::fprintf(
        stderr,
        "opus stand-in (pid %d): %s is not NVIDIA's: it emulates GPUs on host memory, and kernels compute nothing\n",
        static_cast<int>(::getpid()), path);
    ::setenv("STANDIN_ANNOUNCED", "1", 1);
}

}  // namespace
