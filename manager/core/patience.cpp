// Receives that were posted early, and that the rank can do without for now, are asked for when their turn has come.
// To everybody else they are posted late.
#include <algorithm>
#include <limits>
#include <utility>

#include "manager/core/state.h"

namespace opus::manager {
namespace {

// What is to go before waits itself, if it is there: perhaps, in the end, for what is withheld.
bool due_waits(const Rank& rank) {
    return std::any_of(rank.waiting.begin(), rank.waiting.end(), [&rank](std::uint64_t seq) {
        const Launch* l = rank.find(seq);
        return l != nullptr && l->asked && rank.forecast.is_due(*l);
    });
}

}  // namespace

// When it is asked for though its turn has not come: what goes before it is overdue, or it has waited for as long as it
// takes to move a circuit, which is what all this is to save.
TimeNs Core::Impl::patient_until(const Rank& rank, const Launch& launch) const {
    const TimeNs longest = launch.waiting_since + session.dark_ns;
    return due_waits(rank) ? longest : std::min(rank.forecast.due_until(), longest);
}

bool Core::Impl::lets_wait(Rank& rank, Launch& launch) {
    if (!is_provisioned(rank) || session.dark_ns == 0 || !launch.is_one(OpKind::recv) ||
        (launch.flags & ring::kLaunchMixed) != 0)
        return false;
    if (!begun.empty()) return true;  // flush() looks again, once they are learned from
    describe(rank, launch);
    if (!rank.forecast.can_wait(launch)) return false;
    const bool withheld = launch.patience == Predictor::Patience::shown;
    if (now >= patient_until(rank, launch)) {
        if (due_waits(rank)) rank.forecast.never_let_wait(launch);
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
