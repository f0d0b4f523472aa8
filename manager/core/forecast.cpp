#include "manager/core/forecast.h"

#include <algorithm>
#include <bit>

#include "manager/core/rank.h"

namespace opus::manager {
namespace {

constexpr std::uint32_t kMaxPhase = 4096;  // launches of a phase that are foretold
constexpr TimeNs kTogether = 1'000'000;    // as good as one moment
constexpr TimeNs kLate = 2'000'000;        // a circuit that is idle for so long may be of use to others
constexpr std::size_t kNear = 16;          // launches posted that may come next
constexpr unsigned kSizeClass = 3;         // a class is 2^3 wide

// Its peers wait for it as it does for them.
bool are_of_all(const std::vector<LaunchKey>& keys) {
    return keys.size() > 1 || (!keys.empty() && keys.front().range.first.kind == KeyKind::coll);
}

// Among those that may come next.
bool is_posted(const std::deque<Launch>& launches, std::uint64_t signature) {
    std::size_t looked = 0;
    for (const Launch& l : launches) {
        if (!l.pending()) continue;
        if (l.programme.signature == signature) return true;
        if (++looked == kNear) break;
    }
    return false;
}

}  // namespace

Circuits circuits_by(const wire::KeyRange& range, const Places& places, NodeIndex here) {
    const auto reaches = circuits_of(range, places, here);
    if (!reaches) {  // a transfer's are the same in both directions
        const Key& key = range.first;
        std::size_t h = hash_mix(range.mesh, key.comm.hi ^ key.comm.lo);
        if (is_directed(key.kind))
            h = hash_mix(h, (std::uint64_t(std::min(key.src, key.dst) + 1) << 32) | std::max(key.src, key.dst));
        return {h};
    }
    Circuits circuits;
    for (const Reach& r : *reaches)
        circuits.push_back(hash_mix(r.gpu, (std::uint64_t(r.peer.node) << 32) | r.peer.gpu));
    return circuits;
}

Predictor::Launch programme_of(OpKind op, std::uint64_t bytes, const std::vector<LaunchKey>& keys,
                               const std::vector<Circuits>& circuits) {
    std::uint64_t needs = 0, signature = hash_mix(0, static_cast<std::uint64_t>(op));
    Circuits all;
    bool sized = true;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const wire::KeyRange& range = keys[i].range;
        if (circuits[i].empty() || is_connection(range.first.kind)) continue;
        sized &= range.first.kind == KeyKind::coll && !range.mesh;
        signature = hash_mix(signature, std::hash<Key>{}(sequence_of(range.first)) + range.count);
        for (const std::uint64_t c : circuits[i])
            if (std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
    }
    if (all.empty()) return {};
    for (const std::uint64_t c : all) needs += hash_mix(1, c);  // in any order
    if (sized) signature = hash_mix(signature, static_cast<unsigned>(std::bit_width(bytes)) / kSizeClass);
    return {signature, needs != 0 ? needs : 1};
}

// It did not wait for the receive that was served before it, but for its circuits to come back from there: it was ready
// before the receive was over, or sooner afterwards than it has ever been after what it does wait for.
bool Forecast::regrets(const Launch& launch, TimeNs now) const {
    const bool waited = launch.firm && now - launch.waiting_since > kLate;
    bool apart = between_.ended_ns < 0 || launch.waiting_since < between_.ended_ns;
    if (!apart && predictor_.repeats() && predictor_.expected(0).signature == launch.programme.signature)
        apart = launch.waiting_since <
                between_.ended_ns + static_cast<TimeNs>(predictor_.least_gap_ns(launch.programme.signature));
    return between_.signature != 0 && launch.programme.needs == between_.phase && waited && apart && are_of_all(launch.keys);
}

void Forecast::started(const Launch& launch, TimeNs now, const std::deque<Launch>& launches) {
    const Predictor::Launch& p = launch.programme;
    if (p.needs == 0) return;
    std::vector<LaunchKey> keys = launch.keys;
    std::erase_if(keys, [](const LaunchKey& key) { return is_connection(key.range.first.kind); });
    for (const LaunchKey& key : keys) launches_.begin(key.range);
    launches_.remember(p.signature, keys);
    const TimeNs apart = launch.waiting_since - started_ns_;
    Predictor::Start how;
    how.contested = p.needs != phase_ && apart >= -kTogether && apart <= kTogether;
    // Only one that had to ask shows how long its peers let it wait; what starts in a run begins as it did the last time.
    how.late = launch.firm ? now - launch.waiting_since > kLate
                           : predictor_.expected(0).signature == p.signature && predictor_.began(0).late;
    if (regrets(launch, now)) predictor_.regret();
    how.first_anyway = in_vain(launch);
    gave_way_ = false;
    how.patience = launch.patience;
    how.after_ns = static_cast<std::uint64_t>(std::max<TimeNs>(0, launch.waiting_since - went_on_ns_));
    const bool follows = p.needs == phase_ && between_.signature == 0 && under_way_.empty();
    const TimeNs gap = launch.waiting_since - ended_ns_;
    between_ = {};
    if (launch.is_one(OpKind::recv) && p.needs != phase_)
        between_ = {p.signature, phase_, -1};
    else
        went_on_ns_ = now;
    predictor_.observe(p, how, [&launches](std::uint64_t signature) { return is_posted(launches, signature); });
    if (follows) predictor_.note_gap(static_cast<std::uint64_t>(std::max<TimeNs>(0, gap)));
    phase_ = p.needs;
    started_ns_ = now;
    const auto at = std::find_if(under_way_.begin(), under_way_.end(), [&p](const auto& u) { return u.first == p.needs; });
    if (at != under_way_.end())
        ++at->second;
    else
        under_way_.emplace_back(p.needs, 1);
}

bool Forecast::can_wait(const Launch& launch) const {
    if (!predictor_.forecast().sure) return false;
    const Predictor::Launch due = predictor_.due();
    if (due.needs == 0 || due.needs == launch.programme.needs) return false;
    switch (predictor_.turn_of(launch.programme.signature)) {
        case Predictor::Turn::after_others: return true;
        // Tried behind what all its members do together: a transfer may wait for what its peer does once it has this one.
        case Predictor::Turn::passed_over: return due.needs == phase_ && are_of_all(keys_of(due.signature));
        default: return false;
    }
}

bool Forecast::is_due(const Launch& launch) const { return launch.programme.needs == predictor_.due().needs; }

TimeNs Forecast::due_until() const { return went_on_ns_ + static_cast<TimeNs>(predictor_.due_after_ns()); }

void Forecast::never_let_wait(const Launch& launch) { predictor_.never_let_wait(launch.programme.signature); }

void Forecast::ended(const Launch& launch, TimeNs now) {
    const std::uint64_t needs = launch.programme.needs;
    if (needs == 0) return;
    ended_ns_ = now;
    if (launch.programme.signature == between_.signature) between_.ended_ns = now;
    const auto at =
        std::find_if(under_way_.begin(), under_way_.end(), [needs](const auto& u) { return u.first == needs; });
    if (at != under_way_.end() && --at->second == 0) under_way_.erase(at);
}

// Empty: not known, or too many.
std::vector<LaunchKey> Forecast::keys_of(std::uint64_t signature) const {
    std::vector<LaunchKey> keys;
    launches_.each(signature, [&keys](LaunchKey key) {
        for (const LaunchKey& before : keys)  // two ranges of one sequence in a launch follow each other
            if (sequence_of(before.range.first) == sequence_of(key.range.first))
                key.range.first.n += before.range.count;
        keys.push_back(key);
    });
    return keys;
}

std::vector<Forecast::Head> Forecast::heads(const std::deque<Launch>& launches) {
    std::vector<Head> found;
    std::vector<std::uint32_t> families;
    std::size_t looked = 0;
    for (const Launch& launch : launches) {
        if (!launch.pending()) continue;
        if (++looked > kMaxLook) break;
        bool first = true;
        for (const std::uint32_t family : launch.families) {
            if (std::find(families.begin(), families.end(), family) == families.end())
                families.push_back(family);
            else
                first = false;
        }
        if (first && launch.programme.needs != 0) found.push_back({&launch, launch.programme.needs});
    }
    return found;
}

namespace {

wire::Expectation expect(const std::vector<LaunchKey>& keys, bool sure) {
    wire::Expectation e;
    e.sure = sure;
    for (const LaunchKey& key : keys) e.keys.push_back(key.range);
    return e;
}

}  // namespace

// By the predictor. A launch that it expects and that is recorded is told as it was recorded; one that cannot
// come yet, because another of its communicator is before it, is not believed.
std::optional<wire::Expectation> Forecast::foretold(const Predictor::Launch& next, const std::vector<Head>& heads,
                                                    const Lit& lit) const {
    for (const Head& head : heads)
        if (head.needs == next.needs) return expect(head.launch->keys, true);
    const std::vector<LaunchKey> keys = keys_of(next.signature);
    if (keys.empty()) return std::nullopt;
    for (const Head& head : heads)
        for (const LaunchKey& key : keys)
            if (std::find(head.launch->members.begin(), head.launch->members.end(), key.member) != head.launch->members.end())
                return recorded(heads, lit);
    return expect(keys, true);
}

// By what is recorded, if there is no choice. A launch that waits already may wait for what is not recorded yet.
std::optional<wire::Expectation> Forecast::recorded(const std::vector<Head>& heads, const Lit& lit) const {
    for (const Head& head : heads)
        if (head.needs != heads.front().needs) return std::nullopt;
    const bool waits =
        std::any_of(heads.begin(), heads.end(), [](const Head& h) { return h.launch->phase == Phase::waiting; });
    return posted(heads, !waits, lit);
}

// By the order in which the program has posted it: not what it will be where receives are posted early, so only while
// nothing better is known.
std::optional<wire::Expectation> Forecast::posted(const std::vector<Head>& heads, bool sure, const Lit& lit) const {
    if (heads.empty()) return std::nullopt;
    wire::Expectation e = expect(heads.front().launch->keys, sure);
    if (heads.front().needs == phase_ && lit(e.keys)) return std::nullopt;
    return e;
}

// Where a transfer that this rank waits to receive and one that it is to send come at one time, the second goes first:
// its receiver has nothing to do before, and this rank has just made what it sends (the last time it had to wait). Not
// where that was said in vain: the receiver had something else to do, and nothing was made ready for either.
bool Forecast::gives_way(const std::vector<Head>& heads, const Predictor::Launch& next) const {
    if (!predictor_.began(1).contested || predictor_.began(0).first_anyway) return false;
    bool receives = false, sends = false;
    for (const Head& h : heads) {
        receives |= h.needs == phase_ && h.launch->phase == Phase::waiting && h.launch->is_one(OpKind::recv);
        sends |= h.needs == next.needs && h.launch->is_one(OpKind::send);
    }
    return receives && sends;
}

// It starts though this rank has said that it gives way. While an order is still being learned that says nothing: light
// may have been made for nobody yet.
bool Forecast::in_vain(const Launch& launch) const {
    return gave_way_ && launch.is_one(OpKind::recv) && launch.programme.needs == phase_ && predictor_.repeats();
}

// Of each communicator, what is expected first is what is recorded first, as far as either can be seen. The end of a
// job's first iteration looks like its beginning, with which it had something else to set up besides.
bool Forecast::agrees(const std::vector<Head>& heads) const {
    std::vector<const Launch*> open;
    open.reserve(heads.size());
    for (const Head& h : heads) open.push_back(h.launch);
    for (std::uint32_t i = 0; i < kMaxLook && !open.empty(); ++i) {
        const Predictor::Launch next = predictor_.expected(i);
        if (next.needs == 0) break;
        bool contradicts = false;
        std::erase_if(open, [&](const Launch* launch) {
            bool meets = false;
            launches_.each(next.signature, [&](const LaunchKey& key) {
                const auto& members = launch->members;
                meets |= std::find(members.begin(), members.end(), key.member) != members.end();
            });
            contradicts |= meets && launch->programme.signature != next.signature;
            return meets;
        });
        if (contradicts) return false;
    }
    return true;
}

std::optional<wire::Expectation> Forecast::next_phase(const std::deque<Launch>& launches, const Lit& lit) {
    const auto is_phase = [this](const auto& u) { return u.first == phase_; };
    if (phase_ == 0 || std::any_of(under_way_.begin(), under_way_.end(), is_phase)) return std::nullopt;
    const Predictor::Forecast f = predictor_.forecast();
    const std::vector<Head> ahead = heads(launches);
    // One that is ready and was never seen before: what comes is not what came after this the last time.
    const bool news = std::any_of(ahead.begin(), ahead.end(), [this](const Head& h) {
        return h.launch->phase == Phase::waiting && !predictor_.knows(h.launch->programme.signature);
    });
    if (news) return recorded(ahead, lit);
    if (f.known && !agrees(ahead)) return posted(ahead, true, lit);
    if (!f.sure) return recorded(ahead, lit);
    const bool yields = f.remaining == 1 && gives_way(ahead, f.next);
    gave_way_ |= yields;
    if (f.remaining == 0 || yields) return foretold(f.next, ahead, lit);
    const auto e = foretold(predictor_.due(), ahead, lit);
    return e && !lit(e->keys) ? e : std::nullopt;
}

std::vector<LaunchKey> Forecast::rest_of_phase(const Launch& first) const {
    std::vector<LaunchKey> rest;
    const Predictor::Launch& p = first.programme;
    // Not before a whole round agrees with the one before: a run that is too long or too short changes the order that
    // is being learned, and what starts in it shows less of what would have come.
    if (p.needs == 0 || predictor_.expected(0).needs != p.needs || !predictor_.repeats()) return rest;
    const auto add = [&](const LaunchKey& key) {
        const Key sequence = sequence_of(key.range.first);
        const auto same = std::find_if(rest.begin(), rest.end(), [&](const LaunchKey& r) {
            return r.member == key.member && r.range.mesh == key.range.mesh && sequence_of(r.range.first) == sequence;
        });
        if (same != rest.end()) {
            same->range.count += key.range.count;
            return;
        }
        rest.push_back(key);
        for (const LaunchKey& mine : first.keys)
            if (sequence_of(mine.range.first) == sequence)
                rest.back().range.first.n = std::max(rest.back().range.first.n, mine.range.first.n + mine.range.count);
    };
    for (std::uint32_t i = 1; i < kMaxPhase; ++i) {
        const Predictor::Launch next = predictor_.expected(i);
        if (predictor_.began(i).patience == Predictor::Patience::regretted) continue;
        // One whose peers come late asks: in a run it would start at once, and hold a circuit that is of no use to it yet.
        if (next.needs != p.needs || predictor_.began(i).late) break;
        // So does one that comes together with one of another phase: which goes first is not for this rank to say.
        if (predictor_.began(i + 1).contested) break;
        if (!launches_.each(next.signature, add)) break;
    }
    return rest;
}

}  // namespace opus::manager
