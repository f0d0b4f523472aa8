// Loads a controller, or the bare loop in its place, with many managers, and reads what it costs.
//
//   bench_controller_load --address tcp://127.0.0.1:7070 --managers 64 --group 8 --requests 40000
//                         --server-pid 1234 --core 1
//
// One request of each manager at a time. Prints JSON: throughput, and the CPU time of each of the server's
// threads over the timed part.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "ghost_managers.h"
#include "rank_player.h"

namespace {

using namespace opus;
using namespace opus::bench;

struct ThreadTime {
    std::string name;
    std::uint64_t run_ns = 0;
};

// Thread id -> name and time on a CPU so far.
std::map<int, ThreadTime> thread_times(int pid) {
    std::map<int, ThreadTime> times;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
        ThreadTime t;
        std::getline(std::ifstream(task.path() / "comm"), t.name);
        std::ifstream(task.path() / "schedstat") >> t.run_ns;
        times[std::stoi(task.path().filename())] = t;
    }
    return times;
}

struct Options {
    std::string address;
    std::uint32_t managers = 64, group = 8;
    std::uint64_t requests = 40'000;
    int pid = 0, core = -1;
};

int measure(const Options& o) {
    pin_to(o.core);
    GhostManagers ghosts(o.address, o.managers, o.group);
    ghosts.enroll();
    ghosts.drive(o.managers * 4);  // circuits are set, caches warm
    const auto before = thread_times(o.pid), own_before = thread_times(::getpid());
    const TimeNs took = ghosts.drive(o.requests);
    const auto after = thread_times(o.pid), own_after = thread_times(::getpid());
    const std::uint64_t requests = o.requests / o.managers * o.managers;
    nlohmann::json threads = nlohmann::json::array();
    double application = 0, process = 0, own = 0;
    for (const auto& [id, t] : after) {
        const auto was = before.find(id);
        const double us = double(t.run_ns - (was == before.end() ? 0 : was->second.run_ns)) / 1e3 / double(requests);
        process += us;
        if (t.name.rfind("ZMQ", 0) != 0) application += us;
        threads.push_back({{"name", t.name}, {"us_per_request", us}});
    }
    for (const auto& [id, t] : own_after) {
        const auto was = own_before.find(id);
        own += double(t.run_ns - (was == own_before.end() ? 0 : was->second.run_ns)) / 1e3 / double(requests);
    }
    const nlohmann::json result = {{"requests", requests},
                                   {"requests_per_s", double(requests) * 1e9 / double(took)},
                                   {"application_us", application},
                                   {"process_us", process},
                                   {"load_us", own},
                                   {"threads", threads}};
    std::puts(result.dump().c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app{"Loads a controller with many managers"};
    app.add_option("--address", o.address, "of the controller")->required();
    app.add_option("--managers", o.managers, "how many")->check(CLI::Range(1, 8192));
    app.add_option("--group", o.group, "managers of one communicator")->check(CLI::Range(1, 8192));
    app.add_option("--requests", o.requests, "in all")->check(CLI::Range(1, 10'000'000));
    app.add_option("--server-pid", o.pid, "whose CPU time is read")->required();
    app.add_option("--core", o.core, "core of this process");
    CLI11_PARSE(app, argc, argv);
    try {
        return measure(o);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_controller_load: %s\n", e.what());
        return 1;
    }
}
