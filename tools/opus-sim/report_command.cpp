#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tools/opus-sim/commands.h"
#include "tools/opus-sim/json_out.h"
#include "tools/opus-sim/page.h"
#include "tools/opus-sim/trace_out.h"

namespace opus::job {

void trace_run(const JobFile& job, const Run& run, const RunOptions& options, const ShowOptions& show) {
    if (show.trace.empty()) return;
    const Conclusion conclusion = conclusion_of(run, options, show.accept);
    std::ofstream file(show.trace, std::ios::binary | std::ios::trunc);
    if (file && conclusion.point != nullptr) write_run_trace(job, options, conclusion.point->dark_ms, file);
    file.close();
    if (!file)
        throw std::invalid_argument(show.trace + ": cannot be written (" + std::strerror(errno) +
                                    "): say another --trace");
}

int report_command(const std::vector<std::string>& paths, const ReadOptions& read, const RunOptions& asked,
                   const ShowOptions& show, const std::string& out) {
    const cost::Inputs priced = priced_inputs(show.generation, show.prices);
    const JobFile job = read_files(paths, read);
    RunOptions options = asked;
    options.answers = true;
    if (options.technologies) options.dark_ms = with_technologies(options.dark_ms);
    const Run run = run_job(job, options);
    if (!run.electrical.ended) return halted(job, run);
    std::ofstream file(out, std::ios::binary | std::ios::trunc);
    file << report_page(job, run, options, show.accept, priced);
    file.close();
    if (!file)
        throw std::invalid_argument(out + ": cannot be written (" + std::strerror(errno) + "): say another --out");
    trace_run(job, run, options, show);
    if (show.json) {
        print_for_programs(run_json(job, run, options, show.accept, priced));
    } else {
        std::printf("%s\n%s\n", conclusion_of(run, options, show.accept).sentence.c_str(), out.c_str());
    }
    return halted(job, run);
}

}  // namespace opus::job
