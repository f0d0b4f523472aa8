// The state behind Core, and who does what to it. Each group of members is one file.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/core/comm_table.h"
#include "controller/core/core.h"
#include "controller/core/gang.h"
#include "controller/core/inventory.h"
#include "controller/core/launch.h"
#include "controller/core/planner.h"
#include "controller/core/runs.h"
#include "controller/core/speculation.h"

namespace opus::controller {

struct Membership {
    Comm* comm = nullptr;
    std::vector<std::uint32_t> slots;  // ranks in the communicator that this process is
};

struct Rank {
    wire::RankInfo info;
    std::map<CommId, Membership> comms;
    std::map<std::uint64_t, std::unique_ptr<Launch>> launches;  // not done
};

struct NodeState {
    std::uint64_t session = 0;  // 0: none
    bool reported = false;      // its snapshot is in, of this session
    bool known = false;         // has reported in this epoch, or its grace is over
    bool tell = false;          // owed its steering
    bool overdue = false;       // without a manager for its hold time: its ranks have opened their gates, or will
    TimeNs last_seen_ns = 0;
    TimeNs grace_at_ns = 0;       // when silent: what it ran is given up then
    std::uint32_t unsettled = 0;  // adopted launches whose circuits are not known yet
    std::map<RankId, Rank> ranks;
    std::vector<wire::CommVerdict> verdicts;  // to be sent at the end of the step
    std::vector<wire::Withheld> withheld;     // receives that its last heartbeat told of, less those asked for since
    TimeNs withheld_ns = 0;                   // it came

    bool up() const { return session != 0 && reported; }
};

struct GrantRecord {
    std::uint64_t ticket = 0;
    std::uint32_t running = 0;
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
    silence,
    waiting
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
    void hear(NodeIndex node, const wire::Heartbeat& m);
    void not_withheld(NodeIndex node, const wire::LocalLaunch& launch);
    void hear(NodeIndex node, const wire::Next& m);
    template <class ControllersOwn>
    void hear(NodeIndex node, const ControllersOwn&) {
        log(LogLevel::warn, fabric.nodes[node].name + " sent a message that only a controller sends");
    }

    // registration.cpp: ranks, communicators, verdicts
    void register_ranks(NodeIndex node, const std::vector<wire::RankInfo>& infos);
    void register_member(NodeIndex node, const wire::CommMember& m);
    void take_place(Comm& comm, NodeIndex node, const wire::CommMember& m);
    void revive(Comm& comm, std::uint32_t slot);
    void let_go(Comm& comm);      // of all circuits
    void hold_again(Comm& comm);  // those that are known now
    void evaluate(Comm& comm);
    void set_verdict(Comm& comm, Verdict verdict);
    void tell_verdict(const Comm& comm, NodeIndex node);
    void register_timeout(Comm& comm);
    void member_gone(NodeIndex node, RankId rank, const CommId& id);
    void comm_lost_member(Comm& comm);
    void end_rank(NodeIndex node, RankId rank, const char* how);
    void erase_comm_if_gone(Comm& comm);
    void degrade(Comm& comm, Policy how, const std::string& why);

    // launches.cpp: keys, and who stands where in them
    Launch* launch_of(const LaunchId& id);
    Rank* rank_of(NodeIndex node, RankId rank);
    KeyState& key_state(Comm& comm, const Key& key);
    Launch* add_launch(NodeIndex node, const wire::LaunchDemand& demand, bool runs = false);
    void demand(NodeIndex node, const wire::LaunchDemand& demand);
    void enter(Launch& launch);
    void hear_done(NodeIndex node, const wire::LaunchDone& done);
    void hear_seen(NodeIndex node, const wire::LaunchSeen& seen);
    void finish(Launch& launch, Presence how);
    void shorten_runs(const Launch& finished);
    void take_off(Launch& launch);  // into flight
    void leave_flight(Launch& launch);
    void update_hold(KeyState& key);
    void erase_key_if_done(KeyState& key);
    bool needs_nothing(const Launch& launch);
    bool misses_gone_member(const Launch& launch) const;
    std::pair<const EdgeId*, const EdgeId*> edges_of(KeyState& key);  // empty while not all members are known
    bool is_lit(KeyState& key);                                       // all of them are up, as far as they are known
    bool is_lit(const Launch& launch);
    bool is_lit(const Gang& gang);

    // gangs.cpp: who must start together
    Gang& gang_for(Launch& launch);
    void join(Gang& gang, Launch& launch);
    Gang& merge(Gang& x, Gang& y);
    void leave(Launch& launch);
    void gather(KeyState& key);
    void regather(Launch& launch);
    void erase_gang(Gang& gang);
    Gang* find_gang(std::uint64_t id);
    void queue(Gang& gang, bool whole);
    bool collect(Gang& gang, std::vector<EdgeId>& added);
    void restamp(Gang& gang);

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
    void nap(Gang& gang);
    bool meets_committed(const Gang& gang);
    bool is_routable(Gang& gang);
    void block(Gang& gang);
    void reserve(Gang& gang);
    bool wish_more(Gang& gang, const std::vector<EdgeId>& added);
    void set_wishes(Gang& gang, std::vector<Wish> wishes);
    void watch(Gang& gang);
    void unwatch(Gang& gang);
    void touch(GpuId gpu);
    void touch_edge(EdgeId e);
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
    void consider_suspension(Gang& gang);
    bool suspendable(const std::vector<Launch*>& holders, const Gang& gang, TimeNs patience, TimeNs& again);
    bool half_started(const Launch& launch) const;
    std::uint64_t awaited_by(const Launch& launch) const;
    TimeNs patience_of(const Gang& gang) const;
    bool waits_for_half_started(Launch& launch);
    void suspend(Launch& launch, const std::string& why);
    void drop_drained(KeyState& key);
    void lost_light(EdgeId e, const std::string& why);

    // runs.cpp: what members may start without asking, and who takes it back
    std::vector<EdgeId> edges_of_sequence(Comm& comm, const Key& sequence, bool mesh);
    Run* find_run(std::uint64_t grant);
    bool runs_apply(const Gang& gang) const;
    std::map<NodeIndex, std::vector<wire::KeyRange>> begin_run(const Gang& gang, std::uint64_t grant);
    void join_comm(Comm& comm, std::uint64_t grant);
    void lie_on_edges(Run& run);
    Run* run_of(const Comm& comm, const Key& sequence, std::uint64_t begin, std::uint64_t end);
    static bool covers(const Run& run, const KeyState& key);
    void revoke(Run& run, const std::string& why);
    void send_revoke(const Run& run, NodeIndex n);
    void revoke_for(Gang& gang, const Wish& wish);
    void revoke_runs_of(Comm& comm, const std::string& why);
    void quantum_over(std::uint64_t grant);
    void demand_meets_runs(const Launch& launch);

    // cut.cpp: how runs end
    void node_is_over(Run& run, NodeIndex n);
    void close_run(Run& run);
    void cut(const Run& run);
    void mark_done(KeyState& key, std::uint32_t place);
    void mark_cut(KeyState& key);
    bool involves_laggard(const Gang& gang) const;
    void hear_ran(NodeIndex n, const wire::LaunchRan& ran);
    void did_untold(const Membership& membership, const wire::KeyRange& range);
    void did_untold(KeyState& key, std::uint32_t place);
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
    void adopt_running(Launch& launch);
    void keep_ports(Launch& launch);
    void settle(Launch& launch);
    void see_light(const Launch& launch);
    void settle_adopted(bool all);
    void refresh_absent(NodeIndex node);
    void lose_node(NodeIndex node, const std::string& why);
    void node_hold_over(NodeIndex node);
    void set_overdue(NodeState& node, bool overdue);
    Comm* held_by_overdue(const Launch& launch) const;
    void pass_overdue(const Launch& launch);
    void give_up_node(NodeIndex node);
    void watch_silence();
    void resync(NodeIndex node, const std::string& why);

    // switches.cpp: sessions, read-back, change sets, fencing
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
    void judge_suspects(SwitchIndex sw);
    void blame(PortId p);
    TimeNs switch_timeout(SwitchIndex sw) const;
    TimeNs command_time(SwitchIndex sw) const;
    void doubt_all();

    // words.cpp: what ranks have said they want next
    void take_word(NodeIndex node, const wire::Expectation& e);
    void drop_word(const RankName& who);
    bool wants_too(GpuId gpu, EdgeId e) const;
    bool is_lent(GpuId gpu) const;
    bool lends(GpuId gpu, EdgeId e);
    bool can_do_without(const RankName& who, EdgeId e);
    bool is_due_soon(const Word& word) const;
    void join_words(const RankName& who);
    void add_edges(Comm& comm, const wire::KeyRange& range, std::vector<EdgeId>& edges);
    void join_again();
    void close_speculation(std::uint64_t id, bool replaced);
    // speculation.cpp: circuits that are moved before they are asked for
    void speculate();
    void speculate(Speculation& s);
    bool may_speculate(const Speculation& s) const;
    TimeNs spares_until(const Gang& gang, const Plan& plan) const;
    void spare(Gang& gang, TimeNs until);
    void bet_settled(const Op& op, TimeNs took);
    void bet_failed(const Op& op);
    void lose_bets(TimeNs since, EdgeId edge, const Circuit& circuit);
    TimeNs win_bets(const Gang& gang);
    void forget_cost(const Bet& bet);
    void note_lost(PortId p, TimeNs lost);
    void note_word(const Speculation& s, bool came_true);
    void make_amends(PortId p, bool came_true);
    void settle_words(const Gang& gang);
    std::string check_speculations();
    void tell_losers();
    TimeNs complete_since(const Gang& gang) const;

    // requests.cpp: opus-ctl
    bool may_turn(PortId p, bool force, std::string& why);
    void clear_port(PortId p);

    // status.cpp, why.cpp, check.cpp
    std::string name(GpuId gpu) const { return fabric.gpus[gpu].name; }
    std::string name(const LaunchId& id) const;
    std::string name_of_member(const Comm& comm, std::uint32_t slot) const;
    std::string holders_text(EdgeId e) const;
    std::vector<Launch*> holders_of(EdgeId e);
    std::vector<Why> why(TimeNs at);
    Why explain(Launch& launch);
    const wire::Withheld* withheld_at(const Key& key, const Member& member) const;
    std::string left_text(const wire::Withheld& withheld, const NodeState& node) const;
    Why explain(NodeIndex node, const wire::Withheld& withheld) const;
    void explain_missing(const Launch& launch, std::vector<std::string>& reasons) const;
    void tell_waiting();
    void explain_ports(Gang& gang, std::vector<std::string>& reasons);
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
    std::vector<NodeState> nodes;
    std::uint32_t overdue_nodes = 0;
    Speculations spec;

    std::map<std::uint64_t, std::unique_ptr<Gang>> gangs;
    std::uint64_t next_gang = 1, next_ticket = 1, next_stamp = 1, next_grant = 1, next_op = 1;
    std::set<std::pair<std::pair<std::uint64_t, std::uint64_t>, Gang*>> queued;  // to be attempted, by ticket
    std::vector<std::vector<Gang*>> watchers;                                    // by GPU
    std::set<std::pair<std::uint64_t, std::uint64_t>> watching_all;              // (ticket, id)
    std::unordered_map<std::uint64_t, GrantRecord> grants;
    std::map<std::uint64_t, Run> runs;  // by grant
    std::set<std::uint64_t> kept_runs;  // that have a quantum

    std::set<std::tuple<TimeNs, TimerKind, std::uint64_t>> timers;
    TimeNs wake_told = -1;
    TimeNs holds_told = -1;                                 // when a timer looks whose hold is over; -1: none is set
    TimeNs read_again_ns = 0;                               // maps of switches at rest
    std::map<std::pair<SwitchIndex, bool>, OpId> open_ops;  // change sets of this step
    std::vector<OpId> new_ops;                              // to be sent at its end
    std::set<NodeIndex> owed;                               // nodes to be told verdicts or steering at its end
    std::set<LaunchId> adopted;                             // running launches whose circuits are not known yet
    std::set<LaunchId> unheard;                             // granted, but their manager's new session does not know
    bool adoption_due = false;
    bool waiting_armed = false;  // somebody looks after gangs that wait
};

}  // namespace opus::controller
