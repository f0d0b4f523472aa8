// Deliberate mistakes, one of which a test-only build makes: test/process shows that random programs notice them.
#pragma once

namespace opus::shim {

enum class Mutation {
    none,
    fast_path_unconnected,   // a call takes the fast path whether what it uses is connected or not
    connect_unasked,         // first uses have no connect key
    forget_empty_transfers,  // a transfer of zero bytes has no key
    let_replays_pass,        // what is captured into a graph has no gate
    forget_mesh_pairs,       // the pairs that an AlltoAll connects have no connect key
    end_groups_as_one,  // a captured group of several communicators waits for all before it, and what comes next for all of it
    forget_late_children,  // a child whose pointer is null when its creation returns is never known
};

#ifdef OPUS_SHIM_MUTATION
inline constexpr Mutation kMutation = Mutation::OPUS_SHIM_MUTATION;
#else
inline constexpr Mutation kMutation = Mutation::none;
#endif

}  // namespace opus::shim
