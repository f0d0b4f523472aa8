#include "tools/ctl/recording_commands.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>

#include "controller/recording/recording.h"
#include "tools/ctl/controller_client.h"
#include "tools/ctl/exit_code.h"
#include "tools/ctl/table.h"

namespace opus::ctl {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kLookMs = 200;
volatile sig_atomic_t stop_asked = 0;

void ask_stop(int) { stop_asked = 1; }

void catch_signals() {
    struct sigaction action {};
    action.sa_handler = ask_stop;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

void print(const json& body) { std::printf("%s\n", body.dump(2, ' ', false, json::error_handler_t::replace).c_str()); }

void show(const json& body, bool json_output) { json_output ? print(body) : show_summary(body); }

// Feeds whole lines to a profile; keeps the rest for the next time.
class LineFeeder {
public:
    std::string take(const std::string& text) {
        rest_ += text;
        std::size_t from = 0;
        for (std::size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1) {
            ++line_;
            if (end == from) continue;
            if (std::string wrong = reader_.read(std::string_view(rest_).substr(from, end - from), profile); !wrong.empty())
                return "line " + std::to_string(line_) + ": " + wrong;
        }
        rest_.erase(0, from);
        return "";
    }
    bool torn() const { return !rest_.empty(); }  // the writer was stopped in the middle of a line
    std::size_t lines() const { return line_; }

    controller::Profile profile;

private:
    controller::RecordingReader reader_;
    std::string rest_;
    std::size_t line_ = 0;
};

int refuse(const std::string& text) {
    std::fprintf(stderr, "opus-ctl: %s\n", text.c_str());
    return kNo;
}

double number(const json& body, const char* key) { return body.value(key, 0.0); }

void show_windows(const json& job) {
    std::printf("%.0f windows, %.1f %% of them over 1 ms\n", number(job, "windows"), number(job, "over_1ms_percent"));
    Table table(
        {"  BEFORE", "GROUP OF", "WINDOWS", "MEAN", "MEDIAN", "P90", "LONGEST", "OVER 1 MS", "LAUNCHES", "VOLUME"});
    for (const json& p : job.at("phases"))
        table.add({"  " + p.value("op", ""), std::to_string(p.value("group_size", 0u)),
                   std::to_string(p.value("windows", 0ull)), duration(number(p, "window_mean_ms")),
                   duration(number(p, "window_median_ms")), duration(number(p, "window_p90_ms")),
                   duration(number(p, "window_max_ms")), std::to_string(std::lround(number(p, "over_1ms_percent"))) + " %",
                   std::to_string(p.value("launches", 0ull)), bytes(p.value("bytes", 0ull))});
    if (!table.empty()) table.print(stdout);
}

}  // namespace

int record(const RecordRequest& request) {
    std::ofstream file;
    const bool to_file = request.file != "-";
    if (to_file) file.open(request.file, std::ios::trunc);
    std::ostream& out = to_file ? static_cast<std::ostream&>(file) : std::cout;
    if (!out) return refuse("cannot write " + request.file + ": " + std::strerror(errno));
    catch_signals();
    ControllerClient client(request.controller, request.timeout_ms);
    LineFeeder feeder;
    const auto until = Clock::now() + std::chrono::duration<double>(request.seconds);
    const auto over = [&] { return stop_asked != 0 || (request.seconds > 0 && Clock::now() >= until); };
    bool whole = true;
    try {
        client.follow(
            "record", {{"job", request.job}},
            [&](const json& body) {
                const std::string lines = body.value("lines", "");
                out << lines << std::flush;
                whole = feeder.take(lines).empty() && static_cast<bool>(out);
                return whole && !over();
            },
            kLookMs, over);
    } catch (const NoController& error) {
        if (feeder.lines() == 0) throw;
        std::fprintf(stderr, "opus-ctl: %s; what came before is in the file\n", error.what());
    }
    if (!whole) return refuse("cannot write " + request.file + ": " + std::strerror(errno));
    if (to_file) show(feeder.profile.summary(request.job), request.json_output);
    return kOk;
}

int summarize(const std::string& path, const std::string& job, bool json_output) {
    std::ifstream file(path);
    if (!file) return refuse("cannot read " + path + ": " + std::strerror(errno));
    LineFeeder feeder;
    std::string block(1u << 16, '\0');
    while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0)
        if (const std::string wrong = feeder.take(block.substr(0, static_cast<std::size_t>(file.gcount()))); !wrong.empty())
            return refuse(path + ": " + wrong);
    if (feeder.lines() == 0) return refuse(path + ": this is no recording: it has no header line");
    if (feeder.torn())
        std::fprintf(stderr, "opus-ctl: %s ends in the middle of a line, which is left out\n", path.c_str());
    show(feeder.profile.summary(job), json_output);
    return kOk;
}

void show_summary(const json& body) {
    for (const json& job : body.at("jobs")) {
        std::printf("job %s%s: %.0f ranks, %.0f launches in %s", job.value("job", "").c_str(),
                    job.value("ended", false) ? "" : " (goes on)", number(job, "ranks"), number(job, "launches"),
                    duration(number(job, "seconds") * 1e3).c_str());
        std::printf("; %.0f of them held, %s in all\n", number(job, "held_launches"),
                    duration(number(job, "held_ms")).c_str());
        std::printf("%.0f gangs, %.0f waited for light: %s in all\n", number(job, "gangs"),
                    number(job, "gangs_that_waited_for_light"), duration(number(job, "waited_for_light_ms")).c_str());
        show_windows(job);
    }
    if (body.at("jobs").empty()) std::printf("no jobs\n");
    const json& fabric = body.at("fabric");
    std::printf("fabric: %.0f change sets made %.0f circuits; dark %s, of which hidden %s (%.0f %%), waited for %s\n",
                number(fabric, "change_sets"), number(fabric, "circuits_made"),
                duration(number(fabric, "dark_ms")).c_str(), duration(number(fabric, "hidden_ms")).c_str(),
                number(fabric, "hidden_percent"), duration(number(fabric, "exposed_ms")).c_str());
}

// Whether it is provisioned, and by how much that is better than on demand.
static void show_guard(const json& guard) {
    std::printf("%s", guard.value("state", "").c_str());
    if (guard.contains("lap_ms")) std::printf("; a lap on demand: %s", duration(number(guard, "lap_ms")).c_str());
    if (guard.contains("provisioned_to_on_demand"))
        std::printf(", provisioned %+.2f %%", 100 * (number(guard, "provisioned_to_on_demand") - 1));
    if (number(guard, "fallbacks") > 0) std::printf("; went back to on demand %.0f times", number(guard, "fallbacks"));
    std::printf("\n");
}

static std::string not_by_plan(const json& turn) {
    const auto times = turn.value("left", std::uint64_t{0});
    if (times == 0) return "";
    return std::to_string(times) + " times" + (turn.value("left_last", false) ? ", the last time too" : "");
}

// Which pair when: a line for each turn of a port, or one for a port whose light never moves.
static void show_plan(const json& ports) {
    if (ports.empty()) return;
    std::printf("in each lap, by port (slack: how long the light is there before it is needed):\n");
    Table table({"  PORT", "AT", "JOINED TO", "FOR", "LASTS", "SLACK", "NOT BY THE PLAN"});
    const auto times = [](const json& turn) { return turn.value("left", std::uint64_t{0}); };
    for (const json& port : ports) {
        const json& turns = port.at("turns");
        std::string name = "  " + port.value("port", "");
        if (std::ranges::none_of(turns, [](const json& turn) { return turn.value("moves", false); })) {
            const auto worst = std::ranges::max_element(turns, {}, times);
            if (worst != turns.end())
                table.add({name, "always", worst->value("to", ""), std::to_string(turns.size()) + " phases", "", "",
                           not_by_plan(*worst)});
            continue;
        }
        for (const json& turn : turns) {
            const std::string what =
                turn.value("for", "") + " of " + std::to_string(turn.value("group_size", 0u)) + " ranks";
            table.add({std::exchange(name, ""), duration(number(turn, "begin_ms")),
                       turn.value("to", "") + (turn.value("moves", false) ? "" : " (stays)"), what,
                       duration(number(turn, "lasts_ms")), duration(number(turn, "slack_ms")), not_by_plan(turn)});
        }
    }
    table.print(stdout);
}

void show_phases(const json& body) {
    for (const json& job : body.at("jobs")) {
        std::printf("job %s%s: %.0f ranks\n", job.value("job", "").c_str(), job.value("ended", false) ? " (ended)" : "",
                    number(job, "ranks"));
        if (const auto guard = job.find("provision"); guard != job.end()) show_guard(*guard);
        show_windows(job);
        const auto plan = job.find("plan");
        if (plan == job.end())
            std::printf("no lap of it is known: it has done nothing twice yet, or its ranks do not begin together\n");
        else
            std::printf("its lap has %.0f phases; plans made of it: %.0f; %s\n", number(*plan, "phases"), number(*plan, "made"),
                        plan->value("followed", false) ? "its circuits follow the last one" : "none is followed now");
        if (plan == job.end() || !plan->contains("ports")) continue;
        show_plan(plan->at("ports"));
        if (number(*plan, "ports_left_out") > 0) std::printf("and %.0f more ports\n", number(*plan, "ports_left_out"));
    }
    if (body.at("jobs").empty()) std::printf("no jobs\n");
}

}  // namespace opus::ctl
