#include "test/sim/turns.h"

#include <algorithm>
#include <map>

#include "test/sim/world.h"

namespace opus::sim {

Turns::Turns(World& world, const Scenario& scenario)
    : world_(world), s_(scenario), members_(scenario.flows.size()), issued_(scenario.flows.size()) {}

TimeNs Turns::dark_time() const {
    TimeNs dark = 0;
    for (const Switch& sw : s_.fabric.switches) dark = std::max(dark, sw.dark_ns);
    return dark;
}

TimeNs Turns::break_time() const { return std::max<TimeNs>(2 * dark_time(), 20 * kMs); }

// Of a run for which another was taken back: so long it is not taken back itself.
TimeNs Turns::quantum() const { return std::max<TimeNs>(2 * dark_time(), 1 * kMs); }

// By a plan it waits for its turn, for 16 dark times and one; and then for the move of one whose turn it has been until then.
TimeNs Turns::turn_time() const { return s_.provision ? 18 * dark_time() + 2 * kMs : 0; }

void Turns::issued(LaunchIndex index) {
    if (!trusted()) return;
    for (const Part& part : *world_.launches[index].parts) issued_[part.flow].push_back(index);
}

// Under a run it may have, and nobody has said so yet.
bool Turns::has_begun(LaunchIndex index) const {
    const LaunchRun& run = world_.launches[index];
    return run.go || run.state == LaunchRun::State::running || run.state == LaunchRun::State::done;
}

Turns::Entry& Turns::entry(LaunchIndex launch) {
    if (entries_.size() <= launch) entries_.resize(world_.launches.size());
    return entries_[launch];
}

bool Turns::full(FlowIndex flow) const { return members_[flow].size() >= s_.flows[flow].members; }

void Turns::heard(LaunchIndex index) {
    if (!trusted() || entry(index).place != Place::unknown) return;
    entry(index).mixed = world_.launches[index].unheld != 0 || pairs_of(index).empty();
    for (const Part& part : *world_.launches[index].parts) members_[part.flow].push_back(index);
    has_begun(index) ? void(entry(index).place = Place::in_flight) : enter(index);
    for (const Part& part : *world_.launches[index].parts)
        if (full(part.flow))
            for (const LaunchIndex m : members_[part.flow]) tie(m);
}

void Turns::ran(LaunchIndex index) {
    if (!trusted() || entry(index).place != Place::unknown) return;
    entry(index).place = Place::done;
    for (const Part& part : *world_.launches[index].parts) members_[part.flow].push_back(index);
    for (const Part& part : *world_.launches[index].parts)
        if (full(part.flow))
            for (const LaunchIndex m : members_[part.flow]) tie(m);
}

void Turns::enter(LaunchIndex index) {
    Entry& e = entry(index);
    e.place = Place::waiting;
    e.own = e.oldest = 0;
    waiting_.push_back(index);
    const auto& parts = *world_.launches[index].parts;
    if (e.mixed || std::any_of(parts.begin(), parts.end(), [this](const Part& p) { return full(p.flow); })) tie(index);
}

// It is complete, if it was not: what waits at its full keys is one gang.
void Turns::tie(LaunchIndex index) {
    if (!waits(entry(index))) return;
    if (Entry& e = entry(index); e.own == 0) {
        e.own = e.oldest = ++stamp_;
        stamped_ns_.push_back(e.complete_ns = world_.now);
    }
    std::vector<LaunchIndex> gang{index};
    std::uint64_t oldest = entry(index).oldest;
    for (std::size_t i = 0; i < gang.size(); ++i)
        for (const Part& part : *world_.launches[gang[i]].parts) {
            if (!full(part.flow)) continue;
            for (const LaunchIndex m : members_[part.flow]) {
                const Entry& e = entry(m);
                if (!waits(e) || std::find(gang.begin(), gang.end(), m) != gang.end()) continue;
                gang.push_back(m);
                if (e.own != 0) oldest = std::min(oldest, e.oldest);
            }
        }
    for (const LaunchIndex m : gang)
        if (entry(m).own != 0) entry(m).oldest = oldest;
}

void Turns::suspended(LaunchIndex index) {
    if (!trusted() || entry(index).place == Place::unknown || entry(index).place == Place::done) return;
    std::erase(waiting_, index);
    enter(index);
}

void Turns::resumed(LaunchIndex index) {
    if (trusted()) resumed_.push_back(index);
}

void Turns::passed(LaunchIndex index) {
    if (trusted() && entry(index).place == Place::waiting) entry(index).place = Place::passed;
}

void Turns::finished(LaunchIndex index) {
    if (!trusted() || entry(index).place == Place::unknown) return;
    entry(index).place = Place::done;
    std::erase(waiting_, index);
}

void Turns::gone(std::uint32_t rank) {
    if (!trusted()) return;
    std::erase_if(waiting_, [&](LaunchIndex index) {
        if (world_.launches[index].rank != rank) return false;
        entry(index).place = Place::done;
        return true;
    });
}

std::vector<PairIndex> Turns::pairs_of(LaunchIndex index) const {
    std::vector<PairIndex> pairs;
    const LaunchRun& run = world_.launches[index];
    for (std::size_t i = 0; i < run.parts->size(); ++i) {
        if (i < 64 && (run.unheld >> i & 1) != 0) continue;  // goes over another network
        const auto& of_it = s_.flows[(*run.parts)[i].flow].pairs;
        pairs.insert(pairs.end(), of_it.begin(), of_it.end());
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return pairs;
}

// Somebody who has started, or whose bytes may still be on their way, waits for one of these.
bool Turns::joins(const std::vector<LaunchIndex>& gang) const {
    for (const LaunchIndex index : gang)
        for (const Part& part : *world_.launches[index].parts)
            for (const LaunchIndex m : members_[part.flow])
                if (m < entries_.size() && (entries_[m].place == Place::in_flight || entries_[m].place == Place::done))
                    return true;
    if (!world_.options.runs) return false;
    for (const LaunchIndex index : gang)
        for (const Part& part : *world_.launches[index].parts)
            for (const LaunchIndex m : issued_[part.flow])
                if (has_begun(m)) return true;
    return false;
}

bool Turns::share_key(LaunchIndex x, LaunchIndex y) const {
    for (const Part& a : *world_.launches[x].parts)
        for (const Part& b : *world_.launches[y].parts)
            if (a.flow == b.flow) return true;
    return false;
}

// The last of its gang.
TimeNs Turns::complete_since(LaunchIndex index) {
    TimeNs last = entry(index).complete_ns;
    for (const LaunchIndex m : waiting_)
        if (entry(m).oldest == entry(index).oldest) last = std::max(last, entry(m).complete_ns);
    return last;
}

// Only where there can be no doubt: the one that waits needs every port of a GPU, and others get one of them.
std::string Turns::overtaken(LaunchIndex waiting, const std::vector<PairIndex>& taken, TimeNs waited, TimeNs patience) {
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    const std::vector<PairIndex> wanted = pairs_of(waiting);
    for (const PairIndex pair : taken) {
        if (std::binary_search(wanted.begin(), wanted.end(), pair)) continue;
        for (const GpuId gpu : {pair / gpus, pair % gpus}) {
            const auto& ports = s_.fabric.gpus[gpu].ports;
            const auto neighbours = std::count_if(wanted.begin(), wanted.end(),
                                                  [&](PairIndex w) { return w / gpus == gpu || w % gpus == gpu; });
            if (static_cast<std::size_t>(neighbours) < ports.size()) continue;
            if (waited >= patience) return s_.fabric.gpus[gpu].name;
        }
    }
    return {};
}

// Of one gang: whose turn was it?
std::string Turns::judge(const std::vector<LaunchIndex>& gang, const std::vector<LaunchIndex>& granted) {
    std::uint64_t oldest = ~0ull;
    std::vector<PairIndex> taken;
    for (const LaunchIndex index : gang) {
        oldest = std::min(oldest, entry(index).oldest);
        for (const PairIndex pair : pairs_of(index)) taken.push_back(pair);
        // Its call holds ports until it returns, and may not return before it is granted.
        if (world_.launches[index].connects) return {};
        // They are one gang, or this one joins them.
        for (const LaunchIndex r : resumed_)
            if (share_key(index, r)) return {};
    }
    for (const LaunchIndex x : waiting_) {
        const Entry& e = entry(x);
        if (e.place != Place::waiting || e.mixed || e.own == 0 || e.own >= oldest) continue;
        if (std::find(granted.begin(), granted.end(), x) != granted.end() ||
            std::find(resumed_.begin(), resumed_.end(), x) != resumed_.end())
            continue;
        const LaunchRun& run = world_.launches[x];
        // One that runs already, and with others would need more neighbours than it has ports, waits by itself.
        if (run.suspended && run.parts->size() > 1) continue;
        if (std::any_of(gang.begin(), gang.end(), [&](LaunchIndex g) { return share_key(x, g); })) continue;
        if (has_begun(x)) continue;  // its demand has crossed a run
        // One that is lit may pass it for a dark time. With runs what has a quantum, or is a laggard's, goes first, but
        // not for ever (K2).
        const TimeNs turn = turn_time();
        const TimeNs patience =
            turn + (world_.options.runs ? quantum() + break_time() + s_.timing.wire_high_ns * 2 : dark_time());
        if (const std::string gpu = overtaken(x, taken, world_.now - complete_since(x), patience); !gpu.empty())
            return world_.inspector.name(gang.front()) + " is granted a port of " + gpu + ", which " +
                   world_.inspector.name(x) + " has wanted for longer";
    }
    return {};
}

// A run is taken back as soon as somebody is complete who wants its ports and its quantum is over, if it has one; what
// starts meanwhile has the time of that message.
std::string Turns::starts(LaunchIndex index, TimeNs granted_ns) {
    if (!trusted() || delayed_) return {};
    const std::vector<PairIndex> taken = pairs_of(index);
    const TimeNs patience = quantum() + 2 * s_.timing.wire_high_ns + s_.timing.poll_high_ns + turn_time();
    for (const LaunchIndex x : waiting_) {
        const Entry& e = entry(x);
        if (x == index || e.place != Place::waiting || e.mixed || e.own == 0 || has_begun(x)) continue;
        const LaunchRun& run = world_.launches[x];
        if ((run.suspended && run.parts->size() > 1) || share_key(x, index)) continue;
        const TimeNs waited = world_.now - std::max(complete_since(x), granted_ns);
        if (const std::string gpu = overtaken(x, taken, waited, patience); !gpu.empty())
            return world_.inspector.name(index) + " starts under a run at a port of " + gpu + ", for which " +
                   world_.inspector.name(x) + " has waited too long";
    }
    return {};
}

std::vector<GpuId> Turns::waited_for(TimeNs at_least) const {
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    std::vector<GpuId> wanted;
    for (const LaunchIndex x : waiting_) {
        const Entry& e = entries_[x];
        if (e.own == 0 || world_.now - stamped_ns_[e.oldest] < at_least) continue;
        for (const PairIndex pair : pairs_of(x)) wanted.insert(wanted.end(), {pair / gpus, pair % gpus});
    }
    return wanted;
}

std::string Turns::granted(const std::vector<LaunchIndex>& launches) {
    std::string complaint;
    if (!trusted()) return complaint;
    std::map<std::uint64_t, std::vector<LaunchIndex>> gangs;  // in the order of their grants
    for (const LaunchIndex index : launches) gangs[world_.launches[index].grant].push_back(index);
    const auto take_off = [this](LaunchIndex index) {
        entry(index).place = Place::in_flight;
        std::erase(waiting_, index);
    };
    for (const auto& [grant, gang] : gangs) {
        if (complaint.empty() && !joins(gang)) complaint = judge(gang, launches);
        for (const LaunchIndex index : gang) take_off(index);  // the next one may join it
    }
    for (const LaunchIndex index : resumed_) take_off(index);
    resumed_.clear();
    return complaint;
}

}  // namespace opus::sim
