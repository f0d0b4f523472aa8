#include "model.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace opus::standin {

namespace {

constexpr std::size_t GiB = std::size_t{1} << 30;
constexpr std::int64_t kSmallKernel_ns = 3'000;  // one that is no product of matrices: little more than its launch

constexpr GpuModel kModels[] = {
    {"a100", 8, 0, 108, 80 * GiB, 312e12, 156e12, 2.039e12, 167'936, 40 << 20},
    {"h100", 9, 0, 132, 80 * GiB, 989e12, 494e12, 3.35e12, 233'472, 50 << 20},
    {"h200", 9, 0, 132, 141 * GiB, 989e12, 494e12, 4.8e12, 233'472, 50 << 20},
    {"b200", 10, 0, 148, 180 * GiB, 2250e12, 1100e12, 8e12, 233'472, 126 << 20},
};

struct Times {
    double scale = 0;
    struct Line {
        std::string part;
        std::int64_t ns;
    };
    std::vector<Line> lines;
};

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "opus stand-in: %s\n", why.c_str());
    _exit(2);
}

void read_times(const std::string& path, Times& times) {
    std::ifstream file(path);
    if (!file) refuse("STANDIN_TIME: cannot read " + path);
    std::string text;
    for (int number = 1; std::getline(file, text); ++number) {
        std::istringstream words(text.substr(0, text.find('#')));
        std::string part, more;
        if (!(words >> part)) continue;
        double us = 0;
        if (!(words >> us) || us < 0 || (words >> more))
            refuse(path + ":" + std::to_string(number) + ": not 'PART-OF-A-NAME MICROSECONDS'");
        times.lines.push_back({part, static_cast<std::int64_t>(us * 1e3)});
    }
}

const Times& times() {
    static const auto* all = [] {
        auto* made = new Times;
        if (const char* scale = std::getenv("STANDIN_TIME_SCALE")) made->scale = std::strtod(scale, nullptr);
        if (const char* path = std::getenv("STANDIN_TIME"); path && *path) read_times(path, *made);
        return made;
    }();
    return *all;
}

// What the file says of the name; -1: nothing.
std::int64_t said_ns(const char* name) {
    for (const Times::Line& line : times().lines)
        if (std::strstr(name, line.part.c_str())) return line.ns;
    return -1;
}

std::int64_t scaled(double ns) { return static_cast<std::int64_t>(ns * times().scale); }

}  // namespace

const GpuModel& gpu_model() {
    static const GpuModel* model = [] {
        const char* name = std::getenv("STANDIN_GPU_MODEL");
        if (!name || !*name) name = "h100";
        for (const GpuModel& m : kModels)
            if (std::strcmp(m.name, name) == 0) return &m;
        refuse(std::string("STANDIN_GPU_MODEL=") + name + ": one of a100, h100, h200, b200");
    }();
    return *model;
}

std::int64_t matmul_ns(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, int element_bytes) {
    if (times().scale <= 0) return 0;
    if (const std::int64_t said = said_ns("gemm"); said >= 0) return scaled(static_cast<double>(said));
    const GpuModel& gpu = gpu_model();
    const auto dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k),
               db = static_cast<double>(batch);
    const double arithmetic = 2 * dm * dn * dk * db / (element_bytes <= 2 ? gpu.flops_16bit : gpu.flops_32bit);
    const double bytes = (dm * dn + dm * dk + dn * dk) * db * element_bytes / gpu.bytes_a_second;
    return scaled(std::max(arithmetic, bytes) * 1e9 + kSmallKernel_ns);
}

std::int64_t kernel_ns(const char* name) {
    if (times().scale <= 0) return 0;
    const std::int64_t said = said_ns(name);
    return scaled(static_cast<double>(said >= 0 ? said : kSmallKernel_ns));
}

void say_refused(const char* call) {
    static std::mutex mutex;
    static auto* said = new std::set<std::string>;
    std::lock_guard lock(mutex);
    if (said->insert(call).second)
        std::fprintf(stderr, "opus stand-in (pid %d): %s is not emulated, and refused\n", static_cast<int>(::getpid()), call);
}

}  // namespace opus::standin
