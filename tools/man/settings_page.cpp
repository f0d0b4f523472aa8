// Prints opus(7): what Opus is, every OPUS_* variable and what is wanted of NCCL's, from the one list of each.
#include <cstdio>
#include <cstring>

namespace {

const char* kHead = R"(.TH OPUS 7 "" "Opus" "Opus"
.SH NAME
opus \- circuits for NCCL: optical circuit switches that look like a full network
.SH SYNOPSIS
.B opus-run \-\-
.I program
.SH DESCRIPTION
.BR opus-run (1)
preloads
.BR libopus_shim.so ,
which hooks the NCCL calls of a program, writes each launch into a ring shared with
.BR opus-manager (8)
of its node, and holds it until the optical circuits that it needs are up.
.BR opus-controller (8)
gathers the demand of all nodes, moves the circuits and grants.
Without a manager the shim is inert and silent.
.PP
The program computes the same numbers with and without it.
No launch is held longer than
.B OPUS_HOLD_MS
because something of Opus or of the fabric failed; a peer that is merely late is waited for as NCCL itself would.
Where it is unset it is 30 seconds, or what the slowest switch of the launch needs if that is longer: 8 dark times and
100 milliseconds.
.SH "GATES"
Launches are held by one of these
.RB ( OPUS_GATE ):
.TP
.B stream
A small kernel before NCCL's own waits on the GPU's timeline; the application's thread runs on. A closed gate holds its
hardware queue, so the gated streams of a process must not outnumber its queues (CUDA_DEVICE_MAX_CONNECTIONS, 8 by
default): with one queue, or with CUDA_LAUNCH_BLOCKING=1, a program may stop behind its own gate, and
.B auto
chooses host instead.
.TP
.B host
The calling thread waits before the real call. A program that posts receives long before their senders can send, from
the thread that must go on for the sender's sake, is stopped by it.
.TP
.B auto
stream where the driver and the process allow it, else host.
.TP
.B none
Records and asks, but holds nothing: bytes are lost in the dark and sent again. It shows what gates are for.
.PP
What is seen by itself:
.B auto
goes to the host with CUDA_LAUNCH_BLOCKING=1, with one queue, where the driver refuses the kernel, and for each stream beyond
the number of queues (OPUS_LOG=info says so). What is not: whether a program posts receives before their senders can send. There
a host gate stops it, as one queue stops forced stream gates;
.B opus-ctl why
names the launch that has not come. Such a program wants stream gates and CUDA_DEVICE_MAX_CONNECTIONS=32. One that neither gate
serves (more such streams than queues) needs the launches held in the transport (a
.I net
gate), which does not exist yet: run it with OPUS_MODE=observe.
.PP
A connection that NCCL makes at first use is made by the host, so that launch is held on the host behind every gate.
Captured CUDA graphs are gated under stream gates; under host gates their circuits stay until the graph is destroyed.
.SH ENVIRONMENT
)";

const char* kNccl = R"(.SH "WHAT NCCL IS TOLD"
Looked at when a rank attaches in enforce mode: the environment, the file NCCL_CONF_FILE or ~/.nccl.conf, and /etc/nccl.conf, as
NCCL itself looks. What does not fit is said in one line with its value and the remedy. What is refused makes no communicator
where OPUS_REQUIRE=enforce, and is else said like the others. So is ncclConfig_t.collnetEnable of a communicator.
.BR opus-run (1)
sets, in enforce mode, what nobody has set.
)";

const char* kTail = R"(.SH FILES
.TP
.I <runtime directory>/manager.sock
where ranks attach; a container needs only this socket
.TP
.I <runtime directory>/steering
which local port leads to which peer
.SH "SEE ALSO"
.BR opus-manager (8),
.BR opus-controller (8),
.BR opus-ctl (1),
.BR opus-run (1),
.BR opus-ocs-emu (1),
.BR opus-replay (1)
)";

void entry(const char* name, const char* type, const char* fallback, const char* who, const char* help) {
    std::printf(".TP\n.B %s\n%s.\nRead by: %s. Type: %s. ", name, help, who, type);
    if (std::strlen(fallback) > 0)
        std::printf("Default: %s.\n", fallback);
    else
        std::printf("No default.\n");
}

void nccl_entry(const char* name, const char* wanted, const char* otherwise, const char* run_sets, const char* why) {
    std::printf(".TP\n.B %s\nWanted: %s; %s.\n", name, wanted, why);
    if (std::strcmp(wanted, "any value") != 0) std::printf("Else: %s.\n", otherwise);
    if (run_sets[0] != '\0') std::printf("opus-run sets %s.\n", run_sets);
}

}  // namespace

int main() {
    std::fputs(kHead, stdout);
    // Defaults are written as literals of their type: a text is quoted in the list, a number is not.
    struct Default {
        static const char* text(const char* s, char*) { return s; }
        static const char* text(unsigned long v, char* buffer) {
            std::snprintf(buffer, 32, "%lu", v);
            return buffer;
        }
        static const char* text(int v, char* buffer) { return text(static_cast<unsigned long>(v), buffer); }
    };
    char buffer[32];
#define OPUS_SETTING(name, type, fallback, who, help) entry(#name, #type, Default::text(fallback, buffer), who, help);
#include "opus/settings.h"
    std::fputs(kNccl, stdout);
#define OPUS_NCCL_SETTING(variable, fits, wanted, otherwise, run_sets, why) \
    nccl_entry(#variable, wanted, #otherwise, run_sets, why);
#include "opus/nccl_settings.h"
    std::fputs(kTail, stdout);
    return 0;
}
