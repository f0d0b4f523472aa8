// Receives that were posted early, and that the rank can do without for now, are asked for when their turn has come.
// To everybody else they are posted late.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "manager/core/state.h"

namespace opus::manager {
namespace {

constexpr TimeNs kLongest = 10'000'000'000, kBehindOneThatWaits = 1'000'000'000;

// Since when what is to go before waits itself, if it is there: perhaps, in the end, for what is withheld.
std::optional<TimeNs> due_waits_since(const Rank& rank) {
    std::optional<TimeNs> since;
    for (const std::uint64_t seq : rank.waiting)
        if (const Launch* l = rank.find(seq); l != nullptr && l->asked && rank.forecast.is_due(*l))
            since = std::max(since.value_or(l->waiting_since), l->waiting_since);
    return since;
}

}  // namespace

// When it is asked for though its turn has not come: what goes before it is overdue, or has waited long enough.
TimeNs Core::Impl::patient_until(const Rank& rank, const Launch& launch) const {
    TimeNs until = rank.forecast.due_until();
    if (const auto since = due_waits_since(rank)) until = std::max(until, *since + kBehindOneThatWaits);
    return std::min(until, launch.waiting_since + kLongest);
}

bool Core::Impl::lets_wait(Rank& rank, Launch& launch) {
    if (!session.provision || !launch.is_one(OpKind::recv) || (launch.flags & ring::kLaunchMixed) != 0) return false;
    if (!begun.empty()) return true;  // flush() looks again, once they are learned from
    describe(rank, launch);
    if (!rank.forecast.can_wait(launch)) return false;
    const bool withheld = launch.patience == Predictor::Patience::shown;
    if (now >= patient_until(rank, launch)) {
        if (due_waits_since(rank)) rank.forecast.never_let_wait(launch);
        if (withheld) launch.patience = Predictor::Patience::needed;
        log(LogLevel::debug, name_of({rank.info.rank, launch.seq}) + " could not wait: nothing else happens");
        return false;
    }
    if (!withheld) {
        ++counters.withheld;
        log(LogLevel::debug, name_of({rank.info.rank, launch.seq}) + " can wait: what else the rank does goes first");
    }
    launch.patience = Predictor::Patience::shown;
    return true;
}

void Core::Impl::ask_late() {
    for (auto& [id, rank] : ranks)
        for (const std::uint64_t seq : std::exchange(rank.withheld, {}))  // decide() withholds again what still can wait
            if (Launch* launch = rank.find(seq)) decide(rank, *launch);
}

std::vector<WithheldLaunch> Core::Impl::withheld() const {
    std::vector<WithheldLaunch> all;
    for (const auto& [id, rank] : ranks)
        for (const std::uint64_t seq : rank.withheld)
            if (const Launch* launch = rank.find(seq); launch != nullptr && !launch->asked)
                all.push_back({id, seq, launch->waiting_since, patient_until(rank, *launch)});
    return all;
}

TimeNs Core::Impl::next_late_ask() const {
    TimeNs at = std::numeric_limits<TimeNs>::max();
    for (const WithheldLaunch& launch : withheld()) at = std::min(at, launch.until_ns);
    return at;
}

}  // namespace opus::manager
