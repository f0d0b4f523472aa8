// opus-run: starts a program under the shim, as strace or nsys start one, and says afterwards how it reached NCCL.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <list>
#include <optional>

#include "opus/nccl_conf.h"
#include "tools/run/child.h"
#include "tools/run/files.h"
#include "tools/run/observer.h"
#include "tools/run/road_report.h"

namespace opus::run {
namespace {

struct Options {
    std::string shim, roads;
    std::string out = "opus-recording", node;
    bool quiet = false, emulate = false, keep_nccl = false, observe = false;
    std::list<std::pair<const char*, std::string>> settings;  // OPUS_X: what --x was given
    std::vector<std::string> command;
};

constexpr int kUsage = 2;

// --hold-ms of OPUS_HOLD_MS.
std::string option_of(const char* setting) {
    std::string option = "--";
    for (const char* at = setting + std::strlen("OPUS_"); *at != '\0'; ++at)
        option += *at == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(*at)));
    return option;
}

void add_setting(CLI::App& app, Options& options, const char* name, const char* who, const char* help) {
    if (std::strstr(who, "shim") == nullptr || std::strcmp(name, "OPUS_ROADS") == 0) return;
    auto& [setting, value] = options.settings.emplace_back(name, "");
    app.add_option(option_of(setting), value, std::string(help) + " (" + name + ")")
        ->type_name("VALUE")
        ->group("Settings");
}

void define(CLI::App& app, Options& options) {
    app.set_version_flag("--version", "opus-run " OPUS_PROGRAM_VERSION);
    app.prefix_command();
    app.add_flag("-q,--quiet", options.quiet, "say nothing of roads afterwards");
    app.add_flag("--keep-nccl", options.keep_nccl,
                 "set no NCCL_* variable; without it those of opus(7) are set that nobody has set, in enforce mode");
    app.add_option("--roads", options.roads, "keep what processes wrote of their roads in this file")
        ->type_name("FILE");
    app.add_option("--shim", options.shim, "the shim; default: libopus_shim.so beside opus-run, or in ../lib")
        ->type_name("FILE");
    app.add_flag("--emulate", options.emulate,
                 "run on emulated GPUs and switches: all else goes to opus-emulate (opus-run --emulate --help)");
    app.add_flag(
        "--observe", options.observe,
        "record what the ranks of this node do, on whatever network they use; needs no manager and no controller");
    app.add_option("--out", options.out, "with --observe: folder of the recordings, one a node")->type_name("FOLDER")->capture_default_str();
    app.add_option("--node", options.node, "with --observe: name of this node in the recording; default: the host name")
        ->type_name("NAME");
#define OPUS_SETTING(name, type, fallback, who, help) add_setting(app, options, #name, who, help);
#include "opus/settings.h"
    app.footer(
        "COMMAND keeps its exit code, its signals and its output; what opus-run says goes to stderr. Where it is to "
        "start\n"
        "ranks on other nodes, put opus-run before the ranks: mpirun ... opus-run -- python train.py");
}

// Everything but the word itself, in its order.
[[noreturn]] void emulate(int argc, char** argv, int word) {
    const std::string program = find_emulation();
    if (program.empty()) {
        std::fprintf(
            stderr,
            "opus-run: opus-emulate is not installed (lib/opus/emulation below the prefix): --emulate cannot run\n");
        std::exit(kUsage);
    }
    std::vector<char*> words{const_cast<char*>(program.c_str())};
    static const std::string value = std::strncmp(argv[word], "--emulate=", 10) == 0 ? argv[word] + 10 : "";
    for (int i = 1; i < argc; ++i) {
        if (i != word)
            words.push_back(argv[i]);
        else if (!value.empty())
            words.push_back(const_cast<char*>(value.c_str()));
    }
    words.push_back(nullptr);
    execv(words[0], words.data());
    std::fprintf(stderr, "opus-run: cannot run %s: %s\n", program.c_str(), std::strerror(errno));
    std::exit(126);
}

void find_emulate(int argc, char** argv) {
    for (int i = 1; i < argc && argv[i][0] == '-' && std::strcmp(argv[i], "--") != 0; ++i)
        if (std::strcmp(argv[i], "--emulate") == 0 || std::strncmp(argv[i], "--emulate=", 10) == 0)
            emulate(argc, argv, i);
}

// Behind what is preloaded already: a sanitizer's runtime has to come first.
void preload(const std::string& shim) {
    const char* before = std::getenv("LD_PRELOAD");
    const std::string all = before != nullptr ? before : "";
    if (all.find(shim) != std::string::npos) return;
    setenv("LD_PRELOAD", (all.empty() ? shim : all + ":" + shim).c_str(), 1);
}

// What circuits need of NCCL, where neither the environment nor nccl.conf says anything.
void set_nccl(bool quiet) {
    const char* mode = std::getenv("OPUS_MODE");
    if (mode != nullptr && mode[0] != '\0' && std::strcmp(mode, "enforce") != 0) return;
    std::string told;
    const auto set = [&told](const char* name, const char* value) {
        if (value[0] == '\0' || find_nccl_value(name).given) return;
        setenv(name, value, 1);
        told += std::string(" ") + name + "=" + value;
    };
#define OPUS_NCCL_SETTING(variable, fits, wanted, otherwise, run_sets, why) set(#variable, run_sets);
#include "opus/nccl_settings.h"
    if (!told.empty() && !quiet) std::fprintf(stderr, "opus-run: sets%s (--keep-nccl sets nothing)\n", told.c_str());
}

// The file that processes write to: the one that is to be kept, or one of our own. Empty: there can be none.
std::string make_notes(const Options& options) {
    if (!options.roads.empty()) {
        std::ofstream(options.roads, std::ios::trunc);
        char whole[4096];
        return realpath(options.roads.c_str(), whole) != nullptr ? whole : "";
    }
    const char* folder = std::getenv("TMPDIR");
    std::string name = std::string(folder != nullptr && folder[0] != '\0' ? folder : "/tmp") + "/opus-run.XXXXXX";
    const int fd = mkstemp(name.data());
    if (fd < 0) return {};
    close(fd);
    return name;
}

// Ranks meet it where they would meet a manager.
void start_observer(const Options& options, std::optional<ObserverProcess>& observer) {
    const std::string program = find_observer();
    std::string fault = program.empty() ? "opus-observer is not there: it belongs beside opus-run" : "";
    if (fault.empty()) observer.emplace(program, options.node, options.out, fault);
    if (!fault.empty()) {
        std::fprintf(stderr, "opus-run: --observe: %s\n", fault.c_str());
        std::exit(kUsage);
    }
    setenv("OPUS_MODE", "observe", 1);
    setenv("OPUS_RUNTIME_DIR", observer->runtime_directory().c_str(), 1);
    unsetenv("OPUS_SOCKET");
    setenv("OPUS_REQUIRE", "1", 1);
    setenv("OPUS_HOLD_MS", "1000", 0);  // so long a communicator's creation waits for an observer that stands still, once
}

[[noreturn]] void run(const Options& options) {
    const std::string shim = options.shim.empty() ? find_shim() : options.shim;
    if (shim.empty() || access(shim.c_str(), R_OK) != 0) {
        std::fprintf(stderr, "opus-run: %s is not there: give --shim\n", shim.empty() ? "libopus_shim.so" : shim.c_str());
        std::exit(kUsage);
    }
    if (shim.find_first_of(": ") != std::string::npos) {
        std::fprintf(stderr, "opus-run: %s: the loader takes no preload with a space or a colon in its path\n",
                     shim.c_str());
        std::exit(kUsage);
    }
    const std::string why = unreachable(options.command[0]);
    if (!why.empty()) std::fprintf(stderr, "opus-run: %s\n", why.c_str());
    for (const auto& [name, value] : options.settings)
        if (!value.empty()) setenv(name, value.c_str(), 1);
    std::optional<ObserverProcess> observer;
    if (options.observe) start_observer(options, observer);
    preload(shim);
    if (!options.keep_nccl) set_nccl(options.quiet);
    const bool notes_wanted = !options.quiet || !options.roads.empty();
    const std::string notes = notes_wanted ? make_notes(options) : "";
    if (!notes.empty())
        setenv("OPUS_ROADS", notes.c_str(), 1);
    else
        unsetenv("OPUS_ROADS");
    const Ending ending = run_child(options.command);
    if (ending.error != 0)
        std::fprintf(stderr, "opus-run: cannot run %s: %s\n", options.command[0].c_str(), std::strerror(ending.error));
    if (observer)
        for (const std::string& line : observer->finish()) std::fprintf(stderr, "opus-run: %s\n", line.c_str());
    std::ifstream written(notes);
    if (ending.error == 0 && !options.quiet && why.empty())
        for (const std::string& line : road_report(written)) std::fprintf(stderr, "opus-run: %s\n", line.c_str());
    if (!notes.empty() && options.roads.empty()) unlink(notes.c_str());
    end_as(ending);
}

}  // namespace
}  // namespace opus::run

int main(int argc, char** argv) {
    using namespace opus::run;
    find_emulate(argc, argv);
    Options options;
    CLI::App app(
        "opus-run [OPTIONS] -- COMMAND [ARGUMENT...]\n"
        "Runs COMMAND with its NCCL under Opus, and says afterwards how it was reached, or that none was seen.",
        "opus-run");
    define(app, options);
    // What stands behind -- is the command's own, options of the same name, too.
    int own = 1;
    while (own < argc && std::strcmp(argv[own], "--") != 0) ++own;
    try {
        app.parse(own, argv);
    } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : kUsage; }
    options.command = app.remaining();
    if (options.command.empty())
        for (int i = own + 1; i < argc; ++i) options.command.emplace_back(argv[i]);
    else
        for (int i = own; i < argc; ++i) options.command.emplace_back(argv[i]);
    if (options.emulate) {
        std::fprintf(stderr, "opus-run: --emulate comes first: opus-run --emulate 4x4 [OPTIONS] -- COMMAND\n");
        return kUsage;
    }
    if (options.command.empty()) {
        std::fprintf(stderr, "opus-run: which program? opus-run [OPTIONS] -- COMMAND\n");
        return kUsage;
    }
    run(options);
}
