#include "manager/core/pace.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace opus::manager {
namespace {

constexpr TimeNs kMostAtOnce = 100'000;  // laps
constexpr TimeNs kExcessParts[] = {8, 1};  // of a lap

}  // namespace

void Pace::begin(bool on_demand) {
    if (on_demand_ && (!on_demand || yardstick_.empty())) make_yardstick();
    if (!on_demand_ && on_demand) record_.clear();
    on_demand_ = on_demand;
    took_ns_ = should_ns_ = 0;
    compared_ = since_lap_ = 0;
    told_excess_ = 0;
    news_.reset();
    last_ns_ = -1;  // what is under way was begun under the other rule
}

void Pace::recorded(std::uint64_t seq, std::uint64_t signature) {
    if (posted_.size() < kMostPending) posted_.push_back({seq, signature, -1});
}

void Pace::ended(std::uint64_t seq, TimeNs now) {
    const auto at = std::find_if(posted_.begin(), posted_.end(), [seq](const Posted& p) { return p.seq == seq && p.ended_ns < 0; });
    if (at == posted_.end()) return;
    at->ended_ns = now;
    for (; !posted_.empty() && posted_.front().ended_ns >= 0; posted_.pop_front()) {
        const Posted& p = posted_.front();
        const TimeNs took = last_ns_ < 0 ? -1 : std::max<TimeNs>(0, p.ended_ns - last_ns_);
        last_ns_ = std::max(last_ns_, p.ended_ns);
        pass(p.signature, took);
    }
}

std::optional<Pace::News> Pace::news() { return std::exchange(news_, std::nullopt); }

// Of the launch that comes now.
std::uint64_t Pace::context_with(std::uint64_t signature) const {
    std::uint64_t h = hash_mix(0, signature);
    for (std::uint64_t i = 1; i < kContext && i <= count_; ++i) h = hash_mix(h, past_[(count_ - i) % kMostPast]);
    return h;
}

void Pace::pass(std::uint64_t signature, TimeNs took) {
    const std::uint64_t context = follow(signature);
    if (took < 0) return;
    if (on_demand_) {
        record_.push_back({context, took});
        if (record_.size() > kMostPast) record_.pop_front();
        if (lap_ == 0 && repeats()) {
            lap_ = count_ - at_;
            news_ = News{Kind::ready, 0, 0, last_recorded(lap_)};
            return;
        }
    }
    if (!yardstick_.empty()) compare({context, took});
    if (lap_ != 0 && !told_longer_ && repeats() && count_ - at_ > lap_ + lap_ / 2) {
        told_longer_ = true;
        tell(Kind::longer);
    }
}

// One more launch: is it what followed there?
std::uint64_t Pace::follow(std::uint64_t signature) {
    if (past_.empty()) past_.resize(kMostPast);
    const std::uint64_t context = context_with(signature);
    const bool expected = at_ != kNowhere && remembered(at_) && past_[at_ % kMostPast] == signature;
    past_[count_++ % kMostPast] = signature;
    const auto [seen, fresh] = first_.try_emplace(context, count_);
    if (expected) {
        ++at_;
        ++followed_;
    } else {
        followed_ = 0;
        at_ = !fresh && remembered(seen->second) ? seen->second : kNowhere;
    }
    if (!remembered(seen->second)) seen->second = count_;
    if (first_.size() > 2 * kMostPast)
        std::erase_if(first_, [this](const auto& entry) { return !remembered(entry.second) && entry.second != count_; });
    return context;
}

// What came from there to here has come again, and is recorded.
bool Pace::repeats() const {
    if (at_ == kNowhere) return false;
    const std::uint64_t lap = count_ - at_;
    if (followed_ < std::max<std::uint64_t>(lap, kLeastRound) || (on_demand_ && record_.size() < lap)) return false;
    return followed_ >= kLeastShortRound || (on_demand_ && last_recorded(lap) >= kLeastLapNs);
}

TimeNs Pace::last_recorded(std::uint64_t launches) const {
    TimeNs all = 0;
    for (std::size_t i = record_.size() - launches; i < record_.size(); ++i) all += record_[i].ns;
    return all;
}

void Pace::age(Mean& mean) {
    mean.sum_ns /= 2;
    mean.weight /= 2;
}

// The last laps, and of several not the first: it begins under another rule. What was timed before counts half: a lap or
// two are no measure where laps differ.
void Pace::make_yardstick() {
    if (lap_ == 0 || record_.empty()) return;
    const std::uint64_t laps = record_.size() / lap_;
    const std::uint64_t used = std::clamp<std::uint64_t>(laps > 1 ? laps - 1 : laps, 1, kMostLaps);
    const std::size_t count = std::min<std::size_t>(used * lap_, record_.size());
    for (auto& entry : yardstick_) age(entry.second);
    age(lap_mean_);
    for (std::size_t i = record_.size() - count; i < record_.size(); ++i) {
        const auto ns = static_cast<double>(record_[i].ns);
        Mean& mean = yardstick_[record_[i].context];
        mean.sum_ns += ns;
        ++mean.weight;
        lap_mean_.sum_ns += ns;
    }
    lap_mean_.weight += static_cast<double>(used);
    const TimeNs lap_ns = std::max<TimeNs>(1, static_cast<TimeNs>(lap_mean_.ns()));
    const TimeNs several = std::clamp<TimeNs>((kLeastLapNs + lap_ns - 1) / lap_ns, 1, kMostAtOnce);
    yardstick_lap_ = lap_ * static_cast<std::uint64_t>(several);
    yardstick_lap_ns_ = lap_ns * several;
}

void Pace::compare(const Took& t) {
    if (++since_lap_ >= std::max(kNotFollowed * yardstick_lap_, kLeastNotFollowed)) {
        tell(Kind::lost);
        return forget();
    }
    const auto known = yardstick_.find(t.context);
    if (followed_ == 0 || known == yardstick_.end()) {
        took_ns_ = should_ns_ = 0;
        compared_ = 0;
        told_excess_ = 0;
        return;
    }
    took_ns_ += t.ns;
    should_ns_ += static_cast<TimeNs>(known->second.ns());
    if (++compared_ >= yardstick_lap_) {
        tell(Kind::lap);
        took_ns_ = should_ns_ = 0;
        compared_ = since_lap_ = 0;
        told_excess_ = 0;
        return;
    }
    tell_if_excessive(took_ns_);
}

// Within a lap the two cannot be compared: in which order things end is another matter ahead of demand. But a lap that
// has taken longer than a whole one should is slow, whatever comes.
void Pace::tell_if_excessive(TimeNs took) {
    if (told_excess_ >= std::size(kExcessParts) || took - yardstick_lap_ns_ <= yardstick_lap_ns_ / kExcessParts[told_excess_])
        return;
    ++told_excess_;
    news_ = News{Kind::excess, took, should_ns_, yardstick_lap_ns_};
}

// Where a launch is posted and does not end, it counts as it stands.
void Pace::look(TimeNs now) {
    if (yardstick_.empty() || news_ || posted_.empty() || last_ns_ < 0 || compared_ == 0) return;
    tell_if_excessive(took_ns_ + std::max<TimeNs>(0, now - last_ns_));
}

void Pace::forget() {
    told_longer_ = false;
    since_lap_ = lap_ = 0;
    record_.clear();
    yardstick_.clear();
    lap_mean_ = {};
}

void Pace::tell(Kind kind) { news_ = News{kind, took_ns_, should_ns_, yardstick_lap_ns_}; }

}  // namespace opus::manager
