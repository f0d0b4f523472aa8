// A world for the controller's core: ranks that follow program order, the managers' own cores, and switches with dark
// time, all in virtual time from one seed. It knows nothing of how the core decides; it only sees what comes out, and
// holds it to what must always be true:
//
//   no launch starts in the dark, or with a port that leads elsewhere        I1
//   no launch starts that no grant, run or pass lets start                   I1
//   no circuit moves under a launch in flight (suspended and passed apart)   I2
//   a launch is granted only together with all members of one of its keys    I3
//   check() of each core is silent after every event
//   a program that ends without Opus ends with it                            I7
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "manager/core/core.h"
#include "tools/virtual_time/calendar.h"

namespace opus::controller::test {

using virtual_time::kMs;

// --- programs -------------------------------------------------------------------------------------

enum class What : std::uint8_t { coll, send, recv, connect, put, connect_mesh };

struct OpSpec {
    What what = What::coll;
    std::size_t comm = 0;
    std::uint32_t peer = 0;  // rank in the communicator
    OpKind op = OpKind::all_reduce;
};

struct LaunchSpec {
    std::vector<OpSpec> ops;  // more than one: a group
    int stream = 0;
    std::vector<std::size_t> after;  // launches of this rank whose end it waits for (events)
    TimeNs work_ns = 1 * kMs;        // time each of its transfers needs light
    TimeNs delay_ns = 0;             // computing before it
    bool mixed = false;              // holds up operations that have no key
    // Rank, launch: its kernel starts after these, unseen; its host waits at its gate.
    std::vector<std::pair<std::size_t, std::size_t>> behind = {};
};

struct RankSpec {
    NodeIndex node = 0;
    std::uint32_t gpu = 0;
    std::vector<LaunchSpec> program;
    bool own_nic = false, own_host = false;
};

struct Job {
    std::vector<RankSpec> ranks;
    std::vector<std::vector<std::size_t>> comms;  // members, by rank in the communicator
};

// Without Opus, on a network where everybody reaches everybody: does it end?
bool ends_without_opus(const Job& job);

struct Shape {
    std::uint32_t nodes = 2, gpus = 1, ports = 2;
    std::uint32_t planes = 1;  // switches a rail: port i of a GPU goes to switch i % planes
    bool two_sided = false;    // even ports ingress, odd egress (one port: odd nodes egress)
    TimeNs dark_ns = 25 * kMs;
    std::uint32_t domain = 0;  // hosts of an NVLink domain; 0: NVLink ends at the host
};
Fabric make_fabric(const Shape& shape);

// --- the world ------------------------------------------------------------------------------------

class World {
public:
    World(const Shape& shape, Job job, std::uint64_t seed = 1, CoreOptions options = {});

    // Until all programs end, or `limit`. False: they did not end.
    bool run(TimeNs limit = 600'000 * kMs);
    void run_until(TimeNs at);
    bool dry_run();  // no core: everything is granted and lit
    void at(TimeNs when, std::function<void()> what);
    void feed(const Event& event);

    // Faults, to be called from at().
    void drop_node(NodeIndex n, bool back = true);
    void connect_node(NodeIndex n);
    void kill_rank(std::size_t rank);
    void open_gates(std::size_t rank);  // of what waits: its manager has stood still, and hears of it now
    void restart_controller();
    void move_circuit(PortId a, PortId b);  // another client of the switch does it
    bool switch_is_up(SwitchIndex sw) const { return switch_up_[sw]; }
    void session_down(SwitchIndex sw, TimeNs for_ns);

    bool done(std::size_t rank, std::size_t launch) const { return ranks_[rank].launches[launch].done; }
    bool started(std::size_t rank, std::size_t launch) const { return ranks_[rank].launches[launch].go; }
    bool asked(std::size_t rank, std::size_t launch) const { return ranks_[rank].launches[launch].asked; }
    bool granted(std::size_t rank, std::size_t launch) const { return ranks_[rank].launches[launch].granted; }
    bool passed(std::size_t rank, std::size_t launch) const { return ranks_[rank].launches[launch].passed; }
    TimeNs start_time(std::size_t rank, std::size_t launch) const { return ranks_[rank].launches[launch].go_ns; }
    bool lit(PortId a, PortId b) const { return peer_[a] == b; }
    PortId port(const std::string& name) const;
    bool all_done() const;
    std::string stuck() const;  // what has not ended, and why

    const Fabric fabric;
    std::unique_ptr<Core> core;
    TimeNs now = 0;
    std::vector<std::string> violations;
    std::vector<std::string> logs;
    std::uint64_t programs = 0, lost_under_suspended = 0;
    bool keep_log = false;
    TimeNs message_least_ns = 10'000, message_most_ns = 300'000;
    TimeNs taken_up_ns = 0;  // a switch begins with what it was told so much later
    std::uint32_t hold_ms = 30'000;
    Policy policy = Policy::proceed;
    // Answer of a switch to a change set: error none applies it; otherwise `applies` circuits of it are made.
    std::function<std::pair<DriverError, std::size_t>(const Program&)> switch_fault;
    std::uint64_t run_starts = 0;  // launches that nobody asked for
    std::uint64_t unasked = 0;     // launches that managers passed by themselves

private:
    struct RunLaunch {
        std::vector<wire::KeyRange> keys;
        std::vector<ring::OpEntry> ops;
        bool reached = false, asked = false, go = false, passed = false, suspended = false, done = false, dead = false;
        bool granted = false;     // by the core, in an action of some time ago
        bool reported_done = false;  // the core has heard
        bool waits = false;       // at its gate
        bool let_go = false;      // before it was there
        bool moved_away = false;  // suspended or passed as the core sees it
        bool firm = false, passes = false;  // what its manager was told
        bool unseen = false;  // its manager passed it without a question: another network carries it
        TimeNs go_ns = 0;
        TimeNs granted_ns = 0;
        std::set<std::size_t> left;  // transfers not finished
    };
    struct RunRank {
        std::vector<RunLaunch> launches;
        std::map<std::size_t, Verdict> verdicts;  // by communicator
        bool dead = false;
    };
    struct Place {
        std::size_t rank = 0, launch = 0;
        std::size_t before = 0;  // the launch of its rank with the kernel of this communicator before; itself: none
    };
    struct Transfer {  // one key: moves while all members have started and all its pairs are lit
        Key key;
        std::vector<Place> members;
        std::vector<std::pair<GpuId, GpuId>> pairs;
        TimeNs left_ns = 0, since_ns = -1;
        std::uint64_t version = 0;
        bool done = false;
    };
    struct Manager {
        std::unique_ptr<manager::Core> core;
        std::uint64_t session = 0, tick = 0;
        bool up = false;
        std::vector<PortId> table;  // told: where each of the node's ports leads
        TimeNs last_in = 0, last_out = 0;
        std::map<std::uint64_t, std::vector<wire::KeyRange>> soft;  // its runs, by grant
        TimeNs down_ns = 0;
    };

    void build();
    std::vector<std::pair<GpuId, GpuId>> pairs_of(const Key& key, bool mesh) const;
    TimeNs jitter(TimeNs least, TimeNs most);
    void connect_switch(SwitchIndex s);
    void start_manager(NodeIndex n);
    void see(NodeIndex n, const manager::Event& event);
    void perform(NodeIndex n, manager::Actions actions);
    void steer(NodeIndex n, const manager::Steer& a);
    void wake_at(NodeIndex n, TimeNs at_ns);
    void let_go(NodeIndex n, std::size_t r, std::size_t l);
    void beat(NodeIndex n);
    void to_manager(const SendTo& s);
    void to_core(NodeIndex n, wire::Message message);
    void note_said(NodeIndex n, const wire::Message& message);
    void note_message(NodeIndex n, const char* way, const wire::Message& message);
    void advance();  // who is ready now
    void act(const Actions& actions);
    void note_away(const Action& action);  // what the core has decided, before it reaches anyone
    void note_sent(const SendTo& s);
    void receive(NodeIndex n, std::uint64_t session, const wire::Message& message);
    void reach(std::size_t r, std::size_t l);
    void start(std::size_t r, std::size_t l);
    bool is_held(std::size_t r, std::size_t l) const;
    bool intra(std::size_t comm) const;
    bool bereaved(std::size_t comm) const;
    void check_start(std::size_t r, std::size_t l);
    bool is_covered(NodeIndex n, std::size_t r, std::size_t l) const;
    void check_runs(const std::pair<GpuId, GpuId>& pair);
    void check_whole_runs(const Actions& actions);
    void check_whole(const std::set<std::pair<std::size_t, std::size_t>>& granted);
    void apply(const Program& p);
    void carry_out(const Program& p, TimeNs sent, std::uint64_t life);
    void darken(PortId p);
    void update_transfers();
    void finish_transfer(std::size_t t);
    void finish_launch(std::size_t r, std::size_t l);
    bool runs(const Place& place, KeyKind kind) const;
    bool pair_lit(const std::pair<GpuId, GpuId>& pair) const;
    bool step();
    void violate(const std::string& text);
    std::size_t rank_at(NodeIndex n, RankId id) const { return rank_of_.at({n, id}); }
    std::string name(std::size_t r, std::size_t l) const;

    Job job_;
    std::uint32_t domain_ = 0;
    CoreOptions options_;
    std::mt19937_64 random_;
    std::vector<RunRank> ranks_;
    std::vector<Transfer> transfers_;
    std::map<Key, std::size_t> transfer_of_;
    std::vector<Manager> managers_;
    std::map<std::pair<NodeIndex, RankId>, std::size_t> rank_of_;
    std::vector<PortId> peer_;                       // the optical plane
    std::vector<PortId> coming_;                     // being turned: dark
    std::vector<PortId> blind_;                      // the map says that it leads there, and there is no light
    std::vector<std::pair<PortId, TimeNs>> leaves_;  // the core has decided to turn it away from there, and when
    std::vector<bool> switch_up_;
    virtual_time::Calendar<std::function<void()>> calendar_;
    std::uint64_t next_session_ = 1, core_life_ = 0;
    TimeNs wake_ = -1;
};

CommId comm_id(std::size_t comm);
std::uint32_t rank_in(const Job& job, std::size_t comm, std::size_t rank);  // number of a rank in the communicator

}  // namespace opus::controller::test
