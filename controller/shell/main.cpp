// opus-controller: reads the fabric file, serves until SIGTERM or SIGINT. Exit code 0: told to end;
// 1: could not start; 2: wrong use.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "controller/fabric/fabric_file.h"
#include "controller/shell/daemon.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

struct Arguments {
    std::string fabric_path;
    std::string log = "warn";
    std::string provision = "on";
    std::string runs = "on";
    std::string guard = "on";
    int ready_fd = -1;
    DaemonOptions daemon;
};

void add_milliseconds(CLI::App& app, const char* flag, TimeNs& value_ns, const char* help) {
    app.add_option_function<double>(
           flag, [&value_ns](double ms) { value_ns = static_cast<TimeNs>(ms * 1e6); }, help)
        ->check(CLI::Range(0.0, 86'400'000.0))
        ->type_name("MS")
        ->group("Timing");
}

void define(CLI::App& app, Arguments& arguments) {
    CoreOptions& core = arguments.daemon.core;
    app.set_version_flag("--version", "opus-controller " OPUS_PROGRAM_VERSION);
    app.add_option("--fabric", arguments.fabric_path,
                   "fabric description (TOML); check it with: opus-ctl fabric check FILE")
        ->required()
        ->envname("OPUS_FABRIC")
        ->type_name("FILE");
    app.add_option("--bind", arguments.daemon.address,
                   "where managers and opus-ctl connect; port 0: the kernel picks one")
        ->capture_default_str()
        ->type_name("ADDRESS");
    app.add_option("--trace", arguments.daemon.trace_path,
                   "write a Perfetto/Chrome trace of ranks, circuits, switches and gangs")
        ->type_name("FILE");
    app.add_option("--record", arguments.daemon.record_path,
                   "write a recording of all jobs, as opus-ctl record does of what it is asked for")
        ->type_name("FILE");
    app.add_flag(
        "--observe", core.observe,
        "only look: no switch is connected to and nothing is held; jobs run with OPUS_MODE=observe are recorded "
        "as they are, on any network");
    app.add_option("--log", arguments.log, "least severe message shown: debug, info, warn or error")
        ->envname("OPUS_LOG")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
        ->capture_default_str();
    app.add_option("--ready-fd", arguments.ready_fd, "write the ready line to this descriptor as well, and close it")
        ->type_name("N");
    app.add_option("--io-threads", arguments.daemon.io_threads, "ZeroMQ threads")->check(CLI::Range(1, 16))->capture_default_str();
    core.first = false;
    app.add_flag("--first", core.first,
                 "no other controller has commanded these switches just now: believe their maps as soon as light has "
                 "settled, instead of waiting out the deadline of what it may have sent");
    app.add_option("--provision", arguments.provision,
                   "on: what a job does again and again is learned, and its circuits move ahead of demand, by a plan of that; off: only "
                   "for what is ready")
        ->check(CLI::IsMember({"on", "off"}))
        ->capture_default_str();
    app.add_option("--runs", arguments.runs,
                   "on: launches start without asking as far as the plan keeps their light, or where nobody else has wanted it for "
                   "long; off: each launch is asked for and granted")
        ->check(CLI::IsMember({"on", "off"}))
        ->capture_default_str();
    app.add_option("--guard", arguments.guard,
                   "on: a job that is slower provisioned than on demand goes on on demand (opus-ctl phases); "
                   "off: never, and from its first launch on (tests)")
        ->check(CLI::IsMember({"on", "off"}))
        ->capture_default_str();
    add_milliseconds(app, "--break-ms", core.t_break_ns,
                     "wait of a complete gang for a launch in flight that cannot finish, before it is suspended; 0: "
                     "twice the dark time, at least 20");
    add_milliseconds(app, "--register-timeout-ms", core.register_timeout_ns,
                     "once NCCL has made a communicator on one member, the others register within this time; who has not has "
                     "no shim, and the communicator passes (3000)");
    add_milliseconds(
        app, "--node-silence-ms", arguments.daemon.node_silence_ns,
        "a manager not heard of for so long has lost its session, and as long it waits for this controller (3000)");
    add_milliseconds(app, "--node-grace-ms", core.node_grace_ns,
                     "ports of a lost or never seen node stay busy so long; at least four times the silence (30000)");
    add_milliseconds(app, "--map-period-ms", core.map_period_ns,
                     "read the map of a switch at rest again so often, to see what other clients of it do; 0: never "
                     "(10000)");
    add_milliseconds(app, "--switch-timeout-ms", core.switch_timeout_ns,
                     "deadline of one change set; 0: 4 times the dark time and a second");
}

// A manager starts nothing under its runs from three quarters of the grace time after the controller's last frame on,
// and that frame may have been on its way for as long as a session may be silent.
void check_times(const DaemonOptions& options) {
    if (options.core.node_grace_ns >= 4 * options.node_silence_ns) return;
    const auto ms = [](TimeNs ns) { return std::to_string(ns / 1'000'000); };
    throw CLI::ValidationError(
        "opus-controller: --node-grace-ms " + ms(options.core.node_grace_ns),
        "less than four times --node-silence-ms " + ms(options.node_silence_ns) +
            ", so managers may still use their runs when their nodes are given up; give --node-grace-ms " +
            ms(4 * options.node_silence_ns) + " or more, or --node-silence-ms " + ms(options.core.node_grace_ns / 4) +
            " or less");
}

void set_up_log(const std::string& level) {
    spdlog::set_default_logger(spdlog::stderr_logger_st("opus-controller"));
    spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %n %l: %v");
    spdlog::set_level(spdlog::level::from_str(level));
}

Fabric load_fabric(const std::string& path) {
    auto load = fabric::read_fabric(path, switch_driver_names());
    for (const auto& warning : load.warnings)
        std::fprintf(stderr, "opus-controller: %s (warning)\n", fabric::error_line(path, warning).c_str());
    for (const auto& error : load.errors)
        std::fprintf(stderr, "opus-controller: %s\n", fabric::error_line(path, error).c_str());
    if (!load.fabric)
        throw std::runtime_error("the fabric file has " + std::to_string(load.errors.size()) +
                                 (load.errors.size() == 1 ? " mistake" : " mistakes"));
    return std::move(*load.fabric);
}

// Blocked before any thread is made, so that only the main loop sees them.
int stop_descriptor() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signal(SIGPIPE, SIG_IGN);
    const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) throw std::runtime_error("cannot make a signalfd");
    return fd;
}

void announce(const std::string& address, int ready_fd) {
    const std::string line = "opus-controller: ready controller=" + address + "\n";
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
    if (ready_fd < 0) return;
    [[maybe_unused]] const auto written = write(ready_fd, line.data(), line.size());
    close(ready_fd);
}

const Daemon* serving = nullptr;

void say_last_words(const char* what) {
    spdlog::critical("{}", what);
    for (const std::string& line : serving->what_it_knows()) spdlog::critical("{}", line);
}

int run(const Arguments& arguments) {
    const int stop_fd = stop_descriptor();
    Daemon daemon(load_fabric(arguments.fabric_path), arguments.daemon);
    serving = &daemon;
    last_words = say_last_words;
    announce(daemon.address(), arguments.ready_fd);
    daemon.run(stop_fd);
    last_words = nullptr;
    return 0;
}

}  // namespace
}  // namespace opus::controller

int main(int argc, char** argv) {
    opus::controller::Arguments arguments;
    CLI::App app("Moves the circuits of optical switches so that they serve every launch of every job.",
                 "opus-controller");
    opus::controller::define(app, arguments);
    try {
        app.parse(argc, argv);
        opus::controller::check_times(arguments.daemon);
    } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : 2; }
    try {
        opus::controller::set_up_log(arguments.log);
        arguments.daemon.core.provision = arguments.provision == "on";
        arguments.daemon.core.runs = arguments.runs == "on";
        arguments.daemon.core.guard = arguments.guard == "on";
        return opus::controller::run(arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "opus-controller: %s\n", error.what());
        return 1;
    }
}
