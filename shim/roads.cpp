#include "shim/roads.h"

#include <dlfcn.h>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "shim/deep_bound.h"
#include "shim/lock.h"
#include "shim/message.h"
#include "shim/road_notes.h"

// Of this library, from the linker.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[], _end[];

namespace opus::shim {

namespace {

// The NCCL that is served. Set once; read without the lock when `settled`. No call into the loader is made under the
// lock: another thread may hold the loader's and come here.
Lock serve_lock;
std::atomic<bool> settled{false};
Library served;
Object served_object;

const char* chosen_library() {
    const char* chosen = getenv("OPUS_NCCL_LIBRARY");
    return chosen != nullptr ? chosen : "";
}

void* any_function(const Library& library) {
    void* at = library.symbol("pncclGroupEnd");
    return at != nullptr ? at : library.symbol("ncclGroupEnd");
}

bool serve(const Library& library) {
    const void* at = library ? any_function(library) : nullptr;
    if (at == nullptr) return false;
    const Object object = object_of(at);
    const LockGuard guard(serve_lock);
    if (!settled.load(std::memory_order_relaxed)) {
        served = library;
        served_object = object;
        settled.store(true, std::memory_order_release);
    }
    return true;
}

const void* behind_us(const char* name) {
    const auto find = loader().symbol;
    void* volatile at = find != nullptr ? find(RTLD_NEXT, name) : nullptr;
    return at;
}

// Not found, as the loader says it: dlerror() names it.
Lookup not_found(const char* name) {
    char absent[80] = "";
    strncat(absent, name, sizeof absent - 1);
    if (behind_us(absent) != nullptr) {  // elsewhere it is; only a name that is nowhere leaves an error behind
        absent[0] = '?';
        behind_us(absent);
    }
    return {nullptr, nullptr};
}

bool has(const Library& nccl, const Hook& hook) {
    return nccl.symbol(hook.profiling) != nullptr || nccl.symbol(hook.name()) != nullptr;
}

// Once: a library looks up all that it wants.
void note_lookup(const void* caller) {
    static bool noted = false;
    if (!notes_roads() || __atomic_exchange_n(&noted, true, __ATOMIC_RELAXED)) return;
    note_road("road\tdlsym\t%.300s\t%.300s", object_of(caller).path, served_object.path);
}

// Of a scope that has us in it: what it finds is ours, or stands before us.
Lookup by_scope(const Hook& hook, const char* name, const void* caller) {
    const Library nccl = nccl_in_use();
    if (!nccl || !has(nccl, hook)) return not_found(name);
    note_lookup(caller);
    const auto find = loader().symbol;
    void* volatile at = find(RTLD_DEFAULT, name);
    if (served_object.holds(at)) return {hook.ours, nullptr};  // it is preloaded before us
    return {nullptr, reinterpret_cast<void*>(find)};
}

// Found in a library of the program's own choice.
Lookup by_handle(const Hook& hook, const char* name, const void* at, const void* caller) {
    const Lookup as_it_is{nullptr, reinterpret_cast<void*>(loader().symbol)};
    if (chosen_library()[0] != '\0')
        return nccl_in_use() && has(nccl_in_use(), hook) ? Lookup{hook.ours, nullptr} : not_found(name);
    if (!adopt_nccl_of(at)) return as_it_is;
    if (served_object.holds(at)) {
        note_lookup(caller);
        return {hook.ours, nullptr};
    }
    static bool told = false;
    if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) {
        const Object other = object_of(at);
        say(Level::warn, "%.150s is a second NCCL here and is not seen: Opus serves %.150s; OPUS_NCCL_LIBRARY chooses",
            other.path, served_object.path);
        note_road("second\t%.300s", other.path);
    }
    return as_it_is;
}

}  // namespace

bool adopt_nccl_of(const void* address) {
    if (settled.load(std::memory_order_acquire)) return true;
    const Object object = object_of(address);
    if (object.path[0] == '\0') return false;
    return serve(Library::open(object.path, true));
}

Library nccl_in_use() {
    if (settled.load(std::memory_order_acquire)) return served;
    const char* chosen = chosen_library();
    if (chosen[0] != '\0') {
        serve(Library::open(chosen, false));
    } else if (!serve(Library::open("libnccl.so.2", true))) {
        const void* at = behind_us("pncclGroupEnd");
        if (at != nullptr) adopt_nccl_of(at);
    }
    return settled.load(std::memory_order_acquire) ? served : Library();
}

Library nccl_to_use() {
    const Library loaded = nccl_in_use();
    if (loaded || chosen_library()[0] != '\0') return loaded;
    serve(Library::open("libnccl.so.2", false));
    return nccl_in_use();
}

const Object& served_nccl() { return served_object; }

bool is_ours(const void* address) {
    const char* at = static_cast<const char*>(address);
    return at >= __ehdr_start && at < _end;
}

Lookup look_up(void* handle, const char* name, const void* caller) {
    const Lookup as_it_is{nullptr, reinterpret_cast<void*>(loader().symbol)};
    mend_deep_bound();
    if (name == nullptr || as_it_is.go == nullptr) return as_it_is;
    // By hand: a sanitizer's runtime comes here before its own strncmp is ready.
    const char* plain = name[0] == 'p' ? name + 1 : name;
    if (plain[0] != 'n' || plain[1] != 'c' || plain[2] != 'c' || plain[3] != 'l') [[likely]]
        return as_it_is;
    const Hook* hook = hook_named(name);
    if (hook == nullptr || handle == RTLD_NEXT) return as_it_is;
    if (handle == RTLD_DEFAULT) return by_scope(*hook, name, caller);
    const void* at = Library(handle).symbol(name);
    if (at == nullptr) return as_it_is;  // the loader says it itself
    return is_ours(at) ? by_scope(*hook, name, caller) : by_handle(*hook, name, at, caller);
}

}  // namespace opus::shim
