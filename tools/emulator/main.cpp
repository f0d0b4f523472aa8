// opus-ocs-emu: one optical circuit switch, as its SCPI sessions and the light through it show it.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "drivers/scpi_text.h"
#include "opus/opus.h"
#include "opus/technology.h"
#include "tools/emulator/data_plane.h"
#include "tools/emulator/scpi_server.h"

namespace opus::emulator {
namespace {

struct Flags {
    std::string size, scpi = "127.0.0.1:5025", data = "127.0.0.1:0", technology = "piezo", conflict = "preempt",
                      boot = "automatic";
    std::string stats, loss_log;
    double dark_ms = -1, port_gbps = 0;
    bool always_lit = false, no_power_monitor = false;
    std::vector<std::string> faults;
};

// Size and dark time from the flags; throws with a text for people.
OpticalPlaneOptions optical_plane_options(const Flags& flags) {
    OpticalPlaneOptions out;
    const auto cross = flags.size.find('x');
    const auto ingress = drivers::scpi::parse_number(flags.size.substr(0, cross));
    const auto egress = cross == std::string::npos ? std::optional<std::uint32_t>{0}
                                                   : drivers::scpi::parse_number(flags.size.substr(cross + 1));
    constexpr std::uint32_t kMaxPorts = 4096;
    if (!ingress || !egress || *ingress == 0 || *ingress > kMaxPorts || *egress > kMaxPorts ||
        (cross != std::string::npos && *egress == 0))
        throw std::runtime_error(
            "--size '" + flags.size +
            "': give 32 (any port to any other) or 16x16 (ingress x egress), at most 4096 ports a side");
    if (*ingress + *egress < 2)
        throw std::runtime_error("--size '" + flags.size + "': a switch has at least two ports");
    out.ingress = *ingress;
    out.egress = *egress;
    if (flags.dark_ms >= 0) {
        out.dark_ns = std::llround(flags.dark_ms * 1e6);
    } else if (const Technology* t = find_technology(flags.technology)) {
        out.dark_ns = t->dark_ns;
    } else {
        std::string names;
        for (const Technology& known : kTechnologies) names += (names.empty() ? "" : ", ") + std::string(known.name);
        throw std::runtime_error("--technology '" + flags.technology + "' is not known; one of " + names +
                                 ", or give --dark-ms");
    }
    out.conflict = flags.conflict == "refuse" ? Conflict::refuse : Conflict::preempt;
    return out;
}

InstrumentOptions instrument_options(const Flags& flags) {
    InstrumentOptions out;
    out.model = "OCS-EMU-" + flags.size + (flags.size.find('x') == std::string::npos ? "CC" : "");
    out.power_monitor = !flags.no_power_monitor;
    out.boot = flags.boot == "dark"      ? BootMode::dark
               : flags.boot == "restore" ? BootMode::restore
                                         : BootMode::automatic;
    return out;
}

// Ends the loop at SIGTERM and SIGINT.
class Signals : public Watcher {
public:
    explicit Signals(Loop& loop) : loop_(loop) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigprocmask(SIG_BLOCK, &set, nullptr);
        fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
        loop_.add(fd_, EPOLLIN, this);
    }
    ~Signals() override { close(fd_); }
    void ready(std::uint32_t) override { loop_.stop(); }

private:
    Loop& loop_;
    int fd_ = -1;
};

void write_stats(const std::string& file, const Counters& c, const OpticalPlane& optical_plane) {
    const nlohmann::ordered_json json = {
        {"delivered_frames", c.delivered_frames},
        {"delivered_bytes", c.delivered_bytes},
        {"lost_frames", c.lost_frames},
        {"lost_bytes", c.lost_bytes},
        {"misdelivered_frames", c.misdelivered_frames},
        {"misdelivered_bytes", c.misdelivered_bytes},
        {"reconfigurations", optical_plane.reconfigurations()},
        {"dark_ns", optical_plane.options().dark_ns},
    };
    std::ofstream out(file);
    out << json.dump(2) << '\n';
    if (!out.flush()) throw std::runtime_error("cannot write the statistics to " + file);
}

void serve(const Flags& flags) {
    prctl(PR_SET_TIMERSLACK, 1000);  // ns; the default may be late by 50 us
    OpticalPlane optical_plane(optical_plane_options(flags));
    Counters counters;
    Instrument instrument(optical_plane, counters, instrument_options(flags));
    for (const std::string& fault : flags.faults) {
        std::string command = ":emulator:fault:";
        command += fault;
        const std::string text = instrument.run(command, monotonic_ns());
        if (!text.empty()) throw std::runtime_error(std::string("--fault '").append(fault).append("': ").append(text));
    }
    Loop loop;
    Signals signals(loop);
    ScpiServer scpi(loop, instrument, flags.scpi);
    DataPlane data(loop, optical_plane, counters, {flags.always_lit, flags.port_gbps, flags.loss_log}, flags.data);
    std::printf("opus-ocs-emu: ready scpi=%s data=%s\n", scpi.address().c_str(), data.address().c_str());
    std::fflush(stdout);
    loop.run();
    if (!flags.stats.empty()) write_stats(flags.stats, counters, optical_plane);
}

int run(int argc, char** argv) {
    Flags flags;
    CLI::App app(
        "Emulates one optical circuit switch: its SCPI interface, and the light that carries (or loses) bytes.",
        "opus-ocs-emu");
    app.set_version_flag("--version", "opus-ocs-emu " + std::to_string(OPUS_VERSION_MAJOR) + "." +
                                          std::to_string(OPUS_VERSION_MINOR) + "." + std::to_string(OPUS_VERSION_PATCH));
    app.add_option("--size", flags.size, "32: any port to any other; 16x16: ingress 1..16 to egress 17..32")
        ->required()
        ->type_name("N|NxM");
    app.add_option("--scpi", flags.scpi, "where SCPI sessions are served; port 0: the kernel picks")
        ->type_name("HOST:PORT")
        ->capture_default_str();
    app.add_option("--data", flags.data, "where NIC ports attach; port 0: the kernel picks")->type_name("HOST:PORT")->capture_default_str();
    app.add_option("--technology", flags.technology, "gives the dark time")->type_name("NAME")->capture_default_str();
    app.add_option("--dark-ms", flags.dark_ms, "time from a command to light, milliseconds; overrides --technology")
        ->type_name("MS")
        ->check(CLI::Range(0.0, 1e7));
    app.add_flag("--always-lit", flags.always_lit, "every port reaches every other, as in an electrical network");
    app.add_option("--port-gbps", flags.port_gbps, "rate of each port, each way; 0: unlimited")
        ->type_name("GBPS")
        ->check(CLI::Range(0.0, 1e5));
    app.add_option("--conflict", flags.conflict, "a connect onto a busy port: preempt or refuse")
        ->check(CLI::IsMember({"preempt", "refuse"}))
        ->capture_default_str();
    app.add_option("--boot", flags.boot, "circuits after a reboot: dark, restore (made again) or automatic (untouched)")
        ->check(CLI::IsMember({"dark", "restore", "automatic"}))
        ->capture_default_str();
    app.add_flag("--no-power-monitor", flags.no_power_monitor, "the switch has no power monitor");
    app.add_option("--fault", flags.faults,
                   "a fault from the start, as after :emulator:fault: (\"slow 50\", \"stuck (@3,4)\"); repeatable")
        ->type_name("FAULT")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_option("--stats", flags.stats, "file for the counters as JSON, written at the end")->type_name("FILE");
    app.add_option("--loss-log", flags.loss_log, "file that gets a line for each lost or misdelivered frame")
        ->type_name("FILE");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) { return app.exit(e); } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "opus-ocs-emu: %s (see --help)\n", e.what());
        return 2;
    }
    try {
        serve(flags);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "opus-ocs-emu: %s\n", e.what());
        return 2;
    }
}

}  // namespace
}  // namespace opus::emulator

int main(int argc, char** argv) { return opus::emulator::run(argc, argv); }
