// Buffers of the data plane: bytes are received into a block once and sent from it, without a copy in
// between; whoever still has bytes of it queued holds a reference. One thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace opus::emulator {

class BlockPool;

struct Block {
    BlockPool* pool;
    std::uint32_t references;
    std::size_t capacity;
    char* bytes() { return reinterpret_cast<char*>(this + 1); }
};

class BlockRef {
public:
    BlockRef() = default;
    explicit BlockRef(Block* block) : block_(block) {}  // takes over one reference
    BlockRef(const BlockRef& other) : block_(other.block_) {
        if (block_) ++block_->references;
    }
    BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
    BlockRef& operator=(BlockRef other) noexcept {
        std::swap(block_, other.block_);
        return *this;
    }
    ~BlockRef();
    explicit operator bool() const { return block_; }
    Block* operator->() const { return block_; }
    bool operator==(const BlockRef&) const = default;

private:
    Block* block_ = nullptr;
};

// Outlives its blocks.
class BlockPool {
public:
    static constexpr std::size_t kBytes = std::size_t{256} * 1024;

    ~BlockPool();
    BlockRef take(std::size_t at_least = kBytes);

private:
    friend class BlockRef;
    void give(Block* block);
    std::vector<Block*> free_;  // last in, first out: what is warm in the cache is used again
};

}  // namespace opus::emulator
