#include <algorithm>
#include <unordered_map>

#include "tools/opus-sim/job_trace.h"

namespace opus::job {
namespace {

using replay::kNobody;
using replay::StepKind;

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    return ranks.size() > 8 ? text + ", ... (" + std::to_string(ranks.size()) + " in all)" : text;
}

std::string place_of(const TraceRank& rank, const TraceItem& item) {
    return "rank " + std::to_string(rank.rank) + ", entry " + std::to_string(item.place);
}

void fill_missing(JobTrace& trace, bool fill, std::vector<std::string>& assumed) {
    std::vector<bool> there(trace.world, false);
    for (const TraceRank& r : trace.ranks) {
        if (r.rank >= trace.world)
            throw BadFile(r.file, "",
                          "it is of rank " + std::to_string(r.rank) + ", and the job has " +
                              std::to_string(trace.world) + " ranks: are these files of one job?");
        if (there[r.rank])
            throw BadFile(r.file, "", "a second file of rank " + std::to_string(r.rank) + ": give each rank's once");
        there[r.rank] = true;
    }
    std::vector<std::uint32_t> missing;
    for (std::uint32_t r = 0; r < trace.world; ++r)
        if (!there[r]) missing.push_back(r);
    if (missing.empty()) return;
    const std::string which = ranks_text(missing) + " of " + std::to_string(trace.world);
    if (!fill)
        throw BadFile(trace.ranks.front().file, "",
                      "the files of ranks " + which +
                          " are missing; give them too, or let them do what the others do with --fill");
    for (const TraceRank& r : trace.ranks)
        for (const TraceItem& item : r.items) {
            const bool transfer = item.kind == StepKind::send || item.kind == StepKind::recv;
            if (transfer || (item.group != kNobody && trace.groups[item.group].size() != trace.world))
                throw BadFile(r.file, place_of(r, item),
                              "ranks " + which +
                                  " are missing, and not everything is done by all ranks alike: --fill cannot make "
                                  "them up; give their files");
        }
    const std::size_t held = trace.ranks.size();
    for (const std::uint32_t m : missing) {
        TraceRank copy = trace.ranks[m % held];
        copy.rank = m;
        trace.ranks.push_back(std::move(copy));
    }
    assumed.push_back("the files of ranks " + which + " are missing: they do what those do that are there");
}

// What one rank called of a group, by what it is called.
struct Called {
    std::uint64_t same = 0;
    std::uint32_t times = 0;  // so often before
    std::uint32_t item = 0;
    bool operator<(const Called& o) const { return same != o.same ? same < o.same : times < o.times; }
};

std::vector<Called> called_of(const TraceRank& rank, std::uint32_t group) {
    std::vector<Called> list;
    for (std::uint32_t i = 0; i < rank.items.size(); ++i)
        if (rank.items[i].group == group) list.push_back({rank.items[i].same, 0, i});
    std::stable_sort(list.begin(), list.end(), [](const Called& a, const Called& b) { return a.same < b.same; });
    for (std::size_t i = 1; i < list.size(); ++i)
        if (list[i].same == list[i - 1].same) list[i].times = list[i - 1].times + 1;
    return list;
}

void compare(const JobTrace& trace, std::uint32_t group, const TraceRank& a, const std::vector<Called>& x,
             const TraceRank& b, const std::vector<Called>& y) {
    const std::string name = "group " + trace.group_names[group];
    for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
        const bool only_a = i >= y.size() || (i < x.size() && x[i] < y[i]);
        const bool only_b = i >= x.size() || (i < y.size() && y[i] < x[i]);
        if (only_a || only_b) {
            const TraceRank &has = only_a ? a : b, &lacks = only_a ? b : a;
            const TraceItem& item = has.items[(only_a ? x[i] : y[i]).item];
            throw BadFile(has.file, place_of(has, item),
                          std::string("rank ") + std::to_string(lacks.rank) + " never joins this " +
                              replay::name_of(item.kind) + " of " + name + " (" + lacks.file + " calls " +
                              std::to_string((only_a ? y : x).size()) + ", this file " +
                              std::to_string((only_a ? x : y).size()) +
                              "): a file that was cut short, or of another iteration?");
        }
        const TraceItem &p = a.items[x[i].item], &q = b.items[y[i].item];
        // Parts may be of unequal size.
        const bool parts =
            p.kind == StepKind::all_to_all || p.kind == StepKind::all_gather || p.kind == StepKind::reduce_scatter;
        if (p.kind == q.kind && (p.bytes == q.bytes || parts)) continue;
        throw BadFile(b.file, place_of(b, q),
                      "rank " + std::to_string(b.rank) + " calls " + replay::name_of(q.kind) + " of " +
                          std::to_string(q.bytes) + " bytes in " + name + " where rank " + std::to_string(a.rank) +
                          " (" + a.file + ", entry " + std::to_string(p.place) + ") calls " + replay::name_of(p.kind) +
                          " of " + std::to_string(p.bytes) + " bytes: are these files of one run?");
    }
}

void check_collectives(const JobTrace& trace) {
    for (const TraceRank& r : trace.ranks)
        for (const TraceItem& item : r.items)
            if (item.group != kNobody) {
                const auto& members = trace.groups[item.group];
                if (std::find(members.begin(), members.end(), r.rank) == members.end())
                    throw BadFile(r.file, place_of(r, item),
                                  "rank " + std::to_string(r.rank) + " is no member of group " +
                                      trace.group_names[item.group] + ", which it calls: correct the file of groups");
            }
    for (std::uint32_t g = 0; g < trace.groups.size(); ++g) {
        const auto& members = trace.groups[g];
        const TraceRank& first = trace.ranks[members.front()];
        const std::vector<Called> of_first = called_of(first, g);
        for (std::size_t m = 1; m < members.size(); ++m)
            compare(trace, g, first, of_first, trace.ranks[members[m]], called_of(trace.ranks[members[m]], g));
    }
}

struct Way {
    std::uint32_t from = 0, to = 0;
    std::uint64_t same = 0;
    bool operator==(const Way& o) const { return from == o.from && to == o.to && same == o.same; }
};
struct WayHash {
    std::size_t operator()(const Way& w) const {
        return (w.from * 0x9e3779b97f4a7c15ull ^ w.to * 0xff51afd7ed558ccdull) + w.same * 0xc2b2ae3d27d4eb4full;
    }
};

void check_transfers(const JobTrace& trace) {
    struct Sides {
        std::vector<std::pair<std::uint32_t, std::uint32_t>> sent, received;  // rank, item
    };
    std::unordered_map<Way, Sides, WayHash> ways;
    for (std::uint32_t r = 0; r < trace.ranks.size(); ++r)
        for (std::uint32_t i = 0; i < trace.ranks[r].items.size(); ++i) {
            const TraceItem& item = trace.ranks[r].items[i];
            if (item.kind != StepKind::send && item.kind != StepKind::recv) continue;
            if (item.peer >= trace.world || item.peer == r)
                throw BadFile(trace.ranks[r].file, place_of(trace.ranks[r], item),
                              "its other side, rank " + std::to_string(item.peer) + ", is not another rank of the job");
            const bool sends = item.kind == StepKind::send;
            Sides& sides = ways[sends ? Way{r, item.peer, item.same} : Way{item.peer, r, item.same}];
            (sends ? sides.sent : sides.received).emplace_back(r, i);
        }
    for (const auto& [way, sides] : ways)
        for (std::size_t i = 0; i < std::max(sides.sent.size(), sides.received.size()); ++i) {
            const bool sent = i < sides.sent.size(), received = i < sides.received.size();
            const auto [r, at] = sent ? sides.sent[i] : sides.received[i];
            const TraceRank& rank = trace.ranks[r];
            if (sent && received && rank.items[at].bytes == trace.ranks[way.to].items[sides.received[i].second].bytes)
                continue;
            throw BadFile(rank.file, place_of(rank, rank.items[at]),
                          "this " + std::string(sent ? "send to" : "receive from") + " rank " +
                              std::to_string(rank.items[at].peer) + " of " + std::to_string(rank.items[at].bytes) +
                              " bytes has no equal other side in the file of that rank");
        }
}

}  // namespace

void check_trace(JobTrace& trace, bool fill, std::vector<std::string>& assumed) {
    if (trace.ranks.empty()) throw BadFile(trace.name, "", "there is no rank in it");
    std::sort(trace.ranks.begin(), trace.ranks.end(),
              [](const TraceRank& a, const TraceRank& b) { return a.rank < b.rank; });
    fill_missing(trace, fill, assumed);
    std::sort(trace.ranks.begin(), trace.ranks.end(),
              [](const TraceRank& a, const TraceRank& b) { return a.rank < b.rank; });
    check_collectives(trace);
    check_transfers(trace);
}

}  // namespace opus::job
