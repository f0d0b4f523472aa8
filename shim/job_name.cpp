#include "shim/job_name.h"

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace opus::shim {

namespace {

// PMIX_NAMESPACE is Open MPI's from 2 on; PMI_JOBID is Cray's and PMI-2's, I_MPI_HYDRA_UUID Intel MPI's. MPICH's own
// Hydra tells its ranks nothing of the kind, and makes each the leader of a session.
constexpr const char* kJobs[] = {"SLURM_JOB_ID",        "PBS_JOBID",      "LSB_JOBID", "FLUX_JOB_ID",
                                 "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID", "I_MPI_HYDRA_UUID"};

const char* given(const char* variable) {
    const char* value = getenv(variable);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

struct HostName {
    char text[48] = "";
    HostName() {
        if (gethostname(text, sizeof text - 1) != 0) text[0] = '\0';
    }
};

// torchrun's own choice for a job of one node is the same address and port on every node.
void name_meeting_place(const char* host, const char* port, char* name, std::size_t size) {
    const bool loopback = strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
    snprintf(name, size, "%s:%s", loopback ? HostName().text : host, port);
}

}  // namespace

void job_name(const Settings& settings, const CommId& meeting, char* name, std::size_t size) {
    const char* found = settings.OPUS_JOB[0] != '\0' ? settings.OPUS_JOB : nullptr;
    for (const char* variable : kJobs) {
        if (found != nullptr) break;
        found = given(variable);
        if (found != nullptr && strcmp(found, "none") == 0) found = nullptr;  // torchrun's word for no id
    }
    const char *host = given("MASTER_ADDR"), *port = given("MASTER_PORT");
    if (found != nullptr)
        snprintf(name, size, "%s", found);
    else if (host != nullptr && port != nullptr)
        name_meeting_place(host, port, name, size);
    else if (meeting != CommId{})
        snprintf(name, size, "nccl-%016llx", static_cast<unsigned long long>(meeting.hi));
    else
        snprintf(name, size, "%s:%d", HostName().text, int(getpid()));  // two nodes may have one pid
}

}  // namespace opus::shim
