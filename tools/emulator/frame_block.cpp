#include "tools/emulator/frame_block.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace opus::emulator {

namespace {
constexpr std::size_t kMaxFree = 64;
}

BlockRef::~BlockRef() {
    if (block_ && --block_->references == 0) block_->pool->give(block_);
}

BlockPool::~BlockPool() {
    for (Block* block : free_) std::free(block);
}

BlockRef BlockPool::take(std::size_t at_least) {
    if (at_least <= kBytes && !free_.empty()) {
        Block* block = free_.back();
        free_.pop_back();
        block->references = 1;
        return BlockRef(block);
    }
    const std::size_t capacity = std::max(at_least, kBytes);
    auto* block = static_cast<Block*>(std::malloc(sizeof(Block) + capacity));
    if (!block) throw std::bad_alloc();
    *block = {this, 1, capacity};
    return BlockRef(block);
}

void BlockPool::give(Block* block) {
    if (block->capacity == kBytes && free_.size() < kMaxFree)
        free_.push_back(block);
    else
        std::free(block);
}

}  // namespace opus::emulator
