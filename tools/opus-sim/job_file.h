// What is read from a job's files, whatever their format: the one workload that tools/sim plays, and the figures of the
// files as they are. Pure but for read_files.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::job {

// A file that cannot be read: which, where, what, and what to do about it. Ends the program; nothing is played by halves.
class BadFile : public std::runtime_error {
public:
    // `place`: "line 12", "byte 1034", "rank 3, node 17"; may be empty.
    BadFile(const std::string& file, const std::string& place, const std::string& text)
        : std::runtime_error(file + ": " + (place.empty() ? "" : place + ": ") + text) {}
};

struct ReadOptions {
    std::uint32_t gpus_per_node = 0;  // 0: as the file says, or as its groups suggest
    bool fill = false;                // ranks whose files are missing do what others do
    double tflops = 400;              // a GPU's, sustained; where a file has operations and no times
    double memory_gbytes = 3000;      // of a GPU, a second; likewise
};

// Of one kind of operation on groups of one size, over all ranks.
struct OperationFigure {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;  // as Step counts them
    double recorded_ms = 0;   // how long they lasted; 0 where the file does not say
};

struct Figures {
    std::uint32_t files = 0;
    std::uint32_t ranks = 0;                      // that the files hold
    std::uint32_t world = 0;                      // that the job has
    std::uint64_t entries = 0;                    // nodes, events, lines of what is read; summed over files
    std::map<std::string, std::uint32_t> groups;  // "16 of 8": how many groups of how many ranks
    std::map<std::pair<replay::StepKind, std::uint32_t>, OperationFigure> operations;  // by kind and size of the group
    double compute_ms = 0;                                                             // summed over ranks
    double span_ms = 0;  // of the rank that takes longest, from its first to its last; 0 where the file has no times
};

struct JobFile {
    std::string format;  // for people
    replay::Workload workload;
    Figures figures;
    std::vector<std::string> assumed;  // what the files do not say, a sentence each
    bool repeats = true;               // its one iteration may be played again and again
};

// A file's content, and what to call it in messages.
struct NamedText {
    std::string name;
    std::string_view text;
};

// Those that are named, and those that lie in the folders that are, but for names that begin with a dot; sorted.
std::vector<std::string> files_in(const std::vector<std::string>& paths);
// A small file that people write. Throws BadFile with `remedy` where it cannot be read, or is empty.
std::string whole_text(const std::string& path, const std::string& remedy);

// All files of one job. Folders stand for the files in them. Throws BadFile.
JobFile read_files(const std::vector<std::string>& paths, const ReadOptions& options);

// One format each; what calls them has recognised it. Throw BadFile.
JobFile read_aicb(const NamedText& file, const ReadOptions& options);
JobFile read_simai(const NamedText& file, const ReadOptions& options);
JobFile read_played(const NamedText& file);

// Counts what a workload does in one iteration, first-only steps too.
void count_workload(const replay::Workload& workload, Figures& figures);
// Nodes of GPUs for `world` ranks: as asked for, or the widest group of neighbours that all ranks have, or 8. Says what it assumes.
std::uint32_t choose_gpus_per_node(std::uint32_t world, const std::vector<std::vector<std::uint32_t>>& groups,
                                   const ReadOptions& options, std::vector<std::string>& assumed);

}  // namespace opus::job
