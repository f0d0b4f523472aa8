// How long this thread has waited for a core, by the kernel's own count.
#pragma once

#include "manager/shell/descriptor.h"
#include "opus/types.h"

namespace opus::manager {

class CoreWaits {
public:
    struct Sample {
        TimeNs cpu = 0;     // used, up to when it was last given a core: says nothing of a single look
        TimeNs waited = 0;  // for a core, while ready to run
    };

    CoreWaits();  // of the thread that makes it

    // Since the last call. Nothing where the kernel does not count (no CONFIG_SCHED_INFO). One system call.
    Sample sample();

private:
    bool read(Sample& total) const;

    Descriptor file_;
    Sample last_;
};

}  // namespace opus::manager
