#include "manager/core/predictor.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace opus::manager {

namespace {
constexpr std::uint32_t kLongMatch = 64;  // as good as any longer one
constexpr std::uint32_t kSureMatch = 3;   // launches that must agree before a forecast is acted on
constexpr std::uint8_t kMaxDoubt = 32;
constexpr std::uint64_t kFirstAfterNs = 4'000'000;

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdull;
}

std::uint32_t place_of(std::uint64_t signature) { return static_cast<std::uint32_t>(mix(signature, 1) >> 40); }
}  // namespace

Predictor::Predictor() : state_(std::make_unique<State>()) {}

// The place of one that has been seen, and not been forgotten; or kSignatures.
std::uint32_t Predictor::find(std::uint64_t signature) const {
    const std::uint32_t start = place_of(signature);
    for (std::uint32_t i = 0; i < kProbes; ++i)
        if (const Known& k = state_->known[(start + i) % kSignatures]; k.used && k.signature == signature)
            return (start + i) % kSignatures;
    return kSignatures;
}

// A number for the signature. A full table lets the least recently seen of a few go; its number may then mean
// two things in the history, which costs a wrong forecast at worst.
Predictor::Symbol Predictor::intern(const Launch& launch) {
    if (const std::uint32_t slot = find(launch.signature); slot != kSignatures) {
        state_->known[slot].needs = launch.needs;
        state_->known[slot].last_seen = static_cast<std::uint32_t>(count_);
        return static_cast<Symbol>(slot);
    }
    const std::uint32_t start = place_of(launch.signature);
    std::uint32_t oldest = start % kSignatures;
    for (std::uint32_t i = 1; i < kProbes; ++i) {
        const std::uint32_t slot = (start + i) % kSignatures;
        const Known &k = state_->known[slot], &o = state_->known[oldest];
        if (o.used && (!k.used || count_ - k.last_seen > count_ - o.last_seen)) oldest = slot;
    }
    state_->known[oldest] = {
        launch.signature, launch.needs, static_cast<std::uint32_t>(count_), 0, false, true, kNoGap};
    return static_cast<Symbol>(oldest);
}

// Eight classes, the first to 4 ms, each next to four times as much. What was near the end of one may take longer.
Predictor::Symbol Predictor::class_of(std::uint64_t ns) {
    unsigned of = 0;
    for (std::uint64_t end = kFirstAfterNs; ns + ns / 4 > end && of < kAfter / kOneAfter; end *= 4) ++of;
    return static_cast<Symbol>(of * kOneAfter);
}

std::uint64_t Predictor::duration_of(Symbol s) { return kFirstAfterNs << 2 * ((s & kAfter) / kOneAfter); }

// Microseconds, cut after the first four binary digits.
std::uint8_t Predictor::gap_of(std::uint64_t ns) {
    const std::uint64_t us = std::min<std::uint64_t>(ns / 1000, 0x7fffffff);
    if (us < 8) return static_cast<std::uint8_t>(us);
    const auto shift = static_cast<std::uint64_t>(std::bit_width(us)) - 4;
    return static_cast<std::uint8_t>((shift + 1) * 8 + ((us >> shift) & 7));
}

void Predictor::note_gap(std::uint64_t ns) {
    std::uint8_t& least = state_->known[last_].least_gap;
    least = std::min(least, gap_of(ns));
}

std::uint64_t Predictor::least_gap_ns(std::uint64_t signature) const {
    const std::uint32_t slot = find(signature);
    const std::uint8_t gap = slot == kSignatures ? kNoGap : state_->known[slot].least_gap;
    if (gap == kNoGap) return 0;
    return 1000 * (gap < 8 ? gap : std::uint64_t{8u + gap % 8} << (gap / 8 - 1));
}

// Also of one that was called needed: then too little had been waited for.
void Predictor::regret() {
    if (count_ == 0) return;
    Symbol& last = state_->history[(count_ - 1) % kHistory];
    last = with(last, Patience::regretted);
}

std::uint64_t Predictor::due_after_ns() const {
    std::uint64_t ns = 0;
    for (std::uint32_t i = 0; i <= passed_over(); ++i) ns += began(i).after_ns;
    return ns;
}

Predictor::Turn Predictor::turn_of(std::uint64_t signature) const {
    const auto mine = static_cast<Symbol>(find(signature));
    if (mine == kSignatures || state_->known[mine].urgent || at_ == kNowhere) return Turn::now;
    if (overtaken(mine) != overtakes_) return Turn::now;
    // A whole round long is long enough.
    if (is_owed(mine)) return remembered(at_) && symbol(at_) == mine ? Turn::now : Turn::passed_over;
    for (std::uint64_t p = at_; p < at_ + kMaxAhead && remembered(p); ++p) {
        if (symbol(p) != mine) continue;
        const Patience patience = patience_of(entry(p));
        if (patience != Patience::regretted) return patience == Patience::shown ? Turn::after_others : Turn::now;
        return p == at_ ? Turn::passed_over : Turn::after_others;
    }
    return Turn::now;
}

bool Predictor::is_owed(Symbol s) const {
    return std::find(owed_.begin(), owed_.begin() + owes_, s) != owed_.begin() + owes_;
}

void Predictor::never_let_wait(std::uint64_t signature) {
    if (const std::uint32_t slot = find(signature); slot != kSignatures) state_->known[slot].urgent = true;
}

Predictor::Knowledge Predictor::knowledge() const {
    Knowledge all;
    std::vector<std::uint64_t> phases;
    for (const Known& k : state_->known) {
        if (!k.used) continue;
        ++all.launches;
        phases.push_back(k.needs);
    }
    std::sort(phases.begin(), phases.end());
    all.phases = static_cast<std::uint32_t>(std::unique(phases.begin(), phases.end()) - phases.begin());
    return all;
}

std::uint32_t Predictor::context_slot(std::size_t which) const {
    std::uint64_t h = kContexts[which];
    for (std::uint32_t i = 1; i <= kContexts[which]; ++i) h = mix(h, symbol(count_ - i));
    return static_cast<std::uint32_t>(h >> 32) % kIndexSlots;
}

// How many launches before `position` are the same as the latest ones, up to `limit`.
std::uint32_t Predictor::match_length(std::uint64_t position, std::uint32_t limit) const {
    std::uint32_t n = 0;
    while (n < limit && n < position && remembered(position - 1 - n) && symbol(position - 1 - n) == symbol(count_ - 1 - n))
        ++n;
    return n;
}

// Those that were to come later the next time are not missed where they came the last time.
bool Predictor::pass_over_to(Symbol seen) {
    std::uint64_t place = at_;
    while (remembered(place) && symbol(place) != seen && is_regretted(place) && place - at_ + owes_ < kMaxOwed) ++place;
    if (!remembered(place) || symbol(place) != seen) return false;
    for (; at_ != place; ++at_) owed_[owes_++] = symbol(at_);
    return true;
}

// Which of those that were overtaken, or their number.
std::uint32_t Predictor::overtaken(Symbol s) const {
    std::uint32_t i = 0;
    while (i < overtakes_ && symbol(overtaken_[i].place) != s) ++i;
    return i;
}

std::uint32_t Predictor::overtaken_soon() const {
    std::uint32_t n = 0;
    while (n < overtakes_ && count_ - overtaken_[overtakes_ - 1 - n].since <= kSoon) ++n;
    return n;
}

// This one and the next, the last time: of one phase, or at one moment.
bool Predictor::came_together(std::uint64_t position) const {
    return remembered(position + 1) && ((entry(position + 1) & kContested) != 0 || needs(position) == needs(position + 1));
}

// What streams do at one moment comes in another order now and then. What is overtaken is posted, so it will come.
bool Predictor::overtake_to(Symbol seen, const Posted& posted) {
    if (!posted) return false;
    std::uint64_t place = at_;
    while (remembered(place) && symbol(place) != seen && place - at_ + overtakes_ < kMaxOvertaken &&
           came_together(place) && posted(state_->known[symbol(place)].signature))
        ++place;
    if (!remembered(place) || symbol(place) != seen) return false;
    for (; at_ != place; ++at_) overtaken_[overtakes_++] = {at_, count_};
    return true;
}

void Predictor::drop_overtaken(std::uint32_t i) {
    std::copy(overtaken_.begin() + i + 1, overtaken_.begin() + overtakes_, overtaken_.begin() + i);
    --overtakes_;
}

// What was learned of the one that is seen, to be learned again.
Predictor::Patience Predictor::follow(Symbol seen, const Posted& posted) {
    if (const std::uint32_t i = overtaken(seen); i != overtakes_) {  // here it is
        const Patience kept = patience_of(entry(overtaken_[i].place));
        drop_overtaken(i);
        ++matched_;
        return kept;
    }
    if (is_owed(seen)) {  // here it is
        const auto end = owed_.begin() + owes_--;
        const auto owed = std::find(owed_.begin(), end, seen);
        std::copy(owed + 1, end, owed);
        return Patience::shown;
    }
    if (at_ != kNowhere && (pass_over_to(seen) || overtake_to(seen, posted))) {
        const Patience kept = patience_of(entry(at_));
        ++at_;
        ++matched_;
        return kept == Patience::regretted ? Patience::none : kept;
    }
    if (matched_ >= kContexts[1]) {
        // Where it broke is where it may go on after an interlude.
        std::rotate(resume_.begin(), resume_.end() - 1, resume_.end());
        resume_[0] = at_;
        resumes_ = std::min(resumes_ + 1, kResume);
    }
    at_ = kNowhere;
    matched_ = owes_ = overtakes_ = 0;
    return Patience::none;
}

// The place whose past agrees longest with ours. Runs after the newest launch is in the history.
void Predictor::search() {
    std::uint64_t best = kNowhere;
    std::uint32_t length = 0;
    const auto consider = [&](std::uint64_t position, std::uint32_t at_least) {
        if (!remembered(position)) return;
        const std::uint32_t n = match_length(position, kLongMatch);
        if (n >= at_least && n > length) {
            best = position;
            length = n;
        }
    };
    for (std::size_t c = 0; c < kContexts.size() && length < kContexts[c]; ++c) {
        if (count_ < kContexts[c]) continue;
        const std::uint32_t stored = state_->index[c][context_slot(c)];
        if (stored != 0)
            consider(count_ - static_cast<std::uint32_t>(static_cast<std::uint32_t>(count_) - (stored - 1)), kContexts[c]);
    }
    // Back from an interlude: what was expected before it, unless something longer speaks against it.
    for (std::uint32_t i = 0; i < resumes_ && length < kContexts[1]; ++i) {
        const std::uint64_t position = resume_[i];
        if (remembered(position) && position + 1 < count_ && symbol(position) == symbol(count_ - 1)) {
            best = position + 1;
            length = std::max(length, kContexts[1]);
            break;
        }
    }
    if (best == kNowhere) return;
    at_ = best;
    matched_ = length;
}

void Predictor::remember_contexts() {
    for (std::size_t c = 0; c < kContexts.size(); ++c)
        if (count_ >= kContexts[c]) state_->index[c][context_slot(c)] = static_cast<std::uint32_t>(count_) + 1;
}

void Predictor::score(const Launch& seen) {
    if (count_ == 0 || seen.needs == current_needs_) {
        // A phase that was to end has not: the change was foretold too early.
        if (count_ != 0 && forecast_.known && forecast_.remaining == 0 && state_->known[last_].doubt < kMaxDoubt)
            state_->known[last_].doubt += 2;
        return;
    }
    ++accuracy_.transitions;
    std::uint8_t& doubt = state_->known[last_].doubt;
    const bool right = forecast_.known && forecast_.remaining == 0 && forecast_.next.needs == seen.needs;
    if (!forecast_.sure)
        ++accuracy_.silent;
    else if (right)
        ++accuracy_.foretold;
    else
        ++accuracy_.wrong;
    if (right)
        doubt = doubt > 0 ? doubt - 1 : 0;
    else if (forecast_.known && doubt < kMaxDoubt)
        doubt += 2;
}

bool Predictor::is_sure() const { return matched_ >= kSureMatch + state_->known[last_].doubt; }

void Predictor::foretell() {
    if (!foresees(0)) {
        forecast_ = {};
        horizon_ = 0;
        return;
    }
    const std::uint32_t soon = overtaken_soon();
    for (std::uint32_t i = 0; i < soon; ++i)
        if (const Launch next = expected(i); next.needs != current_needs_) {
            forecast_ = {true, is_sure(), 0, next};
            horizon_ = 0;
            return;
        }
    if (horizon_ > 0) {
        --horizon_;
        if (forecast_.known) --forecast_.remaining;
    } else {
        std::uint64_t position = at_;
        std::uint32_t remaining = soon;
        for (; remaining < kMaxRun && position < count_; ++position) {
            if (is_regretted(position)) continue;
            if (needs(position) != current_needs_) break;
            ++remaining;
        }
        const bool end_seen = position < count_ && remaining < kMaxRun;
        forecast_.known = end_seen;
        forecast_.remaining = remaining;
        // Where no end is in sight, a look as far at each launch would be a long one.
        horizon_ = overtakes_ != 0 ? 0 : end_seen ? remaining : remaining / 2;
        looked_ += position - at_;
        forecast_.next = end_seen ? launch_at(position) : Launch{};
    }
    forecast_.sure = forecast_.known && is_sure();
}

void Predictor::observe(const Launch& launch, Start how, const Posted& posted) {
    score(launch);
    const std::uint64_t before = at_;
    const Symbol seen = intern(launch);
    if (overtakes_ > 0 && count_ - overtaken_[0].since > kMaxAhead) drop_overtaken(0);  // it did not come after all
    const bool in_turn = foresees(0) && place(0) == before && symbol(before) == seen;
    const Patience learned = follow(seen, posted);
    if (!in_turn && count_ > 0) state_->first_anyway[(count_ - 1) % kHistory] = false;  // the two have changed places
    state_->first_anyway[count_ % kHistory] = in_turn && (how.first_anyway || first_anyway(before));
    const auto flags =
        static_cast<Symbol>((how.contested ? kContested : 0) | (how.late ? kLate : 0) | class_of(how.after_ns));
    state_->history[count_ % kHistory] =
        with(static_cast<Symbol>(seen | flags), how.patience != Patience::none ? how.patience : learned);
    ++count_;
    last_ = seen;
    const bool new_phase = launch.needs != current_needs_;
    current_needs_ = launch.needs;
    const bool lost = at_ == kNowhere;
    if (lost || matched_ < kContexts[0]) {
        const std::uint64_t kept = at_;
        const std::uint32_t kept_matched = matched_;
        search();
        if (kept != kNowhere && matched_ <= kept_matched) {
            at_ = kept;
            matched_ = kept_matched;
        }
        if (at_ != kept) owes_ = overtakes_ = 0;
    }
    if (new_phase || lost || at_ != before + 1) horizon_ = 0;  // look ahead anew
    remember_contexts();
    foretell();
}

}  // namespace opus::manager
