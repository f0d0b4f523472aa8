// A workload file: any text is read or refused with words; what is read can be written, and then says the same.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tools/replay/workload.h"

namespace {

using namespace opus::replay;

std::string written(const Workload& workload) {
    std::ostringstream out;
    write_workload(workload, out);
    return out.str();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
    std::vector<WorkloadError> errors;
    const Workload workload = read_workload(in, errors);
    if (!errors.empty()) return 0;
    for (const Role& role : workload.roles)
        if (unrolled(role.steps).size() > kMaxSteps) std::abort();
    const std::string text = written(workload);
    std::istringstream again(text);
    const Workload same = read_workload(again, errors);
    if (errors.empty() && written(same) == text) return 0;
    std::fprintf(stderr, "read again: %s\n%s", errors.empty() ? "another workload" : errors.front().text.c_str(),
                 text.c_str());
    std::abort();
}
