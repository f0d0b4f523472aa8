// A sweep: one job, or several, played with each combination of options (docs/opus-sim.md, "Sweeps"). A file of TOML
// names them; its points are the product of its lists.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/opus-sim/job_file.h"

namespace opus::job {

// One value of an option: its words on a command line. True and false are those of a flag.
struct SweepValue {
    std::vector<std::string> words;
    bool flag = false;
    std::string text() const;  // joined by commas
    nlohmann::json json() const;
};

struct SweepKey {
    std::string table, key;  // "job" or "run"; the option without its dashes
    std::string line;        // "line 7"
    std::vector<SweepValue> values;
    bool list = false;  // each of them; else the only one
};

struct SweepFile {
    std::string path;
    std::vector<SweepKey> keys;  // as the file has them
};

// Throws BadFile: line, value, what to do. Of options only their names and values' types are known here.
SweepFile read_sweep(const NamedText& file);

struct SweepPoint {
    std::string name;                                          // of its file, too; no other point of the sweep has it
    std::vector<std::pair<std::string, SweepValue>> varied;    // column of the table, value
    std::vector<std::pair<std::string, SweepValue>> job, run;  // option, value; with those that all points share
};

// In the order of the lists, the last one fastest. Throws BadFile where there are too many.
std::vector<SweepPoint> points_of(const SweepFile& sweep);

}  // namespace opus::job
