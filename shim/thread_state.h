// What a thread is in the middle of. The part that every hooked call looks at is 32 bytes of
// initial-exec TLS (a library opened late finds little of it); the rest is allocated at a thread's first
// group and returned when the thread ends.
#pragma once

#include <cstdint>

namespace opus::shim {

struct Communicator;
struct GroupBuffers;

struct ThreadWords {
    union {
        struct {
            std::uint32_t inside;  // in the real library on our behalf: NCCL calling itself is not seen again
            std::uint32_t depth;   // of ncclGroupStart
        };
        std::uint64_t anywhere = 0;  // both at once: 0 in a lone call
    };
    GroupBuffers* buffers = nullptr;
    Communicator* admitted = nullptr;  // from a handler's first step to its second
    std::uint32_t number = 0;          // the kernel's; 0: not asked yet
    std::uint32_t refusal = 0;         // ncclResult_t of the launch that was refused last
};
static_assert(sizeof(ThreadWords) == 32);

extern constinit thread_local ThreadWords thread_words __attribute__((tls_model("initial-exec")));

// Marks calls into the real library. Nests.
class Inside {
public:
    Inside() { ++thread_words.inside; }
    ~Inside() { --thread_words.inside; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
};

// This thread's buffers, made at first use; null when there is no memory (then its group passes).
GroupBuffers* group_buffers();

}  // namespace opus::shim
