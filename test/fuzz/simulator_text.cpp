// SimAI's workloads and AICB's tables: any text is read or refused with words, and what is read makes no rank hang another.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/opus-sim/job_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace opus::job;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto read : {read_simai, read_aicb}) try {
            const JobFile job = read({"file", text}, {});
            std::vector<opus::replay::WorkloadError> errors;
            if (job.workload.world() <= 64) check_agreement(job.workload, errors);
            if (!errors.empty()) std::abort();
        } catch (const BadFile&) {}
    return 0;
}
