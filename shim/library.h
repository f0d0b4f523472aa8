// Other people's libraries, by handle: NCCL and the CUDA driver. Never RTLD_NEXT, which is blind where
// NCCL came with an RTLD_LOCAL dlopen.
#pragma once

namespace opus::shim {

// A handle of dlopen. Never closed: what it found is called until the process ends.
class Library {
public:
    Library() = default;
    static Library open(const char* name, bool only_if_loaded);

    explicit operator bool() const { return handle_ != nullptr; }
    void* symbol(const char* name) const;

private:
    void* handle_ = nullptr;
};

// The real NCCL: `chosen` (OPUS_NCCL_LIBRARY) if not empty, else libnccl.so.2 as loaded, else loaded now.
Library find_nccl(const char* chosen);

}  // namespace opus::shim
