// Receives that were posted early, and that the rank can do without for now, are asked for when their turn has come.
// To everybody else they are posted late.
#include <algorithm>
#include <limits>

#include "manager/core/state.h"

namespace opus::manager {
namespace {

constexpr TimeNs kLongest = 10'000'000'000, kBehindOneThatWaits = 1'000'000'000;

}  // namespace

// When it is asked for though its turn has not come: what goes before it is overdue. Or that is there, and waits
// itself: perhaps, in the end, for this one.
TimeNs Core::Impl::patient_until(Rank& rank, const Launch& launch) const {
    TimeNs until = std::min(launch.waiting_since + kLongest, rank.forecast.due_until());
    for (const std::uint64_t seq : rank.waiting)
        if (const Launch* l = rank.find(seq); l != nullptr && l->asked && rank.forecast.is_due(*l))
            until = std::min(launch.waiting_since + kLongest, std::max(until, l->waiting_since + kBehindOneThatWaits));
    return until;
}

bool Core::Impl::lets_wait(Rank& rank, Launch& launch) {
    launch.let_wait = false;
    if (!session.provision || launch.op != OpKind::recv || launch.needed) return false;
    if (!begun.empty()) return launch.let_wait = true;  // flush() looks again, once they are learned from
    describe(rank, launch);
    if (!rank.forecast.can_wait(launch)) return false;
    if (now >= patient_until(rank, launch)) {
        const bool in_vain = std::any_of(rank.waiting.begin(), rank.waiting.end(), [&](std::uint64_t seq) {
            const Launch* l = rank.find(seq);
            return l != nullptr && l->asked && rank.forecast.is_due(*l);
        });
        if (in_vain) rank.forecast.never_let_wait(launch);
        launch.needed = true;
        log(LogLevel::debug, name_of({rank.info.rank, launch.seq}) + " could not wait: nothing else happens");
        return false;
    }
    if (!launch.withheld)
        log(LogLevel::debug, name_of({rank.info.rank, launch.seq}) + " can wait: what else the rank does goes first");
    return launch.let_wait = launch.withheld = true;
}

void Core::Impl::ask_late() {
    for (auto& [id, rank] : ranks)
        for (std::size_t i = 0; i < rank.waiting.size(); ++i)
            if (Launch* launch = rank.find(rank.waiting[i]); launch != nullptr && launch->let_wait)
                decide(rank, *launch);
}

TimeNs Core::Impl::next_late_ask() const {
    TimeNs at = std::numeric_limits<TimeNs>::max();
    for (const auto& entry : ranks) {
        Rank& rank = const_cast<Rank&>(entry.second);
        for (const std::uint64_t seq : rank.waiting)
            if (const Launch* launch = rank.find(seq); launch != nullptr && launch->let_wait && !launch->asked)
                at = std::min(at, patient_until(rank, *launch));
    }
    return at;
}

}  // namespace opus::manager
