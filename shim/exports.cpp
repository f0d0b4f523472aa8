// The exported functions: one jump each, from the table; ncclX and pncclX are the same. Nothing here runs before the
// first call.
#include <atomic>
#include <cstring>

#include "shim/hooks.h"
#include "shim/library.h"
#include "shim/message.h"
#include "shim/process.h"
#include "shim/road_notes.h"
#include "shim/roads.h"

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

// What the real library lacks. A reference that was bound to us when the program was loaded cannot be taken back.
template <const char* name, class... Params>
ncclResult_t missing(Params...) {
    say_once(Level::error, "%s fails: %.200s lacks it; the program wants a newer NCCL", name, served_nccl().path);
    return ncclInvalidUsage;
}
#define OPUS_HOOK(name, params, args) constexpr char name_of_##name[] = #name;
#include "shim/hook_table.h"

template <class F>
F slot(const F& at) {
    return __atomic_load_n(&at, __ATOMIC_RELAXED);
}
template <class F>
void aim(F& at, F target) {
    __atomic_store_n(&at, target, __ATOMIC_RELEASE);
}

#define OPUS_HOOK(name, params, args)                                    \
    ncclResult_t resolve_##name params {                                 \
        if (!bind(__builtin_return_address(0))) return ncclInvalidUsage; \
        return slot(slots.name) args;                                    \
    }
#include "shim/hook_table.h"

Lock bind_lock;
std::atomic<bool> bound{false};
bool settings_read = false;

// The version script keeps everything else of this library out of sight; a library that finds our own
// symbol instead of its own (it was preloaded under the library's name) would make us call ourselves.
template <class F>
void find(Library library, F& into, const char* plain, const char* profiling) {
    void* at = library.symbol(profiling);
    if (at == nullptr) at = library.symbol(plain);
    if (is_ours(at)) at = nullptr;
    into = reinterpret_cast<F>(at);
}

void point_slots(bool at_handlers) {
    // A function that the real library lacks is never handled: the program is told, as by an older NCCL.
#define OPUS_HOOK(name, params, args)                                 \
    if (real.name == nullptr)                                         \
        aim<decltype(&::name)>(slots.name, &missing<name_of_##name>); \
    else                                                              \
        aim(slots.name, at_handlers ? &handlers::name : real.name);
#include "shim/hook_table.h"
}

void note_first_call(const Library& library, const void* caller) {
    if (!notes_roads()) return;
    int version = 0;
    const auto ask = reinterpret_cast<ncclResult_t (*)(int*)>(library.symbol("ncclGetVersion"));
    if (ask != nullptr) ask(&version);
    note_road("called\t%.300s\t%d\t%.300s", served_nccl().path, version, object_of(caller).path);
    if (process.mode == Mode::off) note_road("state\toff\t");
}

}  // namespace

// Nothing of the loader is called under the lock: another thread may hold the loader's own, and come here.
bool bind(const void* caller) {
    if (bound.load(std::memory_order_acquire)) return true;
    {
        const LockGuard guard(bind_lock);
        if (!settings_read) process.read_settings();
        settings_read = true;
    }
    const Library library = nccl_to_use();
    if (!library) {
        const char* chosen = process.settings.OPUS_NCCL_LIBRARY;
        say_once(Level::error,
                 "%.200s cannot be loaded, or does not export NCCL's functions; set OPUS_NCCL_LIBRARY to the library "
                 "that does",
                 chosen[0] != '\0' ? chosen : "libnccl.so.2");
        return false;
    }
    Functions found{};
    Getters found_getters{};
#define OPUS_HOOK(name, params, args) find(library, found.name, #name, "p" #name);
#include "shim/hook_table.h"
    find(library, found_getters.ncclCommCount, "ncclCommCount", "pncclCommCount");
    find(library, found_getters.ncclCommUserRank, "ncclCommUserRank", "pncclCommUserRank");
    find(library, found_getters.ncclCommCuDevice, "ncclCommCuDevice", "pncclCommCuDevice");
    find(library, found_getters.ncclGetVersion, "ncclGetVersion", "pncclGetVersion");
    const LockGuard guard(bind_lock);
    if (bound.load(std::memory_order_relaxed)) return true;
    real = found;
    getters = found_getters;
    point_slots(process.mode != Mode::off && process.watch_fork());
    bound.store(true, std::memory_order_release);
    note_first_call(library, caller);
    return true;
}

void point_slots_at_real() { point_slots(false); }

bool is_bound() { return bound.load(std::memory_order_acquire); }

}  // namespace opus::shim

extern "C" {
// Hidden under a name of its own, so that nobody's preloaded ncclX stands for ours where we mean ours.
#define OPUS_HOOK(name, params, args)                                                           \
    __attribute__((visibility("hidden"))) ncclResult_t opus_hook_##name params {                \
        return opus::shim::slot(opus::shim::slots.name) args;                                   \
    }                                                                                           \
    __attribute__((visibility("default"), alias("opus_hook_" #name))) ncclResult_t name params; \
    __attribute__((visibility("default"), alias("opus_hook_" #name))) ncclResult_t p##name params;
#include "shim/hook_table.h"
}

namespace opus::shim {

const Hook* hook_named(const char* name) {
    static const Hook hooks[] = {
#define OPUS_HOOK(name, params, args) {"p" #name, reinterpret_cast<void*>(&opus_hook_##name)},
#include "shim/hook_table.h"
    };
    const char* plain = name[0] == 'p' ? name + 1 : name;
    if (strncmp(plain, "nccl", 4) != 0) return nullptr;
    for (const Hook& hook : hooks)
        if (strcmp(hook.name(), plain) == 0) return &hook;
    return nullptr;
}

}  // namespace opus::shim
