#include "tools/opus-sim/longest_way.h"

#include <algorithm>
#include <map>
#include <memory>

namespace opus::job {
namespace {

using replay::kNobody;
using replay::Step;
using replay::StepKind;
using Kind = WaySegment::Kind;

// One rank of a run, from its program and from when its launches ended: what each thing it did waited for last.
class RankCourse {
public:
    static constexpr std::uint32_t kNone = 0xffffffffu;
    struct Thing {
        Kind kind = Kind::compute;
        std::uint32_t seq = 0;  // of a launch
        std::int64_t from_ns = 0, to_ns = 0;
        std::uint32_t before = kNone;  // what was awaited last; kNone: the beginning
    };

    RankCourse(const JobLaunches& launches, const replay::DryRunOptions& options, const VariantLaunches& played,
               std::uint32_t rank)
        : l_(launches), o_(options), played_(played), rank_(rank) {
        const replay::Workload& w = l_.workload();
        streams_.resize(w.streams.size()), comms_.resize(w.comms.size()), events_.resize(w.events.size());
        const std::vector<Step>& steps = l_.steps(l_.role_of(rank));
        for (iteration_ = 0; iteration_ < played.variant().run.iterations[rank].size(); ++iteration_) {
            for (std::size_t at = 0; at < steps.size(); ++at)
                if (is_played(steps[at], iteration_)) take(steps[at], at + 1);
            for (const Mark& s : streams_) host_ = later(host_, s);
            ends_.push_back(host_.thing);
        }
    }

    const Thing& operator[](std::uint32_t i) const { return things_[i]; }
    std::uint32_t end_of(std::uint32_t iteration) const { return ends_[iteration]; }
    std::uint32_t launch(std::uint64_t seq) const { return launch_[seq]; }

private:
    struct Mark {
        std::int64_t at = 0;
        std::uint32_t thing = kNone;
    };
    static Mark later(const Mark& a, const Mark& b) { return b.at > a.at ? b : a; }

    Mark add(Kind kind, const Mark& start, std::int64_t end, std::uint32_t seq = 0) {
        things_.push_back({kind, seq, start.at, end, start.thing});
        return {end, static_cast<std::uint32_t>(things_.size() - 1)};
    }

    void take(const Step& step, std::size_t at) {
        const auto ns = [&] { return replay::gap_ns(l_.workload(), o_, step, rank_, iteration_, at); };
        switch (step.kind) {
            case StepKind::compute: {
                const Mark start = later(streams_[step.stream], host_);
                streams_[step.stream] = add(Kind::compute, start, start.at + ns());
                return;
            }
            case StepKind::host: host_ = add(Kind::host, host_, host_.at + ns()); return;
            case StepKind::record: events_[step.event] = later(streams_[step.stream], host_); return;
            case StepKind::wait:
                streams_[step.stream] = later(later(streams_[step.stream], host_), events_[step.event]);
                return;
            case StepKind::sync:
                for (std::uint32_t i = 0; i < streams_.size(); ++i)
                    if (step.stream == kNobody || step.stream == i) host_ = later(host_, streams_[i]);
                return;
            case StepKind::create:
            case StepKind::destroy: return;
            case StepKind::group_begin: in_group_ = true; return;
            case StepKind::group_end: in_group_ = false; return close();
            default:
                open_.push_back(&step);
                if (!in_group_) close();
        }
    }

    void close() {
        if (open_.empty()) return;
        const auto seq = static_cast<std::uint32_t>(launch_.size());
        Mark start = host_;
        for (const Step* step : open_) start = later(later(start, streams_[step->stream]), comms_[step->comm]);
        const Mark end = add(Kind::operation, start, played_.record(rank_, seq).end_ns, seq);
        for (const Step* step : open_) streams_[step->stream] = comms_[step->comm] = end;
        launch_.push_back(end.thing);
        open_.clear();
    }

    const JobLaunches& l_;
    const replay::DryRunOptions& o_;
    const VariantLaunches& played_;
    std::uint32_t rank_;
    std::uint32_t iteration_ = 0;
    bool in_group_ = false;
    std::vector<const Step*> open_;
    Mark host_;
    std::vector<Mark> streams_, comms_, events_;
    std::vector<Thing> things_;
    std::vector<std::uint32_t> ends_, launch_;  // things
};

class Walk {
public:
    Walk(const JobLaunches& launches, const replay::DryRunOptions& options, const VariantLaunches& played,
         const std::vector<CircuitUse>& uses)
        : l_(launches), o_(options), played_(played) {
        const Fabric& fabric = l_.map().fabric();
        for (const sim::Turn& t : played.variant().turns) {
            const GpuId a = fabric.ports[t.a].gpu, b = fabric.ports[t.b].gpu;
            dark_[std::minmax(a, b)].emplace_back(t.from_ns, t.lit_ns);
            for (const GpuId gpu : {a, b}) occupied_[gpu].emplace_back(t.from_ns, t.lit_ns);
        }
        for (const CircuitUse& use : uses)
            for (const sim::GpuPair& pair : l_.all_pairs()[use.pairs].pairs)
                for (const GpuId gpu : {pair.first, pair.second}) occupied_[gpu].emplace_back(use.begin_ns, use.end_ns);
        for (auto& [pair, spans] : dark_) spans = joined(std::move(spans));
        for (auto& [gpu, spans] : occupied_) spans = joined(std::move(spans));
    }

    LongestWay run() {
        const std::vector<std::int64_t> ends = played_.variant().run.ends();
        LongestWay way;
        way.iteration = static_cast<std::uint32_t>(ends.size() - 1);
        start_ = way.iteration == 0 ? 0 : ends[way.iteration - 1];
        way.ms = static_cast<double>(ends.back() - start_) / 1e6;
        std::uint32_t rank = 0;
        while (played_.variant().run.iterations[rank].back() != ends.back()) ++rank;
        std::uint32_t thing = course(rank).end_of(way.iteration);
        for (std::int64_t now = ends.back(); now > start_ && thing != RankCourse::kNone;) {
            const RankCourse::Thing t = course(rank)[thing];
            if (t.kind != Kind::operation) {
                put(t.kind, 0, rank, t.from_ns, now);
                thing = t.before, now = t.from_ns;
            } else {
                const Meeting m = operation(rank, t.seq, now);
                rank = m.last.rank;
                thing = course(rank)[course(rank).launch(m.last.seq)].before;
                now = m.full_ns;
            }
        }
        std::reverse(segments_.begin(), segments_.end());
        way.segments = std::move(segments_);
        return way;
    }

private:
    const RankCourse& course(std::uint32_t rank) {
        constexpr std::size_t kKept = 256;  // of jobs with thousands of ranks
        auto at = courses_.find(rank);
        if (at != courses_.end()) return *at->second;
        if (courses_.size() >= kKept) courses_.clear();
        return *courses_.emplace(rank, std::make_unique<RankCourse>(l_, o_, played_, rank)).first->second;
    }

    // Back through a launch to when the last member of its last operation was there.
    Meeting operation(std::uint32_t rank, std::uint32_t seq, std::int64_t end_ns) {
        Meeting last;
        const JobLaunches::Operation* which = nullptr;
        for (const auto* o = l_.begin(rank, seq); o != l_.end(rank, seq); ++o) {
            const Meeting m = meeting_of(l_, played_, *o, rank);
            if (which == nullptr || m.begin_ns > last.begin_ns) last = m, which = o;
        }
        const std::uint32_t label = l_.label(*which->step, rank);
        const bool crosses = l_.crosses(*which->step, rank);
        put(crosses ? Kind::operation : Kind::on_node, label, rank, last.begin_ns, end_ns);
        if (last.begin_ns > last.full_ns) wait(*which->step, label, rank, {last.full_ns, last.begin_ns});
        return last;
    }

    // Cut into what was dark, what was occupied and the rest.
    void wait(const Step& step, std::uint32_t label, std::uint32_t rank, Span span) {
        std::vector<Span> dark, occupied;
        const auto add = [&](std::vector<Span>& to, const std::vector<Span>& from) {
            auto at = std::lower_bound(from.begin(), from.end(), span.first,
                                       [](const Span& s, std::int64_t t) { return s.second <= t; });
            for (; at != from.end() && at->first < span.second; ++at) to.push_back(*at);
        };
        for (const sim::GpuPair& pair : l_.all_pairs()[l_.pairs(step, rank)].pairs) {
            if (const auto at = dark_.find(pair); at != dark_.end()) add(dark, at->second);
            for (const GpuId gpu : {pair.first, pair.second})
                if (const auto at = occupied_.find(gpu); at != occupied_.end()) add(occupied, at->second);
        }
        dark = joined(std::move(dark)), occupied = joined(std::move(occupied));
        std::vector<std::int64_t> cuts{span.first, span.second};
        for (const std::vector<Span>* spans : {&dark, &occupied})
            for (const Span& s : *spans)
                for (const std::int64_t t : {s.first, s.second})
                    if (t > span.first && t < span.second) cuts.push_back(t);
        std::sort(cuts.begin(), cuts.end());
        for (std::size_t i = cuts.size() - 1; i > 0; --i) {
            const Span part{cuts[i - 1], cuts[i]};
            if (part.first == part.second) continue;
            const Kind kind = covered(dark, part) > 0       ? Kind::dark
                              : covered(occupied, part) > 0 ? Kind::occupied
                                                            : Kind::control;
            put(kind, label, rank, part.first, part.second);
        }
    }

    // Segments are put from the last to the first.
    void put(Kind kind, std::uint32_t label, std::uint32_t rank, std::int64_t from_ns, std::int64_t to_ns) {
        from_ns = std::max(from_ns, start_) - start_, to_ns = std::max(to_ns, start_) - start_;
        if (to_ns <= from_ns) return;
        if (!segments_.empty()) {
            WaySegment& next = segments_.back();
            if (next.kind == kind && next.label == label && next.rank == rank && next.from_ns == to_ns) {
                next.from_ns = from_ns;
                return;
            }
        }
        segments_.push_back({kind, label, rank, from_ns, to_ns});
    }

    const JobLaunches& l_;
    const replay::DryRunOptions& o_;
    const VariantLaunches& played_;
    std::int64_t start_ = 0;
    std::map<sim::GpuPair, std::vector<Span>> dark_;
    std::map<GpuId, std::vector<Span>> occupied_;
    std::map<std::uint32_t, std::unique_ptr<RankCourse>> courses_;
    std::vector<WaySegment> segments_;
};

}  // namespace

double LongestWay::of_kind(WaySegment::Kind kind) const {
    std::int64_t ns = 0;
    for (const WaySegment& s : segments)
        if (s.kind == kind) ns += s.to_ns - s.from_ns;
    return static_cast<double>(ns) / 1e6;
}

LongestWay longest_way(const JobLaunches& launches, const replay::DryRunOptions& options, const VariantLaunches& played,
                       const std::vector<CircuitUse>& uses) {
    return Walk(launches, options, played, uses).run();
}

}  // namespace opus::job
