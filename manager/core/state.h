// What the manager's core holds. core.cpp: what ranks do. early_release.cpp: gates released early. conversation.cpp:
// what the controller says. session.cpp: sessions, time, the hold. snapshot.cpp: what is reported of all this.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "manager/core/core.h"
#include "manager/core/gpu_places.h"
#include "manager/core/rank.h"
#include "manager/core/soft_tokens.h"

namespace opus::manager {

// A communicator, as far as this node has members of it.
struct Group {
    std::vector<std::pair<RankId, std::uint16_t>> members;  // rank, its communicator entry
    Verdict verdict = Verdict::unknown;
    Reason reason = Reason::none;  // why it is not held
    std::uint32_t reason_rank = kNone;
};

enum class SessionState : std::uint8_t { down, greeting, up, refused };

struct Session {
    SessionState state = SessionState::down;
    std::uint64_t id = 0;
    std::uint64_t epoch = 0;
    TimeNs silence_ns = 0;      // without a frame for so long it is lost
    TimeNs heartbeat_ns = 0;    // ours are so far apart
    TimeNs last_frame = 0;      // or the Hello
    TimeNs last_heartbeat = 0;  // ours
    TimeNs retry_at = 0;        // refused, or asked to start over: end the session then
};

// Collected between two flushes.
struct Outbox {
    wire::Register registered;
    wire::Done done;
    wire::Retire retire;
    wire::Expired expired;
    std::vector<wire::LocalLaunch> demand;
    void clear() { *this = {}; }
};

inline constexpr std::size_t kMaxUnreported = 4096;

struct Core::Impl {
    Impl(std::string node_name, CoreOptions core_options)
        : node(std::move(node_name)), options(core_options), gpus(core_options.host_gpus) {}

    std::string node;
    CoreOptions options;
    Counters counters;
    std::map<RankId, Rank> ranks;
    std::unordered_map<CommId, Group> groups;
    std::unordered_map<CommId, CommId> joined;  // ids that members of a communicator had before it was known which it is
    SoftTokens soft;
    Session session;
    Outbox outbox;
    GpuPlaces gpus;
    std::uint64_t known_epoch = 0;
    std::optional<TimeNs> alone_since;  // no controller
    bool waited_in_vain = false;        // for a verdict, a whole hold time, since then: who comes next does not wait
    TimeNs heard_ns = 0;                // the last frame of a controller that knew us
    TimeNs grace_ns = 0;                // not hearing of us for so long, it takes our runs for over; 0: it has not said
    TimeNs wake_at = -1;                // last WakeAt
    wire::Done unreported;              // ends of launches of runs that go on
    bool unreported_due = false;        // to be said at the end of this look
    std::string refusal;                // last reason shown
    std::optional<TimeNs> refused_since;  // because another manager speaks for this node
    std::vector<wire::LocalLaunch> expired;  // decided here without a controller, to be reported at the next welcome

    std::uint32_t retractions = 0;      // not answered yet
    std::vector<wire::Revoke> revokes;  // to be answered after them
    bool letting_go = false;            // of all runs, after them

    // The call being served.
    TimeNs now = 0;
    std::int64_t realtime = 0;
    Actions* out = nullptr;

    void emit(Action action) { out->push_back(std::move(action)); }
    void log(LogLevel level, std::string text) { out->push_back(Log{level, std::move(text)}); }
    bool has_controller() const { return session.state == SessionState::up; }

    // Ranks (core.cpp).
    void handle(const RankUp& e);
    void handle(const RankDown& e);
    void handle(const CommEntering& e);
    void handle(const CommUp& e);
    bool place(Rank& rank, std::uint32_t index);  // true: its process is on another GPU than was known
    void handle(const CommCreated& e);
    bool creation_failed(Rank& rank, std::uint32_t index);
    void handle(const CommDown& e);
    void handle(const CommLost& e);
    void handle(const Recorded& e);
    void handle(const Ready& e);
    void handle(const DoneSeen& e);
    void handle(const GaveUp& e);
    Rank* rank_of(RankId id);
    Launch* launch_of(const wire::LocalLaunch& id, Rank** rank = nullptr);
    void consider(Rank& rank, Launch& launch);  // it may have become ready
    void pass_turn(Rank& rank, const std::vector<std::uint32_t>& families, std::uint64_t seq);
    void decide(Rank& rank, Launch& launch);    // it waits: may it start?
    void decide_all();
    void start(Rank& rank, Launch& launch, Phase phase, bool abort = false);
    void finish(Rank& rank, Launch& launch);
    void tell_done(Rank& rank, Launch& launch, bool passed);
    void gather_done();
    void all_reported();
    void retire(Rank& rank);
    // The grant under whose soft part it may start, those `without` apart.
    std::uint64_t soft_cover(const Rank& rank, const Launch& launch, const std::vector<std::uint64_t>& without) const;
    std::uint64_t cover(const Rank& rank, const Launch& launch, const std::vector<std::uint64_t>& without) const;
    std::uint32_t local_members(const Key& key) const;

    // Early release (early_release.cpp).
    void handle(const Retracted& e);
    bool any_early_release_due() const;
    void release_early_all();
    void release_early(Rank& rank);
    void started_early(Rank& rank, Launch& launch);
    void retract_all();
    void retract(const std::vector<std::uint64_t>& lapsing);  // what is covered by nothing but these grants
    void retract_unless(const std::function<bool(const Rank&, const Launch&)>& covered);

    bool is_intra(const Rank& rank, const Launch& launch) const;
    void release_member(Rank& rank, std::uint16_t index, bool tell);
    void set_verdict(const CommId& comm, Verdict verdict, Reason reason = Reason::none,
                     std::uint32_t reason_rank = kNone);
    void judge_intra(const CommId& comm);
    void degrade_here(const CommId& comm);

    // Communicators with two ids (joined.cpp).
    CommId known_as(const CommId& comm) const;
    void join(const CommId& from, const CommId& to);
    void rename(Rank& rank, std::uint16_t index, const CommId& to);
    void enter_group(Rank& rank, std::uint16_t index, Verdict verdict, Reason reason, std::uint32_t reason_rank);
    void emit_verdict(const Rank& rank, std::uint16_t index, Verdict verdict, Reason reason, std::uint32_t reason_rank);
    void forget_joined(const CommId& comm);

    // Sessions and time (session.cpp).
    void handle(const ControllerUp& e);
    void handle(const ControllerDown& e);
    void handle(const FromController& e);
    void handle(const Tick& e);
    void lose_controller(const std::string& why);
    void send_heartbeat();
    void end_session(const std::string& reason);
    TimeNs runs_end() const;
    void let_go_of_runs();
    void end_runs();
    void expire(Rank& rank, Launch& launch);
    void expire_overdue();
    TimeNs hold_deadline(const Rank& rank, TimeNs since) const;
    TimeNs verdict_deadline(const Rank& rank, const Member& member) const;
    TimeNs next_deadline() const;
    bool flush();

    // What the controller says (conversation.cpp); messages that are not for a manager are counted.
    void welcome(const wire::Welcome& m);
    void hear(const wire::Refused& m);
    void hear(const wire::Verdicts& m);
    void hear(const wire::Grant& m);
    void hear(const wire::Revoke& m);
    void return_run(const wire::Revoke& m);
    void hear(const wire::Pass& m);
    void hear(const wire::Suspended& m);
    void hear(const wire::Waiting& m);
    void hear(const wire::Resync& m);
    void hear(const wire::Heartbeat& m);
    template <class Other>
    void hear(const Other&) {
        ++counters.rejected;
    }

    // What is reported (snapshot.cpp).
    wire::LaunchDemand demand_of(const Rank& rank, const Launch& launch) const;
    wire::Snapshot snapshot();
    void tell_degraded();
};

std::string name_of(const wire::LocalLaunch& launch);

}  // namespace opus::manager
