// Recordings of several nodes: any text is joined or refused with words, and what is joined makes no rank hang another.
// Files stand one behind the other, a line "--" between them.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tools/opus-sim/recordings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace opus::job;
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    std::vector<NamedText> files;
    for (std::size_t end = 0; end != rest.npos && files.size() < 4; rest.remove_prefix(end == rest.npos ? 0 : end + 4)) {
        end = rest.find("\n--\n");
        files.push_back({"file" + std::to_string(files.size()), rest.substr(0, end)});
    }
    for (const bool fill : {false, true}) try {
            ReadOptions options;
            options.fill = fill;
            const JobFile job = read_recorded(files, options);
            std::vector<opus::replay::WorkloadError> errors;
            if (job.workload.world() <= 64) check_agreement(job.workload, errors);
            if (!errors.empty()) std::abort();
        } catch (const BadFile&) {}
    return 0;
}
