// Puts the items of a trace that only their needs order into an order that all ranks can keep: the one in which they
// begin when the trace is played with every link lit. What begins in this order may lie on streams that keep it.
//
// What is over at one time goes by the number of its item, all ranks together, and what ranks do together begins after
// what they do alone: so ranks that have the same items get the same order.
#include <algorithm>
#include <numeric>
#include <queue>
#include <span>
#include <tuple>

#include "tools/opus-sim/meetings.h"

namespace opus::job {
namespace {

using replay::StepKind;

constexpr double kBytesPerNs = 50;  // only the order comes of it

class Play {
public:
    explicit Play(const JobTrace& trace)
        : trace_(trace), meetings_(trace), there_(meetings_.count(), 0), first_part_(meetings_.count() + 1, 0) {
        for (std::uint32_t m = 0; m < meetings_.count(); ++m) first_part_[m + 1] = first_part_[m] + meetings_.sides(m);
        parts_.resize(first_part_.back());
        for (const TraceRank& rank : trace.ranks) {
            State& s = ranks_.emplace_back();
            const auto n = static_cast<std::uint32_t>(rank.items.size());
            s.waits.assign(n, 0), s.begun.assign(n, kNever);
            s.first.assign(n + 1, 0);
            for (const std::uint32_t need : rank.needs) ++s.first[need + 1];
            std::partial_sum(s.first.begin(), s.first.end(), s.first.begin());
            s.next.resize(rank.needs.size());
            std::vector<std::uint32_t> at(s.first.begin(), s.first.end() - 1);
            for (std::uint32_t i = 0; i < n; ++i) {
                const TraceItem& item = rank.items[i];
                s.waits[i] = item.needs;
                for (std::uint32_t k = 0; k < item.needs; ++k) s.next[at[rank.needs[item.first_need + k]]++] = i;
            }
        }
    }

    void run() {
        for (std::uint32_t r = 0; r < ranks_.size(); ++r)
            for (std::uint32_t i = 0; i < ranks_[r].waits.size(); ++i)
                if (ranks_[r].waits[i] == 0) ready(r, i);
        while (!ends_.empty() || !complete_.empty()) {
            if (ends_.empty() || ends_.top().ns != now_ || ends_.top().round != round_) begin_meetings();
            const End end = ends_.top();
            ends_.pop();
            now_ = end.ns, round_ = end.round;
            if (end.rank != kMeeting) {
                processor(end.rank, end.item).busy = false;
                over(end.rank, end.item);
                compute(end.rank, processor(end.rank, end.item));
                continue;
            }
            for (const auto& [r, i] : parts(end.item)) over(r, i);
        }
        complain();
    }

    // The items of each rank as they begin.
    std::vector<std::uint32_t> order(std::uint32_t rank) const {
        const State& s = ranks_[rank];
        std::vector<std::uint32_t> order(s.begun.size());
        std::iota(order.begin(), order.end(), 0u);
        std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return s.begun[a] < s.begun[b]; });
        return order;
    }

private:
    static constexpr std::uint32_t kNever = 0xffffffffu, kMeeting = 0xffffffffu;
    using Part = std::pair<std::uint32_t, std::uint32_t>;  // rank, item
    struct State {
        std::vector<std::uint32_t> waits, begun;  // of each item
        std::vector<std::uint32_t> first, next;   // what waits for each
        struct Processor {
            std::queue<std::uint32_t> due;  // computations that nothing but another one holds up
            bool busy = false;
        };
        Processor device, host;
    };
    struct End {
        std::int64_t ns = 0;
        std::uint32_t round = 0;   // of what is over at that time: one more than what it waited for
        std::uint32_t number = 0;  // of the item; of a meeting's, the least
        std::uint32_t rank = 0, item = 0;
        bool operator<(const End& o) const {
            return std::tie(ns, round, number, rank, item) > std::tie(o.ns, o.round, o.number, o.rank, o.item);
        }
    };

    void end(std::int64_t after, std::uint32_t number, std::uint32_t rank, std::uint32_t item) {
        ends_.push({now_ + after, after == 0 ? round_ + 1 : 0, number, rank, item});
        ++begun_;
    }

    std::span<Part> parts(std::uint32_t meeting) {
        return {parts_.data() + first_part_[meeting], meetings_.sides(meeting)};
    }

    void ready(std::uint32_t r, std::uint32_t i) {
        const TraceItem& item = trace_.ranks[r].items[i];
        if (item.kind == StepKind::compute) {
            processor(r, i).due.push(i);
            return compute(r, processor(r, i));
        }
        const std::uint32_t m = meetings_.of(r, i);
        parts(m)[there_[m]] = {r, i};
        if (++there_[m] < meetings_.sides(m)) return;
        std::uint32_t least = i;
        for (const auto& [rank, part] : parts(m)) least = std::min(least, part);
        complete_.emplace_back(least, m);
    }

    void begin_meetings() {
        std::sort(complete_.begin(), complete_.end());
        for (const auto& [least, m] : complete_) {
            for (const auto& [rank, part] : parts(m)) ranks_[rank].begun[part] = begun_;
            const auto& [rank, part] = parts(m).front();
            const double bytes = static_cast<double>(trace_.ranks[rank].items[part].bytes);
            end(1000 + static_cast<std::int64_t>(bytes / kBytesPerNs), least, kMeeting, m);
        }
        complete_.clear();
    }

    State::Processor& processor(std::uint32_t r, std::uint32_t i) {
        return trace_.ranks[r].items[i].stream == kHost ? ranks_[r].host : ranks_[r].device;
    }

    void compute(std::uint32_t r, State::Processor& p) {
        if (p.busy || p.due.empty()) return;
        const std::uint32_t i = p.due.front();
        p.due.pop();
        p.busy = true;
        ranks_[r].begun[i] = begun_;
        end(trace_.ranks[r].items[i].ns, i, r, i);
    }

    void over(std::uint32_t r, std::uint32_t i) {
        State& s = ranks_[r];
        for (std::uint32_t k = s.first[i]; k < s.first[i + 1]; ++k)
            if (--s.waits[s.next[k]] == 0) ready(r, s.next[k]);
    }

    void complain() const {
        for (std::uint32_t r = 0; r < ranks_.size(); ++r)
            for (std::uint32_t i = 0; i < ranks_[r].begun.size(); ++i) {
                if (ranks_[r].begun[i] != kNever || ranks_[r].waits[i] != 0) continue;
                fail(r, i,
                     "rank " + std::to_string(r) +
                         " is ready for this operation, and another side never comes to it: ranks wait for each other "
                         "in a circle");
            }
        for (std::uint32_t r = 0; r < ranks_.size(); ++r)
            for (std::uint32_t i = 0; i < ranks_[r].begun.size(); ++i)
                if (ranks_[r].begun[i] == kNever)
                    fail(r, i, "it waits for itself, by way of others: the needs of this rank go round");
    }

    [[noreturn]] void fail(std::uint32_t r, std::uint32_t i, const std::string& text) const {
        throw BadFile(trace_.ranks[r].file, "entry " + std::to_string(trace_.ranks[r].items[i].place), text);
    }

    const JobTrace& trace_;
    Meetings meetings_;
    std::vector<std::uint32_t> there_;
    std::vector<std::size_t> first_part_;
    std::vector<Part> parts_;  // of all meetings
    std::vector<State> ranks_;
    std::priority_queue<End> ends_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> complete_;  // meetings that are to begin, by the least of their items
    std::int64_t now_ = 0;
    std::uint32_t round_ = 0, begun_ = 0;
};

void reorder(TraceRank& rank, const std::vector<std::uint32_t>& order) {
    std::vector<std::uint32_t> place(order.size());
    std::vector<TraceItem> items;
    items.reserve(order.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) {
        place[order[i]] = i;
        items.push_back(rank.items[order[i]]);
    }
    rank.items = std::move(items);
    for (std::uint32_t& need : rank.needs) need = place[need];
}

}  // namespace

void order_trace(JobTrace& trace) {
    if (trace.ordered) return;
    Play play(trace);
    play.run();
    for (std::uint32_t r = 0; r < trace.ranks.size(); ++r) reorder(trace.ranks[r], play.order(r));
    trace.ordered = true;
}

}  // namespace opus::job
