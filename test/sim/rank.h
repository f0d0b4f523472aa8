// One rank process: its host thread, its streams, and what the shim does between them, with stream gates.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "opus/launch_ring.h"
#include "test/sim/launch_run.h"
#include "test/sim/random.h"
#include "test/sim/scenario.h"

namespace opus::sim {

class World;

class Rank {
public:
    Rank(World& world, const Scenario& scenario, std::uint32_t index);

    void start();
    void kill();
    // Calendar.
    void host();
    void stream_step(std::uint32_t stream);
    void look_at_gate(LaunchIndex launch);
    void open_gate(LaunchIndex launch);
    void give_up(LaunchIndex launch, std::uint64_t manager_life);
    void give_up_verdict(std::uint64_t wait);
    void part_done(LaunchIndex launch, std::uint32_t kernel);

    // The manager's words.
    void on_go(std::uint64_t seq, bool abort);
    void on_offer(std::uint64_t seq);
    void on_ahead(std::uint32_t entry, std::uint64_t upto);
    void look_at_comm(std::uint32_t entry);
    void settle_gates();  // those that are reached look now
    void on_verdict(std::uint32_t entry);
    void manager_died();
    void comm_joined() { wake_host(); }

    bool alive() const { return alive_; }
    bool ended() const { return ended_; }
    bool died() const { return died_; }
    bool attached() const { return attached_; }
    const ring::View& view() const { return view_; }
    RankId id() const { return id_; }
    void set_id(RankId id) { id_ = id; }
    const RankPlan& plan() const { return plan_; }
    LaunchIndex launch_of(std::uint64_t seq) const;
    // Of a communicator (CommPlan); unknown before it is created, and once its entry is another's.
    Verdict verdict(std::uint32_t comm) const;
    std::string where() const;

private:
    struct Item {
        enum class Kind : std::uint8_t { compute, gate, kernel, record, wait } kind{};
        std::uint32_t index = 0;  // launch, kernel, or event
        TimeNs ns = 0;
    };
    struct KernelRun {
        LaunchIndex launch = 0;
        const KernelPlan* plan = nullptr;
        std::uint32_t parts_left = 0;
        bool running = false;
    };
    struct StreamState {
        std::deque<Item> items;
        bool computing = false;
    };
    enum class Step : std::uint8_t { begin, join, verdict, connect, enqueue, call };
    struct CapturedLaunch {  // of a graph
        std::uint64_t seq = kUnrecorded;
        LaunchIndex launch = kNone;  // what keeps its slots
        std::uint64_t replays = 0;
    };
    struct Graph {
        std::uint32_t comm = kNone;
        std::vector<CapturedLaunch> launches;
    };
    struct TableEntry {  // of the communicators in the segment
        std::uint32_t comm = kNone;
        bool ignores_verdict = false;  // the shim gave up on it
    };

    void wake_host();
    bool create(const Call& call);
    bool destroy(const Call& call);
    bool pause(TimeNs ns);
    void enter_creation(std::uint32_t comm, bool splits);
    void creation_returned(std::uint32_t comm);
    std::uint32_t place_in(const CommPlan& comm) const;
    bool have_arrived(std::uint32_t comm) const;
    bool launch(const Call& call);
    bool call_nccl(const Call& call);
    bool drains() const;
    bool is_drained() const;
    bool records(std::uint32_t comm) const;
    void note_unheld(LaunchRun& run) const;
    void ask_for_first_uses(const Call& call);
    bool forgets_first_use(const Call& call, std::size_t use) const;
    bool await_room(const std::vector<OpPlan>& ops);
    LaunchIndex connect(const std::vector<Part>& parts);
    bool has_room(std::uint32_t slots, std::uint64_t& seq) const;
    bool is_held_full(std::uint32_t slots) const;
    std::uint64_t claim(std::uint32_t slots);
    void let_look(const LaunchRun& run);
    std::uint64_t push(const std::vector<OpPlan>& ops, std::uint16_t flags, ring::Gate gate, std::uint64_t stream);
    void enqueue(const LaunchPlan& plan, const Call& call);
    void enqueue_kernels(LaunchIndex launch, const LaunchPlan& plan);
    std::uint32_t record_event(std::uint32_t stream);
    void capture(const LaunchPlan& plan, std::uint32_t graph);
    void replay(const Call& call);
    void forget_graphs(std::uint32_t comm);
    void forget(const Graph& graph);
    std::atomic<std::uint64_t>& word_of(ring::GateWord* words, std::uint64_t seq) const;
    void signal(ring::GateWord* words, std::uint64_t seq) const;
    void tell_comms();
    void count_lost(std::uint32_t comm);
    void reach(LaunchIndex launch);
    void begin_launch(LaunchIndex launch);
    void finish(LaunchIndex launch);
    void run_streams();
    bool pass_head(std::uint32_t stream);
    bool is_let_go(const LaunchRun& launch) const;
    bool looks_at_comm_go(const LaunchPlan& plan);
    void run_kernel(std::uint32_t kernel);
    void finish_kernel(std::uint32_t kernel);
    void end();
    std::uint32_t entry_of(std::uint32_t comm) const;
    std::deque<std::uint32_t>& family_of(std::uint32_t comm);

    World& world_;
    const Scenario& s_;
    const RankPlan& plan_;
    std::uint32_t index_;
    Random random_;
    ring::View view_;
    RankId id_ = kNone;
    bool alive_ = false, ended_ = false, died_ = false, attached_ = false, host_pending_ = false;
    std::size_t at_ = 0;  // call
    Step step_ = Step::begin;
    std::uint64_t wait_number_ = 0;
    LaunchIndex connecting_ = kNone;                   // asked for, and held
    LaunchIndex forgotten_ = kNone;                    // the connections that a wrong shim did not ask for
    LaunchIndex first_ = kNone, last_ = kNone;         // launches of the call
    std::size_t enqueued_ = 0;                         // of them
    TimeNs room_until_ns_ = 0;                         // the host waits for room in the ring; 0: it does not
    std::uint64_t full_beat_ = 0;                      // the heartbeat at which it has waited in vain
    std::deque<std::vector<Part>> parts_;              // of connections, where a wrong shim asks for some only
    std::map<std::uint32_t, std::uint32_t> last_stream_;  // by communicator: the stream of its last lone call
    struct LastLaunch {
        std::uint32_t stream = kNone;  // kNone: several
        LaunchIndex apart = kNone;  // the last that does not look at the communicator's go word, and is not known to be done
    };
    std::map<std::uint32_t, LastLaunch> last_launch_;  // by communicator
    std::vector<StreamState> streams_;
    std::vector<bool> events_;
    std::uint32_t own_events_ = 0;  // used for groups on several streams
    std::vector<LaunchIndex> by_seq_;
    std::map<std::uint64_t, LaunchIndex> replays_;  // by seq (is_replay)
    std::map<std::uint32_t, Graph> graphs_;
    std::map<std::uint32_t, std::uint32_t> last_end_;  // by communicator that has captured: event behind its last launch
    std::vector<LaunchIndex> gated_;  // gates that hold
    std::deque<KernelRun> kernels_;
    std::map<std::uint32_t, std::deque<std::uint32_t>> families_;  // their kernels
    std::vector<TableEntry> table_;
    std::uint64_t known_dead_ = 0;  // the manager's life whose heartbeat is known to stand still
    bool running_streams_ = false, again_ = false;
};

}  // namespace opus::sim
