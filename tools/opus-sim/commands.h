// What the program does: a function a command; exit codes as main.cpp says.
#pragma once

#include <string>
#include <vector>

#include "tools/opus-sim/model_job.h"
#include "tools/opus-sim/run_job.h"

namespace CLI {
class App;
}

namespace opus::job {

inline constexpr int kExitOk = 0, kExitJob = 1, kExitUsage = 2;

int read_command(const std::vector<std::string>& paths, const ReadOptions& options, bool json);
struct ShowOptions {
    bool json = false;
    double accept = 0.05;  // of an iteration, that photonic rails may cost
    std::string trace;     // file; empty: none
    std::string log;       // of run; likewise
    std::string generation = "h200", prices;  // as of `cost`
};
int run_command(const std::vector<std::string>& paths, const ReadOptions& read, const RunOptions& options,
                const ShowOptions& show);
int report_command(const std::vector<std::string>& paths, const ReadOptions& read, const RunOptions& options,
                   const ShowOptions& show, const std::string& out);
void print_answers(const Run& run, const RunOptions& options, double accept);
// Into `show.trace`, if it names a file, at the dark time that is looked at closely. Throws std::invalid_argument.
void trace_run(const JobFile& job, const Run& run, const RunOptions& options, const ShowOptions& show);
// What came to a halt, a sentence each.
std::vector<std::string> halts_of(const JobFile& job, const Run& run);
// Says it on stderr; the exit code.
int halted(const JobFile& job, const Run& run);
int generate_command(const ModelOptions& options, const std::string& out);

// The arguments of these commands, which `sweep` takes from its file.
void read_arguments(CLI::App& app, std::vector<std::string>& paths, ReadOptions& options);
void run_arguments(CLI::App& app, RunOptions& options);
void show_arguments(CLI::App& app, ShowOptions& options);

}  // namespace opus::job
