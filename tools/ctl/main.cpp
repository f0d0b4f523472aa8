// opus-ctl: looks at the controller and acts by hand. Exit codes: exit_code.h.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>

#include "tools/ctl/controller_client.h"
#include "tools/ctl/exit_code.h"
#include "tools/ctl/fabric_commands.h"
#include "tools/ctl/recording_commands.h"
#include "tools/ctl/show.h"

namespace opus::ctl {
namespace {

using nlohmann::json;

struct Options {
    std::string controller = "tcp://127.0.0.1:7070";
    int timeout_ms = 3'000;
    bool json_output = false;
    std::function<int()> chosen;
};

void print(const json& body) { std::printf("%s\n", body.dump(2, ' ', false, json::error_handler_t::replace).c_str()); }

int ask(const Options& options, const char* command, const json& arguments, const std::function<void(const json&)>& show) {
    const json body = ControllerClient(options.controller, options.timeout_ms).ask(command, arguments);
    if (options.json_output)
        print(body);
    else
        show(body);
    return kOk;
}

// A list that comes in parts. People are shown `most` elements at most, programs all.
int ask_all(const Options& options, const char* command, const json& arguments, const char* list, std::size_t most,
            void (*show)(const json&)) {
    const std::size_t wanted = options.json_output ? std::numeric_limits<std::size_t>::max() : most;
    const json body = ControllerClient(options.controller, options.timeout_ms).ask_all(command, arguments, list, wanted);
    if (options.json_output)
        print(body);
    else
        show(body);
    return kOk;
}

// What the controller says of a move, or the plain fact.
std::function<void(const json&)> show_done(const std::string& fact) {
    return [fact](const json& body) {
        const std::string told = body.value("done", "");
        std::printf("%s\n", (told.empty() ? fact : told).c_str());
    };
}

int watch(const Options& options, int count) {
    int seen = 0;
    ControllerClient(options.controller, options.timeout_ms).follow("watch", json::object(), [&](const json& event) {
        if (options.json_output)
            std::printf("%s\n", event.dump().c_str()), std::fflush(stdout);
        else
            show_event(event);
        return count == 0 || ++seen < count;
    });
    return kOk;
}

void add_question(CLI::App& app, Options& options, const char* command, const char* help, void (*show)(const json&)) {
    app.add_subcommand(command, help)->callback([&options, command, show] {
        options.chosen = [&options, command, show] { return ask(options, command, json::object(), show); };
    });
}

void add_list(CLI::App& app, Options& options, const char* list, const char* help, void (*show)(const json&)) {
    app.add_subcommand(list, help)->callback([&options, list, show] {
        options.chosen = [&options, list, show] {
            return ask_all(options, list, json::object(), list, std::numeric_limits<std::size_t>::max(), show);
        };
    });
}

void add_moves(CLI::App& app, Options& options) {
    struct Move {
        std::string a, b;
        bool force = false;
    };
    auto* connect =
        app.add_subcommand("connect", "join two ports by a circuit; refused while a launch holds one of them");
    const auto join = std::make_shared<Move>();
    connect->add_option("A", join->a, "a port, as in the fabric file: n0.g1.p0, or ocs-r1:3")->required();
    connect->add_option("B", join->b, "the other port")->required();
    connect->add_flag("--force", join->force,
                      "even under a launch in flight: what it sends is lost until it is sent again");
    connect->callback([&options, join] {
        options.chosen = [&options, join] {
            return ask(options, "connect", {{"a", join->a}, {"b", join->b}, {"force", join->force}},
                       show_done(join->a + " is joined to " + join->b));
        };
    });
    auto* disconnect = app.add_subcommand("disconnect", "break the circuit of a port; refused while a launch holds it");
    const auto part = std::make_shared<Move>();
    disconnect->add_option("A", part->a, "a port, as in the fabric file: n0.g1.p0, or ocs-r1:3")->required();
    disconnect->add_flag("--force", part->force,
                         "even under a launch in flight: what it sends is lost until it is sent again");
    disconnect->callback([&options, part] {
        options.chosen = [&options, part] {
            return ask(options, "disconnect", {{"port", part->a}, {"force", part->force}}, show_done(part->a + " is dark"));
        };
    });
}

void add_fences(CLI::App& app, Options& options) {
    struct Fence {
        std::string port, why;
    };
    auto* fence = app.add_subcommand(
        "fence", "make no new circuit on a port; the one that it has goes when nothing is on it any more");
    const auto one = std::make_shared<Fence>();
    fence->add_option("PORT", one->port, "a port, as in the fabric file: n0.g1.p0, or ocs-r1:3")->required();
    fence->add_option("--why", one->why, "for those who look at opus-ctl ports")->type_name("TEXT");
    fence->callback([&options, one] {
        options.chosen = [&options, one] {
            return ask(options, "fence", {{"port", one->port}, {"why", one->why}}, show_done(one->port + " is fenced"));
        };
    });
    auto* unfence = app.add_subcommand("unfence", "use a port again that was fenced, by hand or by the controller");
    const auto other = std::make_shared<Fence>();
    unfence->add_option("PORT", other->port, "a port, as in the fabric file: n0.g1.p0, or ocs-r1:3")->required();
    unfence->callback([&options, other] {
        options.chosen = [&options, other] {
            return ask(options, "unfence", {{"port", other->port}}, show_done(other->port + " is not fenced"));
        };
    });
}

void add_recording(CLI::App& app, Options& options) {
    auto* command = app.add_subcommand(
        "record", "write what jobs do to a file, until the job has ended or Ctrl-C; then show its summary");
    const auto request = std::make_shared<RecordRequest>();
    command->add_option("FILE", request->file, "file to write; -: standard output")->required();
    command->add_option("--job", request->job, "only this job (OPUS_JOB), until it has ended; it may come later");
    command->add_option("--seconds", request->seconds, "end after so long; 0: do not")->check(CLI::Range(0.0, 1e9));
    command->callback([&options, request] {
        options.chosen = [&options, request] {
            request->controller = options.controller;
            request->timeout_ms = options.timeout_ms;
            request->json_output = options.json_output;
            return record(*request);
        };
    });
    auto* summary = app.add_subcommand(
        "summary",
        "windows between phases and dark time: of a recording, or what the controller has seen since it began");
    const auto what = std::make_shared<std::pair<std::string, std::string>>();
    summary->add_option("FILE", what->first, "a recording; default: ask the controller");
    summary->add_option("--job", what->second, "only this job");
    summary->callback([&options, what] {
        options.chosen = [&options, what] {
            if (!what->first.empty()) return summarize(what->first, what->second, options.json_output);
            return ask(options, "summary", {{"job", what->second}}, show_summary);
        };
    });
}

void define(CLI::App& app, Options& options) {
    app.set_version_flag("--version", "opus-ctl " OPUS_PROGRAM_VERSION);
    app.require_subcommand(1);
    app.fallthrough();
    app.add_option("-c,--controller", options.controller, "address of the controller")->envname("OPUS_CONTROLLER")->capture_default_str();
    app.add_option("--timeout", options.timeout_ms, "how long to wait for the controller, milliseconds")
        ->check(CLI::Range(1, 3'600'000))
        ->capture_default_str();
    app.add_flag("--json", options.json_output, "print JSON, for programs");
    add_question(app, options, "status", "nodes, switches, counters, latency of the control plane", show_status);
    add_list(app, options, "circuits", "which port is joined to which, and who holds the circuit", show_circuits);
    add_list(app, options, "ports", "every port: its use, peer, holders", show_ports);
    add_question(app, options, "groups", "communicators: members, verdict", show_groups);
    add_question(app, options, "jobs", "jobs: ranks, nodes, launches; and processes that have NCCL without Opus", show_jobs);

    auto* why = app.add_subcommand(
        "why", "why a rank waits: missing member, port, holder, a manager that withholds a receive; since when");
    const auto who = std::make_shared<std::string>();
    why->add_option("RANK", *who,
                    "a GPU (n0.g1), a rank process (n0.r3), a node (n0), or an NCCL rank (5; job:5) as counted in the "
                    "largest communicator of its job, if it has one; default: all");
    why->callback([&options, who] {
        options.chosen = [&options, who] {
            return ask_all(options, "why", {{"who", *who}}, "waiting", kMostWaitingShown, show_why);
        };
    });

    add_moves(app, options);
    add_fences(app, options);
    auto* watching = app.add_subcommand("watch", "print what happens, as it happens");
    const auto count = std::make_shared<int>(0);
    watching->add_option("--count", *count, "end after so many lines; 0: never")->check(CLI::Range(0, 1'000'000'000));
    watching->callback([&options, count] { options.chosen = [&options, count] { return watch(options, *count); }; });
    add_recording(app, options);
    auto* phases = app.add_subcommand(
        "phases", "whether a job is provisioned, and why not; the windows before its phases; its lap, and the plan of that: by port, which pair when, "
        "with what slack, and where the job has left it");
    const auto job = std::make_shared<std::string>();
    phases->add_option("--job", *job, "only this job; default: all");
    phases->callback([&options, job] {
        options.chosen = [&options, job] { return ask(options, "phases", {{"job", *job}}, show_phases); };
    });
    add_fabric_commands(app, options.json_output, options.chosen);
}

}  // namespace
}  // namespace opus::ctl

int main(int argc, char** argv) {
    using namespace opus::ctl;
    Options options;
    CLI::App app(
        "Looks at the Opus controller and its fabric, and acts by hand.\n"
        "Exit codes: 0 done; 1 refused, or the answer is no; 2 wrong use; 3 no controller answers.",
        "opus-ctl");
    define(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? kOk : kUsage; }
    try {
        return options.chosen();
    } catch (const NoController& error) {
        std::fprintf(stderr, "opus-ctl: %s\n", error.what());
        return kNoController;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "opus-ctl: %s\n", error.what());
        return kNo;
    }
}
