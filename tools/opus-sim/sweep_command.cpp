#include "tools/opus-sim/sweep_command.h"

#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "tools/opus-sim/json_out.h"
#include "tools/opus-sim/sweep_play.h"

namespace opus::job {
namespace {

constexpr std::size_t kNamed = 10;  // points that a message names

unsigned cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

SweepFile file_of(const std::string& path) {
    const std::string held = whole_text(path, "give a sweep's file (docs/opus-sim.md, \"Sweeps\")");
    return read_sweep({path, held});
}

// Every Nth, so that each part has some of the slow ones.
std::vector<SweepPoint> part_of(std::vector<SweepPoint> points, const std::string& part) {
    if (part.empty()) return points;
    unsigned long long number = 0, parts = 0;
    char rest = 0;
    if (std::sscanf(part.c_str(), "%llu/%llu%c", &number, &parts, &rest) != 2 || number < 1 || number > parts)
        throw std::invalid_argument("--part " + part + ": it must be K/N, K from 1 to N, such as 3/8");
    std::vector<SweepPoint> mine;
    for (std::size_t i = number - 1; i < points.size(); i += parts) mine.push_back(std::move(points[i]));
    return mine;
}

std::string names_of(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size() && i < kNamed; ++i) text += (i == 0 ? "" : ", ") + names[i];
    return names.size() > kNamed ? text + " and " + std::to_string(names.size() - kNamed) + " more" : text;
}

// What is there already. Points of other inputs are removed, where that is asked for.
void find_all(SweepWork& work, const SweepStore& store, bool replace) {
    for (std::size_t i = 0; i < work.points.size(); ++i) try {
            if (const auto there = store.find(work.points[i], work.inputs[i])) work.played[i] = played_of(*there);
        } catch (const BadFile&) {
            if (!replace) throw;
            std::filesystem::remove(store.file_of(work.points[i]));
        }
}

void show(const SweepOptions& o, const SweepTable& table, const SweepStore& store, std::size_t strangers) {
    // Parts would write over each other's.
    if (o.part.empty()) store.write("table.csv", csv_of(table));
    if (o.json) {
        print_for_programs(json_of(table));
        return;
    }
    print_table(table);
    if (o.part.empty()) std::printf("%s\n", (std::filesystem::path(o.out) / "table.csv").c_str());
    if (strangers != 0)
        std::printf("note: %zu file%s in %s of no point of this sweep\n", strangers, strangers == 1 ? " is" : "s are",
                    (std::filesystem::path(o.out) / "points").c_str());
}

// Names what failed and what is not there; the exit code.
int judged(const SweepWork& work, bool table_only) {
    std::vector<std::string> missing;
    bool halted = false, failed = false;
    for (std::size_t i = 0; i < work.points.size(); ++i) {
        const PlayedPoint& p = work.played[i];
        if (!p.there && p.error.empty()) missing.push_back(work.points[i].name);
        halted |= p.there && p.exit == kExitJob, failed |= !p.there || (p.exit != kExitOk && p.exit != kExitJob);
        if (!p.error.empty())
            std::fprintf(stderr, "opus-sim: point %s: %s\n", work.points[i].name.c_str(), p.error.c_str());
    }
    if (table_only && !missing.empty())
        std::fprintf(stderr, "opus-sim: %zu of %zu points have not been played: %s; without --table they are\n",
                     missing.size(), work.points.size(), names_of(missing).c_str());
    return failed ? kExitUsage : halted ? kExitJob : kExitOk;
}

int stopped(const SweepWork& work, int signal) {
    std::size_t there = 0;
    for (const PlayedPoint& p : work.played) there += p.there ? 1 : 0;
    std::fprintf(stderr,
                 "%sopus-sim: stopped; %zu of %zu points are there, and the same command goes on with the rest\n",
                 isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", there, work.points.size());
    return 128 + signal;
}

}  // namespace

void sweep_arguments(CLI::App& app, SweepOptions& o) {
    app.add_option("SWEEP", o.sweep, "TOML file: a job, and options of which each of several values is played")
        ->required()
        ->type_name("FILE");
    app.add_option("--out", o.out,
                   "folder: points/NAME.json, one a point, and table.csv. What is there is not played again")
        ->required()
        ->type_name("FOLDER");
    app.add_option("--at-once", o.at_once, "points that are played beside each other; without it: one a core")
        ->check(CLI::Range(1, 256));
    app.add_option("--part", o.part,
                   "K/N: only every Nth point, from the Kth on, such as a task of a Slurm job array; no table.csv")
        ->type_name("K/N");
    app.add_flag("--table", o.table, "play nothing, and make the table of what is there");
    app.add_flag("--replace", o.replace, "play points again that are there from another program, job or options");
    app.add_flag("--list", o.list, "say the names of the points, and play nothing");
    app.add_flag("--json", o.json, "print the table for programs");
}

int sweep_command(const SweepOptions& o) {
    const SweepFile file = file_of(o.sweep);
    check_options(file);
    SweepWork work;
    work.points = part_of(points_of(file), o.part);
    if (o.list) {
        for (const SweepPoint& point : work.points) std::printf("%s\n", point.name.c_str());
        return kExitOk;
    }
    const std::string folder = std::filesystem::path(o.sweep).parent_path().string();
    SweepInputs inputs(folder);
    for (const SweepPoint& point : work.points) {
        work.options.push_back(options_of(point, folder));
        work.inputs.push_back(inputs.of(work.options.back()));
    }
    work.played.resize(work.points.size());
    work.at_once = o.at_once != 0 ? o.at_once : cores();
    const SweepStore store(o.out);
    find_all(work, store, o.replace);
    if (!o.table)
        if (const int signal = play_points(work, store); signal != 0) return stopped(work, signal);
    show(o, table_of(work.points, work.played), store, o.part.empty() ? store.strangers(work.points) : 0);
    return judged(work, o.table);
}

}  // namespace opus::job
