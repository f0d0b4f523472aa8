#include "shim/job_name.h"

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace opus::shim {

namespace {

// PMIX_NAMESPACE is Open MPI's from 2 on; PMI_JOBID is Cray's and PMI-2's, I_MPI_HYDRA_UUID Intel MPI's. MPICH's own
// Hydra tells its ranks nothing of the kind.
constexpr const char* kJobs[] = {"SLURM_JOB_ID",        "PBS_JOBID",      "LSB_JOBID", "FLUX_JOB_ID",
                                 "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID", "I_MPI_HYDRA_UUID"};

const char* given(const char* variable) {
    const char* value = getenv(variable);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

}  // namespace

void job_name(const Settings& settings, char* name, std::size_t size) {
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
        snprintf(name, size, "%s:%s", host, port);
    else
        snprintf(name, size, "%d", int(getsid(0)));
}

}  // namespace opus::shim
