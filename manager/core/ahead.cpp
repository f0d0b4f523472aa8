// Gates ahead: what lies under a soft token is let go before its gate is reached, so that it waits for nobody's look
// there. Asked back, it has started if its gate was reached in time, and waits as others do if not; a run is returned,
// or let go of, only when that is known. A launch's ways are drawn in rank.h, the words in launch_ring.h.
#include <algorithm>
#include <functional>
#include <utility>

#include "manager/core/state.h"

namespace opus::manager {
namespace {

// Of one rank. More than start between two looks at a busy stream; few, because a manager that dies cannot ask them
// back.
constexpr std::size_t kMostAhead = 32;
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

bool Core::Impl::any_offer_due() const {
    return !soft.empty() && withdrawals == 0 &&
           std::any_of(ranks.begin(), ranks.end(), [](const auto& entry) { return entry.second.offers_due; });
}

void Core::Impl::offer_all() {
    if (!any_offer_due()) return;
    for (auto& entry : ranks)
        if (std::exchange(entry.second.offers_due, false)) offer(entry.second);
}

void Core::Impl::offer(Rank& rank) {
    FamilyStreams streams;
    std::size_t ahead = 0, looked = 0;
    for (Launch& launch : rank.launches) {
        if (launch.phase == Phase::done) continue;
        if (ahead == kMostAhead || ++looked > kMostLooked) return;
        const bool in_turn = streams.follows(launch);
        ahead += launch.ahead != Ahead::no;
        if (!in_turn || !launch.can_go_ahead()) continue;
        const std::uint64_t grant = soft_cover(rank, launch, {});
        if (grant == 0) continue;
        launch.grant = grant;
        launch.ahead = Ahead::offered;
        ++ahead;
        ++counters.offered;
        emit(Offer{rank.info.rank, launch.seq});
    }
}

// Its gate was reached: seen by the look of a Withdraw, or by its end, before a look of ours found its ready.
void Core::Impl::went_ahead(Rank& rank, Launch& launch) {
    launch.reached = true;
    launch.waiting_since = now;
    if (launch.ready_ns == 0) launch.ready_ns = realtime;
    ++counters.ready;
    start(rank, launch, Phase::started);
}

void Core::Impl::withdraw_unless(const std::function<bool(const Rank&, const Launch&)>& covered) {
    Withdraw back;
    for (auto& [id, rank] : ranks)
        for (Launch& launch : rank.launches)
            if (launch.ahead == Ahead::offered && !covered(rank, launch)) {
                launch.ahead = Ahead::asked_back;
                back.launches.push_back({id, launch.seq});
            }
    if (back.launches.empty()) return;
    counters.withdrawn += back.launches.size();
    ++withdrawals;
    emit(std::move(back));
}

void Core::Impl::withdraw_all() {
    withdraw_unless([](const Rank&, const Launch&) { return false; });
}

void Core::Impl::withdraw(const std::vector<std::uint64_t>& lapsing) {
    withdraw_unless([&](const Rank& rank, const Launch& launch) { return soft_cover(rank, launch, lapsing) != 0; });
}

void Core::Impl::handle(const Withdrawn& e) {
    if (withdrawals == 0) {
        ++counters.rejected;
        return;
    }
    --withdrawals;
    for (const wire::LocalLaunch& id : e.launches) {
        Rank* rank = nullptr;
        Launch* launch = launch_of(id, &rank);
        if (launch == nullptr || launch->ahead != Ahead::asked_back) continue;  // seen to be ready before this
        if (std::find(e.reached.begin(), e.reached.end(), id) != e.reached.end()) {
            went_ahead(*rank, *launch);
        } else {
            launch->ahead = Ahead::no;
            if (!launch->firm) launch->grant = 0;
        }
        rank->offers_due = true;
    }
    if (withdrawals != 0) return;
    for (const wire::Revoke& m : std::exchange(revokes, {})) return_run(m);
    if (std::exchange(letting_go, false) && now >= runs_end()) end_runs();
}

}  // namespace opus::manager
