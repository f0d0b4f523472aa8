// The exported functions: one jump each, from the table. Nothing here runs before the first call.
#include "shim/hooks.h"
#include "shim/library.h"
#include "shim/message.h"
#include "shim/process.h"

namespace opus::shim {

Functions real{};
Getters getters{};

namespace {

#define OPUS_HOOK(name, params, args) ncclResult_t resolve_##name params;
#include "shim/hook_table.h"

Functions slots = {
#define OPUS_HOOK(name, params, args) &resolve_##name,
#include "shim/hook_table.h"
};

// What the real library lacks.
template <class... Params>
ncclResult_t missing(Params...) {
    return ncclInvalidUsage;
}

template <class F>
F slot(const F& at) {
    return __atomic_load_n(&at, __ATOMIC_RELAXED);
}
template <class F>
void aim(F& at, F target) {
    __atomic_store_n(&at, target, __ATOMIC_RELEASE);
}

#define OPUS_HOOK(name, params, args)         \
    ncclResult_t resolve_##name params {      \
        if (!bind()) return ncclInvalidUsage; \
        return slot(slots.name) args;         \
    }
#include "shim/hook_table.h"

Lock bind_lock;
bool bound = false;

// The version script keeps everything else of this library out of sight; a library that finds our own
// symbol instead of its own (it was preloaded under the library's name) would make us call ourselves.
template <class F>
void find(Library library, F& into, const char* plain, const char* profiling, F ours = nullptr) {
    void* at = library.symbol(profiling);
    if (at == nullptr) at = library.symbol(plain);
    if (ours != nullptr && at == reinterpret_cast<void*>(ours)) at = nullptr;
    into = reinterpret_cast<F>(at);
}

void point_slots(bool at_handlers) {
    // A function that the real library lacks is never handled: the program is told, as by an older NCCL.
#define OPUS_HOOK(name, params, args)                 \
    if (real.name == nullptr)                         \
        aim<decltype(&::name)>(slots.name, &missing); \
    else                                              \
        aim(slots.name, at_handlers ? &handlers::name : real.name);
#include "shim/hook_table.h"
}

}  // namespace

bool bind() {
    const LockGuard guard(bind_lock);
    if (bound) return true;
    process.read_settings();
    const Library library = find_nccl(process.settings.OPUS_NCCL_LIBRARY);
    if (!library) return false;
#define OPUS_HOOK(name, params, args) find(library, real.name, #name, "p" #name, &::name);
#include "shim/hook_table.h"
    find(library, getters.ncclCommCount, "ncclCommCount", "pncclCommCount");
    find(library, getters.ncclCommUserRank, "ncclCommUserRank", "pncclCommUserRank");
    find(library, getters.ncclCommCuDevice, "ncclCommCuDevice", "pncclCommCuDevice");
    if (real.ncclGroupEnd == nullptr) {
        say_once(Level::error, "%s does not export NCCL's functions; set OPUS_NCCL_LIBRARY to the library that does",
                 process.settings.OPUS_NCCL_LIBRARY[0] != '\0' ? process.settings.OPUS_NCCL_LIBRARY : "libnccl.so.2");
        return false;
    }
    bound = true;
    point_slots(process.mode != Mode::off && process.watch_fork());
    return true;
}

void point_slots_at_real() { point_slots(false); }

}  // namespace opus::shim

extern "C" {
#define OPUS_HOOK(name, params, args)                                 \
    __attribute__((visibility("default"))) ncclResult_t name params { \
        return opus::shim::slot(opus::shim::slots.name) args;         \
    }
#include "shim/hook_table.h"
}
