// Circuits by the plan of a job (controller/plan), ahead of demand: a port turns to its next use once those before it
// are over, or wait for somebody who is to come later. What waits for its turn goes by demand when it has waited for as
// long as the plan says and a dark time, and so have those before it; and what is in no plan goes by demand at once.
#include <algorithm>
#include <limits>

#include "controller/core/gangs/gangs.h"
#include "controller/core/leases/runs.h"
#include "controller/core/program/change_sets.h"
#include "controller/core/provision/hidden.h"
#include "controller/core/provision/jobs.h"
#include "controller/core/provision/turns.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/schedule/schedule.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

constexpr TimeNs kMostWaits = 16;       // dark times that a plan lets what is ready wait
constexpr std::size_t kMostKept = 512;  // uses to come for which a port keeps its light

// A launch in flight may wait for peers who have not come to this key of it.
bool has_begun(const KeyState& key) { return key.missing == 0 || key.done > 0; }

}  // namespace

void Turns::follow(Job& job, plan::Lap lap, const plan::Order& order) {
    std::map<Key, std::uint64_t> reached;
    for (const auto& [sequence, s] : lap.sequences) {
        std::uint64_t& n = reached[sequence] = s.first;
        if (const Comm* comm = comms_.find(sequence.comm))
            for (const auto& [key, state] : comm->keys)
                if (sequence_of(key) == sequence && state->in_flight + state->done > 0 && has_begun(*state))
                    n = std::max(n, key.n + 1);
    }
    for (const auto& [name, seen] : job.learner->log().ranks())
        for (const plan::Seen& s : seen)
            for (const plan::SeenKey& k : s.keys)
                if (const auto at = reached.find(sequence_of(k.key)); at != reached.end())
                    at->second = std::max(at->second, k.key.n + 1);
    std::uint64_t laps = ~0ull;  // that are over for all
    for (const auto& [sequence, s] : lap.sequences)
        laps = std::min(laps, (must_find(reached, sequence) - s.first) / s.uses.size());
    lap.advance(lap.sequences.empty() ? 0 : static_cast<std::int64_t>(laps));
    job.course = std::make_unique<plan::Course>(std::move(lap), order,
                                                [&](const Key& sequence) { return must_find(reached, sequence); });
    for (const PortId p : job.course->ports()) {
        if (course_at_[p] == nullptr) course_at_[p] = &job;
        due_.insert(p);
    }
}

void Turns::drop_course(Job& job) {
    if (job.course == nullptr) return;
    for (const PortId p : job.course->ports()) {
        if (course_at_[p] != &job) continue;
        course_at_[p] = nullptr;
        inventory_.port(p).kept_for = 0;
    }
    job.course.reset();
    for (const auto& [instance, waiting] : std::exchange(job.waiting, {}))
        if (Gang* g = gangs_.find(waiting.gang)) schedule_.queue(*g, true);
}

void Turns::forget(const Job& job) {
    for (User& user : users_)
        if (user.job == &job) user.job = nullptr;
}

Job* Turns::job_of(const Gang& gang) {
    if (gang.launches.empty()) return nullptr;
    const Rank* rank = rank_of(gang.launches.front()->id.node, gang.launches.front()->id.rank);
    return rank == nullptr ? nullptr : rank->job;
}

// In the plan of its job, and not begun: the first. A launch that has its circuits back with a laggard has begun with another.
std::optional<plan::Instance> Turns::planned_use(const Gang& gang) {
    const Job* job = job_of(gang);
    if (job == nullptr || job->course == nullptr) return std::nullopt;
    const plan::Course& course = *job->course;
    std::optional<plan::Instance> use;
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys) {
            if (std::exchange(r.key->mark, m) == m || !has_begun(*r.key)) continue;
            const auto i = course.find(r.key->key);
            if (i && !course.has_begun(*i) && (!use || course.is_before(*i, *use))) use = i;
        }
    if (!use) return std::nullopt;
    const auto ports = course.ports_of(use->use);
    if (std::ranges::any_of(ports, [&](PortId p) { return course_at_[p] != job; }))
        return std::nullopt;  // another's have no turn
    return use;
}

// Until when it is to wait for its turn, or, where it has light, for the rest of it; 0: it is its turn, or it has none.
TimeNs Turns::turn_of(Gang& gang, const plan::Instance& i) {
    Job* job = job_of(gang);
    plan::Course& course = *job->course;
    if (gang.lit && inventory_.fewest_circuits(gang.pairs) >= course.circuits_of(i)) return 0;
    TimeNs dark = 0;
    for (const PairId e : gang.pairs)
        dark = std::max(dark, fabric_.switch_of(fabric_.gpus[inventory_.pair(e).a].ports.front()).dark_ns);
    const TimeNs complete = gangs_.complete_since(gang);
    TimeNs until = complete + course.wait_of(i) + dark;
    for (const auto& [other, waiting] : job->waiting)  // complete as well, and first by plan: it is not overtaken
        if (course.is_before(other, i) && is_waiting(course, other, waiting) && course.share_port(other, i))
            until = std::max(until, waiting.until + 1);
    until = std::min(until, complete + (kMostWaits + 1) * dark);
    if (until <= now_) {
        if (!std::exchange(gang.overtook, true)) ++counters_.overtakes;
        return 0;
    }
    job->waiting[i] = {gang.id, until};
    return until;
}

bool Turns::is_waiting(const plan::Course& course, const plan::Instance& i, const Job::Waiting& waiting) {
    const Gang* gang = gangs_.find(waiting.gang);
    return gang != nullptr && gang->state == Gang::State::waiting && !course.has_begun(i);
}

void Turns::wait_turn(Gang& gang, TimeNs until) {
    schedule_.set_wanted(gang, {});
    gang.sleep = Gang::Sleep::for_others;
    const auto dark =
        std::find_if(gang.pairs.begin(), gang.pairs.end(), [this](PairId e) { return inventory_.lit(e) == nullptr; });
    schedule_.watch_gpu(gang, inventory_.pair(dark != gang.pairs.end() ? *dark : gang.pairs.front()).a);  // others may light it
    arm(until, TimerKind::gang_retry, gang.id);
}

void Turns::begin_use(const Gang& gang) {
    Job* job = job_of(gang);
    if (job == nullptr) return;
    for (const PairId e : gang.pairs)
        for (const Circuit& c : inventory_.pair(e).up)
            for (const PortId p : {c.a, c.b}) use_port(p, job);
    if (job->course == nullptr) return;
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys)
            if (std::exchange(r.key->mark, m) != m && has_begun(*r.key)) begin_use(*job, r.key->key);
    jobs_.look_soon(*job);
    for (const PairId e : gang.pairs)  // what comes next by the same light may go with this grant
        for (const Circuit& c : inventory_.pair(e).up)
            for (auto turn = turn_at(*job, c.a); turn && turn->peer == c.b && is_joined(c.a, c.b); turn = turn_at(*job, c.a))
                take_turn(*job, c.a);
}

void Turns::begin_use(Job& job, const Key& key) {
    const auto i = job.course->find(key);
    if (!i || job.course->has_begun(*i)) return;
    job.course->begin(key);
    job.waiting.erase(*i);
    for (const auto& [other, waiting] : job.waiting)  // it may have waited for this one
        if (job.course->is_before(*i, other) && job.course->share_port(*i, other)) wake(job, other);
    for (const PortId p : job.course->ports_of(i->use)) keep(job, p);
}

// A port follows the plan of the job that was last granted its light: nobody turns it ahead for himself behind another's back.
void Turns::use_port(PortId p, Job* job) {
    User& user = users_[p];
    if (user.job != job) user = {job, now_, user.job != nullptr || user.shared};
    Job* const follows = job->course != nullptr && job->course->has(p) ? job : nullptr;
    if (course_at_[p] == follows) return;
    if (course_at_[p] != nullptr) course_at_[p]->course->lose(p);
    course_at_[p] = follows;
    inventory_.port(p).kept_for = 0;
    if (follows != nullptr) keep(*follows, p);
}

// In the last two laps another job was granted light of these ports.
bool Turns::shares_light(const Job& job, const std::vector<PortId>& ports) const {
    return std::ranges::any_of(
        ports, [&](PortId p) { return users_[p].shared && now_ - users_[p].since_ns <= 2 * job.course->lap().ns; });
}

// Of the port, what its job's plan says now.
void Turns::keep(Job& job, PortId p) {
    if (course_at_[p] != &job) return;  // another's, since
    inventory_.port(p).kept_for = static_cast<std::uint32_t>(job.course->kept_for(p));
    due_.insert(p);
}

// Its light goes to somebody who did not wait for his turn.
void Turns::lose_turns(PortId p) {
    Job* job = course_at_[p];
    if (job == nullptr || inventory_.port(p).kept_for == 0) return;
    job->course->lose(p);
    keep(*job, p);
}

// Who waits for this light may go.
void Turns::lit_for_plan(PortId p) {
    Job* job = course_at_[p];
    if (job == nullptr) return;
    for (const plan::Instance& i : job->course->kept_by(p)) wake(*job, i);
}

// The gang that waits for this use to have its turn.
void Turns::wake(const Job& job, const plan::Instance& i) {
    if (const auto waiting = job.waiting.find(i); waiting != job.waiting.end())
        if (Gang* g = gangs_.find(waiting->second.gang)) schedule_.queue(*g, true);
}

void Turns::follow_plans() {
    jobs_.look();
    while (!due_.empty()) {
        const PortId p = *due_.begin();
        due_.erase(due_.begin());
        if (Job* job = course_at_[p]; job != nullptr) take_turn(*job, p);
    }
}

// The port's next turn, if its peer has come to the same.
void Turns::take_turn(Job& job, PortId p) {
    plan::Course& course = *job.course;
    const auto turn = turn_at(job, p);
    if (!turn) return;
    const PortId q = turn->peer;
    if (!is_joined(p, q)) {
        if (course.kept_for(p) + course.kept_for(q) != 0) return;
        for (const PortId end : {p, q}) runs_.end_beyond(course, end);
        if (!may_turn_for_plan(p, job, turn->instance) || !may_turn_for_plan(q, job, turn->instance)) return;
        for (const PortId end : {p, q})
            if (const PairId e = inventory_.port(end).pair; e != kNone)
                suspension_.make_way(e, "it waits, and by plan others have its ports meanwhile");
        Op& op = change_sets_.open(fabric_.ports[p].sw, true);
        op.planned = true;
        change_sets_.connect(op, inventory_.pair_between(fabric_.ports[p].gpu, fabric_.ports[q].gpu), make_circuit(p, q));
        hidden_.begin(p, q);
        ++counters_.speculations;
    }
    course.serve(p);
    for (const PortId end : {p, q}) keep(job, end);
    wake(job, turn->instance);
}

std::optional<plan::Course::Turn> Turns::turn_at(const Job& job, PortId p) const {
    const plan::Course& course = *job.course;
    const auto mine = course.next(p);
    if (!mine || course_at_[p] != &job || course_at_[mine->peer] != &job || course.kept_for(p) >= kMostKept)
        return std::nullopt;
    const auto theirs = course.next(mine->peer);
    return theirs->peer == p && theirs->instance == mine->instance ? mine : std::nullopt;
}

bool Turns::is_joined(PortId p, PortId q) const {
    return inventory_.port(p).peer == q && inventory_.usable(make_circuit(p, q));
}

// Nobody has reserved it, and nobody uses its light but launches that may make way.
bool Turns::may_turn_for_plan(PortId p, const Job& job, const plan::Instance& use) {
    Gang last;
    last.ticket = last.id = std::numeric_limits<std::uint64_t>::max();
    if (inventory_.sw(fabric_.ports[p].sw).rest_until_ns > now_) return false;
    const Obstacle obstacle = inventory_.obstacle(p, last);
    if (obstacle != Obstacle::busy) return obstacle == Obstacle::none;
    const auto is_late = [&](const Key& key) {
        const auto i = job.course->find(key);
        return i && job.course->is_before(use, *i);
    };
    return !inventory_.reserved_earlier(p, last, kNone) && suspension_.may_make_way(inventory_.port(p).pair, is_late);
}

}  // namespace opus::controller
