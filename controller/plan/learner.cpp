#include "controller/plan/learner.h"

#include <algorithm>
#include <utility>

namespace opus::controller::plan {
namespace {

constexpr std::uint64_t kLearnLaps = 4;     // after each of so many laps a plan is made anew
constexpr std::uint64_t kTrials = 200'000;  // of pairs, in vain: then the search for an order ends
constexpr std::uint64_t kLeastTrials = 20, kMostTrials = 4000;
constexpr std::uint64_t kMostTimes = 10;  // as many trials, where they are not in vain: but for laps that have the least
constexpr std::size_t kMostKinds = 4;                        // laps that are remembered
constexpr std::size_t kMostInterludes = 8;                   // of a lap
constexpr std::size_t kMostUses = 16384, kMostPairs = 65536;  // of a lap that is planned
constexpr TimeNs kBeginCosts = 4;                            // dark times; docs/decisions/011-each-begin-pays.md
constexpr std::int64_t kLapsSeen = 2;                        // of a lap that was found
constexpr std::int64_t kRestLaps = 2;                        // for which light is up before it is at rest

// What its ranks do and how its keys are numbered, without its uses, counted from a later lap.
Lap numbers_from(const Lap& lap, std::int64_t laps) {
    Lap numbers;
    numbers.ranks = lap.ranks;
    numbers.sequences = lap.sequences;
    numbers.advance(laps);
    return numbers;
}

std::string laps_of(const Lap& lap) { return "laps of " + std::to_string(lap.uses.size()) + " phases"; }

}  // namespace

void Learner::ended(const RankName& rank, Seen launch) {
    Numbers& numbers = numbers_[rank];
    const std::uint64_t number = launch.seq = numbers.take(launch.seq);
    launch.in_order = numbers.in_order();
    if (options_.guard) guard_.ended(rank, launch, follower_.course() != nullptr);
    now_ns_ = std::max(now_ns_, launch.done_ns);
    if (kind_ != nullptr) kind_->ended(rank, launch);
    const bool unasked = launch.unasked;
    const std::uint64_t signature = log_.add(rank, std::move(launch));
    if (options_.guard) heed_guard();
    if (kind_ != nullptr) {
        if (unasked && (aside_ || kind_->lap.reaches(rank, number))) compare(rank, number, signature);
        if (const Course* course = follower_.course()) kind_->time_order(course->begun(), now_ns_);
        if (aside_) note_aside(rank, number);
        time_laps();
        if (left_at_ == 0) return;  // it has never done anything else
    }
    if (log_.added() >= learn_at_) learn();
    if (kind_ == nullptr && log_.added() >= again_at_) come_to_known();
}

// With what its rank is to do now, in its lap or between two.
void Learner::compare(const RankName& rank, std::uint64_t number, std::uint64_t signature) {
    if (kind_ == nullptr) return;
    const auto at = kind_->lap.ranks.find(rank);
    if (aside_ && (at == kind_->lap.ranks.end() || number < at->second.seq)) {
        if (fits_aside(rank, number, signature)) return;
    } else if (at != kind_->lap.ranks.end() && at->second.fits(number, signature)) {
        return;
    }
    strange_.push_back({rank, number, signature});
    follower_.look_soon();
}

// Another plan, after each of the first laps and then more seldom; none, where the job does something else.
void Learner::look() {
    if (kind_ == nullptr) return;
    if (const auto strange = std::exchange(strange_, {}); !strange.empty() && !turn_aside(strange)) return leave_lap(strange);
    if (aside_ && aside_->in.empty()) come_back();
    const Course* course = follower_.course();
    if (course == nullptr) return;
    if (task_ != nullptr) return;
    kind_->time_order(course->begun(), now_ns_);
    if (const Order* shorter = kind_->shorter()) return follow(course->lap(), Order(*shorter));
    if (course->begun() < time_at_) return;
    kind_->note_order();
    Lap lap = course->lap();
    time_at_ = course->begun() + lap.uses.size();
    if (time_lap(lap, log_)) think(std::move(lap), kind_->order);
}

void Learner::learn_later() { learn_at_ = log_.added() + std::max<std::uint64_t>(16, log_.added() / 8); }

void Learner::learn() {
    learn_later();
    auto lap = find_lap(log_, [this](const SeenKey& key) { return follower_.pairs_of(key); });
    if (!lap || !time_lap(*lap, log_)) return;
    if (lap->uses.size() > kMostUses || lap->pairs() > kMostPairs) return;
    // A part of what it does as a rule is not what it does, unless it goes on with that. Nor is a lap that it has just
    // left: that is found again by what it has done since (find_again), unless something is in the way of that.
    for (const auto& kind : kinds_) {
        const bool goes_on = kind_ == nullptr && log_.added() >= left_at_ + 2 * kind->lap.launches;
        if (!goes_on && (lap->is_part_of(kind->lap) || (kind_ == nullptr && lap->does_as(kind->lap)))) return;
    }
    if (kind_ != nullptr) {  // with its interludes
        if (kind_->lap.does_as(*lap)) return;
        const bool planned = follower_.course() != nullptr || (aside_ && !kind_->order.ports.empty());
        if (planned && kind_->lap.is_part_of(*lap)) return think(std::move(*lap), {});  // meanwhile that plan goes on
        stop_plan();
    }
    come_to(remember(std::move(*lap)));
}

// Of laps that are known already their numbers are new.
Kind& Learner::remember(Lap lap) {
    forget_kinds([&](const Kind& kind) { return kind.lap.is_part_of(lap); });
    const auto known = std::ranges::find_if(kinds_, [&](const auto& kind) { return kind->lap.does_as(lap); });
    if (known != kinds_.end()) {
        (*known)->take_lap(std::move(lap));
        return **known;
    }
    if (const Kind* oldest = kinds_.size() == kMostKinds ? kinds_.front().get() : nullptr)
        forget_kinds([oldest](const Kind& kind) { return &kind == oldest; });
    return *kinds_.emplace_back(std::make_unique<Kind>(std::move(lap)));
}

// It goes by a plan for a part of these laps: they are taken up if theirs pays.
void Learner::take_up(const Task& task, const Order& order) {
    if (order.ports.empty()) return;
    const auto from = pays_from(order, task.lap.ns, 0);
    if (!from || *from > kLapsSeen) return;
    stop_plan();
    Kind& kind = remember(task.lap);
    kind.note_lap(task.lap.ns);
    come_to(kind);
    task_.reset();
    begin(order, *from);
    follow(task.lap, order);
}

void Learner::forget_kinds(const std::function<bool(const Kind&)>& which) {
    if (left_ && which(*left_->kind)) left_.reset();
    std::erase_if(kinds_, [&](const auto& kind) { return which(*kind); });
}

// What the job does is what it has done before it did something else.
void Learner::come_to_known() {
    if (kinds_.empty()) return;
    again_at_ = log_.added() + std::max<std::uint64_t>(4, kinds_.back()->lap.launches / 16);
    for (auto kind = kinds_.rbegin(); kind != kinds_.rend(); ++kind)
        if (find_again((*kind)->lap, log_)) {
            remember_interludes(**kind);
            return come_to(**kind);
        }
}

// From now on its laps are timed. What was seen of them already counts, but for the one that it is in: that may have
// begun with something else.
void Learner::come_to(Kind& kind) {
    kind_ = &kind;
    kind.watch_anew(1);
    kind.again = 0;
    for (const auto& [rank, launches] : log_.ranks())
        for (const Seen& launch : launches) kind.ended(rank, launch);
    time_laps();
    if (kind_ == &kind) follow_rule();
}

// Laps that are over, planned or on demand. What is slower for its plan goes on on demand.
void Learner::time_laps() {
    Kind& kind = *kind_;
    const bool planned = follower_.course() != nullptr;
    const bool over = kind.time_laps(planned);
    debt_ns_ -= std::min(debt_ns_, std::exchange(kind.saved_ns, 0));
    if (over && !planned && may_plan() && may_begin() && kind.unbegun() >= kind.again) follow_rule();
}

// Whatever its laps are: plans make it slower.
void Learner::heed_guard() {
    if (!guard_.loses()) return;
    guard_.stop();
    follower_.log(true, "plans have made it slower by " + std::to_string(guard_.lost_ns() / 1000) +
                            " us: on demand; tried again in " + std::to_string(guard_.owed_ns() / 1'000'000) + " ms");
    task_.reset();
    if (kind_ != nullptr && follower_.course() != nullptr) kind_->since = std::max(kind_->since, kind_->unbegun());
    follower_.drop();
    follower_.end_runs("its job goes on on demand", true);
}

// What plans have cost is paid.
bool Learner::may_begin() const { return !options_.guard || guard_.may_begin(); }

bool Learner::may_plan() const {
    return options_.provision && kind_ != nullptr && (!options_.guard || kind_->yardstick_ns() > 0);
}

// Where no light moves in any case a plan saves nothing: launches were held until they had asked, and runs without end need no plan.
bool Learner::is_worth_a_plan() const { return lap_ns() == 0 || follower_.unmoved_ns(kind_->lap) < rest_ns(); }

// To come to a plan's light from where the job's light is costs some dark times. As far as can be known a job goes on
// for as long as it has gone on: from which lap on that time saves as much by the plan, and what earlier begins have
// cost in vain. None: the plan promises nothing.
std::optional<std::int64_t> Learner::pays_from(const Order& order, TimeNs usual_ns, TimeNs debt_ns) const {
    if (!options_.guard) return 0;
    const TimeNs saved = usual_ns - order.lap_ns;
    if (saved <= 0) return std::nullopt;
    return (debt_ns + begin_costs(order) + saved - 1) / saved;
}

void Learner::begin(const Order& order, std::int64_t pays_from) {
    debt_ns_ += begin_costs(order);
    guard_.begin(begin_costs(order), pays_from * kind_->yardstick_ns(), kind_->yardstick_ns());
}

TimeNs Learner::begin_costs(const Order& order) const { return kBeginCosts * follower_.longest_dark(order); }

void Learner::follow_rule() {
    Kind& kind = *kind_;
    if (aside_) return;
    const bool planned = follower_.course() != nullptr;
    if (planned || task_ != nullptr || !may_plan() || !may_begin() || (!time_lap(kind.lap, log_) && kind.plans == 0))
        return;
    if (!is_worth_a_plan()) return kind.look_later();
    think(kind.lap, kind.order);
}

// In which order, is thought about elsewhere. Until then the plan that it had goes on.
void Learner::think(Lap lap, const Order& from) {
    Task task;
    const std::uint64_t trials = kTrials / (1 + lap.pairs());
    task.trials = static_cast<std::uint32_t>(std::clamp(trials, kLeastTrials, kMostTrials));
    const std::uint64_t most =
        trials < kLeastTrials ? kLeastTrials : std::min(kMostTimes * trials, kMostTimes * kMostTrials);
    task.most_trials = static_cast<std::uint32_t>(most);
    task.lap = std::move(lap);
    task.from = from;
    // Another order is come to by way of laps that are longer, by about a dark time. It may go on for as long as it has.
    if (follower_.course() != nullptr)
        task.gains_ns = follower_.longest_dark(from) / std::max<std::int64_t>(1, kind_->unbegun());
    task_ = follower_.think(std::move(task));
}

void Learner::found(const Order& found) {
    const auto task = std::exchange(task_, nullptr);
    if (task == nullptr || kind_ == nullptr) return;
    if (!kind_->lap.does_as(task->lap)) return take_up(*task, found);
    if (found.ports.empty()) return kind_->look_later();
    if (!may_plan()) return;
    if (follower_.course() != nullptr) return follow(task->lap, found);
    const Order order = kind_->shortest(found);
    const auto from = pays_from(order, kind_->yardstick_ns(), debt_ns_);
    if (!from) return kind_->look_later();
    if (*from > kind_->unbegun() + 1) return kind_->look_until(*from - 1);
    if (!may_begin()) return;
    begin(order, *from);
    follow(task->lap, order);
}

// The order that is followed goes on until there is another.
void Learner::ports_changed() {
    for (const auto& kind : kinds_) kind->ports_changed(kind.get() == kind_ && follower_.course() != nullptr);
    task_.reset();
    time_at_ = 0;
    follower_.look_soon();
}

void Learner::follow(Lap lap, const Order& order) {
    Kind& kind = *kind_;
    const bool goes_on = follower_.course() != nullptr;
    if (goes_on)
        kind.time_order(follower_.course()->begun(), now_ns_);
    else
        kind.since = std::max(kind.since, kind.unbegun());
    follower_.drop();
    const std::uint64_t uses = lap.uses.size();
    ++kind.plans;
    kind.found_plan();
    kind.lap.links = lap.links;
    for (std::size_t u = 0; u < lap.uses.size(); ++u) kind.lap.uses[u].took_ns = lap.uses[u].took_ns;
    kind.take_order(order, goes_on);
    time_at_ = uses * (kind.plans <= kLearnLaps ? 1 : 1ull << std::min<std::uint64_t>(kind.plans - kLearnLaps, 16));
    follower_.log(false, "a plan for " + laps_of(lap) + ": they took " + std::to_string(lap.ns / 1000) + " us and are to take " +
                             std::to_string(order.lap_ns / 1000) + " us");
    if (!goes_on) lap.by_plan = kind.unbegun();
    follower_.follow(std::move(lap), order);
}

void Learner::stop_plan() {
    follower_.drop();
    follower_.end_runs("its job does something else");
    task_.reset();
    strange_.clear();
    aside_.reset();
}

// The job does something else than its lap. From where that lap began what it does is an interlude, once its laps go on.
void Learner::leave_lap(const std::vector<Strange>& strange) {
    left_.reset();
    if (aside_)
        left_ = {kind_, std::move(aside_->from)};
    else if (const auto rank = kind_->lap.ranks.find(strange.front().rank); rank != kind_->lap.ranks.end())
        left_ = {kind_, numbers_from(kind_->lap, rank->second.lap_of(strange.front().number))};
    follower_.log(false, laps_of(kind_->lap) + " are left: it does something else");
    stop_plan();
    kind_ = nullptr;
    log_.mark();
    left_at_ = log_.added();
    again_at_ = log_.added() + 8;
}

void Learner::remember_interludes(Kind& kind) {
    auto left = std::exchange(left_, std::nullopt);
    if (!left || left->kind != &kind) return;
    for (Interlude& interlude : Interlude::between(std::move(left->lap), kind.lap, log_)) {
        std::erase_if(kind.interludes, [&](const Interlude& i) { return i.does_as(interlude); });
        if (kind.interludes.size() == kMostInterludes) kind.interludes.erase(kind.interludes.begin());
        kind.interludes.push_back(std::move(interlude));
    }
}

// Into an interlude that is known. It goes by demand, and its laps after it as they did before it.
bool Learner::turn_aside(const std::vector<Strange>& strange) {
    Kind& kind = *kind_;
    const auto rank = kind.lap.ranks.find(strange.front().rank);
    if (rank == kind.lap.ranks.end() || (aside_ && strange.front().number < rank->second.seq)) return false;
    Lap from = numbers_from(kind.lap, rank->second.lap_of(strange.front().number));
    // Others may have come to it in the lap before, or in runs. One may begin while ranks are in the one before.
    for (std::size_t i = 0; i < (aside_ ? 1 : 2) * kind.interludes.size(); ++i) {
        if (i == kind.interludes.size()) from.advance(-1);
        Interlude interlude = kind.interludes[kind.interludes.size() - 1 - i % kind.interludes.size()];
        interlude.begin_at(from);
        if (!interlude.fits(log_) ||
            !std::ranges::all_of(strange, [&](const Strange& s) { return interlude.fits(s.rank, s.number, s.signature); }))
            continue;
        stop_plan();
        kind.lap.ranks = from.ranks;
        kind.lap.sequences = from.sequences;
        interlude.skip(kind.lap);
        kind.watch_anew();
        const auto ranks = interlude.ranks();
        aside_ = {std::move(interlude), std::move(from), {ranks.begin(), ranks.end()}};
        for (const Strange& s : strange) fits_aside(s.rank, s.number, s.signature);
        return true;
    }
    return false;
}

bool Learner::fits_aside(const RankName& rank, std::uint64_t number, std::uint64_t signature) {
    if (!aside_->interlude.fits(rank, number, signature)) return false;
    note_aside(rank, number);
    return true;
}

void Learner::note_aside(const RankName& rank, std::uint64_t number) {
    if (aside_->interlude.ends_with(rank, number)) aside_->in.erase(rank);
    if (aside_->in.empty()) follower_.look_soon();
}

// All have come to the end of the interlude.
void Learner::come_back() {
    aside_.reset();
    if (log_.added() >= learn_at_) learn();
    if (follower_.course() != nullptr || task_ != nullptr) return;
    if (!may_plan() || !may_begin() || kind_->order.ports.empty()) return follow_rule();
    follow(kind_->lap, kind_->order);
}

TimeNs Learner::rest_ns() const { return kRestLaps * lap_ns(); }

std::string Learner::state() const {
    if (!options_.provision) return "on demand: the controller provisions nothing";
    if (kind_ == nullptr) return "on demand: it has done nothing twice yet";
    if (follower_.course() == nullptr && (!may_plan() || (options_.guard && !guard_.is_known())))
        return "on demand: its laps are being timed";
    if (follower_.course() == nullptr && !may_begin())
        return "on demand: plans have cost it " + std::to_string(guard_.lost_ns() / 1000) + " us; tried again in " +
               std::to_string((guard_.owed_ns() + 999'999'999) / 1'000'000'000) + " s";
    if (follower_.course() == nullptr)
        return is_worth_a_plan() ? "on demand: no plan yet that promises laps as short" : "on demand: no light of it moves";
    return options_.guard ? "provisioned" : "provisioned, whatever it costs";
}

}  // namespace opus::controller::plan
