// Early release: a launch under a soft token gets its go before its gate is reached, so that it waits for no poll
// there. Retracted, it has started if its gate was reached in time, and waits as others do if not. A run is returned,
// or ends, only when that is known. The states of a launch are drawn in rank.h, the words in launch_ring.h.
#include <algorithm>
#include <functional>
#include <utility>

#include "manager/core/rooms.h"

namespace opus::manager {
namespace {

// Of one rank. More than start between two looks at a busy stream; few, because a manager that dies cannot retract
// them.
constexpr std::size_t kMostReleasedEarly = 32;
constexpr std::size_t kMostLooked = 128;  // launches not done

// Which streams the launches of a family, not done, stand in: one, or several.
class FamilyStreams {
public:
    // False: an earlier one of its families stands in another stream, so its gate may be reached before its turn.
    bool follows(const Launch& launch) {
        bool alone = launch.in_stream_order();
        for (const std::uint32_t family : launch.families) {
            auto at = std::find_if(seen_.begin(), seen_.end(), [family](const Seen& s) { return s.family == family; });
            if (at == seen_.end()) at = seen_.insert(seen_.end(), {family, launch.stream, true});
            at->ordered &= launch.in_stream_order() && at->stream == launch.stream;
            alone &= at->ordered;
        }
        return alone;
    }

private:
    struct Seen {
        std::uint32_t family;
        std::uint64_t stream;
        bool ordered;
    };
    std::vector<Seen> seen_;
};

}  // namespace

EarlyReleases::EarlyReleases(World& world, Rooms& rooms) : Room(world), launches_(rooms.launches), runs_(rooms.runs) {}

bool EarlyReleases::is_due() const {
    return !runs_.empty() && retractions_ == 0 &&
           std::any_of(ranks_.begin(), ranks_.end(), [](const auto& entry) { return entry.second.early_release_due; });
}

void EarlyReleases::release_all() {
    if (!is_due()) return;
    for (auto& entry : ranks_)
        if (std::exchange(entry.second.early_release_due, false)) release(entry.second);
}

void EarlyReleases::release(Rank& rank) {
    FamilyStreams streams;
    std::size_t released = 0, looked = 0;
    for (Launch& launch : rank.launches) {
        if (launch.phase == Phase::done) continue;
        if (released == kMostReleasedEarly || ++looked > kMostLooked) return;
        const bool in_turn = streams.follows(launch);
        released += launch.early != EarlyRelease::no;
        if (!in_turn || !launch.may_be_released_early()) continue;
        const std::uint64_t grant = runs_.cover(rank, launch, {});
        if (grant == 0) continue;
        launch.grant = grant;
        launch.early = EarlyRelease::released;
        ++released;
        ++counters_.released_early;
        emit(ReleaseEarly{rank.info.rank, launch.seq});
    }
}

// Its gate was reached: seen by the answer to a Retract, or by its end, before a poll of ours found its ready.
void EarlyReleases::started(Rank& rank, Launch& launch) {
    launch.reached = true;
    launch.waiting_since = now_;
    if (launch.ready_ns == 0) launch.ready_ns = realtime_;
    ++counters_.ready;
    launches_.start(rank, launch, Phase::started);
}

void EarlyReleases::retract_unless(const std::function<bool(const Rank&, const Launch&)>& covered) {
    Retract back;
    for (auto& [id, rank] : ranks_)
        for (Launch& launch : rank.launches)
            if (launch.early == EarlyRelease::released && !covered(rank, launch)) {
                launch.early = EarlyRelease::retracting;
                back.launches.push_back({id, launch.seq});
            }
    if (back.launches.empty()) return;
    counters_.retracted += back.launches.size();
    ++retractions_;
    emit(std::move(back));
}

void EarlyReleases::retract_all() {
    retract_unless([](const Rank&, const Launch&) { return false; });
}

void EarlyReleases::retract(const std::vector<std::uint64_t>& lapsing) {
    retract_unless([&](const Rank& rank, const Launch& launch) { return runs_.cover(rank, launch, lapsing) != 0; });
}

void EarlyReleases::handle(const Retracted& e) {
    if (retractions_ == 0) {
        ++counters_.rejected;
        return;
    }
    --retractions_;
    for (const wire::LocalLaunch& id : e.launches) {
        Rank* rank = nullptr;
        Launch* launch = launch_of(id, &rank);
        if (launch == nullptr || launch->early != EarlyRelease::retracting) continue;  // seen to be ready before this
        if (std::find(e.reached.begin(), e.reached.end(), id) != e.reached.end()) {
            started(*rank, *launch);
        } else {
            launch->early = EarlyRelease::no;
            if (!launch->firm) launch->grant = 0;
        }
        rank->early_release_due = true;
    }
    if (retractions_ != 0) return;
    runs_.retracted();
}

std::string EarlyReleases::check() const {
    for (const auto& [id, rank] : ranks_)
        for (const Launch& launch : rank.launches)
            if (launch.early == EarlyRelease::released && runs_.cover_by_tokens(rank, launch, {}) == 0)
                return name_of({id, launch.seq}) + " is released early, and no run covers it";
    return {};
}

}  // namespace opus::manager
