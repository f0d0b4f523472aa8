// Jobs that do again and again what they have done: what their launches did is learned (controller/plan), and their
// circuits follow the plan that is made of it, ahead of demand. Nothing waits for a plan for longer than the plan says
// and a dark time, and what is in no plan goes by demand.
#include <algorithm>
#include <limits>
#include <numeric>

#include "controller/core/impl.h"

namespace opus::controller {
namespace {

constexpr TimeNs kMostWaits = 16;           // dark times that a plan lets what is ready wait
constexpr std::size_t kMostKept = 512;      // uses to come for which a port keeps its light
constexpr std::uint64_t kLearnLaps = 4;     // after each of so many laps a plan is made anew
constexpr std::uint64_t kTrials = 200'000;  // of pairs, in search of an order
constexpr std::uint64_t kLeastTrials = 20, kMostTrials = 4000;
constexpr std::size_t kMostKinds = 4;     // laps that are remembered
constexpr std::size_t kMostInterludes = 8;  // of a lap
constexpr std::size_t kMostUses = 4096, kMostPairs = 65536;  // of a lap that is planned
constexpr TimeNs kClockSet = 10'000'000'000;
constexpr TimeNs kBeginCosts = 4;           // dark times; docs/decisions/011-each-begin-pays.md
constexpr double kLittleLonger = 0.02;  // than laps on demand; where no order promises less, uses go on as they were seen
constexpr TimeNs kLeastCompared = 250'000'000;  // of laps that are compared: in less there is too much chance

// What its ranks do and how its keys are numbered, without its uses, counted from a later lap.
plan::Lap numbers_from(const plan::Lap& lap, std::int64_t laps) {
    plan::Lap numbers;
    numbers.ranks = lap.ranks;
    numbers.sequences = lap.sequences;
    numbers.advance(laps);
    return numbers;
}

}  // namespace

std::vector<plan::SeenKey> Core::Impl::keys_of(const Launch& launch) {
    std::vector<plan::SeenKey> keys;
    for (const KeyRef& r : launch.keys) keys.push_back({r.key->key, r.key->mesh});
    return keys;
}

void Core::Impl::note_seen(NodeIndex node, RankId id, OpKind op, std::vector<plan::SeenKey> keys, std::uint64_t grant,
                           const wire::LaunchDone& done) {
    if (done.ungated || keys.empty() || done.ready_ns <= 0 || done.go_ns < done.ready_ns || done.done_ns < done.go_ns)
        return;
    const Rank* rank = rank_of(node, id);
    if (rank == nullptr || rank->job == nullptr) return;
    // By this controller's clock: a word takes at least as long as the quickest has.
    NodeState& n = nodes[node];
    const TimeNs late = now - done.done_ns;
    if (n.behind_ns > late || late - n.behind_ns > kClockSet) n.behind_ns = late;  // a clock may be set
    const TimeNs behind = n.behind_ns;
    Job& job = *rank->job;
    for (const plan::SeenKey& k : keys)
        if (job.course != nullptr) begin_use(job, k.key);  // in a run it was not asked for
    plan::Seen seen{op, std::move(keys), done.launch.seq, grant, done.ready_ns + behind, done.go_ns + behind, done.done_ns + behind};
    if (job.kind != nullptr) job.kind->ended({node, id}, seen);
    job.log.add({node, id}, std::move(seen));
    if (job.kind != nullptr) {
        if (job.aside) note_aside(job, {node, id}, done.launch.seq);
        time_laps(job);
        if (job.left_at == 0) return;  // it has never done anything else
    }
    if (job.log.added() >= job.learn_at) learn(job);
    if (job.kind == nullptr && job.log.added() >= job.again_at) come_to_known(job);
}

// What the job does is what it has done before it did something else.
void Core::Impl::come_to_known(Job& job) {
    if (job.kinds.empty()) return;
    job.again_at = job.log.added() + std::max<std::uint64_t>(4, job.kinds.back()->lap.launches / 16);
    for (auto kind = job.kinds.rbegin(); kind != job.kinds.rend(); ++kind)
        if (plan::find_again((*kind)->lap, job.log)) {
            remember_interlude(job, **kind);
            return come_to(job, **kind);
        }
}

void Core::Impl::learn(Job& job) {
    job.learn_later();
    const auto pairs_of = [this](const plan::SeenKey& seen) {
        std::vector<plan::Pair> pairs;
        Comm* comm = comms.find(seen.key.comm);
        if (comm == nullptr) return pairs;
        KeyState state;
        state.key = seen.key;
        state.comm = comm;
        state.mesh = seen.mesh;
        const auto [begin, end] = edges_of(state);
        for (const EdgeId* e = begin; e != end; ++e) pairs.emplace_back(inventory.edge(*e).a, inventory.edge(*e).b);
        return pairs;
    };
    auto lap = plan::find_lap(job.log, pairs_of);
    if (!lap || !plan::time_lap(*lap, job.log)) return;
    std::size_t needs = 0;
    for (const plan::Use& use : lap->uses) needs += use.pairs.size();
    if (lap->uses.size() > kMostUses || needs > kMostPairs) return;
    // A part of what it does as a rule is not what it does, unless it goes on with that.
    for (const auto& kind : job.kinds)
        if (lap->is_part_of(kind->lap) && (job.kind != nullptr || job.log.added() < job.left_at + 2 * kind->lap.launches)) return;
    if (job.kind != nullptr) {  // with its interludes
        if (job.kind->lap.does_as(*lap)) return;
        stop_plan(job);
    }
    TimeNs owed = 0;
    for (const auto& kind : job.kinds)
        if (kind->lap.is_part_of(*lap)) owed = std::max(owed, kind->guard.laps_owed() * kind->yardstick_ns());
    forget_kinds(job, [&](const Kind& kind) { return kind.lap.is_part_of(*lap); });
    const auto known = std::find_if(job.kinds.begin(), job.kinds.end(), [&](const auto& kind) { return kind->lap.does_as(*lap); });
    if (known != job.kinds.end()) {
        (*known)->lap = std::move(*lap);
        (*known)->order = {};  // of uses that had other numbers
        return come_to(job, **known);
    }
    if (const Kind* oldest = job.kinds.size() == kMostKinds ? job.kinds.front().get() : nullptr)
        forget_kinds(job, [oldest](const Kind& kind) { return &kind == oldest; });
    Kind& kind = *job.kinds.emplace_back(std::make_unique<Kind>(std::move(*lap)));
    kind.owed_ns = owed;
    come_to(job, kind);
}

void Core::Impl::forget_kinds(Job& job, const std::function<bool(const Kind&)>& which) {
    if (job.left && which(*job.left->kind)) job.left.reset();
    std::erase_if(job.kinds, [&](const auto& kind) { return which(*kind); });
}

// From now on its laps are timed. What was seen of them already counts.
void Core::Impl::come_to(Job& job, Kind& kind) {
    job.kind = &kind;
    kind.watch_anew();
    kind.since = 1;  // the lap before it may have been something else
    kind.again = 0;
    kind.took = kind.should = {};
    for (const auto& [name, seen] : job.log.ranks())
        for (const plan::Seen& s : seen)
            if (s.seq >= job.log.marked(name)) kind.ended(name, s);
    time_laps(job);
    if (job.kind == &kind) follow_rule(job);
}

void Kind::watch_anew() {
    watch = plan::Watch(lap);
    loss = {};
}

void Kind::ended(const RankName& rank, const plan::Seen& launch) {
    watch.ended(rank, launch.seq, launch.done_ns);
    loss.ended(lap, rank, launch);
}

void Kind::look_later() { again = watch.unbegun() + (1ll << std::min<std::uint32_t>(in_vain++, 16)); }

Kind::Took Kind::yardstick() const {
    Took sum;
    if (on_demand.empty()) return sum;
    for (const Took& took : on_demand) sum.ns += took.ns, sum.lost_ns += took.lost_ns;
    const auto laps = static_cast<TimeNs>(on_demand.size());
    return {sum.ns / laps, sum.lost_ns / laps};
}

// Laps may differ in what is computed in them, and what light has cost is known by estimate only: as far as both agree.
TimeNs Kind::longer_ns(const Took& took, const Took& should) {
    const TimeNs longer = took.ns - should.ns, lost = took.lost_ns - should.lost_ns;
    return longer > 0 ? std::max<TimeNs>(0, std::min(longer, lost)) : longer;
}

// Where what it has lost is not known: all that it is longer.
Kind::Took Kind::took_of(const plan::Watch::Took& took) const {
    const Took should = yardstick();
    return {took.ns, loss.lost_ns(lap, took.lap).value_or(on_demand.empty() ? 0 : should.lost_ns + took.ns - should.ns)};
}

// A planned lap is looked at before it is over where it is much longer than on demand, and then where it is as much longer again.
bool Core::Impl::lasts_too_long(Job& job) {
    Kind& kind = *job.kind;
    const Kind::Took yardstick = kind.yardstick();
    const auto so_far = kind.watch.since_lap_before();
    if (yardstick.ns < kLeastCompared || so_far.lap < kind.since) return false;
    const TimeNs looked = so_far.lap == kind.seen_long.lap ? kind.seen_long.ns : 0;
    if (so_far.ns <= std::max(yardstick.ns, looked) / 8 * 9) return false;
    kind.seen_long = so_far;
    const TimeNs longer = Kind::longer_ns(kind.took_of(so_far), yardstick);
    if (longer <= yardstick.ns / 8) return false;
    kind.found_long = {so_far.lap, kind.guard};
    return kind.guard.lasts_too_long(1 + static_cast<double>(longer) / static_cast<double>(yardstick.ns));
}

// Laps that are over, planned or on demand. What is slower for its plan goes on on demand (guard.h).
void Core::Impl::time_laps(Job& job) {
    Kind& kind = *job.kind;
    const bool planned = job.course != nullptr;
    bool changed = false, over = false;
    while (const auto took = kind.watch.next()) {
        over = true;
        if (kind.found_long && took->lap >= kind.found_long->lap) kind.found_long.reset();
        if (took->lap < kind.since || changed) continue;
        const Kind::Took lap = kind.took_of(*took);
        if (!planned) {
            kind.on_demand.push_back(lap);
            if (kind.on_demand.size() > Kind::kMostTimed) kind.on_demand.pop_front();
        }
        if (kind.guard.stage() == Guard::Stage::measuring) {
            kind.owed_ns -= std::min(kind.owed_ns, took->ns);
            if (kind.owed_ns == 0) changed = kind.guard.begin();
            continue;
        }
        if (planned != kind.guard.provisions()) continue;
        const Kind::Took yardstick = kind.yardstick();
        kind.took = {kind.took.ns + lap.ns, kind.took.lost_ns + lap.lost_ns};
        kind.should = {kind.should.ns + yardstick.ns, kind.should.lost_ns + yardstick.lost_ns};
        if (kind.should.ns < kLeastCompared) continue;
        const auto longer = static_cast<double>(Kind::longer_ns(std::exchange(kind.took, {}), kind.should));
        changed = kind.guard.lap_over(1 + longer / static_cast<double>(std::exchange(kind.should, {}).ns));
    }
    if (!changed && planned) changed = lasts_too_long(job);
    if (!changed) {
        if (over && !planned && may_plan(job) && kind.watch.unbegun() >= kind.again) follow_rule(job);
        return;
    }
    if (options.guard)
        log(kind.guard.stage() == Guard::Stage::away ? LogLevel::warn : LogLevel::info,
            "laps of " + std::to_string(kind.lap.uses.size()) + " phases: " + kind.guard.text());
    follow_rule(job);
}

bool Core::Impl::may_plan(const Job& job) const {
    return options.provision && job.kind != nullptr && (!options.guard || job.kind->guard.provisions());
}

// A plan saves no more of a lap than what launches were held for in it.
bool Core::Impl::is_worth_a_plan(const Kind& kind) const {
    return static_cast<double>(kind.lap.held_ns) >= Guard::kMostLost * static_cast<double>(kind.yardstick_ns());
}

// To come to a plan's light from where the job's light is costs some dark times. As far as can be known a job goes on for as
// long as it has gone on: from which lap on that time saves as much by the plan. None: the plan promises nothing.
std::optional<std::int64_t> Core::Impl::pays_from(const Kind& kind, const plan::Order& order) const {
    if (!options.guard) return 0;
    const TimeNs saved = kind.yardstick_ns() - order.lap_ns;
    if (saved <= 0) return std::nullopt;
    TimeNs dark = 0;
    for (const auto& pairs : order.ports)
        for (const auto& [p, q] : pairs) dark = std::max(dark, fabric.switch_of(p).dark_ns);
    return (kBeginCosts * dark + saved - 1) / saved;
}

std::string Core::Impl::why_no_plan(const Kind& kind) const {
    return is_worth_a_plan(kind) ? "on demand: no plan yet that promises laps as short"
                                 : "on demand: its launches wait for light for less than 0.5 % of a lap";
}

void Core::Impl::follow_rule(Job& job) {
    Kind& kind = *job.kind;
    kind.took = kind.should = {};
    if (job.aside) return;
    if (!may_plan(job)) {
        if (job.course != nullptr) kind.since = std::max(kind.since, kind.watch.unbegun());
        drop_course(job);
        return end_job_runs(job, "its job goes on on demand");
    }
    if (job.course != nullptr || job.thought != 0 || (!plan::time_lap(kind.lap, job.log) && kind.plans == 0)) return;
    if (!is_worth_a_plan(kind)) return kind.look_later();
    think(job, kind.lap);
}

// In which order, is thought about elsewhere. Until then the plan that it had goes on.
void Core::Impl::think(Job& job, plan::Lap lap) {
    Kind& kind = *job.kind;
    std::size_t pairs = 1;
    for (const plan::Use& use : lap.uses) pairs += use.pairs.size();
    auto task = std::make_shared<plan::Task>();
    task->trials = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kTrials / pairs, kLeastTrials, kMostTrials));
    task->lap = std::move(lap);
    task->place = kind.order.place;
    if (options.guard && kind.yardstick_ns() > 0)
        task->acceptable_ns = static_cast<TimeNs>((1 + kLittleLonger) * static_cast<double>(kind.yardstick_ns()));
    task->usable.resize(fabric.ports.size());
    for (PortId p = 0; p < fabric.ports.size(); ++p) task->usable[p] = !inventory.port(p).fenced();
    job.thought = next_thought++;
    job.task = task;
    out->push_back(Think{job.thought, std::move(task)});
}

void Core::Impl::handle(const Thought& e) {
    for (auto& [name, job] : jobs)
        if (job.thought == e.id) {
            job.thought = 0;
            const auto task = std::exchange(job.task, nullptr);
            if (job.kind == nullptr) return;
            if (e.order.ports.empty()) return job.kind->look_later();
            if (!may_plan(job)) return;
            const auto from = job.course != nullptr ? 0 : pays_from(*job.kind, e.order);
            if (!from)
                job.kind->look_later();
            else if (*from > job.kind->watch.unbegun() + 1)
                job.kind->again = *from - 1;
            else
                follow(job, task->lap, e.order);
            return;
        }
}

void Core::Impl::follow(Job& job, plan::Lap lap, const plan::Order& order) {
    Kind& kind = *job.kind;
    if (job.course == nullptr) kind.since = std::max(kind.since, kind.watch.unbegun());
    drop_course(job);
    const std::uint64_t uses = lap.uses.size();
    ++kind.plans;
    kind.in_vain = 0;
    kind.lap.links = lap.links;
    kind.order = order;
    job.time_at = uses * (kind.plans <= kLearnLaps ? 1 : 1ull << std::min<std::uint64_t>(kind.plans - kLearnLaps, 16));
    job.overtakes = 0;
    log(LogLevel::info, "a plan for laps of " + std::to_string(uses) + " phases: they took " + std::to_string(lap.ns / 1000) +
                            " us and are to take " + std::to_string(order.lap_ns / 1000) + " us");
    std::map<Key, std::uint64_t> reached;
    for (const auto& [sequence, s] : lap.sequences) {
        std::uint64_t& n = reached[sequence] = s.first;
        if (const Comm* comm = comms.find(sequence.comm))
            for (const auto& [key, state] : comm->keys)
                if (sequence_of(key) == sequence && (state->flying > 0 || state->done > 0)) n = std::max(n, key.n + 1);
    }
    for (const auto& [name, seen] : job.log.ranks())
        for (const plan::Seen& s : seen)
            for (const plan::SeenKey& k : s.keys)
                if (const auto at = reached.find(sequence_of(k.key)); at != reached.end()) at->second = std::max(at->second, k.key.n + 1);
    std::uint64_t laps = ~0ull;  // that are over for all
    for (const auto& [sequence, s] : lap.sequences) laps = std::min(laps, (reached.at(sequence) - s.first) / s.uses.size());
    lap.advance(lap.sequences.empty() ? 0 : static_cast<std::int64_t>(laps));
    job.course = std::make_unique<plan::Course>(std::move(lap), order, [&](const Key& sequence) { return reached.at(sequence); });
    for (const PortId p : job.course->ports()) {
        if (course_at[p] == nullptr) course_at[p] = &job;
        plan_due.insert(p);
    }
}

void Core::Impl::check_fit(const Launch& launch) {
    const Rank* rank = rank_of(launch.id.node, launch.id.rank);
    if (rank == nullptr || rank->job == nullptr || rank->job->kind == nullptr || launch.keys.empty()) return;
    const auto& ranks = rank->job->kind->lap.ranks;
    const RankName name{launch.id.node, launch.id.rank};
    const std::uint64_t signature = plan::signature_of(launch.op, keys_of(launch));
    const auto at = ranks.find(name);
    if (rank->job->aside && (at == ranks.end() || launch.id.seq < at->second.seq)) {
        if (fits_aside(*rank->job, name, launch.id.seq, signature)) return;
    } else if (at != ranks.end() && at->second.fits(launch.id.seq, signature)) {
        return;
    }
    rank->job->strange.push_back({name, launch.id.seq, signature});
    jobs_due.insert(rank->job);
}

void Core::Impl::stop_plan(Job& job) {
    drop_course(job);
    end_job_runs(job, "its job does something else");
    job.thought = 0;
    job.strange.clear();
    job.aside.reset();
}

// That lap is none.
void Core::Impl::forget_long(Kind& kind) {
    if (const auto lap = std::exchange(kind.found_long, std::nullopt)) kind.guard = lap->before;
}

// What it does is something else.
void Core::Impl::leave_kind(Job& job, const std::string& why) {
    Kind& kind = *job.kind;
    log(LogLevel::info, "laps of " + std::to_string(kind.lap.uses.size()) + " phases are left: " + why);
    stop_plan(job);
    forget_long(kind);
    job.kind = nullptr;
    job.log.mark();
    job.left_at = job.log.added();
    job.again_at = job.log.added() + 8;
}

// The job does something else than its lap. From where that lap began what it does is an interlude, once its laps go on.
void Core::Impl::leave_lap(Job& job, const std::vector<Strange>& strange) {
    Kind& kind = *job.kind;
    job.left.reset();
    if (const auto rank = kind.lap.ranks.find(strange.front().rank); rank != kind.lap.ranks.end() && !job.aside)
        job.left = {&kind, numbers_from(kind.lap, rank->second.lap_of(strange.front().number))};
    leave_kind(job, "it does something else");
}

void Core::Impl::remember_interlude(Job& job, Kind& kind) {
    const auto left = std::exchange(job.left, std::nullopt);
    if (!left || left->kind != &kind) return;
    auto interlude = plan::Interlude::find(left->lap, kind.lap, job.log);
    if (!interlude) return;
    std::erase_if(kind.interludes, [&](const plan::Interlude& i) { return i.does_as(*interlude); });
    if (kind.interludes.size() == kMostInterludes) kind.interludes.erase(kind.interludes.begin());
    kind.interludes.push_back(std::move(*interlude));
}

// Into an interlude that is known. It goes by demand, and its laps after it as they did before it.
bool Core::Impl::turn_aside(Job& job, const std::vector<Strange>& strange) {
    Kind& kind = *job.kind;
    const auto rank = kind.lap.ranks.find(strange.front().rank);
    if (job.aside || rank == kind.lap.ranks.end()) return false;
    plan::Lap from = numbers_from(kind.lap, rank->second.lap_of(strange.front().number));
    // Others may have come to it in the lap before, or in runs.
    for (std::size_t i = 0; i < 2 * kind.interludes.size(); ++i) {
        if (i == kind.interludes.size()) from.advance(-1);
        plan::Interlude interlude = kind.interludes[kind.interludes.size() - 1 - i % kind.interludes.size()];
        interlude.begin_at(from);
        if (!interlude.fits(job.log) ||
            !std::ranges::all_of(strange, [&](const Strange& s) { return interlude.fits(s.rank, s.number, s.signature); }))
            continue;
        stop_plan(job);
        forget_long(kind);
        interlude.skip(from);
        kind.lap.ranks = std::move(from.ranks);
        kind.lap.sequences = std::move(from.sequences);
        kind.watch_anew();
        kind.since = 2;
        const auto ranks = interlude.ranks();
        job.aside = {std::move(interlude), {ranks.begin(), ranks.end()}};
        for (const Strange& s : strange) fits_aside(job, s.rank, s.number, s.signature);
        return true;
    }
    return false;
}

bool Core::Impl::fits_aside(Job& job, const RankName& rank, std::uint64_t number, std::uint64_t signature) {
    if (!job.aside->interlude.fits(rank, number, signature)) return false;
    note_aside(job, rank, number);
    return true;
}

void Core::Impl::note_aside(Job& job, const RankName& rank, std::uint64_t number) {
    if (job.aside->interlude.ends_with(rank, number)) job.aside->in.erase(rank);
    if (job.aside->in.empty()) jobs_due.insert(&job);
}

// All have come to the end of the interlude.
void Core::Impl::come_back(Job& job) {
    job.aside.reset();
    if (job.log.added() >= job.learn_at) learn(job);
    Kind& kind = *job.kind;
    if (job.course != nullptr || job.thought != 0) return;
    if (may_plan(job) && !kind.order.ports.empty()) return follow(job, kind.lap, kind.order);
    follow_rule(job);
}

// Another plan, after each of the first laps and then more seldom; none, where the job does something else.
void Core::Impl::look_at_plan(Job& job) {
    if (const auto strange = std::exchange(job.strange, {}); !strange.empty() && !turn_aside(job, strange))
        return leave_lap(job, strange);
    if (job.aside && job.aside->in.empty()) come_back(job);
    if (job.course == nullptr) return;
    plan::Course& course = *job.course;
    const std::uint64_t uses = course.lap().uses.size();
    if (job.overtakes > std::max<std::uint64_t>(8, uses)) return leave_kind(job, "too much overtakes the plan");
    if (job.thought != 0 || (course.begun() < job.time_at && (job.overtakes <= uses / 20 || course.begun() < uses))) return;
    plan::Lap lap = course.lap();
    job.time_at = course.begun() + uses;
    job.overtakes = 0;
    if (plan::time_lap(lap, job.log)) think(job, std::move(lap));
}

void Core::Impl::drop_course(Job& job) {
    if (job.course == nullptr) return;
    for (const PortId p : job.course->ports()) {
        if (course_at[p] != &job) continue;
        course_at[p] = nullptr;
        inventory.port(p).kept_for = 0;
    }
    job.course.reset();
    for (const auto& [instance, gang] : std::exchange(job.waiting, {}))
        if (Gang* g = find_gang(gang)) queue(*g, true);
}

Job* Core::Impl::job_of(const Gang& gang) {
    if (gang.launches.empty()) return nullptr;
    const Rank* rank = rank_of(gang.launches.front()->id.node, gang.launches.front()->id.rank);
    return rank == nullptr || rank->job == nullptr || rank->job->course == nullptr ? nullptr : rank->job;
}

// Until when it is to wait for its turn; 0: it is its turn, or it has none.
TimeNs Core::Impl::turn_of(Gang& gang) {
    Job* job = job_of(gang);
    if (job == nullptr || gang.launches.front()->keys.empty()) return 0;
    plan::Course& course = *job->course;
    const auto i = course.find(gang.launches.front()->keys.front().key->key);
    if (!i || course.has_begun(*i)) return 0;
    const auto ports = course.ports_of(i->use);
    if (std::ranges::any_of(ports, [&](PortId p) { return course_at[p] != job; })) return 0;  // another's have no turn
    TimeNs dark = 0;
    for (const EdgeId e : gang.edges)
        dark = std::max(dark, fabric.switch_of(fabric.gpus[inventory.edge(e).a].ports.front()).dark_ns);
    const TimeNs until = complete_since(gang) + std::min(course.wait_of(*i), kMostWaits * dark) + dark;
    if (until <= now) {
        if (std::exchange(gang.overtook, true)) return 0;
        ++counters.overtakes;
        ++job->overtakes;
        return 0;
    }
    job->waiting[*i] = gang.id;
    return until;
}

void Core::Impl::wait_turn(Gang& gang, TimeNs until) {
    set_wishes(gang, {});
    gang.blocked = gang.offline = true;
    const auto dark = std::find_if(gang.edges.begin(), gang.edges.end(), [this](EdgeId e) { return inventory.lit(e) == nullptr; });
    gang.watch = inventory.edge(dark != gang.edges.end() ? *dark : gang.edges.front()).a;  // others may light it
    watchers[gang.watch].push_back(&gang);
    arm(until, TimerKind::gang_retry, gang.id);
}

void Core::Impl::begin_use(const Gang& gang) {
    if (gang.launches.empty()) return;
    const Rank* rank = rank_of(gang.launches.front()->id.node, gang.launches.front()->id.rank);
    if (rank != nullptr && rank->job != nullptr)
        for (const EdgeId e : gang.edges)
            for (const Circuit& c : inventory.edge(e).up)
                for (const PortId p : {c.a, c.b}) use_port(p, rank->job);
    Job* job = job_of(gang);
    if (job == nullptr) return;
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys)
            if (std::exchange(r.key->mark, m) != m) begin_use(*job, r.key->key);
    jobs_due.insert(job);
    for (const EdgeId e : gang.edges)  // what comes next by the same light may go with this grant
        for (const Circuit& c : inventory.edge(e).up)
            for (auto turn = turn_at(*job, c.a); turn && turn->peer == c.b && is_joined(c.a, c.b); turn = turn_at(*job, c.a))
                take_turn(*job, c.a);
}

void Core::Impl::begin_use(Job& job, const Key& key) {
    const auto i = job.course->find(key);
    if (!i || job.course->has_begun(*i)) return;
    job.course->begin(key);
    job.waiting.erase(*i);
    for (const PortId p : job.course->ports_of(i->use)) keep(job, p);
}

// A port follows the plan of the job that was last granted its light: nobody turns it ahead for himself behind another's back.
void Core::Impl::use_port(PortId p, Job* job) {
    PortUser& user = users[p];
    if (user.job != job) user = {job, now, user.job != nullptr || user.shared};
    Job* const follows = job->course != nullptr && job->course->has(p) ? job : nullptr;
    if (course_at[p] == follows) return;
    if (course_at[p] != nullptr) course_at[p]->course->lose(p);
    course_at[p] = follows;
    inventory.port(p).kept_for = 0;
    if (follows != nullptr) keep(*follows, p);
}

// In the last two laps another job was granted light of these ports.
bool Core::Impl::shares_light(const Job& job, const std::vector<PortId>& ports) const {
    return std::ranges::any_of(ports, [&](PortId p) { return users[p].shared && now - users[p].since_ns <= 2 * job.course->lap().ns; });
}

// Of the port, what its job's plan says now.
void Core::Impl::keep(Job& job, PortId p) {
    if (course_at[p] != &job) return;  // another's, since
    inventory.port(p).kept_for = static_cast<std::uint32_t>(job.course->kept_for(p));
    plan_due.insert(p);
}

// Its light goes to somebody who did not wait for his turn.
void Core::Impl::lose_turns(PortId p) {
    Job* job = course_at[p];
    if (job == nullptr || inventory.port(p).kept_for == 0) return;
    job->course->lose(p);
    keep(*job, p);
}

// Who waits for this light may go.
void Core::Impl::lit_for_plan(PortId p) {
    Job* job = course_at[p];
    if (job == nullptr) return;
    for (const plan::Instance& i : job->course->kept_by(p)) wake(*job, i);
}

// The gang that waits for this use to have its turn.
void Core::Impl::wake(const Job& job, const plan::Instance& i) {
    if (const auto waiting = job.waiting.find(i); waiting != job.waiting.end())
        if (Gang* g = find_gang(waiting->second)) queue(*g, true);
}

void Core::Impl::follow_plans() {
    for (Job* job : std::exchange(jobs_due, {}))
        if (job->kind != nullptr) look_at_plan(*job);
    while (!plan_due.empty()) {
        const PortId p = *plan_due.begin();
        plan_due.erase(plan_due.begin());
        if (Job* job = course_at[p]; job != nullptr) take_turn(*job, p);
    }
}

// The port's next turn, if its peer has come to the same.
void Core::Impl::take_turn(Job& job, PortId p) {
    plan::Course& course = *job.course;
    const auto turn = turn_at(job, p);
    if (!turn) return;
    const PortId q = turn->peer;
    if (!is_joined(p, q)) {
        if (course.kept_for(p) + course.kept_for(q) != 0) return;
        for (const PortId end : {p, q}) end_runs_beyond(course, end);
        if (!may_turn_for_plan(p) || !may_turn_for_plan(q)) return;
        Op& op = open_op(fabric.ports[p].sw, true);
        op.planned = true;
        connect(op, inventory.edge_between(fabric.ports[p].gpu, fabric.ports[q].gpu), make_circuit(p, q));
        ahead[p].peer = q;
        ahead[q].peer = p;
        ++counters.speculations;
    }
    course.serve(p);
    for (const PortId end : {p, q}) keep(job, end);
    wake(job, turn->instance);
}

std::optional<plan::Course::Turn> Core::Impl::turn_at(const Job& job, PortId p) const {
    const plan::Course& course = *job.course;
    const auto mine = course.next(p);
    if (!mine || course_at[p] != &job || course_at[mine->peer] != &job || course.kept_for(p) >= kMostKept) return std::nullopt;
    const auto theirs = course.next(mine->peer);
    return theirs->peer == p && theirs->instance == mine->instance ? mine : std::nullopt;
}

bool Core::Impl::is_joined(PortId p, PortId q) const {
    return inventory.port(p).peer == q && inventory.usable(make_circuit(p, q));
}

// Nobody uses its light, or waits for it.
bool Core::Impl::may_turn_for_plan(PortId p) const {
    Gang last;
    last.ticket = last.id = std::numeric_limits<std::uint64_t>::max();
    return inventory.obstacle(p, last) == Obstacle::none && inventory.sw(fabric.ports[p].sw).rest_until_ns <= now;
}

}  // namespace opus::controller
