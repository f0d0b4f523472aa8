// From a trace to the workload that is played: a communicator for each set of groups that share no rank, a stream for
// what computes and one for each communicator, and an event for each need from stream to stream.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "tools/opus-sim/job_trace.h"
#include "tools/replay/pattern.h"

namespace opus::job {
namespace {

using replay::kNobody;
using replay::Step;
using replay::StepKind;

bool is_transfer(const TraceItem& item) { return item.kind == StepKind::send || item.kind == StepKind::recv; }

// Groups that share no rank are of one communicator.
class CommList {
public:
    CommList(replay::Workload& w, std::uint32_t world) : w_(w), world_(world) {}

    std::uint32_t add(const std::vector<std::uint32_t>& ranks, const std::string& prefix) {
        std::vector<std::uint32_t>& same = of_prefix_[{prefix, ranks.size()}];
        for (const std::uint32_t c : same)
            if (std::none_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) { return taken_[c][r]; }))
                return put(c, ranks);
        const auto c = static_cast<std::uint32_t>(w_.comms.size());
        w_.comms.push_back(
            {prefix + std::to_string(ranks.size()) + (same.empty() ? "" : "." + std::to_string(same.size())), "", {}});
        w_.streams.push_back(w_.comms.back().name);
        taken_.emplace_back(world_, false);
        same.push_back(c);
        return put(c, ranks);
    }

private:
    std::uint32_t put(std::uint32_t c, const std::vector<std::uint32_t>& ranks) {
        for (const std::uint32_t r : ranks) taken_[c][r] = true;
        w_.comms[c].groups.push_back(ranks);
        return c;
    }

    replay::Workload& w_;
    std::uint32_t world_;
    std::vector<std::vector<bool>> taken_;
    std::map<std::pair<std::string, std::size_t>, std::vector<std::uint32_t>> of_prefix_;
};

class Writer {
public:
    Writer(const JobTrace& trace, std::vector<replay::Place> places) : trace_(trace), comms_(w_, trace.world) {
        w_.name = trace.name;
        w_.places = std::move(places);
        w_.streams.push_back("compute");
        std::vector<bool> used(trace.groups.size(), false);
        std::map<std::pair<std::uint32_t, std::uint32_t>, bool> pairs;
        bool host_used = false;
        for (const TraceRank& r : trace.ranks)
            for (const TraceItem& item : r.items) {
                if (item.group != kNobody) used[item.group] = true;
                if (item.kind == StepKind::send) pairs[{r.rank, item.peer}] = true;
                host_used |= item.kind == StepKind::compute && item.stream == kHost;
            }
        for (std::uint32_t g = 0; g < trace.groups.size(); ++g)
            of_group_.push_back(used[g] ? comms_.add(trace.groups[g], "group") : kNobody);
        for (const auto& [pair, yes] : pairs)
            of_pair_[pair] = comms_.add({pair.first, pair.second}, pair.first < pair.second ? "next" : "back");
        if (host_used) host_ = static_cast<std::uint32_t>(w_.streams.size()), w_.streams.push_back("host");
    }

    replay::Workload workload() {
        for (const TraceRank& rank : trace_.ranks) {
            role(rank);
            join_alike();
        }
        return std::move(w_);
    }

private:
    std::uint32_t comm_of(std::uint32_t rank, const TraceItem& item) const {
        if (item.kind == StepKind::compute) return kNobody;
        if (!is_transfer(item)) return of_group_[item.group];
        return of_pair_.at(item.kind == StepKind::send ? std::pair(rank, item.peer) : std::pair(item.peer, rank));
    }
    // Streams of the workload: 0 computes, then one a communicator, then the host's.
    std::uint32_t stream_of(const TraceRank& rank, std::uint32_t i) const {
        if (rank.items[i].kind == StepKind::compute && rank.items[i].stream == kHost) return host_;
        if (rank.items[i].kind == StepKind::compute && rank.items[i].stream == kNextOnly && i + 1 < rank.items.size())
            ++i;
        const std::uint32_t comm = comm_of(rank.rank, rank.items[i]);
        return comm == kNobody ? 0 : comm + 1;
    }

    // Which of an item's needs its stream has not met already: by stream, the latest.
    void find_waits(const TraceRank& rank) {
        const std::size_t streams = w_.streams.size();
        const std::uint32_t none = kNobody;
        std::vector<std::uint32_t> met(streams * streams, none), latest(streams, none);
        waits_.assign(rank.items.size(), {});
        awaited_.assign(rank.items.size(), false);
        for (std::uint32_t i = 0; i < rank.items.size(); ++i) {
            const TraceItem& item = rank.items[i];
            const std::uint32_t mine = stream_of(rank, i);
            touched_.clear();
            for (std::uint32_t k = 0; k < item.needs; ++k) {
                const std::uint32_t need = rank.needs[item.first_need + k];
                const std::uint32_t theirs = stream_of(rank, need);
                if (theirs == mine) continue;
                if (latest[theirs] == none) touched_.push_back(theirs);
                if (latest[theirs] == none || latest[theirs] < need) latest[theirs] = need;
            }
            for (const std::uint32_t s : touched_) {
                std::uint32_t& before = met[mine * streams + s];
                if (before == none || before < latest[s]) {
                    before = latest[s];
                    waits_[i].push_back(latest[s]);
                    awaited_[latest[s]] = true;
                }
                latest[s] = none;
            }
        }
    }

    void role(const TraceRank& rank) {
        find_waits(rank);
        w_.roles.push_back({"r" + std::to_string(rank.rank), {rank.rank}, {}});
        left_ns_.assign(w_.streams.size(), 0);
        busy_.assign(w_.streams.size(), kNobody);
        events_.assign(rank.items.size(), kNobody);
        std::uint32_t next = 0;
        for (std::uint32_t i = 0; i < rank.items.size(); ++i) {
            const TraceItem& item = rank.items[i];
            const std::uint32_t stream = stream_of(rank, i);
            for (const std::uint32_t need : waits_[i]) event(StepKind::wait, stream, events_[need]);
            if (item.kind == StepKind::compute)
                compute(stream, item.ns);
            else
                operation(rank.rank, item, stream);
            if (awaited_[i]) event(StepKind::record, stream, events_[i] = next++);
        }
        while (w_.events.size() < next) w_.events.push_back("e" + std::to_string(w_.events.size()));
    }

    // Ranks that do the same have one role.
    void join_alike() {
        const std::vector<Step>& mine = steps();
        std::uint64_t hash = mine.size();
        for (const Step& s : mine)
            hash = replay::mix(hash, std::uint64_t{s.comm} << 32 | s.event) + replay::mix(s.bytes, s.us) +
                   static_cast<std::uint64_t>(s.kind);
        std::vector<std::uint32_t>& like = by_hash_[hash];
        for (const std::uint32_t r : like) {
            if (!std::ranges::equal(w_.roles[r].steps, mine, &Step::does_as)) continue;
            w_.roles[r].ranks.push_back(w_.roles.back().ranks.front());
            w_.roles.pop_back();
            return;
        }
        like.push_back(static_cast<std::uint32_t>(w_.roles.size() - 1));
    }

    std::vector<Step>& steps() { return w_.roles.back().steps; }

    Step& add(StepKind kind, std::uint32_t stream) {
        Step step;
        step.kind = kind, step.stream = stream;
        busy_[stream] = kNobody;
        steps().push_back(std::move(step));
        return steps().back();
    }

    // Whole microseconds; what is left over is for the next.
    void compute(std::uint32_t stream, std::int64_t ns) {
        left_ns_[stream] += ns;
        const std::int64_t us = left_ns_[stream] / 1000;
        left_ns_[stream] %= 1000;
        if (us == 0) return;
        if (busy_[stream] == kNobody) {
            add(StepKind::compute, stream);
            busy_[stream] = static_cast<std::uint32_t>(steps().size() - 1);
        }
        steps()[busy_[stream]].us += static_cast<std::uint64_t>(us);
    }

    void operation(std::uint32_t rank, const TraceItem& item, std::uint32_t stream) {
        const std::uint32_t comm = comm_of(rank, item);
        Step& step = add(item.kind, stream);
        step.comm = comm, step.bytes = item.bytes;
        step.dtype = replay::DType::uint8;
        if (!is_transfer(item) && !replay::is_rooted(item.kind)) return;
        const replay::Membership mine = membership(w_.comms[comm], rank);
        const auto& group = w_.comms[comm].groups[mine.group];
        step.peer = static_cast<std::uint32_t>(std::find(group.begin(), group.end(), item.peer) - group.begin());
        if (step.peer == group.size()) step.peer = 0;
    }

    void event(StepKind kind, std::uint32_t stream, std::uint32_t event) { add(kind, stream).event = event; }

    const JobTrace& trace_;
    replay::Workload w_;
    CommList comms_;
    std::vector<std::uint32_t> of_group_;
    std::uint32_t host_ = kNobody;  // stream of what the host does
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> of_pair_;
    std::vector<std::vector<std::uint32_t>> waits_;
    std::vector<bool> awaited_;
    std::vector<std::uint32_t> touched_, busy_, events_;
    std::vector<std::int64_t> left_ns_;
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> by_hash_;  // roles, by what they do
};

}  // namespace

replay::Workload workload_of(const JobTrace& trace, std::vector<replay::Place> places) {
    return Writer(trace, std::move(places)).workload();
}

void count_trace(const JobTrace& trace, Figures& figures) {
    figures.ranks = static_cast<std::uint32_t>(trace.ranks.size());
    figures.world = trace.world;
    std::vector<bool> used(trace.groups.size(), false);
    for (const TraceRank& rank : trace.ranks)
        for (const TraceItem& item : rank.items) {
            if (item.kind == StepKind::compute && item.stream == kHost) continue;
            if (item.kind == StepKind::compute) {
                figures.compute_ms += static_cast<double>(item.ns) / 1e6;
                continue;
            }
            if (item.group != kNobody) used[item.group] = true;
            const auto members = item.group == kNobody ? 2u : static_cast<std::uint32_t>(trace.groups[item.group].size());
            OperationFigure& f = figures.operations[{item.kind, members}];
            ++f.calls, f.bytes += item.bytes, f.recorded_ms += static_cast<double>(item.ns) / 1e6;
        }
    std::map<std::size_t, std::uint32_t> sizes;
    for (std::size_t g = 0; g < used.size(); ++g)
        if (used[g]) ++sizes[trace.groups[g].size()];
    for (const auto& [size, count] : sizes)
        figures.groups[std::to_string(count) + " of " + std::to_string(size)] = count;
}

}  // namespace opus::job
