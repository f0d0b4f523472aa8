// As much of a manager as the shim can see: it makes segments, answers attach, beats, and says verdicts
// and go as it is told. The test reads what the rank processes recorded.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "opus/attach.h"
#include "opus/launch_ring.h"

namespace opus::test {

struct Behaviour {
    bool answer = true;  // attach requests
    bool beat = true;
    Verdict verdict = Verdict::enforced;  // unknown: never judges
    Reason reason = Reason::none;         // why it is not enforced
    std::uint32_t reason_rank = kNone;
    std::uint32_t passing = kNone;        // the entry that passes whatever the others do
    std::uint32_t passing_from = kNone;   // so do all from here on
    Verdict passing_verdict = Verdict::passes;
    bool go = true;
    std::uint32_t held_comm = kNone;  // entry whose operation number `held_n` is not let go
    std::uint64_t held_n = 0;
    bool abort = false;  // go with the abort bit
    bool retire = true;
    bool open_gates = false;  // all go words are ahead of all launches
    bool asleep = false;      // says it sleeps, so that the doorbell rings
    CommId known_as{};         // of every communicator
    std::uint32_t slots = 4096;
    std::uint32_t minor = ring::kVersionMinor;  // that it says it serves
    int go_delay_us = 0;
};

struct Captured {
    std::uint64_t seq;
    ring::Gate gate;
    std::uint16_t flags;
    std::uint64_t stream;
    std::vector<ring::OpEntry> ops;
};

struct RankSeen {
    attach::AttachRequest request{};
    ring::View view;
    int doorbell = -1;
    std::uint64_t tail = 0, retired = 0;
    std::vector<Captured> launches;  // in ring order
    std::vector<CommId> registered;  // in table order at the end of life of each
    std::vector<CommId> entering;    // seen inside NCCL's creation, without a place
};

class MiniManager {
public:
    explicit MiniManager(Behaviour behaviour = {});
    ~MiniManager();
    MiniManager(const MiniManager&) = delete;

    const std::string& socket() const { return socket_path_; }
    Behaviour behaviour;  // may be changed between programs; in the midst of one by let_go()
    void let_go();
    void await_launch();
    void await_held();     // until what is held waits
    void await_entering();  // of the first rank
    bool await_retired(std::uint64_t upto);  // of the first rank; false: in vain
    // After a program ended: everything that it recorded. The n-th to attach.
    RankSeen& rank(std::size_t n);
    std::size_t ranks();
    // Copies what is in the rings now.
    void look();

private:
    void serve();
    void accept_one();
    void look_at(RankSeen& rank);
    bool holds(const Captured& launch) const;

    std::string directory_, socket_path_;
    int listener_ = -1;
    std::mutex mutex_;
    std::list<RankSeen> ranks_;
    std::vector<int> open_;
    std::atomic<bool> stop_{false}, held_{false};
    std::thread thread_;
};

}  // namespace opus::test
