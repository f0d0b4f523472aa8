// Members that come late, that never come, and that are inside NCCL's creation without a place yet.
#include "test/controller/core/job_words.h"

namespace opus::controller::test {
namespace {

constexpr TimeNs kSecond = 1'000 * kMs;
constexpr CommId kRoot{1, 7}, kChild{2, 7};

// Managers that beat once a second, and say by hand what their ranks do.
class Hands {
public:
    explicit Hands(std::uint32_t nodes, CoreOptions options = {}) : fabric(make_fabric({.nodes = nodes})), core(fabric, options) {
        for (NodeIndex n = 0; n < nodes; ++n) connect(n);
    }

    void connect(NodeIndex n) {
        feed(NodeSession{n, ++sessions[n]});
        wire::Snapshot s;
        s.ranks.push_back({0, 1, 0, 30'000, Policy::proceed, "job"});
        s.entering = entering[n];
        s.comms = members[n];
        say(n, s);
        away.erase(n);
    }
    void lose(NodeIndex n) {
        away.insert(n);
        feed(NodeLost{n, sessions[n]});
    }
    void advance(TimeNs by) {
        for (const TimeNs until = now + by; now < until;) {
            now = std::min(until, now + kSecond / 2);
            for (NodeIndex n = 0; n < fabric.nodes.size(); ++n)
                if (away.count(n) == 0) say(n, wire::Heartbeat{1});
            feed(Tick{});
        }
    }
    void say(NodeIndex n, wire::Message message) { feed(NodeMessage{n, sessions[n], std::move(message)}); }
    void member(NodeIndex n, CommId comm, std::uint32_t rank, std::uint32_t size, CreationState creation, CommId also = {}) {
        wire::CommMember m{comm, {}, rank, size, 0, 0, Mode::enforce, 1, {}, Verdict::unknown, creation};
        m.also = also;
        members[n].push_back(m);
        say(n, wire::Register{{}, {m}});
    }
    void rename(NodeIndex n, CommId from, CommId to) {
        for (wire::CommMember& m : members[n])
            if (m.comm == from) m.comm = to;
        say(n, wire::Register{{}, members[n]});
    }
    void enter(NodeIndex n, CommId comm) {
        entering[n].push_back({comm, 0});
        say(n, wire::Register{{}, {}, {{comm, 0}}});
    }

    // Of a communicator, as each node was last told; unknown: it was not.
    Verdict told(CommId comm, NodeIndex n = 0) const {
        const auto it = verdicts.find({comm, n});
        return it == verdicts.end() ? Verdict::unknown : it->second.verdict;
    }
    const wire::CommVerdict& said(CommId comm, NodeIndex n = 0) const { return verdicts.at({comm, n}); }

    const Fabric fabric;
    Core core;
    TimeNs now = 0;
    std::map<NodeIndex, std::uint64_t> sessions;
    std::map<NodeIndex, std::vector<wire::CommMember>> members;
    std::map<NodeIndex, std::vector<wire::CommEntrant>> entering;
    std::set<NodeIndex> away;
    std::map<std::pair<CommId, NodeIndex>, wire::CommVerdict> verdicts;

private:
    void feed(const Event& event) {
        Actions out;
        core.on(event, now, out);
        for (const Action& action : out)
            if (const auto* send = std::get_if<SendTo>(&action))
                if (const auto* message = std::get_if<wire::Verdicts>(&send->message))
                    for (const wire::CommVerdict& v : message->comms) verdicts[{v.comm, send->node}] = v;
        CHECK(core.check() == "");
    }
};

constexpr auto kEntered = CreationState::entered, kReturned = CreationState::returned;

}  // namespace

TEST_CASE("a member that comes minutes after the first is held with the others") {
    Hands h(2);
    h.member(0, kRoot, 0, 2, kEntered);
    h.advance(600 * kSecond);
    CHECK(h.told(kRoot) == Verdict::unknown);
    h.member(1, kRoot, 1, 2, kEntered);
    CHECK(h.told(kRoot, 0) == Verdict::enforced);
    CHECK(h.told(kRoot, 1) == Verdict::enforced);
}

TEST_CASE("who has not registered a while after NCCL's creation has returned on one member has no shim, and all are told who") {
    Hands h(3);
    h.member(0, kRoot, 0, 3, kEntered);
    h.member(2, kRoot, 2, 3, kEntered);
    h.advance(60 * kSecond);
    h.member(2, kRoot, 2, 3, kReturned);
    h.advance(2 * kSecond);
    CHECK(h.told(kRoot) == Verdict::unknown);
    h.advance(2 * kSecond);
    for (const NodeIndex n : {0u, 2u}) {
        REQUIRE(h.told(kRoot, n) == Verdict::passes);
        CHECK(h.said(kRoot, n).reason == Reason::missing);
        CHECK(h.said(kRoot, n).reason_rank == 1);
        CHECK(h.said(kRoot, n).why.find("rank 1 of 3") == 0);
    }
    const auto groups = h.core.groups();
    REQUIRE(groups.size() == 1);
    CHECK(groups[0].why == h.said(kRoot, 0).why);
    h.member(1, kRoot, 1, 3, kReturned);  // what was launched since, nobody has seen
    CHECK(h.told(kRoot, 1) == Verdict::passes);
    CHECK(h.told(kRoot, 0) == Verdict::passes);
}

TEST_CASE("nobody is taken to have no shim while a manager is away that may know him") {
    Hands h(3);
    h.lose(1);
    h.member(0, kRoot, 0, 2, kReturned);
    SUBCASE("it comes back") {
        h.advance(10 * kSecond);
        CHECK(h.told(kRoot) == Verdict::unknown);
        h.connect(1);
        h.member(1, kRoot, 1, 2, kReturned);
        CHECK(h.told(kRoot) == Verdict::enforced);
    }
    SUBCASE("it is given up") {
        h.advance(40 * kSecond);
        CHECK(h.told(kRoot) == Verdict::passes);
    }
}

TEST_CASE("nor while a manager with a session has not been heard of since") {
    CoreOptions options;
    Hands h(2, options);
    h.away.insert(1);  // it is silent
    h.member(0, kRoot, 0, 2, kReturned);
    h.advance(4 * kSecond);
    CHECK(h.told(kRoot) == Verdict::unknown);
    h.away.erase(1);
    h.member(1, kRoot, 1, 2, kReturned);
    CHECK(h.told(kRoot) == Verdict::enforced);
}

TEST_CASE("a child's member that is still inside NCCL is waited for, however long, and held") {
    Hands h(3);
    for (NodeIndex n = 0; n < 3; ++n) h.enter(n, kChild);
    h.member(2, kChild, 1, 3, kReturned);
    h.advance(120 * kSecond);
    CHECK(h.told(kChild, 2) == Verdict::unknown);
    h.member(0, kChild, 2, 3, kReturned);
    h.advance(120 * kSecond);
    h.member(1, kChild, 0, 3, kReturned);
    for (NodeIndex n = 0; n < 3; ++n) CHECK(h.told(kChild, n) == Verdict::enforced);
}

TEST_CASE("a child with a member that has no shim passes, though others are still inside") {
    Hands h(3);
    h.enter(0, kChild);
    h.enter(1, kChild);
    h.member(0, kChild, 0, 3, kReturned);
    h.advance(4 * kSecond);
    REQUIRE(h.told(kChild, 0) == Verdict::passes);
    CHECK(h.said(kChild, 0).reason == Reason::missing);
    h.member(1, kChild, 2, 3, kReturned);
    CHECK(h.told(kChild, 1) == Verdict::passes);
}

TEST_CASE("a communicator that a member has destroyed before others have registered is held for them") {
    Hands h(3);
    for (NodeIndex n = 0; n < 3; ++n) h.enter(n, kChild);
    h.member(2, kChild, 2, 3, kReturned);
    h.say(2, wire::Retire{{}, {{kChild, 0}}, {}});
    SUBCASE("its process goes on") {}
    SUBCASE("its process ends") { h.say(2, wire::Retire{{0}, {}, {}}); }
    CHECK(h.told(kChild, 0) == Verdict::unknown);
    h.member(0, kChild, 0, 3, kReturned);
    h.member(1, kChild, 1, 3, kReturned);
    CHECK(h.told(kChild, 0) == Verdict::enforced);
    CHECK(h.told(kChild, 1) == Verdict::enforced);
}

TEST_CASE("who was the last to leave a communicator of which others never came leaves none behind, held or not") {
    Hands h(2);
    h.member(0, kRoot, 0, 2, kReturned);
    REQUIRE(h.core.groups().size() == 1);
    h.say(0, wire::Retire{{}, {{kRoot, 0}}, {{kRoot, 0}}});  // its launches went unrecorded, and it has destroyed it
    h.say(0, wire::Retire{{0}, {}, {}});
    h.advance(10 * kSecond);
    CHECK(h.core.groups().empty());
}

TEST_CASE(
    "what its manager knows to be on one node waits for nobody, though others have left it before this controller "
    "came") {
    Hands h(2);
    h.lose(0);
    h.members[0].push_back({kRoot, {}, 1, 2, 0, 0, Mode::enforce, 1, {}, Verdict::intra, kReturned});
    h.connect(0);
    CHECK(h.told(kRoot) == Verdict::intra);
    h.advance(10 * kSecond);
    CHECK(h.told(kRoot) == Verdict::intra);
}

TEST_CASE("nobody waits for a member whose creation failed, or whose process ended in it") {
    Hands h(2);
    h.enter(0, kChild);
    h.enter(1, kChild);
    h.member(0, kChild, 0, 2, kReturned);
    SUBCASE("it failed") {
        h.say(1, wire::Retire{{}, {}, {}, {{kChild, 0}}});
        REQUIRE(h.told(kChild) == Verdict::passes);
        CHECK(h.said(kChild).reason == Reason::left);
    }
    SUBCASE("its process ended") {
        h.say(1, wire::Retire{{0}, {}, {}});
        REQUIRE(h.told(kChild) == Verdict::passes);
        CHECK(h.said(kChild).reason == Reason::died);
    }
    SUBCASE("it failed while its manager was away") {
        h.lose(1);
        h.entering[1].clear();
        h.connect(1);
        CHECK(h.told(kChild) == Verdict::passes);
    }
    SUBCASE("its node is given up") {
        h.lose(1);
        h.advance(40 * kSecond);
        CHECK(h.told(kChild) == Verdict::passes);
    }
    SUBCASE("its manager was away, and it has its place meanwhile") {
        h.lose(1);
        h.entering[1].clear();
        h.members[1].push_back({kChild, {}, 1, 2, 0, 0, Mode::enforce, 1, {}, Verdict::unknown, kReturned});
        h.connect(1);
        CHECK(h.told(kChild) == Verdict::enforced);
    }
}

TEST_CASE("a new controller that finds half of a communicator waits for the managers that may know the rest") {
    CoreOptions options;
    options.first = false;
    Hands h(2, options);
    h.lose(1);
    h.member(0, kRoot, 0, 2, kReturned);
    h.advance(20 * kSecond);
    CHECK(h.told(kRoot) == Verdict::unknown);
    h.connect(1);
    h.member(1, kRoot, 1, 2, kReturned);
    CHECK(h.told(kRoot) == Verdict::enforced);
}

TEST_CASE("a communicator of older shims, which do not say when NCCL has returned, is judged after the grace time") {
    Hands h(2);
    h.member(0, kRoot, 0, 2, CreationState::unreported);
    h.advance(29 * kSecond);
    CHECK(h.told(kRoot) == Verdict::unknown);
    h.advance(10 * kSecond);
    CHECK(h.told(kRoot) == Verdict::passes);
}

TEST_CASE("a verdict that is not to a user's liking says why, and names the member") {
    Hands h(2);
    wire::CommMember observes{kRoot, {}, 1, 2, 0, 0, Mode::observe, 1, {}, Verdict::unknown, kEntered};
    h.member(0, kRoot, 0, 2, kEntered);
    h.say(1, wire::Register{{}, {observes}});
    CHECK(h.said(kRoot).reason == Reason::mode);
    CHECK(h.said(kRoot).reason_rank == 1);
    CHECK(h.said(kRoot).why.find("OPUS_MODE") != std::string::npos);
    h.member(0, kChild, 0, 2, kEntered);
    h.member(1, kChild, 1, 2, kEntered);
    CHECK(h.said(kChild).reason == Reason::none);
    h.say(1, wire::Retire{{}, {}, {{kChild, 0}}});
    CHECK(h.said(kChild).verdict == Verdict::degraded);
    CHECK(h.said(kChild).reason == Reason::unrecorded);
}

TEST_CASE("two processes of a communicator that claim one GPU are refused, by their pids and the GPU") {
    Hands h(2);
    const auto come = [&](CommId comm, NodeIndex n, std::uint32_t rank, RankId process, std::uint32_t gpu) {
        const wire::CommMember m{comm, {}, rank, 3, process, gpu, Mode::enforce, 1, {}, Verdict::unknown, kEntered};
        h.say(n, wire::Register{{{process, 100 + process, gpu, 0, Policy::proceed, "job"}}, {m}});
    };
    come(kRoot, 0, 0, 0, 0);
    come(kRoot, 0, 1, 1, 0);
    come(kRoot, 1, 2, 0, 0);
    CHECK(h.said(kRoot).verdict == Verdict::passes);
    CHECK(h.said(kRoot).reason == Reason::claimed);
    CHECK(h.said(kRoot).reason_rank == 1);
    CHECK(h.said(kRoot).why.starts_with("pids 100 and 101 (ranks 0 and 1 of 3) both claim n0.g0: "));
    // One process is no other's rival.
    come(kChild, 0, 0, 0, 0);
    come(kChild, 0, 1, 0, 0);
    come(kChild, 1, 2, 0, 0);
    CHECK(h.told(kChild) == Verdict::enforced);
}

// Of three: node 0 has the unique id as well, node 1 knows its parent alone, node 2 joins by the unique id.
TEST_CASE("members of a grown communicator that know it by two ids are joined by the one that knows both, whoever comes first") {
    constexpr CommId kGrown{1, 9}, kGrowing{2, 9};
    for (const std::vector<NodeIndex>& order : std::vector<std::vector<NodeIndex>>{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
        Hands w(3);
        for (const NodeIndex n : order) w.member(n, n == 2 ? kGrowing : kGrown, n, 3, kEntered, n == 0 ? kGrowing : CommId{});
        CHECK(w.said(kGrowing, 2).known_as == kGrown);
        CHECK(w.told(kGrowing, 2) == Verdict::unknown);
        CHECK(w.told(kGrown, 0) == Verdict::unknown);
        w.rename(2, kGrowing, kGrown);
        for (NodeIndex n = 0; n < 3; ++n) CHECK(w.told(kGrown, n) == Verdict::enforced);
        // The same of a controller that has heard of nothing but snapshots; a manager that is back is told again.
        w.lose(2);
        w.members[2].front().comm = kGrowing;
        w.verdicts.clear();
        w.connect(2);
        CHECK(w.said(kGrowing, 2).known_as == kGrown);
    }
}

TEST_CASE("a communicator over nodes that NCCL connects while it is made is not held, and who did is said; on one node it is as any") {
    for (const bool one_node : {false, true}) {
        Hands w(2);
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            wire::CommMember m{kRoot, {}, rank, 2, 0, one_node ? rank : 0, Mode::enforce, 1, {}, Verdict::unknown, kReturned};
            m.at_once = rank == 1;
            w.say(one_node ? 0 : rank, wire::Register{{}, {m}});
        }
        CHECK(w.told(kRoot) == (one_node ? Verdict::intra : Verdict::passes));
        if (one_node) continue;
        CHECK(w.said(kRoot).reason == Reason::connects);
        CHECK(w.said(kRoot).reason_rank == 1);
        CHECK(w.said(kRoot).why.find("connects it while it is made") != std::string::npos);
    }
}

TEST_CASE("a grown communicator whose members nobody joins passes after a while, and says who is missing") {
    constexpr CommId kGrown{1, 9}, kGrowing{2, 9};
    Hands w(3);
    w.member(0, kGrown, 0, 3, kReturned);
    w.member(1, kGrown, 1, 3, kReturned);
    w.member(2, kGrowing, 2, 3, kReturned);
    w.advance(60 * kSecond);
    CHECK(w.told(kGrown, 0) == Verdict::passes);
    CHECK(w.told(kGrowing, 2) == Verdict::passes);
    CHECK(w.said(kGrown, 0).reason == Reason::missing);
}

}  // namespace opus::controller::test
