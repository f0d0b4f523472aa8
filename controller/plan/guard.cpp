#include "controller/plan/guard.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace opus::controller::plan {

void Guard::Recurrence::add(TimeNs took, TimeNs after) {
    if (took <= 0 || after <= 0) return;
    const double at = 2 * std::log2(static_cast<double>(after) / 1000);
    time_[static_cast<std::size_t>(std::clamp(std::ceil(at), 0.0, 63.0))] += static_cast<double>(took);
    all_ += static_cast<double>(took);
    double rest = kMost * all_;
    std::size_t bucket = 0;
    while (bucket + 1 < time_.size() && (rest -= time_[bucket]) > 0) ++bucket;
    most_ns_ = static_cast<TimeNs>(1000 * std::exp2(static_cast<double>(bucket) / 2));
}

TimeNs Guard::period_ns() const {
    return std::min(recurrence_.most_ns(), (now_ns_ - std::max<TimeNs>(born_ns_, 0)) / 2);
}

TimeNs Guard::scale_ns() const { return std::max(period_ns(), lap_ns_); }

Guard::Span Guard::under_plans() const {
    Span all = whole_;
    all.add(open_);
    return all;
}

double Guard::of_a_rank(double ns) const { return counted_ == 0 ? 0 : ns / static_cast<double>(counted_); }

double Guard::open_lost() const { return of_a_rank(under_plans().lost()); }

double Guard::by_chance() const {
    return chance_.of(unpaid_ns_ + (in_phase_ ? std::max(0.0, of_a_rank(under_plans().all)) : 0));
}

TimeNs Guard::lost_ns() const {
    return static_cast<TimeNs>(std::max(0.0, lost_ + (in_phase_ ? open_lost() : 0) - by_chance()));
}

void Guard::begin(TimeNs costs_ns, TimeNs pays_ns, TimeNs lap_ns) {
    costs_ns_ = costs_ns;
    pays_ns_ = std::max<TimeNs>(1, pays_ns);
    lap_ns_ = lap_ns;
    begun_ns_ = now_ns_;
    stopped_ = false;
}

double Guard::ratio() const { return before_ratio_ > 0 || whole_.took <= 0 ? before_ratio_ : whole_.ratio(); }

void Guard::stop() {
    stopped_ = true;
    ++stops_;
    const Span all = under_plans();
    stopped_ratio_ = all.all < static_cast<double>(scale_ns()) * static_cast<double>(counted_)
                         ? std::max(before_ratio_, all.ratio())
                         : all.ratio();
}

bool Guard::loses() const {
    if (!in_phase_ || stopped_ || counted_ == 0) return false;
    const double gone = static_cast<double>(now_ns_ - begun_ns_) / static_cast<double>(std::max<TimeNs>(1, pays_ns_));
    const double owed = static_cast<double>(costs_ns_) * std::max(0.0, 1 - gone);
    const double may = trusted_ * std::min(kMostLost * static_cast<double>(now_ns_ - born_ns_),
                                           kFarWorse * static_cast<double>(period_ns())) +
                       owed + by_chance();
    const double whole = lost_ + of_a_rank(whole_.lost()), all = lost_ + open_lost();
    return std::min(whole, all) > may || all > may + kMidway * static_cast<double>(scale_ns());
}

std::optional<double> Guard::mean_ns(const Known& k) const {
    if (k.epoch < first_epoch_) return std::nullopt;
    const double weight = k.epoch == first_epoch_ ? 0 : k.weight;
    return (k.before_ns * weight + k.sum_ns) / (weight + k.count);
}

void Guard::learn(Known& known, std::optional<double> mean, TimeNs took) {
    const double passed = std::max<double>(0, static_cast<double>(took));
    lately_ns_ += passed;
    chance_.see(passed / static_cast<double>(ranks_.size()));
    if (mean) known_ns_ += passed;
    if (lately_ns_ > 4 * static_cast<double>(period_ns()) * static_cast<double>(ranks_.size()))
        lately_ns_ /= 2, known_ns_ /= 2;
    if (known.epoch == epoch_)
        recurrence_.add(std::min(took, known.most_ns), known.after_ns = now_ns_ - known.last_ns);
    else
        known = {.before_ns = mean.value_or(0),
                 .weight = mean ? std::max(1.0, (known.weight + known.count) / 2) : 0,
                 .after_ns = known.after_ns,
                 .most_ns = known.most_ns,
                 .epoch = epoch_};
    known.sum_ns += static_cast<double>(took);
    ++known.count;
    known.last_ns = now_ns_;
    known.most_ns = std::max(known.most_ns, took);
}

// What plans have saved is kept for when they cost something, but not for long.
void Guard::settle() {
    if (whole_.took <= 0) return;
    const double lost = of_a_rank(whole_.lost());
    lost_ = std::max(-kFarWorse * static_cast<double>(period_ns()), lost_ + lost);
    unpaid_ns_ += of_a_rank(whole_.all);
    if (lost_ <= 0) unpaid_ns_ = 0;
    before_ratio_ = whole_.ratio();
    if (lost < 0) trusted_ = std::max(1.0, trusted_);
    whole_ = {};
}

void Guard::drop(const RankName& rank) {
    const auto at = ranks_.find(rank);
    if (at == ranks_.end()) return;
    close(at->second);  // what it was in is in no rank's any more
    ranks_.erase(at);
}

// What the rank was in is over.
void Guard::close(Rank& rank) {
    whole_.add(rank.open);
    open_.add({-rank.open.all, -rank.open.took, -rank.open.should});
    rank.open = {};
}

void Guard::pass_time() {
    if (lost_ > 0) lost_ = std::max(0.0, lost_ - kMostLost * static_cast<double>(now_ns_ - paid_until_ns_));
    if (lost_ <= 0 && !in_phase_) unpaid_ns_ = 0;
    paid_until_ns_ = now_ns_;
}

// A plan was dropped because the job had become slower. Has it, by as much, on demand?
void Guard::judge_stopped() {
    if (!again_ || now_ns_ - again_ns_ < period_ns()) return;
    if (again_->ratio() > 1 + (stopped_ratio_ - 1) / 3) {
        lost_ = 0;
        trusted_ = std::min(2 * trusted_, kMostTrusted);
        first_epoch_ = epoch_;
        chance_.forget(again_->all / static_cast<double>(ranks_.size()));
    } else {
        trusted_ = kBurnt;
    }
    again_.reset();
}

void Guard::ended(const RankName& rank, const Seen& launch, bool planned) {
    if (launch.keys.empty()) return;
    if (born_ns_ < 0) born_ns_ = paid_until_ns_ = launch.done_ns;
    now_ns_ = std::max(now_ns_, launch.done_ns);
    pass_time();
    if (planned) planned_ns_ = now_ns_;
    if (planned && !in_phase_) {
        in_phase_ = true;
        ++phase_;
        whole_ = open_ = {};
        counted_ = 0;
        for (auto& [name, r] : ranks_) r.open = {}, r.seek_anchor(), r.is_counted = false;
    }
    if (in_phase_ && counted_ > 0 && of_a_rank(whole_.all) >= static_cast<double>(scale_ns())) {
        if (planned && whole_.took > whole_.all / 2)
            chance_.add_planned(of_a_rank(whole_.all), whole_.ratio() - 1, counted_);
        settle();
    }
    if (!planned && in_phase_ && now_ns_ - planned_ns_ >= period_ns()) {
        for (auto& [name, r] : ranks_) close(r), r.seek_anchor();
        settle();
        in_phase_ = false;
        lap_ns_ = 0;
        ++epoch_;
        chance_.end_plan();
        if (std::exchange(stopped_, false)) again_ = Span{}, again_ns_ = now_ns_;
    }
    if (ranks_.size() >= kMostRanks && !ranks_.contains(rank)) return;
    Rank& own = ranks_[rank];
    if (own.done_ns != 0 && launch.seq <= own.number) {  // it is late: those like it are waited for from now on
        own.behind = std::min(2 * own.behind, kMostBehind);
        return;
    }
    const Over over{launch.seq, signature_of(launch.op, launch.keys), launch.done_ns, in_phase_ ? phase_ : 0};
    own.over.insert(std::ranges::upper_bound(own.over, over.number, {}, &Over::number), over);
    for (; own.over.size() > own.behind; own.over.erase(own.over.begin())) look(own, own.over.front());
}

void Guard::look(Rank& rank, const Over& launch) {
    rank.number = launch.number;
    for (std::size_t i = rank.last.size() - 1; i > 0; --i) rank.last[i] = rank.last[i - 1];
    rank.last[0] = launch.signature;
    std::size_t context = 0;
    for (const std::uint64_t signature : rank.last) context = hash_mix(context, signature);
    const TimeNs before = std::exchange(rank.done_ns, launch.done_ns);
    if (before == 0) return rank.seek_anchor();
    const TimeNs took = launch.done_ns - before;
    const auto at = rank.known.find(context);
    Known* const known = at == rank.known.end() ? nullptr : &at->second;
    const auto should = known != nullptr ? mean_ns(*known) : std::nullopt;
    Span span{static_cast<double>(took), 0, 0};
    if (should) span.took = span.all, span.should = *should;
    if (launch.phase != 0) {
        if (in_phase_ && launch.phase == phase_) pass_period(rank, context, known, span);
        return;
    }
    if (!in_phase_) pass_period(rank, context, known, span);
    if (again_ && should) again_->add(span);
    if (rank.known.size() < kMostKnown) learn(known != nullptr ? *known : rank.known[context], should, took);
    judge_stopped();
}

// From a launch whose context comes again once a period, until that context is there again: then as much has been done.
void Guard::pass_period(Rank& rank, std::uint64_t context, const Known* known, const Span& span) {
    rank.open.add(span);
    if (in_phase_) {
        open_.add(span);
        if (!rank.is_counted) rank.is_counted = true, ++counted_;
    }
    if (known == nullptr) return;
    const TimeNs gone = rank.done_ns - rank.anchored_ns, after = known->after_ns;
    const bool comes_again = rank.anchor == context && gone >= scale_ns() / 10 * 7, is_lost = gone > 3 * scale_ns();
    // Pauses may have made the period longer than anything takes to come again. Then whatever comes again in it will do.
    const TimeNs least = in_phase_ && gone > 4 * scale_ns() ? 1 : period_ns() / 10 * 7;
    if (rank.anchor == 0 || is_lost ? after >= least && after <= 2 * period_ns() : comes_again) {
        if (in_phase_) {
            if (rank.anchor != 0) close(rank);
        } else {
            if (comes_again && rank.open.took > rank.open.all / 2)
                chance_.add_on_demand(rank.open.all, rank.open.ratio() - 1, ranks_.size());
            rank.open = {};
        }
        rank.anchor = context;
        rank.anchored_ns = rank.done_ns;
    }
}

}  // namespace opus::controller::plan
