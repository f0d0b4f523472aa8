#include <cstdlib>
#include <map>

#include "engine.h"
#include "queues.h"

namespace opus::standin {

namespace {

struct Block {
    std::size_t bytes;
    Memory kind;
    int device;
};

struct Memories {
    std::mutex mutex;
    std::map<std::uintptr_t, Block> blocks;
};

Memories& memories() {
    static auto* all = new Memories;
    return *all;
}

std::uintptr_t number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

void* allocate(std::size_t bytes, Memory kind) {
    void* pointer = nullptr;
    if (posix_memalign(&pointer, bytes >= 4096 ? 4096 : 256, bytes ? bytes : 1) != 0) return nullptr;
    std::lock_guard lock(memories().mutex);
    memories().blocks[number(pointer)] = {bytes, kind, current_device()};
    return pointer;
}

bool release(void* pointer) {
    int device = 0;
    {
        std::lock_guard lock(memories().mutex);
        const auto it = memories().blocks.find(number(pointer));
        if (it == memories().blocks.end() || it->second.kind == Memory::registered) return false;
        device = it->second.device;
        memories().blocks.erase(it);
    }
    sync_device(device);
    std::free(pointer);
    return true;
}

bool register_host(void* pointer, std::size_t bytes) {
    std::lock_guard lock(memories().mutex);
    return memories().blocks.try_emplace(number(pointer), Block{bytes, Memory::registered, current_device()}).second;
}

bool unregister_host(void* pointer) {
    std::lock_guard lock(memories().mutex);
    const auto it = memories().blocks.find(number(pointer));
    if (it == memories().blocks.end() || it->second.kind != Memory::registered) return false;
    memories().blocks.erase(it);
    return true;
}

Memory memory_of(const void* pointer, int* device, void** base, std::size_t* bytes) {
    std::lock_guard lock(memories().mutex);
    auto it = memories().blocks.upper_bound(number(pointer));
    if (it == memories().blocks.begin()) return Memory::unknown;
    --it;
    if (number(pointer) >= it->first + std::max<std::size_t>(it->second.bytes, 1)) return Memory::unknown;
    if (device) *device = it->second.device;
    if (base) *base = reinterpret_cast<void*>(it->first);
    if (bytes) *bytes = it->second.bytes;
    return it->second.kind;
}

}  // namespace opus::standin
