// Runs: what they cover, how they are returned, and when they end by themselves.
#include <algorithm>
#include <utility>

#include "manager/core/rooms.h"

namespace opus::manager {

Runs::Runs(World& world, Rooms& rooms)
    : Room(world),
      members_(rooms.members),
      early_releases_(rooms.early_releases),
      reports_(rooms.reports),
      session_(rooms.session) {}

// Every key of it, or none of it: a launch that is half lit would start in the dark (D1). Nor one of which it is not
// known whether it is held.
std::uint64_t Runs::cover(const Rank& rank, const Launch& launch, const std::vector<std::uint64_t>& without) const {
    return now_ < end_ns() ? cover_by_tokens(rank, launch, without) : 0;
}

std::uint64_t Runs::cover_by_tokens(const Rank& rank, const Launch& launch, const std::vector<std::uint64_t>& without) const {
    if (tokens_.empty()) return 0;
    std::uint64_t grant = 0;
    for (const LaunchKey& key : launch.keys) {
        const Member* member = rank.members[key.member].get();
        if (member == nullptr) continue;
        if (member->verdict == Verdict::unknown) return 0;
        if (member->verdict != Verdict::enforced) continue;
        const std::uint64_t by = tokens_.covers(key.range, without);
        if (by == 0) return 0;
        if (grant == 0) grant = by;
    }
    return grant;
}

// The controller gives up a node of which it has not heard for the grace time, and moves the circuits of its runs.
// Somewhat earlier nothing starts under them any more: its last frame has taken some time to get here.
TimeNs Runs::end_ns() const {
    return tokens_.empty() || session_.grace_ns() == 0 ? std::numeric_limits<TimeNs>::max()
                                                       : session_.heard_ns() + session_.grace_ns() / 4 * 3;
}

void Runs::let_go() {
    if (now_ < end_ns() || letting_go_) return;
    early_releases_.retract_all();
    letting_go_ = early_releases_.are_retracting();
    if (!letting_go_) end();
}

void Runs::end() {
    log(LogLevel::warn, "nothing was heard of the controller for " + std::to_string((now_ - session_.heard_ns()) / 1'000'000) +
                            " ms: what was granted ahead is asked for again");
    if (session_.is_up()) session_.end("silent");  // the next snapshot tells it
    tokens_.revoke({});
}

// The soft part of these grants goes back; the firm part stays. What has started under a run is reported with the
// answer, whichever run it was: so no launch is in flight unknown to the controller when circuits move. What has
// ended comes first. Not before it is known which of the launches that were released early have gone.
void Runs::hear(const wire::Revoke& m) {
    note_light();
    m.grants.empty() ? early_releases_.retract_all() : early_releases_.retract(m.grants);
    if (!early_releases_.are_retracting()) return return_run(m);
    revokes_.push_back(m);
}

void Runs::return_run(const wire::Revoke& m) {
    wire::Returned answer;
    answer.id = m.id;
    answer.started_upto = tokens_.revoke(m.grants);
    for (auto& entry : ranks_) {
        const Rank& rank = entry.second;
        entry.second.each([&](Launch& launch) {
            if (!launch.running() || launch.phase == Phase::passed || launch.grant == 0 || launch.firm) return;
            answer.started.push_back({rank.info.rank, launch.seq});
            if (launch.known_running) return;
            launch.reported = launch.known_running = true;
            if (wire::LaunchDemand what = reports_.demand_of(rank, launch); !what.keys.empty())
                answer.running.push_back(std::move(what));
        });
    }
    reports_.send_done();
    emit(Send{std::move(answer)});
}

// What is retracted has been answered.
void Runs::retracted() {
    for (const wire::Revoke& m : std::exchange(revokes_, {})) return_run(m);
    if (std::exchange(letting_go_, false) && now_ >= end_ns()) end();
}

void Runs::controller_lost() {
    tokens_.take_ended();
    revokes_.clear();
}

void Runs::started(const Launch& launch) {
    if (tokens_.empty()) return;
    for (const LaunchKey& key : launch.keys) tokens_.started(key.range);
}

void Runs::finished(const Rank& rank, const Launch& launch) {
    if (tokens_.empty()) return;
    for (const LaunchKey& key : launch.keys)
        tokens_.finished(key.range, rank.info.rank, key.member, members_.local_members(key.range.first));
}

void Runs::release(const CommId& comm, RankId rank, std::uint16_t index) {
    tokens_.release(comm, rank, index, [this](const Key& sequence) { return members_.local_members(sequence); });
}

bool Runs::goes_ahead(const Key& next, const std::vector<std::uint64_t>& without) const {
    if (tokens_.empty() || now_ >= end_ns()) return false;
    const std::uint64_t grant = tokens_.covers({next, 1, false}, without);
    Key later = next;
    later.n += wire::kMostKeysPlanned;
    return grant != 0 && tokens_.continues(grant, later);
}

bool Runs::goes_on(const Launch& launch) const {
    return launch.grant != 0 && !tokens_.empty() && std::ranges::all_of(launch.keys, [&](const LaunchKey& key) {
               return tokens_.continues(launch.grant, key.range.first);
           });
}

bool Runs::is_endless(const Launch& launch, std::uint64_t grant) const {
    return grant != 0 && !tokens_.empty() && std::ranges::all_of(launch.keys, [&](const LaunchKey& key) {
               Key next = key.range.first;
               next.n += key.range.count - 1 + wire::kMostKeysPlanned;
               return tokens_.continues(grant, next);
           });
}

}  // namespace opus::manager
