#include "shim/identity.h"

#include <cstdlib>
#include <cstring>

namespace opus::shim {

namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    return h ^ (h >> 31);
}

// Two lanes of 64 bits. Words are taken in the machine's byte order: all members of a communicator run
// on machines of one byte order, as NCCL itself asks for.
class Hash {
public:
    explicit Hash(Origin origin) { add(std::uint64_t(origin)); }
    void add(std::uint64_t v) {
        hi_ = mix(hi_, v);
        lo_ = mix(lo_, ~v);
    }
    void add(const CommId& id) {
        add(id.hi);
        add(id.lo);
    }
    CommId value() const {
        CommId id{hi_, lo_};
        if (id == CommId{}) id.lo = 1;  // zero says "none"
        return id;
    }

private:
    std::uint64_t hi_ = 0x6f70757300000001ull;
    std::uint64_t lo_ = 0x6f70757300000002ull;
};

// Adds values[0..count) in ascending order, each once; needs no memory and leaves the caller's array alone.
void add_sorted(const int* values, std::size_t count, Hash& hash) {
    // Each turn finds the next larger value. Lists of excluded ranks are short.
    bool any = false;
    int last = 0;
    for (std::size_t added = 0; added < count;) {
        bool found = false;
        int next = 0;
        std::size_t equal = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (any && values[i] <= last) continue;
            if (!found || values[i] < next) {
                found = true;
                next = values[i];
                equal = 1;
            } else if (values[i] == next) {
                ++equal;
            }
        }
        if (!found) break;
        hash.add(std::uint64_t(std::uint32_t(next)));
        any = true;
        last = next;
        added += equal;
    }
}

}  // namespace

CommId hash_bytes(Origin origin, const void* bytes, std::size_t size) {
    Hash hash(origin);
    const auto* at = static_cast<const unsigned char*>(bytes);
    for (std::size_t done = 0; done < size; done += 8) {
        std::uint64_t word = 0;
        memcpy(&word, at + done, size - done < 8 ? size - done : 8);
        hash.add(word);
    }
    hash.add(size);
    return hash.value();
}

CommId id_of_unique(const void* unique_id, std::size_t size, std::uint64_t occurrence) {
    Hash hash(Origin::unique_id);
    hash.add(hash_bytes(Origin::unique_id, unique_id, size));
    hash.add(occurrence);
    return hash.value();
}

CommId id_of_split(const CommId& parent, std::uint64_t nth, int color) {
    Hash hash(Origin::split);
    hash.add(parent);
    hash.add(nth);
    hash.add(std::uint64_t(std::uint32_t(color)));
    return hash.value();
}

CommId id_of_shrink(const CommId& parent, const int* excluded, std::size_t count, std::uint64_t occurrence) {
    Hash hash(Origin::shrink);
    hash.add(parent);
    add_sorted(excluded, count, hash);
    hash.add(occurrence);
    return hash.value();
}

CommId id_of_grow(const CommId& parent, std::uint64_t nth) {
    Hash hash(Origin::grow);
    hash.add(parent);
    hash.add(nth);
    return hash.value();
}

CommId id_of_growing(const void* unique_id, std::size_t size) { return hash_bytes(Origin::growing, unique_id, size); }

std::uint64_t Occurrences::next(const CommId& what) {
    for (std::size_t i = 0; i < size_; ++i)
        if (entries_[i].what == what) return entries_[i].seen++;
    if (size_ == room_) {
        const std::size_t room = room_ == 0 ? 64 : room_ * 2;
        void* grown = realloc(entries_, room * sizeof(Entry));
        if (grown == nullptr) return 0;
        entries_ = static_cast<Entry*>(grown);
        room_ = room;
    }
    entries_[size_++] = {what, 1};
    return 0;
}

}  // namespace opus::shim
