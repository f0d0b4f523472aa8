#include "tools/opus-sim/recordings.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>
#include <utility>

#include "tools/opus-sim/recorded_ranks.h"

namespace opus::job {
namespace {

using replay::Recording;
using replay::StepKind;
using Operation = Recording::Operation;
using Meeting = Recording::Meeting;

std::string counted(std::uint64_t n, const char* one, const char* more) {
    return std::to_string(n) + " " + (n == 1 ? one : more);
}

std::string milliseconds(std::int64_t ns) {
    char text[40];
    std::snprintf(text, sizeof text, "%.3f ms", static_cast<double>(ns) / 1e6);
    return text;
}

std::string name_of(const NamedRecording& r) { return r.recording.node.empty() ? r.file : r.recording.node; }

// The same recording twice would be two nodes, of the same ranks.
void refuse_twice(const std::vector<NamedRecording>& files) {
    std::map<std::pair<std::string, std::int64_t>, const std::string*> seen;
    for (const NamedRecording& r : files) {
        const auto [at, fresh] = seen.try_emplace({r.recording.node, r.recording.began_ns}, &r.file);
        if (!fresh) throw BadFile(r.file, "", "it is the same recording as " + *at->second + ": give each once");
    }
}

void tell_clocks(const std::vector<NamedRecording>& files, const std::vector<ClockOffset>& clocks,
                 std::vector<std::string>& assumed) {
    for (std::size_t i = 1; i < files.size(); ++i) {
        const ClockOffset& c = clocks[i];
        if (c.operations == 0) {
            assumed.push_back("no operation joins " + name_of(files[i]) +
                              " to the other nodes: its clock is taken as it is");
            continue;
        }
        assumed.push_back("the clock of " + name_of(files[i]) + " is " + milliseconds(std::abs(c.ahead_ns)) +
                          (c.ahead_ns < 0 ? " behind" : " ahead of") + " that of " + name_of(files[0]) +
                          ", by the ends of " + counted(c.operations, "operation", "operations") +
                          ", half of them within " + milliseconds(c.spread_ns));
        if (c.beyond_ns > 1'000'000)
            assumed.push_back("times of " + name_of(files[i]) + " and " + name_of(files[0]) +
                              " contradict each other by up to " + milliseconds(c.beyond_ns) +
                              ": their clocks drift, or a busy computer saw ends late");
    }
}

// --- what not all have ended ----------------------------------------------------------------------

template <class F>
void each_meeting(const Operation& o, F visit) {
    Meeting m = o.first;
    for (std::uint64_t i = 0; i < o.count; ++i, ++m.n) visit(m);
}

// How many of an operation's members have ended it.
std::map<Meeting, std::uint32_t> members_that_ended(const Recording& all) {
    std::map<Meeting, std::uint32_t> ended;
    for (const auto& [number, rank] : all.ranks)
        for (const Recording::Launch& l : rank.launches)
            for (const Operation& o : l.operations) each_meeting(o, [&](const Meeting& m) { ++ended[m]; });
    return ended;
}

// Leaves in it what all members have ended. How many operations, counted once a rank, are left out.
std::uint64_t leave_whole(Recording& all) {
    const std::map<Meeting, std::uint32_t> ended = members_that_ended(all);
    std::uint64_t left_out = 0;
    for (auto& [number, rank] : all.ranks) {
        for (Recording::Launch& l : rank.launches) {
            std::vector<Operation> kept;
            for (const Operation& o : l.operations)
                each_meeting(o, [&](const Meeting& m) {
                    const std::uint32_t wanted = m.transfer ? 2 : all.groups[m.group].size;
                    if (ended.at(m) != wanted) {
                        ++left_out;
                    } else if (!kept.empty() && kept.back().first.group == m.group && kept.back().kind == o.kind &&
                               kept.back().bytes == o.bytes && kept.back().first.transfer == m.transfer &&
                               kept.back().first.from == m.from && kept.back().first.to == m.to &&
                               kept.back().first.n + kept.back().count == m.n) {
                        ++kept.back().count;
                    } else {
                        kept.push_back({m, 1, o.kind, o.bytes});
                    }
                });
            l.operations = std::move(kept);
        }
        std::erase_if(rank.launches, [](const Recording::Launch& l) { return l.operations.empty(); });
    }
    return left_out;
}

void tell_lost(const std::vector<NamedRecording>& files, const Recording& all, std::uint64_t left_out,
               std::vector<std::string>& assumed) {
    std::uint64_t passed = 0, passing = 0;
    for (const auto& [number, rank] : all.ranks) {
        if (rank.lost != 0)
            assumed.push_back(
                counted(rank.lost, "launch", "launches") + " of rank " + rank.name +
                " not recorded: its ring had no room (opus-run --observe --ring-slots 65536), or NCCL refused them");
        if (rank.under_way != 0)
            assumed.push_back("rank " + rank.name + " ended with " + counted(rank.under_way, "launch", "launches") +
                              " under way");
        passed += rank.passed, passing += rank.passed != 0;
    }
    for (const NamedRecording& r : files)
        if (!r.recording.ended || r.recording.cut)
            assumed.push_back(
                r.file + (r.recording.cut ? " breaks off in the middle of a line" : " does not say that its job has ended") +
                ": it is read as far as it goes");
    if (passed != 0)
        assumed.push_back(counted(passed, "call", "calls") + " of " + counted(passing, "rank", "ranks") +
                          " not recorded: captured into CUDA graphs");
    if (left_out != 0)
        assumed.push_back("left out: " + counted(left_out, "operation", "operations") +
                          ", counted once a rank, that not all of their members have ended and recorded; what they "
                          "lasted counts as computation");
}

// --- figures --------------------------------------------------------------------------------------

// From when the last member had begun, by the one clock.
void count_times(const Recording& all, Figures& figures) {
    std::map<Meeting, std::int64_t> begun;
    for (const auto& [number, rank] : all.ranks)
        for (const Recording::Launch& l : rank.launches)
            for (const Operation& o : l.operations)
                each_meeting(o, [&](const Meeting& m) {
                    const auto [at, fresh] = begun.try_emplace(m, l.begin_ns);
                    at->second = std::max(at->second, l.begin_ns);
                });
    std::int64_t span = 0;
    for (const auto& [number, rank] : all.ranks) {
        std::int64_t first = 0, last = 0;
        for (const Recording::Launch& l : rank.launches) {
            if (first == 0 || l.ready_ns < first) first = l.ready_ns;
            last = std::max(last, l.done_ns);
            for (const Operation& o : l.operations) {
                std::int64_t begin = 0;
                each_meeting(o, [&](const Meeting& m) { begin = std::max(begin, begun.at(m)); });
                const auto place = all.groups.at(o.first.group).members.find(o.first.from);
                const bool sends =
                    o.first.transfer && place != all.groups.at(o.first.group).members.end() && place->second == number;
                const StepKind kind = !o.first.transfer ? o.kind : sends ? StepKind::send : StepKind::recv;
                const std::uint32_t size = o.first.transfer ? 2 : all.groups.at(o.first.group).size;
                figures.operations[{kind, size}].recorded_ms +=
                    static_cast<double>(std::max<std::int64_t>(0, l.done_ns - begin)) / 1e6;
            }
        }
        span = std::max(span, last - first);
    }
    figures.span_ms = static_cast<double>(span) / 1e6;
}

}  // namespace

NamedRecording join_recordings(std::vector<NamedRecording> files, const ReadOptions& options,
                               std::vector<std::string>& assumed) {
    refuse_twice(files);
    const std::vector<ClockOffset> clocks = align_clocks(files);
    tell_clocks(files, clocks, assumed);
    RecordedRanks ranks(files, clocks);
    ranks.choose_job(assumed);
    ranks.join_successors(assumed);
    ranks.find_missing(options.fill, assumed);
    NamedRecording all{files.front().file, ranks.take()};
    const std::uint64_t left_out = leave_whole(all.recording);
    tell_lost(files, all.recording, left_out, assumed);
    std::erase_if(all.recording.ranks, [](const auto& r) { return r.second.launches.empty(); });
    if (all.recording.ranks.empty())
        throw BadFile(all.file, "",
                      "no operation of it was ended by all of its members: was the job ended in its first one?");
    return all;
}

JobFile read_recorded(const std::vector<NamedText>& files, const ReadOptions& options) {
    JobFile job;
    job.format = files.size() == 1 ? "Opus recording" : "Opus recordings";
    std::vector<NamedRecording> read;
    for (const NamedText& file : files) {
        std::vector<replay::WorkloadError> errors;
        std::istringstream in{std::string(file.text)};
        read.push_back({file.name, replay::parse_recording(in, errors)});
        job.figures.entries += read.back().recording.lines;
        if (!errors.empty())
            throw BadFile(file.name, "line " + std::to_string(errors.front().line), errors.front().text);
    }
    NamedRecording all = join_recordings(std::move(read), options, job.assumed);
    Figures times;
    count_times(all.recording, times);
    const std::string name = all.recording.ranks.begin()->second.job;
    std::vector<replay::WorkloadError> errors;
    job.workload = replay::workload_of(std::move(all.recording), name.empty() ? "recorded" : name, errors);
    if (!errors.empty())
        throw BadFile(all.file, errors.front().line == 0 ? "" : "line " + std::to_string(errors.front().line),
                      errors.front().text);
    job.figures.files = static_cast<std::uint32_t>(files.size()), job.figures.ranks = job.workload.world();
    job.figures.span_ms = times.span_ms;
    job.repeats = false;
    job.assumed.emplace_back("what is called an iteration is the whole recording");
    count_workload(job.workload, job.figures);
    for (const auto& [what, f] : times.operations)
        if (const auto at = job.figures.operations.find(what); at != job.figures.operations.end())
            at->second.recorded_ms = f.recorded_ms;
    return job;
}

}  // namespace opus::job
