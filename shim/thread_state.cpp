#include "shim/thread_state.h"

#include "shim/group.h"
#include "shim/lock.h"

extern "C" {
// Since glibc 2.18: what C++ itself uses for thread_local destructors.
int __cxa_thread_atexit_impl(void (*end)(void*), void* object, void* library);
extern void* __dso_handle;
}

namespace opus::shim {

constinit thread_local ThreadWords thread_words __attribute__((tls_model("initial-exec")));

namespace {

// Buffers of threads that ended, for the next.
Lock spare_lock;
GroupBuffers* spare = nullptr;

void give_back(void* object) {
    auto* buffers = static_cast<GroupBuffers*>(object);
    thread_words.buffers = nullptr;
    buffers->clear();
    const LockGuard guard(spare_lock);
    buffers->next_spare = spare;
    spare = buffers;
}

GroupBuffers* take_spare() {
    const LockGuard guard(spare_lock);
    GroupBuffers* taken = spare;
    if (taken != nullptr) spare = taken->next_spare;
    return taken;
}

}  // namespace

GroupBuffers* group_buffers() {
    if (thread_words.buffers != nullptr) return thread_words.buffers;
    GroupBuffers* buffers = take_spare();
    if (buffers == nullptr) buffers = GroupBuffers::make();
    if (buffers == nullptr) return nullptr;
    thread_words.buffers = buffers;
    __cxa_thread_atexit_impl(&give_back, buffers, &__dso_handle);
    return buffers;
}

}  // namespace opus::shim
