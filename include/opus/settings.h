// Every OPUS_* variable, once: OPUS_SETTING(name, type, default, who, help). Included again wherever a
// list of them is needed (parser, --help, man page), with OPUS_SETTING defined; it undefines it.
// Types: text, number (unsigned), choice(a|b|c written in the help). `who`: shim, manager, ...
//
// Deliberately without an include guard.
#ifndef OPUS_SETTING
#error "define OPUS_SETTING(name, type, default, who, help) before including opus/settings.h"
#endif

OPUS_SETTING(
    OPUS_MODE, text, "enforce", "shim",
    "off: hooks only forward. observe: record, hold nothing. enforce: hold each launch until its circuits are up")
OPUS_SETTING(OPUS_GATE, text, "auto", "shim",
             "where launches are held: auto, host, stream, or none (asks but holds nothing; for tests)")
OPUS_SETTING(OPUS_SOCKET, text, "", "shim",
             "the manager's Unix socket; empty: $OPUS_RUNTIME_DIR/manager.sock, else "
             "$XDG_RUNTIME_DIR/opus/manager.sock, else /run/opus/manager.sock")
OPUS_SETTING(OPUS_RUNTIME_DIR, text, "", "shim manager",
             "directory of segments, socket and steering table; empty: $XDG_RUNTIME_DIR/opus, else /run/opus")
OPUS_SETTING(OPUS_HOLD_MS, number, 30000, "shim",
             "longest time a launch is held because something of Opus or the fabric failed, milliseconds; never counts "
             "a late peer. Unset, it is longer where a slow switch needs more: 8 dark times and 100 ms")
OPUS_SETTING(OPUS_POLICY, text, "proceed", "shim",
             "when the hold time is over, or circuits are impossible: proceed without them, or abort with an error")
OPUS_SETTING(OPUS_REQUIRE, text, "0", "shim",
             "0: be silent and inert when no manager answers. 1: say so in one line. enforce: also fail the creation of a "
             "communicator whose launches would not be held for circuits, with the reason; members on one node need none")
OPUS_SETTING(
    OPUS_JOB, text, "", "shim",
    "name of the job, alike in all its ranks; empty: from its launcher (Slurm, PBS, LSF, Flux, torchrun, Open MPI, "
    "MASTER_ADDR), else that of the ranks that it meets in its first communicator")
OPUS_SETTING(OPUS_GPU, text, "", "shim",
             "local GPU index of this rank on its node, whatever the driver says; empty: by its PCI address and UUID, "
             "docs/fabric.md")
OPUS_SETTING(OPUS_RING_SLOTS, number, 4096, "shim", "slots of the launch ring, a power of two")
OPUS_SETTING(OPUS_RING_WAIT_MS, number, 100, "shim",
             "longest wait for a slot of a full ring before the launch passes unrecorded, milliseconds; once while no "
             "manager gives a sign of life, never in observe mode")
OPUS_SETTING(OPUS_SPIN_US, number, 20, "shim", "host gate: time to spin before sleeping, microseconds")
OPUS_SETTING(OPUS_NCCL_LIBRARY, text, "", "shim", "the real NCCL; empty: the libnccl.so.2 that the process has loaded")
OPUS_SETTING(OPUS_ROADS, text, "", "shim",
             "a file to which each process adds how it reached NCCL; opus-run makes, reads and removes one")
OPUS_SETTING(OPUS_LOG, text, "warn", "shim manager controller", "least severe message shown: debug, info, warn or error")
OPUS_SETTING(OPUS_CONTROLLER, text, "tcp://127.0.0.1:7070", "manager ctl", "address of the controller")
OPUS_SETTING(OPUS_NODE, text, "", "manager", "this node's name in the fabric file; empty: the host name")
OPUS_SETTING(OPUS_FABRIC, text, "", "controller ctl", "the fabric description file")

#undef OPUS_SETTING
