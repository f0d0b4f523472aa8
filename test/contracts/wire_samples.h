// One message of every kind with nothing left at its default, for tests of the codec.
#pragma once

#include <vector>

#include "opus/wire.h"

namespace opus::wire::samples {

inline LocalLaunch launch(std::uint64_t seq) { return {7, seq}; }
inline Key coll() { return {{0x1122334455667788, 0x99aabbccddeeff00}, KeyKind::coll, 0, 0, 300}; }
inline Key transfer() { return {{1, 2}, KeyKind::p2p, 5, 6, 70'000}; }
inline LaunchDemand demand() {
    return {launch(41), {{coll(), 1}, {transfer(), 4}}, OpKind::reduce_scatter,
            1ull << 33, 1'700'000'000'000'000'000,      {},
            true};
}
inline RankInfo rank_info() { return {7, 4242, 3, 30'000, Policy::abort, "llama3-8b", {}}; }
inline CommMember member() {
    return {{1, 2}, {3, 4}, 5, 16, 7, 3, Mode::observe, 9, {{coll(), 3}}, Verdict::passes, CreationState::returned,
            true, true, true, {7, 8}};
}
inline PortSteering lit() { return {1, 1, 3, 2, 1}; }
inline PortSteering dark() { return {1, 0, kNone, kNone, kNone}; }

inline std::vector<Message> all() {
    return {
        Hello{"n0", 0xfeedface12345678, 12, "0.1.0", "gpu07, pid 41, /run/opus", 5},
        Snapshot{{rank_info()},
                 {member()},
                 {{demand(), LaunchState::suspended, 17}},
                 {{17, {launch(1)}, {{coll(), 3}}, {}}},
                 {{{5, 6}, 8}}},
        Register{{rank_info(), rank_info()}, {member()}, {{{5, 6}, 8}}},
        Retire{{7, 8}, {{{1, 2}, 7}}, {{{3, 4}, 8}}, {{{5, 6}, 8}}},
        Demand{{demand(), demand()}},
        Done{{{launch(41), 10, 20, 30, true}},
             {{demand(), {launch(41), 1, 2, 3, false}}},
             {17, 18},
             {{{launch(42), 1, 0, 3, true}, {1, 2}, OpKind::send, 77}}},
        Returned{5, {launch(1)}, {launch(2)}, {{transfer(), 2}}, {demand()}},
        Expired{{launch(1), launch(2)}},
        Heartbeat{-5,
                  {},
                  {},
                  {{4711, "python3", "/usr/lib/libnccl.so.2.27.7", true}}},
        Welcome{9, 10, 2, {{0, 2, "0000:17:00.0", "r0", "GPU-1"}, {1, 2, "", "r1", ""}}, {}, {}, 30'000, 2'500, {}, {}},
        Refused{9, "node n9 is not in the fabric file", 3'000},
        Verdicts{{{{1, 2}, Verdict::degraded, {}, Reason::died, 3, "rank 3 ended"},
                  {{1, 3}, Verdict::enforced, {{0, 1, true, 0}, {2, 3}}, Reason::none, kNone, "", {9, 10}}}},
        Grant{18, {launch(41)}, {{coll(), 2}}, {lit(), dark()}},
        Revoke{6, {lit()}, {17}},
        Pass{{launch(4)}, Policy::abort, "needs 3 neighbours, 2 ports"},
        Suspended{{launch(5)}, true},
        Waiting{{{launch(6), "port n0.g1.p0 is busy"}}},
        Resync{"frame 5 after frame 3"},
        CtlRequest{3, "connect", R"({"a":"n0.g0.p0","b":"n1.g0.p0"})"},
        CtlReply{3, true, true, "{\"circuits\":\n[]}"},
    };
}

}  // namespace opus::wire::samples
