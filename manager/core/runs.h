// Runs that this node holds a part of: what may start without asking, until it is asked back or nothing has been heard
// of the controller for too long.
#pragma once

#include <limits>
#include <vector>

#include "manager/core/room.h"
#include "manager/core/soft_tokens.h"

namespace opus::manager {

class EarlyReleases;
class Members;
class Reports;
class Session;

class Runs : Room {
public:
    Runs(World& world, Rooms& rooms);

    void hear(const wire::Revoke& m);
    void granted(std::uint64_t grant, const std::vector<wire::KeyRange>& ranges) { tokens_.add(grant, ranges); }
    void started(const Launch& launch);
    void finished(const Rank& rank, const Launch& launch);
    void release(const CommId& comm, RankId rank, std::uint16_t index);

    void note_light() { lit_ns_ = now_; }
    TimeNs lit_ns() const { return lit_ns_; }  // granted, or asked back
    bool empty() const { return tokens_.empty(); }
    // The grant of the run under which it may start, those `without` apart; 0: none.
    std::uint64_t cover(const Rank& rank, const Launch& launch, const std::vector<std::uint64_t>& without) const;
    std::uint64_t cover_by_tokens(const Rank& rank, const Launch& launch,
                                  const std::vector<std::uint64_t>& without) const;  // were it now
    // Of a run without end that covers this key of a collective over its ring, and what follows it.
    bool goes_ahead(const Key& next, const std::vector<std::uint64_t>& without) const;
    bool goes_on(const Launch& launch) const;                                        // the run under which it started
    bool is_endless(const Launch& launch,
                    std::uint64_t grant) const;  // after it, the run of this grant goes on for longer than by a plan
    std::vector<std::uint64_t> take_ended() { return tokens_.take_ended(); }
    void snapshot(std::vector<wire::Token>& tokens) const { tokens_.snapshot(tokens); }

    void let_go();  // of all, if it is time
    TimeNs next_deadline() const { return letting_go_ ? std::numeric_limits<TimeNs>::max() : end_ns(); }
    void retracted();
    void controller_lost();

private:
    TimeNs end_ns() const;
    void end();
    void return_run(const wire::Revoke& m);

    SoftTokens tokens_;
    TimeNs lit_ns_ = 0;
    std::vector<wire::Revoke> revokes_;  // to be answered when what is retracted has been
    bool letting_go_ = false;            // of all runs, then

    Members& members_;
    EarlyReleases& early_releases_;
    Reports& reports_;
    Session& session_;
};

}  // namespace opus::manager
