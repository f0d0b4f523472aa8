// Other people's libraries, by handle: NCCL and the CUDA driver. Never RTLD_NEXT, which is blind where
// NCCL came with an RTLD_LOCAL dlopen. And the loader itself, past dlsym and dlopen as this library exports them.
#pragma once

#include <cstdint>

namespace opus::shim {

// The C library's (or what another preloaded library has put before it). Null before glibc 2.34 where libdl is not
// loaded: such a process has opened no library.
struct Loader {
    void* (*open)(const char* name, int flags);
    void* (*symbol)(void* handle, const char* name);
};
Loader loader();

// A handle of dlopen. Never closed: what it found is called until the process ends.
class Library {
public:
    Library() = default;
    explicit Library(void* handle) : handle_(handle) {}
    static Library open(const char* name, bool only_if_loaded);

    explicit operator bool() const { return handle_ != nullptr; }
    void* symbol(const char* name) const;
    void* handle() const { return handle_; }

private:
    void* handle_ = nullptr;
};

// What of the process an address belongs to.
struct Object {
    std::uintptr_t low = 0, high = 0;  // both 0: nothing is known
    char path[400] = {};               // empty: the program itself

    bool holds(const void* address) const {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        return at >= low && at < high;
    }
};
Object object_of(const void* address);

}  // namespace opus::shim
