#include <cstdio>
#include <fstream>
#include <iostream>

#include "tools/opus-sim/commands.h"

namespace opus::job {

int generate_command(const ModelOptions& options, const std::string& out) {
    const replay::Workload w = model_job(options);
    if (out.empty()) {
        write_workload(w, std::cout);
        return kExitOk;
    }
    std::ofstream file(out);
    write_workload(w, file);
    file.close();
    if (file) return kExitOk;
    std::fprintf(stderr, "opus-sim: %s cannot be written\n", out.c_str());
    return kExitUsage;
}

}  // namespace opus::job
