#include "shim/library.h"

#include <dlfcn.h>

// Under their oldest versions, so that glibc 2.28 has them, and weak: before 2.34 they live in libdl,
// which we do not ask for. A process without it has opened no library, so NCCL is not in it either.
#if defined(__x86_64__)
#define OPUS_BASE_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OPUS_BASE_VERSION "GLIBC_2.17"
#else
#error "name the oldest glibc version of this architecture"
#endif
extern "C" {
__attribute__((weak)) void* opus_base_dlopen(const char* name, int flags);
__attribute__((weak)) void* opus_base_dlsym(void* handle, const char* name);
}
__asm__(".symver opus_base_dlopen, dlopen@" OPUS_BASE_VERSION);
__asm__(".symver opus_base_dlsym, dlsym@" OPUS_BASE_VERSION);

namespace opus::shim {

Library Library::open(const char* name, bool only_if_loaded) {
    Library library;
    if (opus_base_dlopen != nullptr)
        library.handle_ = opus_base_dlopen(name, RTLD_NOW | RTLD_LOCAL | (only_if_loaded ? RTLD_NOLOAD : 0));
    return library;
}

void* Library::symbol(const char* name) const {
    return handle_ != nullptr && opus_base_dlsym != nullptr ? opus_base_dlsym(handle_, name) : nullptr;
}

Library find_nccl(const char* chosen) {
    if (chosen[0] != '\0') return Library::open(chosen, false);
    const Library loaded = Library::open("libnccl.so.2", true);
    return loaded ? loaded : Library::open("libnccl.so.2", false);
}

}  // namespace opus::shim
