#include "shim/library.h"

#include <dlfcn.h>
#include <link.h>
#include <cstdio>

// Under its oldest version, so that glibc 2.28 has it, and weak: before 2.34 it lives in libdl, which we do not ask for.
#if defined(__x86_64__)
#define OPUS_BASE_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OPUS_BASE_VERSION "GLIBC_2.17"
#else
#error "name the oldest glibc version of this architecture"
#endif
extern "C" __attribute__((weak)) void* opus_base_dlvsym(void* handle, const char* name, const char* version);
__asm__(".symver opus_base_dlvsym, dlvsym@" OPUS_BASE_VERSION);

namespace opus::shim {

namespace {

// Known once; threads that find out together find the same.
Loader known{};

// The next after this library: by its plain name we would find ourselves.
template <class F>
void find_next(F& into, const char* name) {
    F found = nullptr;
    if (opus_base_dlvsym != nullptr) found = reinterpret_cast<F>(opus_base_dlvsym(RTLD_NEXT, name, OPUS_BASE_VERSION));
    __atomic_store_n(&into, found, __ATOMIC_RELEASE);
}

struct Search {
    std::uintptr_t address;
    Object object;
};

int look_at(dl_phdr_info* info, std::size_t, void* data) {
    Search& search = *static_cast<Search*>(data);
    Object& object = search.object;
    std::uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD) continue;
        const std::uintptr_t from = info->dlpi_addr + segment.p_vaddr;
        if (from < low) low = from;
        if (from + segment.p_memsz > high) high = from + segment.p_memsz;
    }
    if (search.address < low || search.address >= high) return 0;
    object.low = low;
    object.high = high;
    snprintf(object.path, sizeof object.path, "%s", info->dlpi_name != nullptr ? info->dlpi_name : "");
    return 1;
}

}  // namespace

Loader loader() {
    Loader now{__atomic_load_n(&known.open, __ATOMIC_ACQUIRE), __atomic_load_n(&known.symbol, __ATOMIC_ACQUIRE)};
    if (now.open != nullptr && now.symbol != nullptr) [[likely]]
        return now;
    find_next(known.open, "dlopen");
    find_next(known.symbol, "dlsym");
    return {__atomic_load_n(&known.open, __ATOMIC_ACQUIRE), __atomic_load_n(&known.symbol, __ATOMIC_ACQUIRE)};
}

Library Library::open(const char* name, bool only_if_loaded) {
    const auto really_open = loader().open;
    if (really_open == nullptr) return {};
    // Kept in a variable: a jump would make us pass for our caller, by whose place the loader goes.
    void* volatile handle = really_open(name, RTLD_NOW | RTLD_LOCAL | (only_if_loaded ? RTLD_NOLOAD : 0));
    return Library(handle);
}

void* Library::symbol(const char* name) const {
    const auto really_find = loader().symbol;
    if (handle_ == nullptr || really_find == nullptr) return nullptr;
    void* volatile at = really_find(handle_, name);
    return at;
}

Object object_of(const void* address) {
    Search search{reinterpret_cast<std::uintptr_t>(address), {}};
    dl_iterate_phdr(look_at, &search);
    return search.object;
}

}  // namespace opus::shim
