// The stream gate's kernels (docs/design.md section 5). One thread works; the rest of the warp leaves.
//
//   opus_gate(ready, go, value, heartbeat, open_segment, open_comm, hold_ns, gave_up)   dead_beat lies behind gave_up
//
// ready = value, then waits until  go's low 63 bits >= value  (with the top bit: trap), or the segment is
// open (1: leave, 2: trap), or the communicator is open, or the heartbeat has stood still for hold_ns, or
// is the one at which another gate gave up (then adds 1 to gave_up, and notes the heartbeat in dead_beat).
// The fence between ready and the first look is kLaunchFenced's (launch_ring.h): go may be there already, and be
// taken back meanwhile.
// opus_gate_replayed stands in a graph: ready is one more at each replay, and that is the value then.
// opus_replay_ended(ended) adds one behind the kernel.
// opus_gate_strict and opus_gate_replayed_strict are the same but trap then (OPUS_POLICY=abort). Waits by nanosleep, 32
// ns doubling to 1 us, so that a closed gate leaves the memory system to others. Text, so that the driver compiles it
// for whatever GPU there is (sm_70 on).
#pragma once

// clang-format off
#define OPUS_GATE_ENTRY(name, announce, at_end_of_hold)                                               \
    ".visible .entry " name                                                                  \
    "(.param .u64 ready, .param .u64 go, .param .u64 value, .param .u64 heartbeat,\n"        \
    " .param .u64 open_segment, .param .u64 open_comm, .param .u64 hold_ns, .param .u64 gave_up)\n" \
    "{\n"                                                                                    \
    "  .reg .pred %p;\n"                                                                     \
    "  .reg .b32 %open, %pause, %lane;\n"                                                    \
    "  .reg .b64 %ready, %go, %value, %beat_at, %segment, %comm, %hold, %gave_up;\n"         \
    "  .reg .b64 %word, %low, %beat, %last_beat, %now, %since;\n"                            \
    "  mov.u32 %lane, %tid.x;\n"                                                             \
    "  setp.ne.u32 %p, %lane, 0;\n"                                                          \
    "  @%p bra LEAVE;\n"                                                                     \
    "  ld.param.u64 %ready, [ready];\n"                                                      \
    "  ld.param.u64 %go, [go];\n"                                                            \
    "  ld.param.u64 %value, [value];\n"                                                      \
    "  ld.param.u64 %beat_at, [heartbeat];\n"                                                \
    "  ld.param.u64 %segment, [open_segment];\n"                                             \
    "  ld.param.u64 %comm, [open_comm];\n"                                                   \
    "  ld.param.u64 %hold, [hold_ns];\n"                                                     \
    "  ld.param.u64 %gave_up, [gave_up];\n"                                                  \
    announce                                                                                 \
    "  fence.sc.sys;\n"                                                                      \
    "  ld.relaxed.sys.u64 %last_beat, [%beat_at];\n"                                         \
    "  mov.u64 %since, %globaltimer;\n"                                                      \
    "  mov.u32 %pause, 32;\n"                                                                \
    "LOOK:\n"                                                                                \
    "  ld.acquire.sys.u64 %word, [%go];\n"                                                   \
    "  and.b64 %low, %word, 0x7fffffffffffffff;\n"                                           \
    "  setp.lt.u64 %p, %low, %value;\n"                                                      \
    "  @%p bra CLOSED;\n"                                                                    \
    "  setp.lt.s64 %p, %word, 0;\n"                                                          \
    "  @%p trap;\n"                                                                          \
    "  bra LEAVE;\n"                                                                         \
    "CLOSED:\n"                                                                              \
    "  ld.relaxed.sys.u32 %open, [%segment];\n"                                              \
    "  setp.eq.u32 %p, %open, 2;\n"                                                          \
    "  @%p trap;\n"                                                                          \
    "  setp.ne.u32 %p, %open, 0;\n"                                                          \
    "  @%p bra LEAVE;\n"                                                                     \
    "  ld.relaxed.sys.u32 %open, [%comm];\n"                                                 \
    "  setp.ne.u32 %p, %open, 0;\n"                                                          \
    "  @%p bra LEAVE;\n"                                                                     \
    "  mov.u64 %now, %globaltimer;\n"                                                        \
    "  ld.relaxed.sys.u64 %beat, [%beat_at];\n"                                              \
    "  ld.relaxed.sys.u64 %low, [%gave_up+8];\n"                                             \
    "  setp.eq.u64 %p, %beat, %low;\n"                                                       \
    "  @%p bra OVER;\n"                                                                      \
    "  setp.eq.u64 %p, %beat, %last_beat;\n"                                                 \
    "  @%p bra STILL;\n"                                                                     \
    "  mov.u64 %last_beat, %beat;\n"                                                         \
    "  mov.u64 %since, %now;\n"                                                              \
    "STILL:\n"                                                                               \
    "  sub.u64 %low, %now, %since;\n"                                                        \
    "  setp.ge.u64 %p, %low, %hold;\n"                                                       \
    "  @%p bra OVER;\n"                                                                      \
    "  nanosleep.u32 %pause;\n"                                                              \
    "  shl.b32 %pause, %pause, 1;\n"                                                         \
    "  min.u32 %pause, %pause, 1024;\n"                                                      \
    "  bra LOOK;\n"                                                                          \
    "OVER:\n"                                                                                \
    "  st.relaxed.sys.u64 [%gave_up+8], %beat;\n"                                            \
    "  red.relaxed.sys.global.add.u64 [%gave_up], 1;\n"                                      \
    at_end_of_hold                                                                           \
    "LEAVE:\n"                                                                               \
    "  ret;\n"                                                                               \
    "}\n"
#define OPUS_GATE_SAYS_VALUE "  st.release.sys.u64 [%ready], %value;\n"
#define OPUS_GATE_COUNTS                                       \
    "  atom.release.sys.global.add.u64 %value, [%ready], 1;\n" \
    "  add.u64 %value, %value, 1;\n"
#define OPUS_REPLAY_ENDED                            \
    ".visible .entry opus_replay_ended"              \
    "(.param .u64 ended)\n"                          \
    "{\n"                                            \
    "  .reg .pred %p;\n"                             \
    "  .reg .b32 %lane;\n"                           \
    "  .reg .b64 %ended;\n"                          \
    "  mov.u32 %lane, %tid.x;\n"                     \
    "  setp.ne.u32 %p, %lane, 0;\n"                  \
    "  @%p bra LEAVE;\n"                             \
    "  ld.param.u64 %ended, [ended];\n"              \
    "  red.release.sys.global.add.u64 [%ended], 1;\n" \
    "LEAVE:\n"                                       \
    "  ret;\n"                                       \
    "}\n"
// clang-format on

#define OPUS_GATE_PTX                                                           \
    ".version 6.3\n"                                                            \
    ".target sm_70\n"                                                           \
    ".address_size 64\n" OPUS_GATE_ENTRY("opus_gate", OPUS_GATE_SAYS_VALUE, "") \
        OPUS_GATE_ENTRY("opus_gate_strict", OPUS_GATE_SAYS_VALUE, "  trap;\n")  \
            OPUS_GATE_ENTRY("opus_gate_replayed", OPUS_GATE_COUNTS, "")         \
                OPUS_GATE_ENTRY("opus_gate_replayed_strict", OPUS_GATE_COUNTS, "  trap;\n") OPUS_REPLAY_ENDED
