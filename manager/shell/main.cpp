// opus-manager: one a node. docs/design.md, sections 5 and 10.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

#include "manager/shell/daemon.h"
#include "manager/shell/host_name.h"
#include "opus/assert.h"
#include "opus/opus.h"

namespace {

struct Setting {
    std::string_view name, value, help;
};
constexpr std::string_view text_of(const char* value) { return value; }
constexpr std::string_view text_of(int) { return {}; }

constexpr Setting kSettings[] = {
#define OPUS_SETTING(name, type, value, who, help) {#name, text_of(value), help},
#include "opus/settings.h"
};

const Setting& setting(std::string_view name) {
    for (const Setting& s : kSettings)
        if (s.name == name) return s;
    throw std::logic_error("no such setting");
}

CLI::Option* add_setting(CLI::App& app, const std::string& flag, std::string& value, std::string_view variable) {
    const Setting& s = setting(variable);
    value = s.value;
    return app.add_option(flag, value, std::string(s.help))->envname(std::string(variable))->capture_default_str();
}

const opus::manager::Daemon* serving = nullptr;

void say_last_words(const char* what) {
    spdlog::critical("{}", what);
    for (const std::string& line : serving->what_it_knows()) spdlog::critical("{}", line);
}

void log_to_stderr(const std::string& level) {
    auto logger = std::make_shared<spdlog::logger>("opus-manager", std::make_shared<spdlog::sinks::stderr_sink_st>());
    logger->set_pattern("%n: %l: %v");
    logger->set_level(spdlog::level::from_str(level));
    logger->flush_on(spdlog::level::debug);
    spdlog::set_default_logger(logger);
}

}  // namespace

int main(int argc, char** argv) {
    opus::manager::DaemonOptions options;
    std::string log_level;
    CLI::App app(
        "Serves the Opus ranks of this node: takes their launches, asks the controller for circuits, lets each\n"
        "launch start when its circuits are up. Runs in the foreground; SIGTERM or SIGINT ends it, ranks go on.",
        "opus-manager");
    add_setting(app, "--node", options.node, "OPUS_NODE");
    add_setting(app, "--controller", options.controller, "OPUS_CONTROLLER");
    add_setting(app, "--runtime-dir", options.runtime_directory, "OPUS_RUNTIME_DIR");
    add_setting(app, "--log", log_level, "OPUS_LOG")->check(CLI::IsMember({"debug", "info", "warn", "error"}));
    app.add_option("--max-ranks", options.max_ranks, "most rank processes served at a time")
        ->check(CLI::Range(1u, 65536u))
        ->capture_default_str();
    app.set_version_flag("--version", std::string("opus-manager ") + std::to_string(OPUS_VERSION_MAJOR) + "." +
                                          std::to_string(OPUS_VERSION_MINOR) + "." + std::to_string(OPUS_VERSION_PATCH));
    app.footer(
        "Each option can also be given by the variable named beside it. When it serves, it prints one line:\n"
        "  opus-manager: ready socket=PATH node=NAME controller=ADDRESS\n"
        "Only one manager serves a runtime directory; a new one finds the living ranks of the last by itself.\n"
        "Only one manager speaks for a node: a second one is refused while the controller hears of the first, and ends.\n"
        "Exit codes: 0 ended by a signal; 1 cannot serve, stderr says why; 2 another manager speaks for this node, stderr\n"
        "names both; over 100: wrong arguments.");
    CLI11_PARSE(app, argc, argv);

    if (options.node.empty()) options.node = opus::manager::host_name();
    if (options.runtime_directory.empty()) options.runtime_directory = opus::manager::RuntimeDirectory::default_path();
    ::umask(077);
    log_to_stderr(log_level);
    try {
        opus::manager::Daemon daemon(options);
        serving = &daemon;
        opus::last_words = say_last_words;
        std::printf("opus-manager: ready socket=%s/manager.sock node=%s controller=%s\n",
                    options.runtime_directory.c_str(), options.node.c_str(), options.controller.c_str());
        std::fflush(stdout);
        const bool alone = daemon.run();
        opus::last_words = nullptr;
        if (!alone) return 2;
    } catch (const std::exception& e) {
        spdlog::error("{}", e.what());
        return 1;
    }
    return 0;
}
