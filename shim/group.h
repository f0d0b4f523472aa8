// Groups: calls between ncclGroupStart and the outermost ncclGroupEnd become one launch, or one for each
// set of communicators that share no stream with another (stream gate).
#pragma once

#include <nccl.h>

#include <cstdint>
#include <cstdlib>

#include "opus/launch_ring.h"
#include "shim/communicator.h"
#include "shim/launch.h"

namespace opus::shim {

// An array that grows by doubling and keeps its memory when cleared. Of plain values.
template <class T>
class Array {
public:
    bool add(const T& value) {
        if (size_ == room_ && !grow()) return false;
        at_[size_++] = value;
        return true;
    }
    // False where it would have to grow.
    bool add_at_once(const T& value) {
        if (size_ == room_) [[unlikely]]
            return false;
        at_[size_++] = value;
        return true;
    }
    T& operator[](std::uint32_t i) { return at_[i]; }
    const T& operator[](std::uint32_t i) const { return at_[i]; }
    std::uint32_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    void clear() { size_ = 0; }
    T* data() { return at_; }
    T* begin() { return at_; }
    T* end() { return at_ + size_; }

private:
    bool grow() {
        const std::uint32_t room = room_ == 0 ? 64 : room_ * 2;
        // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers too
        void* grown = realloc(static_cast<void*>(at_), room * sizeof(T));
        if (grown == nullptr) return false;
        at_ = static_cast<T*>(grown);
        room_ = room;
        return true;
    }
    T* at_;  // zero-filled by GroupBuffers::make
    std::uint32_t size_;
    std::uint32_t room_;
};

// Bytes of an ncclDataType_t; 0 for one that is newer than this table.
inline constexpr std::uint8_t kWidth[256] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
inline std::uint64_t width(ncclDataType_t type) { return kWidth[std::uint8_t(type)]; }

struct PendingOp {
    Communicator* comm;
    cudaStream_t stream;
    std::uint64_t bytes;
    std::uint32_t peer;  // a connection of each with each: MeshUse
    OpKind kind;         // none: a connection of each with each
    std::uint8_t dtype;
};

// One communicator's share of a group.
struct GroupPart {
    Communicator* comm;
    cudaStream_t launch_stream;  // NCCL's: the distinct stream that was added last
    std::uint32_t set;           // parts whose streams meet share one; root of a union-find
    std::uint32_t collective;    // its last collective's entry, or kNone
    bool recorded;
    bool lasts;  // its connections are of device communicators
};

struct GroupStream {
    std::uint32_t part;
    LaunchStream at;
};

// An operation of the group as the ring will hold it.
struct GroupEntry {
    ring::OpEntry op;
    std::uint32_t part;
};

// A launch of the group.
struct GroupLaunch {
    std::uint64_t seq;
    std::uint32_t set;   // root part; kNone: all parts
    std::uint32_t lead;  // part whose launch stream has the gate
};

// A thread's group, between its start and its end. Zero-filled memory is an empty one.
struct GroupBuffers {
    static GroupBuffers* make();
    void clear();

    Array<PendingOp> ops;
    Array<Creation> creations;
    Array<Communicator*> leaving;  // destroyed inside the group
    bool failed;                   // a call in it failed: NCCL will launch nothing
    std::uint64_t passed;          // the segment's counter when it began

    Array<GroupPart> parts;
    Array<GroupStream> streams;
    Array<LaunchStream> unheld_streams;  // of communicators that are not recorded, and reach others
    Array<GroupEntry> entries;
    Array<GroupEntry> pairs;  // that its collectives connect
    Array<GroupLaunch> launches;
    Array<ring::OpEntry> launch_ops;     // scratch: of one launch
    Array<Communicator*> lasting;        // scratch: those that make device communicators
    Array<LaunchStream> launch_streams;  // scratch: of one launch
    std::uint64_t connections;           // sequence of the launch of first uses, or kFull
    Communicator* refused;               // it was aborted while its verdict was waited for

    struct ContextEvent {
        CUcontext context;
        CUevent event;
    };
    Array<ContextEvent> events;
    GroupBuffers* next_spare;
};

// What `after` gets from now on waits for what `before` has. False: it does not.
bool order_streams(const LaunchStream& before, const LaunchStream& after);

// A call inside a group, after the real call took it.
void collect(Communicator& c, const PendingOp& op, ncclResult_t result);

}  // namespace opus::shim
