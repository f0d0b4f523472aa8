// Programs under LD_PRELOAD=libopus_shim.so, with a fake NCCL, a fake CUDA driver and a mini manager. The
// shim is the shipped one.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "test/shim/mini_manager.h"

using namespace opus;
using test::Behaviour;
using test::Captured;
using test::MiniManager;
using test::RankSeen;

namespace {

using Environment = std::map<std::string, std::string>;

const Environment kWithCuda = {{"FAKE_CUDA", OPUS_FAKE_CUDA}};

Environment with(Environment a, const Environment& b) {
    a.insert(b.begin(), b.end());
    return a;
}

// An nccl.conf that NCCL is pointed to.
class NcclConf {
public:
    explicit NcclConf(const std::string& text) {
        const int fd = mkstemp(path_.data());
        REQUIRE(fd >= 0);
        CHECK(write(fd, text.data(), text.size()) == ssize_t(text.size()));
        close(fd);
    }
    ~NcclConf() { unlink(path_.c_str()); }
    Environment environment() const { return {{"NCCL_CONF_FILE", path_}}; }

private:
    std::string path_ = "/tmp/opus-nccl-conf-XXXXXX";
};

std::string read_all(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, std::size_t(n));
    close(fd);
    return text;
}

// A program under the shim; its output is read when it ends.
class Program {
public:
    Program(std::vector<std::string> command, const Environment& environment) {
        int out[2], err[2];
        REQUIRE(pipe2(out, O_CLOEXEC) == 0);
        REQUIRE(pipe2(err, O_CLOEXEC) == 0);
        std::vector<char*> argv;
        for (std::string& word : command) argv.push_back(word.data());
        argv.push_back(nullptr);
        pid_ = fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) {
            dup2(out[1], 1);
            dup2(err[1], 2);
            for (const char* name :
                 {"XDG_RUNTIME_DIR", "OPUS_JOB", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID",
                  "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID", "I_MPI_HYDRA_UUID", "MASTER_ADDR",
                  "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS"})
                unsetenv(name);
            for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
            setenv("LD_PRELOAD", OPUS_SHIM, 1);
            execv(argv[0], argv.data());
            _exit(255);
        }
        close(out[1]);
        close(err[1]);
        out_ = out[0];
        err_ = err[0];
    }

    bool running() {
        if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
        return !ended_;
    }

    int finish() {
        if (out_ >= 0) {
            output = read_all(out_);
            errors = read_all(err_);
            out_ = -1;
        }
        if (!ended_) waitpid(pid_, &status_, 0);
        ended_ = true;
        if (!errors.empty() && status_ != 0) MESSAGE(errors);
        return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
    }

    std::string output, errors;

private:
    pid_t pid_ = -1;
    int out_ = -1, err_ = -1, status_ = 0;
    bool ended_ = false;
};

Environment at(const MiniManager& manager) { return {{"OPUS_SOCKET", manager.socket()}, {"OPUS_JOB", "shim-test"}}; }

Program scenario(const std::string& name, const Environment& environment, int argument = 0) {
    return Program({OPUS_SHIM_PROGRAM, name, std::to_string(argument)}, environment);
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

ring::OpEntry op_of(const Captured& launch, std::size_t i) {
    REQUIRE(i < launch.ops.size());
    return launch.ops[i];
}

void check_op(const ring::OpEntry& op, OpKind kind, std::uint64_t n, std::uint32_t count, bool first) {
    CHECK(op.kind == std::uint8_t(kind));
    CHECK(op.n == n);
    CHECK(op.count == count);
    CHECK((op.flags & ring::kOpFirstUse) == (first ? 1u : 0u));
}

}  // namespace

TEST_CASE("all members derive the same identity, however a communicator is made") {
    MiniManager manager;
    for (int rank = 0; rank < 3; ++rank) CHECK(scenario("identity", at(manager), rank).finish() == 0);
    const auto& r0 = manager.rank(0).registered;
    const auto& r1 = manager.rank(1).registered;
    auto r2 = manager.rank(2).registered;
    REQUIRE(r0.size() == 9);
    CHECK(std::set<CommId>(r0.begin(), r0.end()).size() == 9);  // and no two are the same
    CHECK(r0 == r1);
    REQUIRE(r2.size() == 8);  // without a color in the first split
    r2.insert(r2.begin() + 4, r0[4]);
    CHECK(r0 == r2);
}

TEST_CASE("a table entry names rank, size, parent and family") {
    MiniManager manager;
    CHECK(scenario("identity", with(at(manager), {{"NCCL_COMM_SPLIT_SHARE_RESOURCES", "1"}}), 1).finish() == 0);
    const ring::View& v = manager.rank(0).view;
    CHECK(v.comms[0].rank == 1);
    CHECK(v.comms[0].size == 4);
    CHECK(v.comms[0].parent == CommId{});
    CHECK(v.comms[0].mode == std::uint32_t(Mode::enforce));
    CHECK(v.comms[4].parent == v.comms[0].id);
    CHECK(v.comms[4].size == 3);
    CHECK(v.comms[4].family == v.comms[0].family);
    CHECK(v.comms[6].family != v.comms[0].family);
    CHECK(v.comms[1].family != v.comms[0].family);
    CHECK(std::string(v.header->job) == "shim-test");
}

TEST_CASE("nccl.conf may say that children share their parent's resources") {
    const NcclConf conf("NCCL_COMM_SPLIT_SHARE_RESOURCES=1\n");
    MiniManager manager;
    CHECK(scenario("identity", with(at(manager), conf.environment()), 1).finish() == 0);
    const ring::View& v = manager.rank(0).view;
    CHECK(v.comms[4].family == v.comms[0].family);
}

TEST_CASE("the job's name is the one that its launcher gives all ranks alike") {
    char host_name[48] = "";
    REQUIRE(gethostname(host_name, sizeof host_name - 1) == 0);
    const std::string host = host_name;
    const std::pair<Environment, std::string> cases[] = {
        {{{"OPUS_JOB", "mine"}, {"SLURM_JOB_ID", "77"}}, "mine"},
        {{{"SLURM_JOB_ID", "77"}, {"TORCHELASTIC_RUN_ID", "run-1"}}, "77"},
        {{{"TORCHELASTIC_RUN_ID", "run-1"}, {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}}, "run-1"},
        {{{"TORCHELASTIC_RUN_ID", "none"}, {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}}, "n0:29500"},
        {{{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}}, host + ":29500"},
        {{{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29501"}}, host + ":29501"},
        {{{"PMIX_NAMESPACE", "prterun-n0-4242@1"}}, "prterun-n0-4242@1"},
        {{{"PMI_JOBID", "4f1"}, {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}}, "4f1"},
    };
    for (const auto& [environment, job] : cases) {
        MiniManager manager;
        CHECK(scenario("calls", with({{"OPUS_SOCKET", manager.socket()}}, environment), 1).finish() == 0);
        CHECK(std::string(manager.rank(0).view.header->job) == job);
    }
}

TEST_CASE(
    "where no launcher names the job, those that meet in their first communicator are one, in whatever sessions") {
    MiniManager manager;
    const Environment environment = {{"OPUS_SOCKET", manager.socket()}, {"MASTER_ADDR", "n0"}};
    for (const char* rank : {"0", "1"})
        CHECK(Program({"/usr/bin/env", "setsid", "--wait", OPUS_SHIM_PROGRAM, "identity", rank}, environment).finish() == 0);
    CHECK(scenario("creation_in_group", environment).finish() == 0);
    for (const int first : {0, 1}) CHECK(scenario("init_all", environment, first).finish() == 0);
    std::vector<std::string> jobs;
    for (std::size_t n = 0; n < 5; ++n) jobs.emplace_back(manager.rank(n).view.header->job);
    CHECK(jobs[0] == jobs[1]);
    CHECK(std::set<std::string>(jobs.begin(), jobs.end()).size() == 4);
    CHECK(jobs[0].starts_with("nccl-"));
}

TEST_CASE(
    "communicators that NCCL serialises are one family, whether its config, the environment or nccl.conf says so") {
    const auto families = [](const Environment& environment) {
        MiniManager manager;
        CHECK(scenario("ordered", with(at(manager), environment)).finish() == 0);
        std::vector<std::uint32_t> found;
        for (std::uint32_t i = 0; i < 6; ++i) found.push_back(manager.rank(0).view.comms[i].family);
        return found;
    };
    const auto by_config = families({});
    CHECK(by_config[0] == by_config[1]);
    CHECK(by_config[0] == by_config[3]);  // a child made without a config
    CHECK(by_config[0] != by_config[2]);
    CHECK(by_config[0] != by_config[4]);  // a child whose config says nothing
    CHECK(by_config[0] != by_config[5]);  // one whose config is too short to say it
    const auto never = families({{"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}});
    CHECK(std::set<std::uint32_t>(never.begin(), never.end()).size() == 6);
    const NcclConf conf("NCCL_LAUNCH_ORDER_IMPLICIT=1\n");
    const auto always = families(conf.environment());
    CHECK(std::set<std::uint32_t>(always.begin(), always.end()).size() == 1);
}

TEST_CASE("the GPU index comes from OPUS_GPU, else from CUDA_VISIBLE_DEVICES, else it is the ordinal") {
    const Environment cases[] = {{{"OPUS_GPU", "5"}, {"CUDA_VISIBLE_DEVICES", "2,3"}},
                                 {{"CUDA_VISIBLE_DEVICES", "2,3"}},
                                 {{"CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2"}},
                                 {}};
    const std::uint32_t expected[] = {5, 3, 1, 1};  // the fake driver says device 1
    for (int i = 0; i < 4; ++i) {
        MiniManager manager;
        CHECK(scenario("calls", with(with(at(manager), kWithCuda), cases[i]), 1).finish() == 0);
        CHECK(manager.rank(0).view.header->gpu == expected[i]);
    }
}

TEST_CASE("a communicator names its GPU as the driver does, unless OPUS_GPU does") {
    for (const bool given : {false, true}) {
        MiniManager manager;
        const Environment more = given ? Environment{{"OPUS_GPU", "5"}} : Environment{{"CUDA_VISIBLE_DEVICES", "GPU-1"}};
        CHECK(scenario("calls", with(with(at(manager), kWithCuda), more), 1).finish() == 0);
        const ring::CommEntry& entry = manager.rank(0).view.comms[0];
        CHECK(entry.pci == (given ? 0 : 0x010a01u));  // what the fake driver says of device 1
        CHECK(entry.uuid.known() == !given);
    }
}

TEST_CASE("all devices of ncclCommInitAll share the unique id that NCCL asked itself for") {
    MiniManager manager;
    CHECK(scenario("init_all", at(manager)).finish() == 0);
    const RankSeen& rank = manager.rank(0);
    REQUIRE(rank.registered.size() == 3);
    CHECK(std::set<CommId>(rank.registered.begin(), rank.registered.end()).size() == 1);
    CHECK(rank.launches.size() == 3);
}

TEST_CASE("communicators made inside a group are known at its end") {
    MiniManager manager;
    CHECK(scenario("creation_in_group", at(manager)).finish() == 0);
    const RankSeen& rank = manager.rank(0);
    REQUIRE(rank.registered.size() == 3);
    CHECK(rank.registered[0] == rank.registered[1]);
    CHECK(rank.view.comms[2].parent == rank.registered[0]);
    CHECK(rank.view.comms[2].rank == 1);
    CHECK(rank.launches.size() == 3);
}

TEST_CASE("a creation that fails takes its registration back") {
    MiniManager manager;
    CHECK(scenario("failed_creation", at(manager)).finish() == 0);
    CHECK(manager.rank(0).launches.size() == 1);
    CHECK(manager.rank(0).view.comms[0].state == std::uint32_t(ring::CommState::retired));
}

TEST_CASE("one launch is formed at the outermost group end, with like operations to one peer together") {
    MiniManager manager;
    CHECK(scenario("group", at(manager)).finish() == 0);
    const auto& launches = manager.rank(0).launches;
    REQUIRE(launches.size() == 2);
    REQUIRE(launches[0].ops.size() == 4);
    CHECK(launches[0].gate == ring::Gate::host);
    check_op(op_of(launches[0], 0), OpKind::send, 0, 3, true);
    check_op(op_of(launches[0], 1), OpKind::recv, 0, 2, true);
    check_op(op_of(launches[0], 2), OpKind::all_reduce, 0, 2, true);
    check_op(op_of(launches[0], 3), OpKind::all_gather, 2, 1, false);
    CHECK(launches[0].ops[0].bytes == 3 * 2 * 4);
    CHECK(launches[0].ops[0].peer == 1);
    check_op(op_of(launches[1], 0), OpKind::send, 3, 3, false);
    check_op(op_of(launches[1], 1), OpKind::recv, 2, 2, false);
    check_op(op_of(launches[1], 2), OpKind::all_reduce, 3, 2, false);
    check_op(op_of(launches[1], 3), OpKind::all_gather, 5, 1, false);
}

TEST_CASE("self-sends, one-rank communicators and empty operations never ask") {
    MiniManager manager;
    CHECK(scenario("never_asks", at(manager)).finish() == 0);
    CHECK(manager.rank(0).launches.empty());
    CHECK(manager.rank(0).registered.size() == 1);
}

TEST_CASE("a simulated group launches nothing and uses no key") {
    MiniManager manager;
    CHECK(scenario("simulate", at(manager)).finish() == 0);
    REQUIRE(manager.rank(0).launches.size() == 1);
    check_op(manager.rank(0).launches[0].ops[0], OpKind::all_reduce, 0, 1, true);
}

TEST_CASE("a group with a failing call is not held and uses no key") {
    MiniManager manager;
    CHECK(scenario("group_error", at(manager)).finish() == 0);
    REQUIRE(manager.rank(0).launches.size() == 1);
    CHECK(manager.rank(0).launches[0].ops[0].n == 0);
}

TEST_CASE("a held call that then fails is done, and its communicator is reported") {
    MiniManager manager;
    CHECK(scenario("lone_error", at(manager)).finish() == 0);
    RankSeen& rank = manager.rank(0);
    CHECK(rank.launches.size() == 1);
    CHECK(rank.retired == 1);
    CHECK(rank.view.comms[0].lost == 1);
}

TEST_CASE("a group of transfers with thousands of peers is one launch, of at most half the ring") {
    MiniManager manager;
    CHECK(scenario("wide_group", at(manager)).finish() == 0);
    const RankSeen& rank = manager.rank(0);
    REQUIRE(rank.launches.size() == 2);
    CHECK(rank.launches[0].ops.size() == 2999);
    check_op(rank.launches[1].ops[0], OpKind::send, 1, 1, false);
    CHECK(rank.view.comms[0].lost == 0);
    CHECK(rank.retired == rank.tail);
}

TEST_CASE("a group with more operations than a launch holds passes, is counted, and keeps its numbers") {
    Behaviour behaviour;
    behaviour.slots = 2048;
    MiniManager manager(behaviour);
    CHECK(scenario("wide_group", at(manager)).finish() == 0);
    RankSeen& rank = manager.rank(0);
    REQUIRE(rank.launches.size() == 1);
    check_op(rank.launches[0].ops[0], OpKind::send, 1, 1, false);
    CHECK(rank.view.comms[0].lost == 1);
    CHECK(rank.view.header->lost == 1);
}

TEST_CASE("the host gate holds the real call until go") {
    Behaviour behaviour;
    behaviour.go = false;
    MiniManager manager(behaviour);
    Program program = scenario("calls", at(manager), 1);
    manager.await_launch();
    usleep(50'000);
    CHECK(program.running());
    manager.let_go();
    CHECK(program.finish() == 0);
    CHECK(manager.rank(0).retired == 1);
    CHECK(manager.rank(0).view.header->gated == 1);
}

TEST_CASE("the stream gate stands before the kernel and done behind it; connections are held on the host first") {
    MiniManager manager;
    Program program = scenario("order", with(at(manager), kWithCuda));
    CHECK(program.finish() == 0);
    const std::vector<std::string> expected = {
        "gate stream=17 value=2 hold_ms=30000", "ncclAllReduce rank=0", "done stream=17 value=2",
        "gate stream=17 value=3 hold_ms=30000", "ncclAllReduce rank=0", "done stream=17 value=3",
        // Two user streams: NCCL launches on the one added last, 34, which waits for 33.
        "ncclAllReduce rank=0", "ncclAllReduce rank=0", "record stream=33", "wait stream=34",
        "gate stream=34 value=4 hold_ms=30000", "ncclGroupEnd result=0", "done stream=34 value=4"};
    CHECK(lines_of(program.output) == expected);
    const auto& launches = manager.rank(0).launches;
    REQUIRE(launches.size() == 4);
    CHECK((launches[0].flags & ring::kLaunchConn) != 0);
    CHECK(launches[0].gate == ring::Gate::host);
    check_op(launches[0].ops[0], OpKind::all_reduce, 0, 1, true);
    CHECK((launches[1].flags & ring::kLaunchConn) == 0);
    CHECK(launches[1].gate == ring::Gate::stream);
    CHECK(launches[1].stream == 17);
    check_op(launches[1].ops[0], OpKind::all_reduce, 0, 1, false);
    check_op(launches[3].ops[0], OpKind::all_reduce, 2, 2, false);
    CHECK(manager.rank(0).retired == 4);
}

TEST_CASE("with stream gates a group is one launch for each set of communicators that share streams") {
    MiniManager manager;
    Program program = scenario("merged_groups", with(at(manager), kWithCuda));
    CHECK(program.finish() == 0);
    const auto& launches = manager.rank(0).launches;
    REQUIRE(launches.size() == 8);  // three first uses with their launches, then two
    REQUIRE(launches[6].ops.size() == 1);
    CHECK(launches[6].stream == 33);
    REQUIRE(launches[7].ops.size() == 2);
    CHECK(launches[7].ops[0].comm == 1);
    CHECK(launches[7].ops[1].comm == 2);
    CHECK(launches[7].ops[1].count == 2);
    CHECK((launches[7].flags & ring::kLaunchHostDone) != 0);  // its kernels stand on 34 and on 35
    CHECK(manager.rank(0).retired == launches[7].seq + 2);
    const std::vector<std::string> expected = {"ncclAllReduce rank=0",
                                               "ncclAllReduce rank=0",
                                               "ncclAllReduce rank=0",
                                               "ncclAllReduce rank=0",
                                               "gate stream=33 value=7 hold_ms=30000",
                                               "record stream=35",
                                               "wait stream=34",
                                               "gate stream=34 value=8 hold_ms=30000",
                                               "record stream=34",
                                               "wait stream=35",
                                               "ncclGroupEnd result=0",
                                               "done stream=33 value=7",
                                               "host_function stream=34",
                                               "host_function stream=35"};
    CHECK(lines_of(program.output) == expected);
}

// Here by NCCL_LAUNCH_ORDER_IMPLICIT, which makes all communicators of a device share.
TEST_CASE("with stream gates communicators of a group that share resources are one launch, on whatever streams") {
    MiniManager manager;
    Program program =
        scenario("merged_groups", with(with(at(manager), kWithCuda), {{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}}));
    CHECK(program.finish() == 0);
    const auto& launches = manager.rank(0).launches;
    REQUIRE(launches.size() == 7);  // three first uses with their launches, then one
    REQUIRE(launches[6].ops.size() == 3);
    for (std::uint16_t comm = 0; comm < 3; ++comm) CHECK(launches[6].ops[comm].comm == comm);
}

TEST_CASE("a launch whose gate stands before operations that are not recorded says so") {
    for (const Verdict verdict : {Verdict::passes, Verdict::intra}) {
        Behaviour behaviour;
        behaviour.passing = 2;
        behaviour.passing_verdict = verdict;
        MiniManager manager(behaviour);
        Program program = scenario("merged_groups", with(at(manager), kWithCuda));
        CHECK(program.finish() == 0);
        const auto& launches = manager.rank(0).launches;
        REQUIRE(launches.size() == 6);  // two first uses with their launches, then two
        // a, on stream 33. What stays in the node is not looked at: it could be on any.
        CHECK(((launches[4].flags & ring::kLaunchMixed) != 0) == (verdict == Verdict::intra));
        REQUIRE(launches[5].ops.size() == 1);
        CHECK(launches[5].ops[0].comm == 1);
        CHECK((launches[5].flags & ring::kLaunchMixed) != 0);  // b, on the stream of c, which is not held
        for (std::size_t i = 0; i < 4; ++i) CHECK((launches[i].flags & ring::kLaunchMixed) == 0);
    }
}

// The call may wait for that gate while it makes them (decision 019).
TEST_CASE("a launch whose call makes connections that are not recorded says so") {
    Behaviour behaviour;
    behaviour.passing = 1;
    MiniManager manager(behaviour);
    Program program = scenario("connecting_groups", with(at(manager), kWithCuda));
    CHECK(program.finish() == 0);
    const auto& launches = manager.rank(0).launches;
    REQUIRE(launches.size() == 6);  // a first use and its launch, then four
    for (std::size_t i = 0; i < 6; ++i) CHECK(((launches[i].flags & ring::kLaunchMixed) != 0) == (i == 2 || i == 4));
}

TEST_CASE("auto chooses the stream gate only where it is safe") {
    const Environment forbids[] = {{{"CUDA_LAUNCH_BLOCKING", "1"}},
                                   {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}},
                                   {{"FAKE_CUDA_NO_GATE", "1"}},
                                   {{"OPUS_GATE", "host"}}};
    for (const Environment& forbid : forbids) {
        MiniManager manager;
        Program program = scenario("calls", with(with(at(manager), kWithCuda), forbid), 2);
        CHECK(program.finish() == 0);
        for (const Captured& launch : manager.rank(0).launches) CHECK(launch.gate == ring::Gate::host);
        // One line says so, with the reason and what it means, unless it was asked for.
        const auto lines = lines_of(program.errors);
        CHECK(lines.size() == (forbid.contains("OPUS_GATE") ? 0 : 1));
        for (const std::string& line : lines) {
            for (const auto& [name, value] : forbid)
                CHECK((name.find("CUDA_") != 0 || line.find(name + "=" + value) != std::string::npos));
            CHECK(line.find("launches are held on the host, where a program stops") != std::string::npos);
        }
    }
    {  // the launch ring lies where no driver can map it
        MiniManager manager;
        Program program =
            scenario("calls", with(with(at(manager), kWithCuda), {{"FAKE_CUDA_FAILS", "cuMemHostRegister"}}), 2);
        CHECK(program.finish() == 0);
        for (const Captured& launch : manager.rank(0).launches) CHECK(launch.gate == ring::Gate::host);
        const auto lines = lines_of(program.errors);
        REQUIRE(lines.size() == 2);
        CHECK(lines[0].find("cuMemHostRegister: error 1") != std::string::npos);
        CHECK(lines[0].find("on no tmpfs") != std::string::npos);
        CHECK(lines[1].find("the GPU cannot see the launch ring") != std::string::npos);
        CHECK(lines[1].find("launches are held on the host") != std::string::npos);
    }
    MiniManager manager;
    CHECK(scenario("calls", with(with(at(manager), kWithCuda), {{"CUDA_LAUNCH_BLOCKING", "1"}, {"OPUS_GATE", "stream"}}), 2)
              .finish() == 0);
    CHECK(manager.rank(0).launches.back().gate == ring::Gate::stream);
}

TEST_CASE(
    "one hardware queue is left without gates: launches of more streams are held on the host, unless the stream gate "
    "is forced") {
    const auto on_host = [](const Environment& more, int streams, std::string& said) {
        MiniManager manager;
        Program program = scenario("streams", with(with(at(manager), kWithCuda), more), streams);
        CHECK(program.finish() == 0);
        said = program.errors;
        CHECK(manager.rank(0).launches.size() == std::size_t(2 * streams + 2));  // the connections, and the first
        std::size_t count = 0;
        for (const Captured& launch : manager.rank(0).launches)
            count += launch.gate == ring::Gate::host && (launch.flags & ring::kLaunchConn) == 0;
        return count;
    };
    // One more stream was gated first, by the launch that made the connections.
    std::string said;
    CHECK(on_host({}, 6, said) == 0);
    CHECK(said.find("hardware queues") == std::string::npos);
    CHECK(on_host({}, 9, said) == 3 * 2);  // three of ten, two launches each
    CHECK(said.find("hardware queues (8)") != std::string::npos);
    CHECK(on_host({{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}}, 9, said) == 0);
    CHECK(on_host({{"CUDA_DEVICE_MAX_CONNECTIONS", "4"}}, 5, said) == 3 * 2);
    CHECK(on_host({{"OPUS_GATE", "stream"}}, 9, said) == 0);
}

TEST_CASE("gate none records and asks, and holds nothing") {
    Behaviour behaviour;
    behaviour.go = false;
    MiniManager manager(behaviour);
    CHECK(scenario("calls", with(at(manager), {{"OPUS_GATE", "none"}}), 3).finish() == 0);
    RankSeen& rank = manager.rank(0);
    REQUIRE(rank.launches.size() == 3);
    CHECK(rank.launches[2].gate == ring::Gate::none);
    CHECK((rank.launches[2].flags & ring::kLaunchUngated) == 0);
    CHECK(rank.retired == 3);
}

TEST_CASE("observe records what it does not hold") {
    Behaviour behaviour;
    behaviour.go = false;
    behaviour.verdict = Verdict::passes;
    MiniManager manager(behaviour);
    CHECK(scenario("calls", with(at(manager), {{"OPUS_MODE", "observe"}}), 3).finish() == 0);
    RankSeen& rank = manager.rank(0);
    REQUIRE(rank.launches.size() == 3);
    CHECK((rank.launches[0].flags & ring::kLaunchUngated) != 0);
    CHECK(rank.request.mode == std::uint32_t(Mode::observe));
}

TEST_CASE("what comes again is recorded and held as what comes first, whatever comes between") {
    const struct {
        Environment environment;
        ring::Gate gate;
        std::uint64_t gates;  // placed on streams
    } ways[] = {{kWithCuda, ring::Gate::stream, 9},
                {with(kWithCuda, {{"OPUS_GATE", "host"}}), ring::Gate::host, 0},
                {{{"OPUS_GATE", "host"}}, ring::Gate::host, 0}};
    for (const auto& way : ways) {
        MiniManager manager;
        Program program = scenario("repeated", with(at(manager), way.environment));
        CHECK(program.finish() == 0);
        std::vector<Captured> seen;
        for (const Captured& launch : manager.rank(0).launches)
            if ((launch.flags & (ring::kLaunchConn | ring::kLaunchLasts)) == 0) seen.push_back(launch);
        const bool apart = way.gate == ring::Gate::stream;  // first uses are: of all-reduces, sends and receives
        const bool cuda = way.environment.count("FAKE_CUDA") != 0;  // else nobody knows of a capture
        CHECK(manager.rank(0).launches.size() - seen.size() == (apart ? 3 : 0) + (cuda ? 1 : 0));
        std::vector<std::pair<std::uint64_t, std::vector<std::uint64_t>>> found,
            expected = {// stream, numbers: all-reduces; sends; the one that failed; groups of a send and a receive; a send
                        {17, {0}}, {17, {1}}, {0x101, {2}}, {33, {3}},    {33, {4}}, {33, {0}},
                        {33, {1}}, {33, {5}}, {33, {2, 0}}, {33, {3, 1}}, {33, {4}}};
        if (cuda) {  // what is captured is counted apart
            expected.erase(expected.begin() + 2);
            for (const std::size_t all_reduce : {2, 3, 6}) --expected[all_reduce].second[0];
        }
        for (const Captured& launch : seen) {
            CHECK(launch.gate == way.gate);
            found.push_back({launch.stream, {}});
            for (const ring::OpEntry& op : launch.ops) {
                found.back().second.push_back(op.n);
                CHECK(((op.flags & ring::kOpFirstUse) != 0) == (op.n == 0 && !apart));
            }
        }
        CHECK(found == expected);
        const RankSeen& rank = manager.rank(0);
        CHECK(rank.retired == rank.tail);
        CHECK(rank.view.comms[0].lost == 1);
        std::uint64_t gates = 0, dones = 0;
        for (const std::string& line : lines_of(program.output)) {
            gates += line.rfind("gate ", 0) == 0;
            dones += line.rfind("done ", 0) == 0;
        }
        CHECK(gates == way.gates);
        CHECK(dones == (cuda ? 8u : 0u));  // of the launch that failed, the host says it
    }
}

namespace {

// The launches of a program, as docs/protocol.md's keys: an operation's letter with its peer (or root), its number, and
// how many. !: connections only. In a launch that is no such: * its own as well, + nothing but the connection. m: the
// connection of each with each. ^: may be a mesh. ~: lasts. P: the number of what is captured and pinned.
std::string text_of(const std::vector<Captured>& launches) {
    const std::map<OpKind, std::string> letters = {
        {OpKind::all_reduce, "a"}, {OpKind::all_to_all, "t"}, {OpKind::gather, "g"},     {OpKind::scatter, "c"},
        {OpKind::send, "s"},       {OpKind::recv, "r"},       {OpKind::all_gather, "l"}, {OpKind::put_signal, "p"}};
    std::string text;
    for (const Captured& launch : launches) {
        const bool only = (launch.flags & ring::kLaunchConn) != 0;
        text += text.empty() ? "" : " ";
        text += only ? "!" : "";
        for (std::size_t i = 0; i < launch.ops.size(); ++i) {
            const ring::OpEntry& op = launch.ops[i];
            const bool pair = (op.flags & ring::kOpConnects) != 0, directed = op.kind >= std::uint8_t(OpKind::send);
            const bool mesh = (op.flags & ring::kOpMesh) != 0;
            text += i == 0 ? "" : ",";
            if (mesh && pair)
                text += "m" + std::to_string(op.n);
            else
                text += letters.at(OpKind(op.kind)) + (directed ? std::to_string(op.peer) : "");
            if (!only && !pair && is_pinned(op.n))
                text += "P" + std::to_string((op.n & ~kReplayed) >> kReplayBits) + "~";
            else if (!only && !pair)
                text += "#" + std::to_string(op.n) + (op.count > 1 ? "x" + std::to_string(op.count) : "");
            if (launch.gate == ring::Gate::host && !only && (op.flags & ring::kOpFirstUse) != 0) text += "*";
            if (!only && pair) text += "+";
            if (mesh && !pair) text += "^";
        }
        const bool pinned = !only && is_pinned(launch.ops.front().n);
        if ((launch.flags & ring::kLaunchLasts) != 0 && !pinned) text += "~";
        CHECK(pinned == (!only && (launch.flags & ring::kLaunchLasts) != 0));
    }
    return text;
}

std::string used(const std::string& uses, Environment environment) {
    MiniManager manager;
    environment["USES"] = uses;
    CHECK(scenario("uses", with(at(manager), environment)).finish() == 0);
    const RankSeen& rank = manager.rank(0);
    CHECK(rank.retired == rank.tail);
    return text_of(rank.launches);
}

}  // namespace

TEST_CASE("what a call is the first to use asks for its connection, by whichever way the call goes") {
    // The ring and each pair have first uses of their own. Calls on one stream take the fast path from the second on;
    // a group of one call does, too.
    const std::pair<std::string, std::string> behind_stream_gates[] = {
        {"aassrr", "!a a#0 a#1 !s1 s1#0 s1#1 !r1 r1#0 r1#1"},
        {"ssaarr", "!s1 s1#0 s1#1 !a a#0 a#1 !r1 r1#0 r1#1"},
        {"1ss2aa1ra", "!s1 s1#0 s1#1 !a a#0 a#1 !r1 r1#0 a#2"},
        {"s(a)(a)a", "!s1 s1#0 !a a#0 a#1 a#2"},
        {"(s)a(s)a", "!s1 s1#0 !a a#0 s1#1 a#1"},
        {"a(s)(r)sr", "!a a#0 !s1 s1#0 !r1 r1#0 s1#1 r1#1"},
        {"(as)(as)", "!a,s1 a#0,s1#0 a#1,s1#1"},
        {"s(1a2r)a", "!s1 s1#0 !a,r1 a#0,r1#0 a#1"},
        // Collectives that are made of transfers connect the pairs that they find unconnected, and no ring.
        {"ttaasr", "!s1,r1,s2,r2 t#0 t#1 !a a#2 a#3 s1#0 r1#0"},
        {"aatt", "!a a#0 a#1 !s1,r1,s2,r2 t#2 t#3"},
        {"srta", "!s1 s1#0 !r1 r1#0 !s2,r2 t#0 !a a#1"},
        {"s(t)(ta)", "!s1 s1#0 !r1,s2,r2 t#0 !a t#1,a#2"},
        {"s(rt)", "!s1 s1#0 !r1,s2,r2 r1#0,t#0"},
        {"a(r)t", "!a a#0 !r1 r1#0 !s1,s2,r2 t#1"},
        // Gather and Scatter are recorded as their transfers: who gives to the root waits for it alone.
        {"ggsGscC", "!r1,r2 r1#0,r2#0 r1#1,r2#1 !s1 s1#0 s1#1 s1#2 !s2 s1#3,s2#0 r1#2"},
        {"GGCCsrt", "!s1 s1#0 s1#1 !r1 r1#0 r1#1 s1#2 r1#2 !s2,r2 t#0"},
        {"a(gsC)a", "!a a#0 !r1,r2,s1 r1#0x2,r2#0,s1#0 a#1"},
        // An empty transfer is one like any other, an empty collective is none.
        {"EeaEea", "!s1 s1#0 !a a#0 s1#1 a#1"},
        {"(eEr)e(see)", "!s1,r1 s1#0,r1#0 s1#1 s1#2x3"},
    };
    for (const auto& [uses, expected] : behind_stream_gates) CHECK(used(uses, kWithCuda) == expected);

    const std::pair<std::string, std::string> behind_host_gates[] = {
        {"aassrr", "a#0* a#1 s1#0* s1#1 r1#0* r1#1"},    {"ssaa(a)", "s1#0* s1#1 a#0* a#1 a#2"},
        {"s(a)(ar)a", "s1#0* a#0* a#1,r1#0* a#2"},       {"sttas", "s1#0* t#0,r1+,s2+,r2+ t#1 a#2* s1#1"},
        {"s(t)(ta)", "s1#0* t#0,r1+,s2+,r2+ t#1,a#2*"},  {"eEae", "s1#0* a#0* s1#1"},
        {"gsgt", "r1#0*,r2#0* s1#0* r1#1,r2#1 t#0,s2+"},
    };
    for (const auto& [uses, expected] : behind_host_gates) {
        CHECK(used(uses, with(kWithCuda, {{"OPUS_GATE", "host"}})) == expected);
        CHECK(used(uses, {{"OPUS_GATE", "host"}}) == expected);
    }
    CHECK(used("EeaEetg(e)t", {{"OPUS_GATE", "none"}}) == "s1#0 a#0 s1#1 t#1 r1#0,r2#0 s1#2 t#2");
}

TEST_CASE(
    "windows and device communicators connect each with each; windows make meshes of what NCCL may spread over all "
    "pairs") {
    const std::pair<std::string, std::string> behind_stream_gates[] = {
        {"alwlal", "!a a#0 l#1 !m0 l#2^ a#3 l#4^"},
        {"wll", "!m0 !l l#0^ l#1^"},
        {"Wll", "!l l#0 l#1"},  // a window that is not symmetric
        {"wwt", "!m0 !s1,r1,s2,r2 t#0"},
        {"(w)(wl)(l)", "!m0 !l l#0^ l#1^"},
        {"(wl)l", "!l,m0 l#0^ l#1^"},
        {"s(sw)(sl)", "!s1 s1#0 !m0 s1#1 !l s1#2,l#0^"},
        // What was made for a device communicator is done when the last one is destroyed.
        {"daaDdD", "!m0~ !a a#0 a#1 !m1~"},
        {"ddDwDX", "!m0~"},
        {"wdDl", "!m0 !m1~ !l l#0^"},
        {"(d)aD", "!m0~ !a a#0"},
        {"daX", "!m0~ !a a#0"},
    };
    for (const auto& [uses, expected] : behind_stream_gates) CHECK(used(uses, kWithCuda) == expected);
    const std::pair<std::string, std::string> behind_host_gates[] = {
        {"wll", "!m0 l#0*^ l#1^"}, {"(wl)l", "l#0*^,m0+ l#1^"}, {"daD", "!m0~ a#0*"}};
    for (const auto& [uses, expected] : behind_host_gates)
        CHECK(used(uses, with(kWithCuda, {{"OPUS_GATE", "host"}})) == expected);
    CHECK(used("wldaD", {{"OPUS_GATE", "none"}}) == "l#0 a#1");
}

TEST_CASE("what is captured where replays cannot be held keeps its circuits, and so does its group") {
    // By the driver that has no user objects they last as long as their communicator. Calls are counted apart from captures.
    const std::pair<std::string, std::string> behind_gates[] = {
        {"@aa1aX", "!a aP0~ aP1~ a#0"},
        {"s@(ss)s1sX", "!s1 s1#0 s1P0~,s1P1~ s1P2~ s1#1"},
        {"@(asr)1aX", "!a,s1,r1 aP0~,s1P0~,r1P0~ a#0"},
        {"1pa@p(pp)1paX", "p1#0 !a a#0 p1P0~ p1P1~,p1P2~ p1#1 a#1"},
    };
    for (const auto& [uses, expected] : behind_gates) {
        CHECK(used(uses, kWithCuda) == expected);
        CHECK(used(uses.substr(0, uses.size() - 1) + "X", with(kWithCuda, {{"OPUS_GATE", "host"}})).find("P0~") != std::string::npos);
    }
}

TEST_CASE("a communicator that does not block is aborted right after a captured group: what was kept for that is free again") {
    MiniManager manager;
    CHECK(scenario("captured_abort", with(at(manager), kWithCuda)).finish() == 0);
    const RankSeen& rank = manager.rank(0);
    CHECK(text_of(rank.launches) == "!a aP0~,aP1~");
    CHECK(rank.retired == rank.tail);
}

TEST_CASE("that circuits are kept for a graph is said in one line, and nothing is lost for it") {
    for (const char* gate : {"stream", "host"}) {
        MiniManager manager;
        Program program = scenario("capture", with(at(manager), with(kWithCuda, {{"OPUS_GATE", gate}})));
        CHECK(program.finish() == 0);
        CHECK(program.output.find("done stream=257") == std::string::npos);
        REQUIRE(lines_of(program.errors).size() == 1);
        CHECK(program.errors.find("keeps its circuits until its graph is destroyed") != std::string::npos);
        CHECK(manager.rank(0).view.comms[0].lost == 0);
    }
}

TEST_CASE("a manager that cannot keep circuits for a graph: what is captured ends the hold, which is said in one line") {
    for (const std::uint32_t minor : {4u, 6u}) {
        Behaviour behaviour;
        behaviour.minor = minor;
        MiniManager manager(behaviour);
        Program program = scenario("capture", with(at(manager), kWithCuda));
        CHECK(program.finish() == 0);
        REQUIRE(lines_of(program.errors).size() == 1);
        CHECK(program.errors.find("update opus-manager") != std::string::npos);
        CHECK(manager.rank(0).view.comms[0].lost == 2);
    }
}

TEST_CASE("what holds circuits for a device communicator is said in one line") {
    MiniManager manager;
    Program program = scenario("uses", with(at(manager), {{"USES", "ddaDdDD"}}));
    CHECK(program.finish() == 0);
    REQUIRE(lines_of(program.errors).size() == 1);
    CHECK(program.errors.find("rank 0 of a communicator of 3 makes a device communicator") != std::string::npos);
    CHECK(manager.rank(0).retired == manager.rank(0).tail);
}

TEST_CASE("a device communicator that NCCL refuses holds nothing") {
    MiniManager manager;
    CHECK(scenario("refused_device", at(manager)).finish() == 0);
    const RankSeen& rank = manager.rank(0);
    CHECK(rank.launches.size() == 2);
    CHECK(rank.retired == rank.tail);
    CHECK(rank.view.comms[0].lost == 1);
}

TEST_CASE("a one-sided operation is held for its sender alone, by number and peer") {
    CHECK(used("pp(ppl)s(p)", kWithCuda) == "p1#0 p1#1 !l p1#2x2,l#0 !s1 s1#0 p1#4");
    CHECK(used("p(pp)", with(kWithCuda, {{"OPUS_GATE", "host"}})) == "p1#0 p1#1x2");
}

TEST_CASE("for non-blocking communicators done waits for the end of ncclInProgress") {
    MiniManager manager;
    Program program = scenario("non_blocking", with(at(manager), kWithCuda));
    CHECK(program.finish() == 0);
    auto lines = lines_of(program.output);
    lines.resize(5);
    const std::vector<std::string> expected = {"gate stream=17 value=2 hold_ms=30000", "ncclAllReduce rank=0",
                                               "returned", "done stream=17 value=2", "polled"};
    CHECK(lines == expected);
    CHECK(manager.rank(0).registered.size() == 2);
    CHECK(manager.rank(0).launches.size() == 4);
}

TEST_CASE("a poll of another thread whose answer is old does not say that a later launch is done") {
    MiniManager manager;
    Program program = scenario("polled_elsewhere", with(at(manager), kWithCuda));
    CHECK(program.finish() == 0);
    const std::vector<std::string> expected = {"gate stream=17 value=3 hold_ms=30000", "ncclAllReduce rank=0", "watched",
                                               "done stream=17 value=3"};
    CHECK(lines_of(program.output) == expected);
}

TEST_CASE("communicators whose members are on one node, or pass, are not recorded") {
    for (const Verdict verdict : {Verdict::intra, Verdict::passes, Verdict::degraded}) {
        Behaviour behaviour;
        behaviour.verdict = verdict;
        MiniManager manager(behaviour);
        CHECK(scenario("calls", at(manager), 5).finish() == 0);
        CHECK(manager.rank(0).launches.empty());
        CHECK(manager.rank(0).view.header->passed == 5);
        CHECK(manager.rank(0).view.header->lost == 0);
    }
}

TEST_CASE("a communicator that nobody judges passes after the hold time, and is reported") {
    Behaviour behaviour;
    behaviour.verdict = Verdict::unknown;
    MiniManager manager(behaviour);
    Program program = scenario("calls", with(at(manager), {{"OPUS_HOLD_MS", "50"}}), 5);
    CHECK(program.finish() == 0);
    CHECK(manager.rank(0).launches.empty());
    CHECK(manager.rank(0).view.comms[0].lost >= 1);
    CHECK(lines_of(program.errors).size() == 1);
}

TEST_CASE("a member says when NCCL's creation has returned, at the latest when it is asked for it") {
    for (const char* name : {"calls", "creation_in_group", "non_blocking", "init_all"}) {
        MiniManager manager;
        CHECK(scenario(name, at(manager), 1).finish() == 0);
        const RankSeen& rank = manager.rank(0);
        for (std::size_t i = 0; i < rank.registered.size(); ++i)
            CHECK(rank.view.comms[i].creation == std::uint32_t(CreationState::returned));
    }
}

TEST_CASE("while NCCL makes a communicator in the background its member says that it goes on, and no sooner that it has returned") {
    MiniManager manager;
    CHECK(scenario("creation_goes_on", at(manager)).finish() == 0);
}

TEST_CASE("a child is known to be made before NCCL is asked for it, and by its place when NCCL has made it") {
    char directory[] = "/tmp/opus-shim-XXXXXX";
    REQUIRE(mkdtemp(directory) != nullptr);
    const std::string gate = std::string(directory) + "/gate";
    MiniManager manager;
    Program program = scenario("split", with(at(manager), {{"FAKE_CREATION_GATE", gate}}));
    manager.await_entering();  // NCCL makes it now, and will not end before
    close(open(gate.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    CHECK(program.finish() == 0);
    unlink(gate.c_str());
    rmdir(directory);
    const RankSeen& rank = manager.rank(0);
    REQUIRE(rank.registered.size() == 2);
    CHECK(rank.entering.at(0) == rank.registered[1]);
    const ring::CommEntry& child = rank.view.comms[1];
    CHECK(child.rank == 1);
    CHECK(child.size == 2);
    CHECK(child.parent == rank.registered[0]);
    for (std::uint32_t i = 2; i < 4; ++i)  // alone in it, and not made at all
        CHECK(rank.view.comms[i].state != std::uint32_t(ring::CommState::registered));
    CHECK(rank.launches.size() == 1);
}

TEST_CASE("what is not held is said in one line for each communicator: its rank and size, why, and what to do") {
    Behaviour behaviour;
    behaviour.verdict = Verdict::passes;
    behaviour.reason = Reason::missing;
    behaviour.reason_rank = 1;
    MiniManager manager(behaviour);
    Program program = scenario("merged_groups", at(manager));  // of three communicators
    CHECK(program.finish() == 0);
    const auto lines = lines_of(program.errors);
    REQUIRE(lines.size() == 3);
    for (const std::string& line : lines)
        CHECK(line ==
              "opus: rank 0 of a communicator of 2 runs without Opus, its launches are not held for circuits: rank 1 did "
              "not register; load libopus_shim.so there, and start opus-manager on its node");
}

TEST_CASE("nothing is said where the user wants it so: observe, and communicators on one node") {
    for (const bool observes : {true, false}) {
        Behaviour behaviour;
        behaviour.verdict = observes ? Verdict::passes : Verdict::intra;
        MiniManager manager(behaviour);
        Program program = scenario("calls", with(at(manager), {{"OPUS_MODE", observes ? "observe" : "enforce"}}), 2);
        CHECK(program.finish() == 0);
        CHECK(program.errors.empty());
    }
}

TEST_CASE("OPUS_REQUIRE=enforce: what cannot be held is not made, alone, in a group, as a child, or in the background") {
    Behaviour behaviour;
    behaviour.reason = Reason::mode;
    behaviour.reason_rank = 1;
    for (const Verdict verdict : {Verdict::enforced, Verdict::intra}) {
        behaviour.verdict = verdict;
        MiniManager manager(behaviour);
        Program program = scenario("required", with(at(manager), {{"OPUS_REQUIRE", "enforce"}}));
        CHECK(program.finish() == 0);
        CHECK(lines_of(program.errors).empty());
    }
    behaviour.verdict = Verdict::enforced;
    behaviour.passing_from = 1;
    MiniManager manager(behaviour);
    Program program = scenario("required", with(at(manager), {{"OPUS_REQUIRE", "enforce"}}), 1);
    CHECK(program.finish() == 0);
    const auto lines = lines_of(program.errors);
    REQUIRE(lines.size() == 5);
    for (const std::string& line : lines)
        CHECK(line.find("(OPUS_REQUIRE=enforce): rank 1 does not run with OPUS_MODE=enforce") != std::string::npos);
    CHECK(program.output.find("ncclCommAbort") != std::string::npos);
    MiniManager other(behaviour);
    CHECK(scenario("required_of_a_non_blocking_parent", with(at(other), {{"OPUS_REQUIRE", "enforce"}})).finish() == 0);
}

TEST_CASE("OPUS_REQUIRE=enforce: without a manager no communicator of several ranks is made") {
    Program program =
        scenario("required_without_manager", {{"OPUS_SOCKET", "/nonexistent/manager.sock"}, {"OPUS_REQUIRE", "enforce"}});
    CHECK(program.finish() == 0);
    CHECK(lines_of(program.errors).size() == 1);
}

TEST_CASE("a full ring is waited for a bounded time, then launches pass and are counted") {
    Behaviour behaviour;
    behaviour.slots = 64;
    behaviour.retire = false;
    MiniManager manager(behaviour);
    Program program = scenario("calls", with(at(manager), {{"OPUS_RING_WAIT_MS", "2"}}), 100);
    CHECK(program.finish() == 0);
    CHECK(manager.rank(0).launches.size() == 64);
    CHECK(manager.rank(0).view.header->lost == 36);
    CHECK(manager.rank(0).view.comms[0].lost == 36);
    CHECK(lines_of(program.errors).size() == 1);
}

TEST_CASE("a program that a rank starts is a rank of its own") {
    MiniManager manager;
    CHECK(scenario("exec_child", at(manager)).finish() == 0);
    REQUIRE(manager.ranks() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(manager.rank(i).launches.size() == 2);
        CHECK(manager.rank(i).retired == manager.rank(i).tail);
    }
}

TEST_CASE("a daemon that uses NCCL only then is held as any rank") {
    for (const int before : {0, 1}) {
        MiniManager manager;
        CHECK(scenario("daemonised", at(manager), before).finish() == 0);
        manager.await_launch();
        CHECK(manager.await_retired(2));
        CHECK(manager.ranks() == 1);
        CHECK(manager.rank(0).retired == 2);
        CHECK(manager.rank(0).launches.size() == 2);
    }
}

TEST_CASE("several GPUs of a process, a thread each, while communicators come and go") {
    for (const Environment& environment : {Environment{}, kWithCuda, with(kWithCuda, {{"OPUS_GATE", "host"}})}) {
        MiniManager manager;
        CHECK(scenario("init_all_threads", with(at(manager), environment)).finish() == 0);
        const RankSeen& rank = manager.rank(0);
        std::size_t launches = 0;
        for (const Captured& launch : rank.launches) launches += (launch.flags & ring::kLaunchConn) == 0;
        CHECK(launches == 4 * 50 + 10);
        CHECK(rank.retired == rank.tail);
        CHECK(rank.view.header->lost == 0);
    }
}

TEST_CASE("a child after fork is inert") {
    MiniManager manager;
    CHECK(scenario("forked", at(manager)).finish() == 0);
    CHECK(manager.ranks() == 1);
    CHECK(manager.rank(0).launches.size() == 2);
    CHECK(manager.rank(0).registered.size() == 1);
}

TEST_CASE("when the manager's heartbeat stands still, the policy acts after the hold time") {
    Behaviour behaviour;
    behaviour.go = false;
    behaviour.beat = false;
    SUBCASE("proceed") {
        MiniManager manager(behaviour);
        CHECK(scenario("calls", with(at(manager), {{"OPUS_HOLD_MS", "60"}}), 20).finish() == 0);
        CHECK(manager.rank(0).view.header->gave_up == 20);
        CHECK(manager.rank(0).request.hold_ms == 60);
    }
    SUBCASE("abort") {
        MiniManager manager(behaviour);
        Program program = scenario("refused", with(at(manager), {{"OPUS_HOLD_MS", "60"}, {"OPUS_POLICY", "abort"}}));
        CHECK(program.finish() == 0);
        CHECK(lines_of(program.errors).size() == 1);
        CHECK(manager.rank(0).retired == 2);
    }
}

TEST_CASE("a beating manager may be late: the hold time never ends for a late peer") {
    Behaviour behaviour;
    behaviour.go = false;
    MiniManager manager(behaviour);
    Program program = scenario("calls", with(at(manager), {{"OPUS_HOLD_MS", "20"}}), 1);
    manager.await_launch();
    usleep(200'000);
    CHECK(program.running());
    manager.let_go();
    CHECK(program.finish() == 0);
    CHECK(manager.rank(0).view.header->gave_up == 0);
}

TEST_CASE("an abort by the manager fails the call and closes the group without a launch") {
    Behaviour behaviour;
    behaviour.abort = true;
    MiniManager manager(behaviour);
    Program program = scenario("refused", at(manager));
    CHECK(program.finish() == 0);
    CHECK(lines_of(program.errors).size() == 1);
}

TEST_CASE("a gate that holds several communicators opens when any of them is aborted") {
    Behaviour behaviour;
    behaviour.slots = 64;
    MiniManager manager(behaviour);
    CHECK(scenario("fused_abort", with(at(manager), kWithCuda)).finish() == 0);
}

TEST_CASE("where streams cannot be put in order behind a gate, the launch is held on the host") {
    for (const char* call : {"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"}) {
        Behaviour behaviour;
        behaviour.held_comm = 0;
        behaviour.held_n = 2;  // the group's, on two streams
        MiniManager manager(behaviour);
        Program program = scenario("order", with(with(at(manager), kWithCuda), {{"FAKE_CUDA_FAILS", call}}));
        manager.await_held();
        usleep(20'000);
        CHECK(program.running());  // its call has not come back
        manager.let_go();
        CHECK(program.finish() == 0);
        CHECK(manager.rank(0).retired == manager.rank(0).tail);
    }
}

TEST_CASE("descriptors of ours that the program closed and uses again are left alone, and the manager is still woken") {
    Behaviour behaviour;
    behaviour.asleep = true;
    MiniManager manager(behaviour);
    Program program = scenario("reused_descriptors", at(manager));
    CHECK(program.finish() == 0);
    CHECK(program.errors.empty());
    char bytes[64];
    CHECK(read(manager.rank(0).doorbell, bytes, sizeof bytes) >= 5);  // registration, and two launches that wait and end
}

TEST_CASE("a capture of another thread is not ended by what the shim asks of CUDA") {
    MiniManager manager;
    Program program = scenario("captured_elsewhere", with(with(at(manager), kWithCuda), {{"FAKE_CUDA_CAPTURES", "1"}}));
    CHECK(program.finish() == 0);
    CHECK(manager.rank(0).launches.back().gate == ring::Gate::stream);
}

TEST_CASE("mode off forwards, and meets no manager") {
    MiniManager manager;
    Program program = scenario("unhooked", with(at(manager), {{"OPUS_MODE", "off"}}));
    CHECK(program.finish() == 0);
    CHECK(program.output.find("state=0\n") != std::string::npos);
    CHECK(program.errors.empty());
    CHECK(manager.ranks() == 0);
}

TEST_CASE("without a manager the shim is inert, and silent unless asked") {
    for (const bool required : {false, true}) {
        Program program =
            scenario("unhooked", {{"OPUS_SOCKET", "/nonexistent/manager.sock"}, {"OPUS_REQUIRE", required ? "1" : "0"}});
        CHECK(program.finish() == 0);
        CHECK(program.output.find("state=1\n") != std::string::npos);
        CHECK(lines_of(program.errors).size() == (required ? 1 : 0));
    }
}

TEST_CASE("a manager that does not answer costs a bounded time") {
    Behaviour behaviour;
    behaviour.answer = false;
    MiniManager manager(behaviour);
    CHECK(scenario("unhooked", at(manager)).finish() == 0);
}

TEST_CASE("a call that NCCL passes to itself is counted once") {
    for (const Verdict verdict : {Verdict::enforced, Verdict::passes}) {
        Behaviour behaviour;
        behaviour.verdict = verdict;
        MiniManager manager(behaviour);
        CHECK(scenario("broadcast", at(manager)).finish() == 0);
        const auto& launches = manager.rank(0).launches;
        if (verdict == Verdict::passes) continue;
        REQUIRE(launches.size() == 2);
        CHECK(launches[0].ops[0].kind == std::uint8_t(OpKind::broadcast));
        CHECK(launches[0].ops[0].peer == 1);
        CHECK(launches[1].ops[0].n == 1);
    }
}

TEST_CASE("the 257th communicator passes, and entries of destroyed ones are used again") {
    MiniManager manager;
    Program program = scenario("many_comms", at(manager));
    CHECK(program.finish() == 0);
    CHECK(lines_of(program.errors).size() == 1);
    CHECK(manager.rank(0).view.comms[7].generation == 2);
}

TEST_CASE("several threads launch at once") {
    MiniManager manager;
    CHECK(scenario("threads", at(manager)).finish() == 0);
    std::map<std::uint16_t, std::uint64_t> next;
    for (const Captured& launch : manager.rank(0).launches)
        if (launch.ops[0].kind == std::uint8_t(OpKind::all_reduce))
            CHECK(launch.ops[0].n == next[launch.ops[0].comm]++);
    CHECK(next.size() == 8);
    CHECK(manager.rank(0).retired == manager.rank(0).tail);
}

namespace {

// What a program's communicator and the launch that it had on the host came to (shim_program: ended_elsewhere).
std::vector<std::string> ended_elsewhere(int how, const Environment& environment, bool drains) {
    Behaviour behaviour;
    behaviour.held_comm = 0;
    behaviour.held_n = how >= 20 ? 1 : 0;
    MiniManager manager(behaviour);
    Program program = scenario("ended_elsewhere", with(at(manager), environment), how);
    manager.await_held();
    if (drains) {
        usleep(50'000);  // it comes to end it
        manager.let_go();
    }
    CHECK(program.finish() == 0);
    const RankSeen& rank = manager.rank(0);
    CHECK(rank.retired == rank.tail);
    std::vector<std::string> lines;
    for (const std::string& line : lines_of(program.output))
        for (const char* about : {"ncclComm", "launch", "ncclGroupEnd"})
            if (line.find(about) == 0 && line.find("ncclCommInitRank") == std::string::npos) lines.push_back(line);
    return lines;
}

}  // namespace

TEST_CASE("a launch that is held on the host fails when another thread aborts its communicator, and NCCL never sees it") {
    const Environment ways[] = {{{"OPUS_GATE", "host"}}, with(kWithCuda, {{"OPUS_GATE", "host"}}), kWithCuda};
    const std::string ends[] = {"ncclCommAbort rank=0", "ncclCommRevoke rank=0", "", "", "ncclCommShrink rank=0 size=2"};
    for (const Environment& way : ways)
        for (const int more : {0, 10, 20, 30})
            for (const int how : {0, 1, 4}) {
                if (more >= 20 && way == kWithCuda) continue;  // its gate is on the stream
                CAPTURE(more + how);
                // 4: what the fake says to the call with which the shim closes a group.
                std::vector<std::string> expected = {ends[how], "launch result=5"};
                if (more % 20 != 0) expected = {"ncclGroupEnd result=4", ends[how], "launch result=5"};
                auto lines = ended_elsewhere(more + how, way, false);
                std::stable_sort(lines.begin(), lines.end(), [](auto& a, auto& b) { return a.find("launch") > b.find("launch"); });
                CHECK(lines == expected);
            }
}

TEST_CASE("destroy and finalize wait for a launch that another thread has in a host gate") {
    const std::string ends[] = {"", "", "ncclCommDestroy rank=0", "ncclCommFinalize rank=0"};
    for (const Environment& way : {Environment{{"OPUS_GATE", "host"}}, with(kWithCuda, {{"OPUS_GATE", "host"}}), kWithCuda})
        for (const int more : {0, 10, 20, 30})
            for (const int how : {2, 3}) {
                if (more >= 20 && way == kWithCuda) continue;
                CAPTURE(more + how);
                std::vector<std::string> lines = ended_elsewhere(more + how, way, true);
                CHECK(std::count(lines.begin(), lines.end(), "launch result=0") == 1);
                CHECK(lines.back() == (lines.back()[0] == 'l' ? "launch result=0" : ends[how]));
            }
}

TEST_CASE("a launch fails whose communicator is aborted while its verdict is waited for") {
    Behaviour behaviour;
    behaviour.verdict = Verdict::unknown;
    for (const int grouped : {0, 1}) {
        MiniManager manager(behaviour);
        CHECK(scenario("aborted_unjudged", at(manager), grouped).finish() == 0);
    }
}

TEST_CASE("destroy and finalize leave gates shut, abort and revoke open them") {
    MiniManager manager;
    CHECK(scenario("draining", at(manager)).finish() == 0);
    const ring::View& v = manager.rank(0).view;
    CHECK(v.comms[0].open == 0);
    CHECK(v.comms[1].open == std::uint32_t(ring::CommOpen::revoked));
    CHECK(v.comms[2].open == std::uint32_t(ring::CommOpen::aborted));
    CHECK(v.comms[0].state == std::uint32_t(ring::CommState::retired));
    CHECK(v.comms[1].state == std::uint32_t(ring::CommState::registered));
    CHECK(v.comms[2].state == std::uint32_t(ring::CommState::retired));
}

TEST_CASE("what the real library lacks is refused, and OPUS_NCCL_LIBRARY names the real one") {
    MiniManager manager;
    CHECK(scenario("missing", with(at(manager), {{"OPUS_NCCL_LIBRARY", OPUS_FAKE_OLD_NCCL}})).finish() == 0);
}

TEST_CASE("waits for signals pass") {
    MiniManager manager;
    CHECK(scenario("one_sided", at(manager)).finish() == 0);
}

TEST_CASE("of a grown communicator old members know one id, new ones another, and who gave them that knows both") {
    MiniManager manager;
    for (int rank = 0; rank < 3; ++rank) CHECK(scenario("grown", at(manager), rank).finish() == 0);
    const RankSeen &root = manager.rank(0), &old = manager.rank(1), &joined = manager.rank(2);
    REQUIRE(root.registered.size() == 3);
    REQUIRE(joined.registered.size() == 2);
    CHECK(root.registered[1] == old.registered[1]);
    CHECK(root.registered[1] != root.registered[0]);
    CHECK(root.view.comms[1].parent == root.registered[0]);
    CHECK(root.view.comms[1].also == joined.registered[0]);
    CHECK(joined.registered[0] != root.registered[1]);
    for (const CommId& also : {root.view.comms[0].also, old.view.comms[1].also, joined.view.comms[0].also}) CHECK(also == CommId{});
    CHECK(root.view.comms[1].rank == 0);
    CHECK(old.view.comms[1].rank == 1);
    CHECK(joined.view.comms[0].rank == 2);
    for (const RankSeen* rank : {&root, &old, &joined}) CHECK(rank->launches.size() == 1);
}

TEST_CASE("a new member of a grown communicator makes its children's ids of what the others call it") {
    MiniManager plain;
    CHECK(scenario("grown", at(plain), 0).finish() == 0);
    Behaviour behaviour;
    behaviour.known_as = plain.rank(0).registered.at(1);
    MiniManager manager(behaviour);
    CHECK(scenario("grown", at(manager), 2).finish() == 0);
    CHECK(manager.rank(0).registered.at(1) == plain.rank(0).registered.at(2));
}

TEST_CASE("where the manager is older than grown communicators they pass, and one line says so") {
    Behaviour behaviour;
    behaviour.minor = 6;
    MiniManager manager(behaviour);
    Program program = scenario("grown", at(manager), 2);
    CHECK(program.finish() == 0);
    REQUIRE(lines_of(program.errors).size() == 1);
    CHECK(program.errors.find("ncclCommGrow to 3 ranks: this opus-manager cannot tell") != std::string::npos);
    CHECK(manager.rank(0).registered.empty());
}

TEST_CASE("a bad setting gives one line that names it, and its default is used") {
    MiniManager manager;
    Program program = scenario(
        "calls",
        with(at(manager),
             {{"OPUS_MODE", "banana"}, {"OPUS_HOLD_MS", "-3"}, {"OPUS_GATE", "roof"}, {"OPUS_RING_SLOTS", "100"}}),
        1);
    CHECK(program.finish() == 0);
    const auto lines = lines_of(program.errors);
    REQUIRE(lines.size() == 4);
    for (const char* part : {"OPUS_MODE=banana", "OPUS_HOLD_MS=-3", "OPUS_GATE=roof", "OPUS_RING_SLOTS=100"})
        CHECK(program.errors.find(part) != std::string::npos);
    CHECK(manager.rank(0).request.hold_ms == 30'000);
    CHECK(manager.rank(0).request.slots == 4096);
    CHECK(manager.rank(0).launches.size() == 1);
}

TEST_CASE("what NCCL is told and circuits do not serve is one line: variable, value, remedy") {
    MiniManager manager;
    const auto lines = [&](const Environment& environment, int code = 0) {
        Program program = scenario("calls", with(at(manager), environment), 1);
        CHECK(program.finish() == code);
        return lines_of(program.errors);
    };
    CHECK(lines({{"NCCL_ALGO", "Ring"},
                 {"NCCL_CROSS_NIC", "0"},
                 {"NCCL_PROTO", "LL128"},
                 {"NCCL_NVLS_ENABLE", "1"},
                 {"NCCL_SOCKET_IFNAME", "^ib,lo"},
                 {"NCCL_IB_MERGE_NICS", "0"},
                 {"NCCL_PXN_DISABLE", "0"},
                 {"NCCL_IB_TIMEOUT", "20"}})
              .empty());
    const std::vector<std::pair<std::string, std::string>> unfit = {
        {"NCCL_ALGO", "Tree"},        {"NCCL_ALGO", "ring,tree"},   {"NCCL_ALGO", "allreduce:tree;broadcast:ring"},
        {"NCCL_ALGO", "^Ring"},       {"NCCL_CROSS_NIC", "1"},      {"NCCL_CROSS_NIC", "2"},
        {"NCCL_IB_MERGE_NICS", "1"},  {"NCCL_PXN_DISABLE", "1"},    {"NCCL_SOCKET_IFNAME", "eth0,ib0"},
        {"NCCL_NVLS_ENABLE", "1"},    {"NCCL_COLLNET_ENABLE", "1"}, {"NCCL_RUNTIME_CONNECT", "0"},
        {"NCCL_SET_STACK_SIZE", "0"}, {"NCCL_IB_TIMEOUT", "18"}};
    for (const auto& [name, value] : unfit) {
        const auto said = lines({{name, value}});
        REQUIRE_MESSAGE(said.size() == 1, name, "=", value);
        CHECK(said[0].find(name + "=" + value) != std::string::npos);
        CHECK(said[0].find("; set it to ") != std::string::npos);
    }
    CHECK(lines({{"NCCL_CROSS_NIC", "1"}, {"OPUS_MODE", "observe"}}).empty());
}

TEST_CASE("a communicator says when NCCL is told to send by its own NIC only, or to count hosts") {
    const std::pair<Environment, std::uint32_t> cases[] = {
        {{}, 0},
        {{{"NCCL_PXN_DISABLE", "1"}}, ring::kWaysOwnNic},
        {{{"NCCL_P2P_PXN_LEVEL", "0"}}, ring::kWaysOwnNic},
        {{{"NCCL_PXN_DISABLE", "1"}, {"NCCL_CROSS_NIC", "0"}}, 0},
        {{{"NCCL_MNNVL_ENABLE", "0"}}, ring::kWaysOwnHost},
        {{{"NCCL_P2P_DISABLE", "1"}}, ring::kWaysOwnHost},
        {{{"NCCL_P2P_DISABLE", "1"}, {"NCCL_MNNVL_ENABLE", "1"}}, 0}};
    for (const auto& [environment, ways] : cases) {
        MiniManager manager;
        Program program = scenario("calls", with(at(manager), environment), 1);
        CHECK(program.finish() == 0);
        CHECK(program.errors.empty() == ((ways & ring::kWaysOwnNic) == 0));
        CHECK(manager.rank(0).view.comms[0].ways == ways);
    }
}

TEST_CASE("what NCCL connects while it is made says so, where nothing is required: one line, and its verdict needs no other") {
    const Environment early[] = {{{"NCCL_RUNTIME_CONNECT", "0"}},
                                 {{"NCCL_CUMEM_ENABLE", "0"}},
                                 {{"FAKE_NCCL_VERSION", "22105"}},
                                 with(kWithCuda, {{"FAKE_CUDA_UNMAPPED", "1"}})};
    Behaviour behaviour;
    behaviour.verdict = Verdict::passes;
    behaviour.reason = Reason::connects;
    behaviour.reason_rank = 0;
    for (const Environment& environment : early) {
        MiniManager manager(behaviour);
        Program program = scenario("calls", with(at(manager), environment), 1);
        CHECK(program.finish() == 0);
        CHECK((manager.rank(0).view.comms[0].ways & ring::kWaysAtOnce) != 0);
        CHECK(lines_of(program.errors).size() == 1);
        CHECK(program.errors.find("connected while") != std::string::npos);
    }
    MiniManager manager(behaviour);  // of another member
    Program program = scenario("calls", at(manager), 1);
    CHECK(program.finish() == 0);
    CHECK(lines_of(program.errors).size() == 1);
    CHECK(program.errors.find("rank 0 has an NCCL that connects it while it is made") != std::string::npos);
}

TEST_CASE("what NCCL would take from nccl.conf is seen there, and the environment goes before it") {
    MiniManager manager;
    char file[] = "/tmp/opus-nccl-conf-XXXXXX";
    const int fd = mkstemp(file);
    const std::string text = "# NCCL_COLLNET_ENABLE=1\nNCCL_CROSS_NIC=1\nNCCL_ALGO=Ring\n";
    CHECK(write(fd, text.data(), text.size()) == ssize_t(text.size()));
    close(fd);
    Program program = scenario("calls", with(at(manager), {{"NCCL_CONF_FILE", file}}), 1);
    CHECK(program.finish() == 0);
    REQUIRE(lines_of(program.errors).size() == 1);
    CHECK(program.errors.find("NCCL_CROSS_NIC=1 (" + std::string(file) + ")") != std::string::npos);
    Program other = scenario("calls", with(at(manager), {{"NCCL_CONF_FILE", file}, {"NCCL_CROSS_NIC", "0"}}), 1);
    CHECK(other.finish() == 0);
    CHECK(other.errors.empty());
    unlink(file);
}

TEST_CASE("OPUS_REQUIRE=enforce: what circuits cannot serve makes no communicator") {
    MiniManager manager;
    const Environment required = with(at(manager), {{"OPUS_REQUIRE", "enforce"}});
    Program refused = scenario("refused_setting", with(required, {{"NCCL_CROSS_NIC", "1"}}));
    CHECK(refused.finish() == 0);
    CHECK(lines_of(refused.errors).size() == 1);
    // What makes NCCL connect everything while it makes a communicator.
    const Environment early[] = {{{"NCCL_RUNTIME_CONNECT", "0"}},
                                 {{"NCCL_CUMEM_ENABLE", "0"}},
                                 {{"FAKE_NCCL_VERSION", "22105"}},
                                 with(kWithCuda, {{"FAKE_CUDA_UNMAPPED", "1"}})};
    for (const Environment& environment : early) {
        Program connects = scenario("refused_setting", with(required, environment));
        CHECK(connects.finish() == 0);
        CHECK(lines_of(connects.errors).size() == 1);
        CHECK(connects.errors.find("connected while") != std::string::npos);
    }
    Program config = scenario("refused_config", required);
    CHECK(config.finish() == 0);
    REQUIRE(lines_of(config.errors).size() == 1);
    CHECK(config.errors.find("ncclConfig_t.collnetEnable=1") != std::string::npos);
    Program warned = scenario("calls", with(required, {{"NCCL_ALGO", "Tree"}}), 1);
    CHECK(warned.finish() == 0);
}

TEST_CASE("a sleeping manager is woken") {
    Behaviour behaviour;
    behaviour.asleep = true;
    MiniManager manager(behaviour);
    CHECK(scenario("calls", at(manager), 1).finish() == 0);
    char bytes[64];
    CHECK(read(manager.rank(0).doorbell, bytes, sizeof bytes) >= 2);  // registration, ready
}

TEST_CASE("a program without NCCL does not notice") {
    Program program({"/bin/true"}, {});
    CHECK(program.finish() == 0);
    CHECK(program.errors.empty());
    CHECK(program.output.empty());
}
