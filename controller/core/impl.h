// The state behind Core, and who does what to it. Each group of members is one file.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/core/comm_table.h"
#include "controller/core/core.h"
#include "controller/core/gang.h"
#include "controller/core/holders.h"
#include "controller/core/inventory.h"
#include "controller/core/launch.h"
#include "controller/core/planner.h"
#include "controller/core/runs.h"
#include "controller/plan/course.h"
#include "controller/plan/learner.h"

namespace opus::controller {

using plan::RankName;

struct Membership {
    Comm* comm = nullptr;
    std::vector<std::uint32_t> slots;  // ranks in the communicator that this process is
};

struct Job {
    std::string_view name;  // by which the core keeps it
    std::set<RankName> ranks;
    std::unique_ptr<plan::Follower> follower;
    std::unique_ptr<plan::Learner> learner;           // what it does, and which plan it is to follow
    std::uint64_t thought = 0;                        // the last Think for it
    std::unique_ptr<plan::Course> course;             // the plan that is followed; none: it goes by demand
    std::map<plan::Instance, std::uint64_t> waiting;  // gangs, until it is their turn
};

struct Rank {
    wire::RankInfo info;
    Job* job = nullptr;
    std::map<CommId, Membership> comms;
    std::map<std::uint64_t, std::unique_ptr<Launch>> launches;  // not done
};

struct NodeState {
    std::uint64_t session = 0;  // 0: none
    bool reported = false;      // its snapshot is in, of this session
    bool known = false;         // has reported in this epoch, or its grace is over
    bool tell = false;          // owed its steering
    bool overdue = false;       // without a manager for its hold time: its ranks have opened their gates, or will
    bool given_up = false;      // and has not reported since
    TimeNs last_seen_ns = 0;
    TimeNs grace_at_ns = 0;       // when silent: what it ran is given up then
    std::uint32_t unsettled = 0;  // adopted launches, their communicators and runs whose circuits are not known yet
    std::set<std::uint64_t> runs;  // grants of whose runs it holds a part
    std::map<RankId, Rank> ranks;
    std::vector<wire::CommVerdict> verdicts;  // to be sent at the end of the step
    TimeNs behind_ns = std::numeric_limits<TimeNs>::max() / 2;  // its clock, and what its words take at least

    bool up() const { return session != 0 && reported; }
};

struct GrantRecord {
    std::uint64_t ticket = 0;
    std::uint32_t running = 0;
};

// What has been said while one question is answered. It is the same for all launches of a key or of a gang.
struct PortReasons {
    std::vector<std::string> state, ports;
};
struct Explained {
    explicit Explained(HolderTable table) : holders(std::move(table)) {}
    HolderTable holders;
    std::map<std::pair<const KeyState*, bool>, std::vector<std::string>> missing;  // who, to a launch that is open, or not
    std::unordered_map<const Gang*, PortReasons> ports;
};

// What one look at who might be suspended has found of keys, each looked at once.
struct KeyLooked {
    bool half_started = false;
    std::uint64_t held = 0;  // members that are not let go
};
using KeysLooked = std::unordered_map<const KeyState*, KeyLooked>;
// And of launches that keys tie to each other: by Launch::part, true if one of them may not be able to finish.
struct TiedLaunches {
    std::uint64_t mark = 0;
    std::vector<bool> half_started;
};
// Full keys whose members come to wait one after the other: the first of those that do.
using Gathered = std::unordered_map<const KeyState*, std::uint32_t>;
struct Suspending {
    Explained said;
    KeysLooked looked;
    Gathered gathered;
};

// A gang that has waited so long is told of, again as often.
inline constexpr TimeNs kTellWaiting = 1'000'000'000;

enum class TimerKind : std::uint8_t {
    gang_break,
    gang_hold,
    gang_retry,
    run_quantum,
    comm_register,
    node_grace,
    node_hold,
    switch_read,
    switches_again,
    port_trial,
    silence,
    waiting,
    call_kept
};

struct Core::Impl {
    Impl(const Fabric& fabric, CoreOptions options);

    // core.cpp: one event, and what every step ends with
    void on(const Event& event, TimeNs at, Actions& actions);
    void handle(const NodeSession& e);
    void handle(const NodeMessage& e);
    void handle(const NodeLost& e);
    void handle(const SwitchEvent& e);
    void handle(const CtlConnect& e);
    void handle(const CtlDisconnect& e);
    void handle(const CtlFence& e);
    void handle(const CtlUnfence& e);
    void handle(const Thought& e);
    void handle(const Tick&);
    void finish_step();
    void arm(TimeNs at, TimerKind kind, std::uint64_t id);
    void fire(TimerKind kind, std::uint64_t id);
    void send(NodeIndex node, wire::Message&& message);
    void log(LogLevel level, std::string text);
    void trace(const Trace& t);
    std::uint64_t next_mark() { return ++mark; }

    void hear(NodeIndex node, const wire::Register& m);
    void hear(NodeIndex node, const wire::Retire& m);
    void hear(NodeIndex node, const wire::Demand& m);
    void hear(NodeIndex node, const wire::Done& m);
    void hear(NodeIndex node, const wire::Returned& m);
    void hear(NodeIndex node, const wire::Expired& m) { expired(node, m); }
    void hear(NodeIndex, const wire::Heartbeat&) {}
    template <class ControllersOwn>
    void hear(NodeIndex node, const ControllersOwn&) {
        log(LogLevel::warn, fabric.nodes[node].name + " sent a message that only a controller sends");
    }

    // registration.cpp: ranks, communicators, verdicts
    void register_ranks(NodeIndex node, const std::vector<wire::RankInfo>& infos);
    void register_member(NodeIndex node, const wire::CommMember& m);
    void take_place(Comm& comm, NodeIndex node, const wire::CommMember& m);
    bool is_joined(NodeIndex node, const wire::CommMember& m);  // joined.cpp
    void join(const CommId& from, const CommId& to);
    void forget_joined(const CommId& comm);
    void revive(Comm& comm, std::uint32_t slot);
    void let_go(Comm& comm);      // of all circuits
    void hold_again(Comm& comm);  // those that are known now
    void ask_again(const Comm& comm);  // those that run, and wait for it
    void evaluate(Comm& comm);
    void set_verdict(Comm& comm, Judgement judged, std::string why = {});
    wire::CommVerdict verdict_of(Comm& comm) const;
    void tell_verdict(const wire::CommVerdict& verdict, NodeIndex node);
    std::string words_of(const Comm& comm, const Judgement& judged) const;
    std::string words_of_claim(const Comm& comm, std::uint32_t slot) const;
    void member_gone(NodeIndex node, RankId rank, const CommId& id);
    void comm_lost_member(Comm& comm);
    void end_rank(NodeIndex node, RankId rank, const char* how);
    void erase_comm_if_gone(Comm& comm);
    void degrade(Comm& comm, Policy how, Reason reason, const std::string& why, std::uint32_t slot = kNone);

    // creation.cpp: who is inside NCCL's creation of a communicator, and who will never come
    void await_members(Comm& comm, const wire::CommMember& said);
    void look_for_missing(Comm& comm);
    bool any_node_unheard(TimeNs since) const;
    void enter_creation(NodeIndex node, const wire::CommEntrant& entrant);
    bool leave_creation(NodeIndex node, RankId rank, const CommId& id);
    void creation_failed(NodeIndex node, RankId rank, const CommId& id, Reason reason);
    void replace_entrants(NodeIndex node, const wire::Snapshot& snapshot);
    void end_entrants(NodeIndex node, RankId rank);

    // turns.cpp: circuits by the plan of a job
    void follow(Job& job, plan::Lap lap, const plan::Order& order);
    void drop_course(Job& job);
    Job* job_of(const Gang& gang);
    std::optional<plan::Instance> planned_use(const Gang& gang);
    TimeNs turn_of(Gang& gang, const plan::Instance& i);
    void wait_turn(Gang& gang, TimeNs until);
    void begin_use(const Gang& gang);
    void begin_use(Job& job, const Key& key);
    void use_port(PortId p, Job* job);
    bool shares_light(const Job& job, const std::vector<PortId>& ports) const;
    void keep(Job& job, PortId p);
    void lose_turns(PortId p);
    void lit_for_plan(PortId p);
    void wake(const Job& job, const plan::Instance& i);
    void follow_plans();
    void take_turn(Job& job, PortId p);
    std::optional<plan::Course::Turn> turn_at(const Job& job, PortId p) const;
    bool is_joined(PortId p, PortId q) const;
    bool may_turn_for_plan(PortId p) const;

    // jobs.cpp: whose ranks do what
    struct PlanFollower;
    static std::vector<plan::SeenKey> keys_of(const Launch& launch);
    std::vector<plan::Pair> pairs_of(const plan::SeenKey& key);
    bool leaves_out_communicators(const plan::Lap& lap);
    void note_seen(NodeIndex node, const wire::LaunchDone& done, plan::Seen seen, std::uint64_t bytes);
    TimeNs bytes_ns(const Rank& rank, NodeIndex node, const std::vector<plan::SeenKey>& keys, std::uint64_t bytes) const;
    std::uint32_t fewest_circuits(const std::vector<EdgeId>& edges) const;
    void check_fit(const Launch& launch);
    void join_job(NodeIndex node, Rank& rank);
    void leave_job(NodeIndex node, const Rank& rank);
    void end_job_runs(const Job& job, const std::string& why, bool endless);

    // launches.cpp: keys, and who stands where in them
    Launch* launch_of(const LaunchId& id);
    Rank* rank_of(NodeIndex node, RankId rank);
    KeyState& key_state(Comm& comm, const Key& key);
    static bool is_connecting_before(const Rank& rank, const Launch& launch);
    Launch* add_launch(NodeIndex node, const wire::LaunchDemand& demand, bool runs = false);
    void demand(NodeIndex node, const wire::LaunchDemand& demand);
    void enter(Launch& launch);
    void open_kept_calls();
    void hear_done(NodeIndex node, const wire::LaunchDone& done);
    void hear_seen(NodeIndex node, const wire::LaunchSeen& seen);
    void finish(Launch& launch, Presence how);
    void start_flight(Launch& launch);  // into flight
    void leave_flight(Launch& launch);
    void update_hold(KeyState& key);
    void erase_key_if_done(KeyState& key);
    bool needs_nothing(const Launch& launch);
    static bool misses_gone_member(const KeyState& key);
    static bool misses_gone_member(const Launch& launch);
    std::pair<const EdgeId*, const EdgeId*> edges_of(KeyState& key);  // empty while not all members are known
    bool is_lit(KeyState& key);                                       // all of them are up, as far as they are known
    bool is_lit(const Launch& launch);
    bool is_lit(const Gang& gang);

    // gangs.cpp: who must start together
    Gang& gang_for(Launch& launch);
    void join(Gang& gang, Launch& launch);
    template <class Change>
    void change_place(Gang& gang, Change change);
    Gang& merge(Gang& x, Gang& y);
    void leave(Launch& launch);
    void gather(KeyState& key);
    void gather(Launch& launch, KeyState& key, std::uint32_t& first);
    void regather(Launch& launch);
    void regather(Launch& launch, Gathered& gathered);
    void regather(const std::vector<Launch*>& launches);
    void erase_gang(Gang& gang);
    Gang* find_gang(std::uint64_t id);
    void queue(Gang& gang, bool whole);
    bool collect(Gang& gang, std::vector<EdgeId>& added);
    void restamp(Gang& gang);
    TimeNs complete_since(const Gang& gang) const;

    // schedule.cpp: who takes which ports, in ticket order
    void schedule();
    void attempt(Gang& gang);
    bool still_blocked(Gang& gang);
    bool all_lit(const Gang& gang, bool& reserved) const;
    bool lies_lit(const Gang& gang) const;
    bool joins_flight(const Gang& gang) const;
    bool may_pass(const Gang& gang) const;
    bool reachable(const Gang& gang);
    bool suspended_now(const Gang& gang) const;
    void back_off(Gang& gang);
    bool meets_committed(const Gang& gang);
    bool is_routable(Gang& gang);
    void block(Gang& gang);
    void reserve(Gang& gang);
    bool want_more(Gang& gang, const std::vector<EdgeId>& added);
    void set_wanted(Gang& gang, std::vector<WantedPort> wanted);
    void watch(Gang& gang);
    void unwatch(Gang& gang);
    void wake(GpuId gpu);
    void wake_edge(EdgeId e);
    void queue_all();

    // grants.cpp: programming and granting
    void program(Gang& gang, const Plan& plan);
    Op& open_op(SwitchIndex sw, bool alone);
    void connect(Op& op, EdgeId edge, const Circuit& circuit);
    void turn_dark(Op& op, PortId p);
    void emit_programs();
    void settle_op(Op& op, const Applied& applied);
    void fail_op(Op& op, DriverError error, const std::string& text);
    void fail_gang(Gang& gang);
    void unclaim(Gang& gang);
    void grant(Gang& gang);
    void send_grant(NodeIndex node, std::uint64_t id, std::vector<wire::LocalLaunch> firm,
                    std::vector<wire::KeyRange> soft = {});
    std::vector<wire::PortSteering> steering_news(NodeIndex node);
    void tell_steering(const Launch& launch);
    void count_grant(const Gang& gang, TimeNs exposed);

    // suspension.cpp: what stands in the way for ever is moved away, and brought back
    TimeNs break_time(const Gang& gang) const;
    TimeNs least_break_time() const;
    void consider_suspension(Gang& gang);
    bool in_the_way(Gang& gang, std::vector<EdgeId>& pairs);
    bool suspendable(const std::vector<Launch*>& holders, const Gang& gang, TimeNs patience, TimeNs& again);
    bool half_started(const Launch& launch, KeysLooked& looked) const;
    std::uint64_t awaited_by(const Launch& launch, KeysLooked& looked) const;
    TimeNs patience_of(const Gang& gang) const;
    bool tied_to_half_started(Launch& launch, TiedLaunches& tied, KeysLooked& looked);
    void suspend(const std::vector<Launch*>& launches, const std::string& why);
    void suspend(Launch& launch, const std::string& why, Suspending& with);
    void drop_drained(KeyState& key);
    void lost_light(EdgeId e, const std::string& why);

    // runs.cpp: what members may start without asking, and who takes it back
    std::vector<EdgeId> edges_of_sequence(Comm& comm, const Key& sequence, bool mesh);
    Run* find_run(std::uint64_t grant);
    struct Offer;
    bool runs_apply(const Gang& gang, bool endless);
    TimeNs longest_rest(const Gang& gang) const;
    bool is_moved_by_plan(PortId p) const;
    void end_runs_beyond(const plan::Course& course, PortId p);
    bool has_rested(const Gang& gang) const;
    void offer_endless(const Launch& launch, std::map<Key, Offer>& offers);
    void offer_planned(const Gang& gang, std::map<Key, Offer>& offers);
    std::map<NodeIndex, std::vector<wire::KeyRange>> begin_run(const Gang& gang, std::uint64_t grant,
                                                               std::uint32_t circuits);
    void join_comm(Comm& comm, std::uint64_t grant);
    void lie_on_edges(Run& run);
    Run* run_of(const Comm& comm, const Key& sequence, std::uint64_t begin, std::uint64_t end);
    static bool covers(const Run& run, const KeyState& key);
    void revoke(Run& run, const std::string& why);
    void take_back(Run& run, const std::string& why);
    std::map<NodeIndex, std::vector<wire::PortSteering>> ports_of(const Run& run) const;
    void send_revoke(const Run& run, NodeIndex n);
    void revoke_for(Gang& gang, const WantedPort& wanted);
    void revoke_runs_of(Comm& comm, const std::string& why);
    void quantum_over(std::uint64_t grant);
    void demand_meets_runs(const Launch& launch);

    // cut.cpp: how runs end
    void node_is_over(Run& run, NodeIndex n);
    void close_run(Run& run);
    void cut(const Run& run);
    void mark_done(KeyState& key, std::uint32_t place);
    void mark_cut(KeyState& key);
    bool involves_laggard(const Gang& gang);
    void hear_ran(NodeIndex n, const wire::LaunchRan& ran);
    void did_unreported(const Membership& membership, const wire::KeyRange& range);
    void did_unreported(KeyState& key, std::uint32_t place);
    void imply_done(Comm& comm, const Key& key, std::uint32_t slot);
    void tell_finished(Comm& comm, std::uint32_t slot);
    void end_runs_of(Comm& comm);
    void adopt_tokens(NodeIndex n, const std::vector<wire::Token>& tokens);
    void adopt_token(NodeIndex n, const wire::Token& token);
    void settle_runs();

    // hold.cpp: decisions for a whole gang without circuits
    void hold(Gang& gang, TimeNs at);
    void hold_expired(Gang& gang);
    void end_holds();
    TimeNs asked_hold(const Launch& launch);
    SwitchIndex slowest_switch(GpuId gpu) const;
    SwitchIndex slowest_switch(const Gang& gang) const;
    void look_at_hold(NodeIndex node, const wire::CommMember& member);
    void not_routable(Gang& gang);
    void relight();  // a fenced port is back
    bool fits_alone(Launch& launch);
    void pass_gang(Gang& gang, const std::string& why);
    void pass_launches(const std::vector<Launch*>& launches, Policy how, const std::string& why, bool no_light);
    void expired(NodeIndex node, const wire::Expired& message);
    Policy policy_of(const std::vector<Launch*>& launches);

    // sessions.cpp: nodes that come, go and come again
    void hear(NodeIndex node, const wire::Snapshot& s);
    void adopt(NodeIndex node, const wire::LaunchSnapshot& l, bool firm);
    void put_back(Launch& launch);
    void tell_again();
    void refresh_absent(NodeIndex node);
    void lose_node(NodeIndex node, const std::string& why);
    void node_hold_over(NodeIndex node);
    void set_overdue(NodeState& node, bool overdue);
    bool has_overdue(Comm& comm) const;
    Comm* held_by_overdue(const Launch& launch) const;
    void pass_overdue(const Launch& launch);
    void give_up_node(NodeIndex node);
    void watch_silence();
    void resync(NodeIndex node, const std::string& why);

    // adoption.cpp: what runs, and whose circuits are not known yet
    void adopt_running(Launch& launch);
    void keep_node(NodeIndex n);
    void leave_node(NodeIndex n);
    void keep_members(Comm& comm);
    void keep_ports(Launch& launch);
    void wake_nodes(const Launch& launch, std::uint64_t m);
    void settle(Launch& launch);
    void look_again(Comm& comm);
    void look_again();
    bool is_read(EdgeId e) const;
    bool is_read(KeyState& key);
    void see_light(KeyState& key);
    std::vector<Launch*> known_now();
    void settle_adopted();

    // switches.cpp: sessions, read-back, change sets
    void answer(SwitchIndex sw, const SessionUp& e);
    void answer(SwitchIndex sw, const SessionDown& e);
    void answer(SwitchIndex sw, const MapRead& e);
    void answer(SwitchIndex sw, const Applied& e);
    void answer(SwitchIndex, const PortPower&) {}
    void read_map(SwitchIndex sw);
    void read_maps_again();
    void notice(PortId p, PortId believed, PortId found, std::vector<std::string>& differences);
    std::set<PortId> changed_since_asked(const SwitchState& sw) const;
    void adopt_circuit(const Circuit& circuit);
    void show_differences(SwitchIndex s, std::vector<std::string> differences);
    void adopt_map(SwitchIndex sw, const MapRead& e);
    TimeNs switch_timeout(SwitchIndex sw) const;
    TimeNs command_time(SwitchIndex sw) const;
    void doubt_all();

    // fences.cpp: which port is at fault, which switch; fences, and who takes them away
    void not_carried_out(const Op& op);
    void carried_out(const Op& op);
    TimeNs rests_until(const Plan& plan) const;
    void judge_suspects(SwitchIndex sw);
    void blame(PortId p, const Suspect& suspect);
    void trust(PortId p);
    void fence(PortId p, FencedBy by, const std::string& why);
    void unfence(PortId p, const std::string& why);
    void try_later(PortId p, TimeNs not_before = 0);
    void trial_due(PortId p);
    bool nobody_runs(GpuId gpu) const;
    bool free_to_try(PortId p) const;
    void try_ports();
    bool is_drained(EdgeId e) const;
    void drain_ports();

    // hidden.cpp: what moving ahead of demand has brought
    void made_ahead(const Op& op, TimeNs took);
    void lose_ahead(const Circuit& circuit);
    TimeNs use_ahead(const Gang& gang);
    std::string check_ahead() const;

    // requests.cpp: opus-ctl
    bool may_turn(PortId p, bool force, std::string& why);
    void clear_port(PortId p);

    // status.cpp, why.cpp, check.cpp
    std::string name(GpuId gpu) const { return fabric.gpus[gpu].name; }
    std::string name(const LaunchId& id) const;
    std::string name_of_member(const Comm& comm, std::uint32_t slot) const;
    std::string holders_text(EdgeId e, HolderTable& table) const;
    std::vector<Launch*> holders_of(EdgeId e);  // all of them
    WhyPage why(TimeNs at, const WhyQuestion& question);
    Why explain(Launch& launch, Explained& said);
    std::vector<std::string> explain_missing(const KeyState& key, bool open) const;
    void explain_missing(const Launch& launch, std::vector<std::string>& reasons, Explained& said) const;
    void tell_waiting();
    bool explain_state(const Gang& gang, std::vector<std::string>& reasons) const;
    const PortReasons& explain_ports(const Gang& gang, Explained& said) const;
    void explain_ports(const Gang& gang, std::vector<std::string>& reasons, Explained& said) const;
    std::string check();
    std::string check_ports();
    std::string check_keys();
    std::string check_gangs();
    std::string check_runs();

    const Fabric& fabric;
    CoreOptions options;
    TimeNs now = 0;
    bool started = false;
    std::uint64_t step = 0;
    std::uint64_t mark = 0;
    Actions* out = nullptr;
    Counters counters;

    Inventory inventory;
    Planner planner;
    CommTable comms;
    std::map<CommId, CommId> joined;  // ids that some members of a communicator had before they were told which it is
    // By communicator and process: members inside NCCL's creation of it that do not know their place yet.
    std::map<CommId, std::map<std::pair<NodeIndex, RankId>, std::uint32_t>> entering;
    std::vector<NodeState> nodes;
    std::map<std::string, Job> jobs;
    std::uint32_t overdue_nodes = 0;
    std::uint64_t overdue_changes = 0;
    struct MadeAhead {  // a port that was turned for its plan, until somebody uses its light or turns it
        PortId peer = kNone;
        TimeNs took_ns = -1;  // -1: it is still moving
        TimeNs end_ns = 0;
    };
    std::vector<MadeAhead> ahead;  // by port
    std::vector<Job*> course_at;  // by port: whose plan it follows
    struct PortUser {  // the job that was last granted its light, and when that was last another one
        const Job* job = nullptr;
        TimeNs since_ns = 0;
        bool shared = false;
    };
    std::vector<PortUser> users;  // by port
    std::set<PortId> plan_due;    // to be looked at at the end of the step
    struct ByName {
        bool operator()(const Job* a, const Job* b) const { return a->name < b->name; }
    };
    std::set<Job*, ByName> jobs_due;  // likewise: is their plan still a good one?
    std::uint64_t next_thought = 1;

    std::map<std::uint64_t, std::unique_ptr<Gang>> gangs;
    std::uint64_t next_gang = 1, next_ticket = 1, next_stamp = 1, next_grant = 1, next_op = 1;
    std::set<std::pair<Gang::Order, Gang*>> queued;                              // to be attempted
    std::vector<std::vector<Gang*>> watchers;                                    // by GPU
    std::set<Gang::Order> watching_all;
    std::unordered_map<std::uint64_t, GrantRecord> grants;
    std::map<std::uint64_t, Run> runs;  // by grant
    std::set<std::uint64_t> kept_runs;  // that have a quantum

    std::set<std::tuple<TimeNs, TimerKind, std::uint64_t>> timers;
    TimeNs wake_told = -1;
    std::deque<std::pair<TimeNs, LaunchId>> calls;          // launches whose calls are looked at, when
    TimeNs holds_told = -1;                                 // when a timer looks whose hold is over; -1: none is set
    TimeNs read_again_ns = 0;                               // maps of switches at rest
    std::map<std::pair<SwitchIndex, bool>, OpId> open_ops;  // change sets of this step
    std::vector<OpId> new_ops;                              // to be sent at its end
    std::set<NodeIndex> owed;                               // nodes to be told verdicts or steering at its end
    std::set<LaunchId> adopted;                             // running launches whose circuits are not known yet
    std::set<LaunchId> adopted_again;                       // of them, those to be looked at
    std::set<std::uint64_t> runs_again;                     // adopted runs, likewise
    std::set<std::uint64_t> unsettled_comms;                // communicators whose nodes' ports are kept for them
    std::set<LaunchId> unheard;                             // granted, but their manager's new session does not know
    std::set<PortId> to_try;                                // at the end of this step, if nobody does
    std::set<PortId> by_hand;                               // fenced by an operator
    std::set<std::string> short_holds;                      // jobs whose hold time is too short, and it has been said
    bool adoption_due = false;
    bool waiting_armed = false;  // somebody looks after gangs that wait
};

}  // namespace opus::controller
