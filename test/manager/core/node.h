// A node in a test: feeds the manager's core by hand, keeps what it says.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "manager/core/core.h"

namespace opus::manager::test {

inline constexpr TimeNs kMs = 1'000'000, kSecond = 1'000'000'000;
inline constexpr CommId kCommA{1, 1}, kCommB{2, 2}, kCommC{3, 3};

inline ring::OpEntry coll(std::uint16_t comm, std::uint64_t n, std::uint32_t flags = 0) {
    return {static_cast<std::uint8_t>(OpKind::all_reduce), 0, comm, 0, n, 1, flags, 4096};
}
inline ring::OpEntry send(std::uint16_t comm, std::uint32_t peer, std::uint64_t n, std::uint32_t count = 1) {
    return {static_cast<std::uint8_t>(OpKind::send), 0, comm, peer, n, count, 0, 4096};
}
inline ring::OpEntry recv(std::uint16_t comm, std::uint32_t peer, std::uint64_t n, std::uint32_t count = 1) {
    return {static_cast<std::uint8_t>(OpKind::recv), 0, comm, peer, n, count, 0, 4096};
}
inline Key coll_key(CommId comm, std::uint64_t n) { return {comm, KeyKind::coll, 0, 0, n}; }
inline Key p2p_key(CommId comm, std::uint32_t src, std::uint32_t dst, std::uint64_t n) {
    return {comm, KeyKind::p2p, src, dst, n};
}

class Node {
public:
    explicit Node(CoreOptions options = {}) : core("n0", options) {}

    Core core;
    TimeNs now = 10 * kSecond;
    Actions actions;                                      // since the last take()
    std::vector<std::vector<wire::Message>> frames;       // one for each look that said anything
    std::map<std::pair<RankId, std::uint64_t>, bool> go;  // launches let go, and whether to fail
    std::map<std::pair<RankId, std::uint32_t>, Verdict> verdicts;
    std::map<RankId, std::uint64_t> retired;
    TimeNs wake_at = 0;

    void on(Event event) {
        core.on(event, now, now + 1'000 * kSecond, actions);
        CHECK(core.check() == "");
    }
    // The end of a look.
    void flush() {
        for (bool more = true; more;) {
            more = core.flush(now, actions);
            hear();
        }
    }
    void hear() {
        std::vector<wire::Message> frame;
        for (; heard_ < actions.size(); ++heard_) {
            const Action& action = actions[heard_];
            if (auto* a = std::get_if<Send>(&action)) frame.push_back(a->message);
            if (auto* a = std::get_if<SetGo>(&action)) go[{a->rank, a->seq}] = a->abort;
            if (auto* a = std::get_if<SetVerdict>(&action)) verdicts[{a->rank, a->index}] = a->verdict;
            if (auto* a = std::get_if<Retired>(&action); a != nullptr && a->upto != 0) retired[a->rank] = a->upto;
            if (auto* a = std::get_if<WakeAt>(&action)) wake_at = a->at_ns;
        }
        if (!frame.empty()) frames.push_back(std::move(frame));
    }
    void look(Event event) {
        on(std::move(event));
        flush();
    }
    void advance(TimeNs by) {
        now += by;
        look(Tick{});
    }
    template <class A>
    std::vector<A> taken() {
        std::vector<A> found;
        for (const Action& action : actions)
            if (const auto* a = std::get_if<A>(&action)) found.push_back(*a);
        return found;
    }
    void take() {
        actions.clear();
        heard_ = 0;
        frames.clear();
    }
    // All messages of a kind since take().
    template <class M>
    std::vector<M> said() const {
        std::vector<M> found;
        for (const auto& frame : frames)
            for (const wire::Message& message : frame)
                if (const auto* m = std::get_if<M>(&message)) found.push_back(*m);
        return found;
    }
    bool went(RankId rank, std::uint64_t seq) const { return go.contains({rank, seq}); }

    void connect(std::uint64_t epoch_now = 7) { welcome({{0, 2, "", "r0"}}, epoch_now); }
    void welcome(std::vector<wire::GpuAssignment> gpus, std::uint64_t epoch_now = 7) {
        epoch = epoch_now;
        look(ControllerUp{++session});
        hear(wire::Welcome{session, epoch, 0, std::move(gpus)});
    }
    void hear(wire::Message message) { look(FromController{epoch, session, std::move(message)}); }

    void rank(RankId id, Mode mode = Mode::enforce, std::uint32_t hold_ms = 1'000, Policy policy = Policy::proceed) {
        on(RankUp{{id, 100 + id, kNone, hold_ms, policy, "job"}, mode, false});
    }
    void comm(RankId id, std::uint32_t index, CommId comm_id, std::uint32_t rank_in_comm, std::uint32_t size,
              std::uint32_t family = 0) {
        wire::CommMember member{comm_id, {}, rank_in_comm, size, id, id, Mode::enforce, 1, {}};
        on(CommUp{id, index, family != 0 ? family : index + 1, member, Verdict::unknown});
    }
    void enforce(CommId comm_id) { hear(wire::Verdicts{{{comm_id, Verdict::enforced}}}); }
    void record(RankId id, std::uint64_t seq, std::vector<ring::OpEntry> ops, ring::Gate gate = ring::Gate::stream,
                std::uint16_t flags = 0) {
        const auto slots = ring::slots_for(static_cast<std::uint32_t>(ops.size()));
        on(Recorded{id, seq, flags, gate, 1, std::move(ops), slots, false});
    }
    void ready(RankId id, std::uint64_t seq) { on(Ready{id, seq}); }
    void done(RankId id, std::uint64_t seq) { on(DoneSeen{id, seq}); }
    void launch(RankId id, std::uint64_t seq, std::vector<ring::OpEntry> ops) {
        record(id, seq, std::move(ops));
        ready(id, seq);
    }
    void grant(std::uint64_t id, std::vector<wire::LocalLaunch> firm, std::vector<wire::KeyRange> soft = {}) {
        hear(wire::Grant{id, std::move(firm), std::move(soft), {}});
    }

    // Ranks 0 .. n-1, each with communicator A (entry 0) of twice as many ranks, enforced.
    void serve(std::uint32_t ranks) {
        connect();
        for (RankId r = 0; r < ranks; ++r) {
            rank(r);
            comm(r, 0, kCommA, r, 2 * ranks);
        }
        flush();
        enforce(kCommA);
        take();
    }

    std::uint64_t session = 0, epoch = 7;

private:
    std::size_t heard_ = 0;  // of actions
};

}  // namespace opus::manager::test
