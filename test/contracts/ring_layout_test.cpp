// The launch ring is shared between builds that may differ: the shim in a container, the manager on the
// host. Its offsets are held here against a written-down table; to change one is to raise kVersionMajor.
#include <doctest/doctest.h>

#include <cstring>

#include "opus/attach.h"
#include "opus/data_plane.h"
#include "opus/launch_ring.h"
#include "opus/steering.h"

namespace opus {

struct Place {
    const char* what;
    std::size_t is;
    std::size_t must_be;
};

#define AT(type, member, offset) \
    Place { #type "." #member, offsetof(type, member), offset }

TEST_CASE("version 1 of the launch ring lies where it always lay") {
    using namespace ring;
    REQUIRE(kVersionMajor == 1);
    const Place places[] = {
        AT(SegmentHeader, magic, 0),
        AT(SegmentHeader, version, 8),
        AT(SegmentHeader, bytes, 12),
        AT(SegmentHeader, slots, 16),
        AT(SegmentHeader, rank_id, 20),
        AT(SegmentHeader, pid, 24),
        AT(SegmentHeader, hold_ms, 28),
        AT(SegmentHeader, pid_start, 32),
        AT(SegmentHeader, mode, 40),
        AT(SegmentHeader, policy, 44),
        AT(SegmentHeader, gpu, 48),
        AT(SegmentHeader, heartbeat, 64),
        AT(SegmentHeader, open, 72),
        AT(SegmentHeader, asleep, 76),
        AT(SegmentHeader, head, 128),
        AT(SegmentHeader, retired, 192),
        AT(SegmentHeader, reusable, 200),
        AT(SegmentHeader, recorded, 256),
        AT(SegmentHeader, gated, 264),
        AT(SegmentHeader, passed, 272),
        AT(SegmentHeader, lost, 280),
        AT(SegmentHeader, gave_up, 288),
        AT(SegmentHeader, dead_beat, 296),
        AT(SegmentHeader, job, 320),
        AT(CommEntry, id, 0),
        AT(CommEntry, parent, 16),
        AT(CommEntry, rank, 32),
        AT(CommEntry, size, 36),
        AT(CommEntry, device, 40),
        AT(CommEntry, family, 44),
        AT(CommEntry, generation, 48),
        AT(CommEntry, mode, 52),
        AT(CommEntry, state, 56),
        AT(CommEntry, creation, 60),
        AT(CommEntry, open, 64),
        AT(CommEntry, lost, 68),
        AT(CommEntry, pci, 72),
        AT(CommEntry, uuid, 80),
        AT(CommEntry, ways, 96),
        AT(CommEntry, also, 104),
        AT(CommEntry, verdict, 128),
        AT(CommEntry, freed, 132),
        AT(CommEntry, reason, 136),
        AT(CommEntry, reason_rank, 140),
        AT(CommEntry, known_as, 144),
        AT(LaunchRecord, commit, 0),
        AT(LaunchRecord, ticks, 8),
        AT(LaunchRecord, gate, 16),
        AT(LaunchRecord, op_count, 18),
        AT(LaunchRecord, flags, 20),
        AT(LaunchRecord, stream, 24),
        AT(LaunchRecord, op, 32),
        AT(OpEntry, kind, 0),
        AT(OpEntry, dtype, 1),
        AT(OpEntry, comm, 2),
        AT(OpEntry, peer, 4),
        AT(OpEntry, n, 8),
        AT(OpEntry, count, 16),
        AT(OpEntry, flags, 20),
        AT(OpEntry, bytes, 24),
        AT(GateWord, value, 0),
        AT(GateWord, waiter, 8),
        AT(GateWord, occupied, 12),
        AT(GateWord, skipped, 16),
        {"sizeof SegmentHeader", sizeof(SegmentHeader), 384},
        {"sizeof CommEntry", sizeof(CommEntry), 192},
        {"sizeof LaunchRecord", sizeof(LaunchRecord), 64},
        {"sizeof LaunchExtension", sizeof(LaunchExtension), 64},
        {"sizeof GateWord", sizeof(GateWord), 64},
        {"sizeof OpEntry", sizeof(OpEntry), 32},
        {"comms", Layout{4096}.comms_offset(), 4096},
        {"slots", Layout{4096}.slots_offset(), 53'248},
        {"ready", Layout{4096}.ready_offset(), 315'392},
        {"done", Layout{4096}.done_offset(), 577'536},
        {"go", Layout{4096}.go_offset(), 839'680},
        {"lit", Layout{4096}.lit_offset(), 1'101'824},
        {"bytes", Layout{4096}.bytes(), 1'118'208},
    };
    for (const Place& place : places) CHECK_MESSAGE(place.is == place.must_be, place.what);
}

TEST_CASE("a launch takes a slot for its first operation and one for each further two") {
    CHECK(ring::slots_for(1) == 1);
    CHECK(ring::slots_for(2) == 2);
    CHECK(ring::slots_for(3) == 2);
    CHECK(ring::slots_for(4) == 3);
}

TEST_CASE("no operation looks like a committed launch") {
    ring::OpEntry op{};
    op.kind = op.dtype = 0xff;
    op.comm = 0xffff;
    op.peer = 0x7fffffff;
    std::uint64_t first = 0;
    std::memcpy(&first, &op, sizeof first);
    CHECK((first & ~ring::kSeqMask) != ring::kCommitTag);
}

TEST_CASE("numbers that programs exchange stay what they are") {
    CHECK(static_cast<int>(OpKind::send) == 9);
    CHECK(static_cast<int>(OpKind::wait_signal) == kOpKinds - 1);
    CHECK(static_cast<int>(KeyKind::put) == kKeyKinds - 1);
    CHECK(static_cast<int>(Verdict::degraded) == kVerdicts - 1);
    CHECK(sizeof(attach::AttachRequest) == 88);
    CHECK(sizeof(data_plane::FrameHeader) == 32);
    CHECK(offsetof(steering::Entry, peer_port) == 16);
    CHECK(offsetof(steering::Table, port) == 64);
}

}  // namespace opus
