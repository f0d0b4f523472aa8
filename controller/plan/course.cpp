#include "controller/plan/course.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "opus/assert.h"

namespace opus::controller::plan {
namespace {

constexpr std::uint64_t kMostSkipped = 1u << 16;  // keys of a sequence that begin with a later one

}  // namespace

Course::Course(Lap lap, Order order, const std::function<std::uint64_t(const Key& sequence)>& reached)
    : lap_(std::move(lap)),
      order_(std::move(order)),
      ports_(lap_.uses.size()),
      on_(lap_.uses.size()),
      keys_(lap_.uses.size()),
      goes_on_(lap_.uses.size()),
      left_(lap_.uses.size()) {
    std::vector<std::uint32_t> uses(lap_.uses.size());
    std::iota(uses.begin(), uses.end(), 0u);
    std::sort(uses.begin(), uses.end(), [this](auto x, auto y) { return order_.place[x] < order_.place[y]; });
    for (const std::uint32_t u : uses)
        for (const auto& [p, q] : order_.ports[u])
            for (const auto& [port, peer] : {std::pair{p, q}, std::pair{q, p}}) {
                on_[u].emplace_back(port, lines_[port].turns.size());
                lines_[port].turns.emplace_back(u, peer);
            }
    for (std::uint32_t u = 0; u < lap_.uses.size(); ++u) {
        for (const auto& place : on_[u]) ports_[u].push_back(place.first);
        std::sort(ports_[u].begin(), ports_[u].end());
    }
    for (std::uint32_t u = 0; u < lap_.uses.size(); ++u)
        for (const Until& until : lap_.uses[u].until) goes_on_[u] = goes_on_[until.use] = true;
    for (const auto& [key, sequence] : lap_.sequences)
        for (std::size_t k = 0; k < sequence.uses.size(); ++k) keys_[sequence.uses[k]].emplace_back(key, k);
    for (const auto& [key, sequence] : lap_.sequences) {
        const std::uint64_t upto = reached(key);
        reached_[key] = sequence.first;
        if (upto <= sequence.first) continue;
        Key last = key;
        last.n = upto - 1;
        begin(last);
    }
    begun_count_ = 0;
    left_.assign(lap_.uses.size(), {});  // what began before the plan does not count
}

std::optional<Instance> Course::find(const Key& key) const {
    const auto at = lap_.find(key);
    if (!at || at->second < 0) return std::nullopt;
    return Instance{static_cast<std::uint64_t>(at->second), at->first};
}

bool Course::share_port(const Instance& x, const Instance& y) const {
    const auto &mine = ports_[x.use], &theirs = ports_[y.use];
    for (std::size_t i = 0, j = 0; i < mine.size() && j < theirs.size(); mine[i] < theirs[j] ? ++i : ++j)
        if (mine[i] == theirs[j]) return true;
    return false;
}

bool Course::has_begun(const Instance& i) const {
    if (begun_.contains(i)) return true;
    const auto& places = on_[i.use];
    return !places.empty() && std::all_of(places.begin(), places.end(), [&](const auto& place) {
        const Line& line = must_find(lines_, place.first);
        const std::pair here{i.lap, place.second};
        return here < line.place() && !line.kept.contains(here);
    });
}

std::vector<PortId> Course::ports() const {
    std::vector<PortId> all;
    for (const auto& entry : lines_) all.push_back(entry.first);
    return all;
}

std::optional<Course::Turn> Course::next(PortId port) const {
    const auto line = lines_.find(port);
    if (line == lines_.end()) return std::nullopt;
    const auto& [use, peer] = line->second.turns[line->second.at];
    return Turn{{line->second.lap, use}, peer};
}

std::size_t Course::kept_for(PortId port) const {
    const auto line = lines_.find(port);
    return line == lines_.end() ? 0 : line->second.kept.size();
}

std::vector<Instance> Course::kept_by(PortId port) const {
    std::vector<Instance> all;
    const auto line = lines_.find(port);
    if (line != lines_.end())
        for (const auto& [lap, at] : line->second.kept) all.push_back({lap, line->second.turns[at].first});
    return all;
}

bool Course::is_kept(const Instance& i) const {
    return std::all_of(on_[i.use].begin(), on_[i.use].end(), [&](const auto& place) {
        return must_find(lines_, place.first).kept.contains({i.lap, place.second});
    });
}

std::map<Key, Course::Range> Course::kept_keys(const std::vector<PortId>& ports, TimeNs most_apart) const {
    std::set<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> in_turn;  // lap, place, use
    // The first lap and place that is none of it.
    std::pair upto{std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::uint32_t>::max()};
    for (const PortId p : ports) {
        const auto kept = kept_by(p);
        for (const Instance& i : kept)
            if (!goes_on_[i.use] && lap_.uses[i.use].apart_ns <= most_apart && is_kept(i)) in_turn.insert({i.lap, order_.place[i.use], i.use});
        if (!kept.empty())
            upto = std::min(upto, {kept.back().lap, order_.place[kept.back().use] + 1});
        else if (const auto turn = next(p))
            upto = std::min(upto, {turn->instance.lap, order_.place[turn->instance.use]});
    }
    std::map<Key, Range> ranges;
    for (const auto& [lap, place, use] : in_turn) {
        if (std::pair{lap, place} >= upto) break;
        auto with = ranges;  // all keys of the use, or none
        const bool next = std::ranges::all_of(keys_[use], [&, lap = lap](const auto& key) {
            const auto& [name, k] = key;
            const Sequence& sequence = must_find(lap_.sequences, name);
            const std::uint64_t n = sequence.first + lap * sequence.uses.size() + k;
            Range& range = with.try_emplace(name, Range{must_find(reached_, name), must_find(reached_, name), sequence.mesh})
                               .first->second;
            return std::exchange(range.end, n + 1) == n;
        });
        if (next) ranges = std::move(with);
    }
    return ranges;
}

std::uint64_t Course::reached(const Key& sequence) const {
    const auto at = reached_.find(sequence);
    return at == reached_.end() ? 0 : at->second;
}

void Course::serve(PortId port) {
    const PortId peer = next(port)->peer;
    for (const PortId p : {port, peer}) {
        Line& line = must_find(lines_, p);
        line.kept.insert(line.place());
        line.step();
        skip_begun(line);
    }
}

void Course::lose(PortId port) {
    const auto at = lines_.find(port);
    if (at == lines_.end() || at->second.kept.empty()) return;
    Line& line = at->second;
    const auto kept = std::exchange(line.kept, {});
    const auto end = line.place();
    std::tie(line.lap, line.at) = *kept.begin();
    // Between these there may be some that have begun.
    for (auto place = line.place(); place < end;) {
        if (!kept.contains(place)) begun_.insert({place.first, line.turns[place.second].first});
        if (++place.second == line.turns.size()) place = {place.first + 1, 0};
    }
    skip_begun(line);
}

void Course::begin(const Key& key) {
    const auto at = reached_.find(sequence_of(key));
    if (at == reached_.end()) return;
    if (key.n >= at->second && key.n - at->second > kMostSkipped) at->second = key.n;  // not a sequence any more
    for (Key k = key; at->second <= key.n; ++at->second) {
        k.n = at->second;
        const auto i = find(k);
        if (!i) continue;
        if (on_[i->use].empty())
            begun_count_ += is_first_of_use(k, i->use);
        else if (!has_begun(*i))
            ++begun_count_, begin(*i);
    }
}

bool Course::is_first_of_use(const Key& key, std::uint32_t use) const {
    const auto& [sequence, at] = keys_[use].front();
    const Sequence& s = must_find(lap_.sequences, sequence);
    return sequence == sequence_of(key) && (key.n - s.first) % s.uses.size() == at;
}

void Course::begin(const Instance& i) {
    left_[i.use].last = !is_kept(i);
    left_[i.use].times += left_[i.use].last;
    begun_.insert(i);
    for (const auto& [port, at] : on_[i.use]) must_find(lines_, port).kept.erase({i.lap, at});
    for (const auto& place : on_[i.use]) skip_begun(must_find(lines_, place.first));
    if (passed(i)) begun_.erase(i);
}

bool Course::passed(const Instance& i) const {
    return std::all_of(on_[i.use].begin(), on_[i.use].end(), [&](const auto& place) {
        return std::pair{i.lap, place.second} < must_find(lines_, place.first).place();
    });
}

void Course::skip_begun(Line& line) {
    for (auto i = begun_.find({line.lap, line.turns[line.at].first}); i != begun_.end();
         i = begun_.find({line.lap, line.turns[line.at].first})) {
        line.step();
        if (passed(*i)) begun_.erase(i);
    }
}

std::size_t Course::next_turn(PortId port) const {
    const auto line = lines_.find(port);
    return line == lines_.end() ? 0 : line->second.at;
}

std::vector<Course::Planned> Course::plan_of(PortId port, TimeNs dark_ns) const {
    std::vector<Planned> plan;
    const auto line = lines_.find(port);
    if (line == lines_.end() || order_.begin_ns.size() != lap_.uses.size()) return plan;
    const auto& turns = line->second.turns;
    for (const auto& [use, peer] : turns) {
        Planned& turn = plan.emplace_back();
        turn.peer = peer;
        if (!keys_[use].empty()) turn.key = keys_[use].front().first;
        turn.begin_ns = order_.begin_ns[use];
        turn.lasts_ns = order_.lasts_ns[use];
        TimeNs free_ns = std::numeric_limits<TimeNs>::min();  // both ends of the circuit
        for (const auto& [end, at] : on_[use]) {
            if (end != port && end != peer) continue;
            const auto& of_end = must_find(lines_, end).turns;
            const auto& [use_before, peer_before] = of_end[at == 0 ? of_end.size() - 1 : at - 1];
            turn.moves |= peer_before != (end == port ? peer : port);
            const TimeNs over_ns = order_.begin_ns[use_before] + order_.lasts_ns[use_before];
            free_ns = std::max(free_ns, over_ns - (at == 0 ? order_.lap_ns : 0));
        }
        turn.slack_ns = turn.begin_ns - order_.wait[use] - free_ns - (turn.moves ? dark_ns : 0);
        turn.left = left_[use].times;
        turn.left_last = left_[use].last;
    }
    return plan;
}

}  // namespace opus::controller::plan
