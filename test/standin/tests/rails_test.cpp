// Ranks on nodes whose only way to each other is light: opus-ocs-emu, one a rail, and steering tables
// that the test writes as a manager would.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <numeric>
#include <thread>

#include "opus/steering.h"
#include "ranks.h"
#include "test/drivers/emulator_process.h"

using namespace opus::standin::test;
using opus::test::EmulatorProcess;
namespace steering = opus::steering;

namespace {

struct NicId {
    unsigned node, gpu, port;
};

enum class OpticalPlane { switch_a_rail, always_lit, one_switch };

// A fabric of `nodes` x `gpus` x `ports`, a switch for each rail, or one for all.
class TestFabric {
public:
    TestFabric(unsigned nodes, unsigned gpus, unsigned ports, OpticalPlane plane = OpticalPlane::switch_a_rail)
        : nodes_(nodes), gpus_(gpus), ports_(ports), one_(plane == OpticalPlane::one_switch) {
        const bool always_lit = plane == OpticalPlane::always_lit;
        char name[] = "/tmp/standin-rails.XXXXXX";
        folder_ = mkdtemp(name);
        for (unsigned g = 0; g < (one_ ? 1 : gpus); ++g) {
            std::vector<std::string> flags{"--size", std::to_string(nodes * ports * (one_ ? gpus : 1)), "--dark-ms", "1"};
            if (always_lit) flags.push_back("--always-lit");
            switches_.push_back(std::make_unique<EmulatorProcess>(flags));
        }
        std::ofstream file(folder_ + "/ports");
        for (unsigned n = 0; n < nodes; ++n)
            for (unsigned g = 0; g < gpus; ++g)
                for (unsigned p = 0; p < ports; ++p)
                    file << n << ' ' << g << ' ' << p << ' ' << switches_[one_ ? 0 : g]->data() << ' '
                         << number({n, g, p}) << '\n';
        for (unsigned n = 0; n < nodes && !always_lit; ++n) tables_.push_back(make_table(n));
    }
    ~TestFabric() {
        for (auto* t : tables_) munmap(t, sizeof *t);
        std::filesystem::remove_all(folder_);
    }

    Layout layout() const {
        Layout l = nodes_of(std::vector<int>(tables_.empty() ? 2 : tables_.size(), static_cast<int>(gpus_)));
        l.environment = {{"STANDIN_PORTS", folder_ + "/ports"}, {"STANDIN_STATS", folder_ + "/stats"}};
        if (!tables_.empty()) l.environment.emplace_back("STANDIN_STEERING", folder_ + "/steering");
        return l;
    }
    // Steering is a file a node: set in the child, which knows its node.
    static void choose_steering(const Rank&) {
        const char* base = std::getenv("STANDIN_STEERING");
        if (base) setenv("STANDIN_STEERING", (std::string(base) + std::getenv("STANDIN_NODE")).c_str(), 1);
    }

    void join(NicId a, NicId b) {
        connect(a, b);
        steer(a, b, true);
        steer(b, a, true);
    }
    void part(NicId a, NicId b) {
        steer(a, b, false);
        steer(b, a, false);
        disconnect(a, b);
    }
    void connect(NicId a, NicId b) {  // light only
        tell(a.gpu, ":oxc:swit:conn:add (@" + number(a) + "),(@" + number(b) + ")");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    void disconnect(NicId a, NicId b) { tell(a.gpu, ":oxc:swit:conn:sub (@" + number(a) + "),(@" + number(b) + ")"); }

    // delivered frames, bytes, lost frames, bytes, misdelivered frames, bytes
    std::vector<std::uint64_t> counts() {
        std::vector<std::uint64_t> sum(6);
        for (auto& s : switches_) {
            const auto c = s->counts();
            for (std::size_t i = 0; i < 6; ++i) sum[i] += c.at(i);
        }
        return sum;
    }
    // Frames may have been sent again: where the answer came late, not only where light was missing.
    bool clean() {
        const auto c = counts();
        MESSAGE("delivered " << c[1] << " bytes, lost " << c[3] << ", misdelivered " << c[5] << ", resent " << resent());
        return c[0] > 0 && c[2] == 0 && c[4] == 0;
    }
    std::uint64_t resent() const {
        std::ifstream file(folder_ + "/stats");
        std::uint64_t sum = 0;
        for (std::string line; std::getline(file, line);) {
            const auto at = line.find("\"resent_frames\":");
            if (at != std::string::npos) sum += std::strtoull(line.c_str() + at + 16, nullptr, 10);
        }
        return sum;
    }

private:
    steering::Table* make_table(unsigned node) {
        const std::string path = folder_ + "/steering" + std::to_string(node);
        const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, sizeof(steering::Table)) != 0) throw std::runtime_error("steering file");
        void* at = mmap(nullptr, sizeof(steering::Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        auto* table = new (at) steering::Table{};
        table->magic = steering::kMagic;
        table->node = node;
        table->version.store(steering::kVersion);
        return table;
    }
    void steer(NicId from, NicId to, bool lit) {
        steering::Table& table = *tables_.at(from.node);
        steering::Entry& e = table.port[from.gpu][from.port];
        ++e.epoch;
        e.state = static_cast<std::uint32_t>(lit ? steering::PortState::lit : steering::PortState::dark);
        e.peer_node = to.node;
        e.peer_gpu = to.gpu;
        e.peer_port = to.port;
        ++e.epoch;
        ++table.changes;
    }
    std::string number(NicId id) const {
        return std::to_string(((one_ ? id.gpu * nodes_ : 0) + id.node) * ports_ + id.port + 1);
    }
    void tell(unsigned rail, const std::string& line) { switches_.at(one_ ? 0 : rail)->tell(line); }

    unsigned nodes_, gpus_, ports_;
    bool one_;
    std::string folder_;
    std::vector<std::unique_ptr<EmulatorProcess>> switches_;
    std::vector<steering::Table*> tables_;
};

bool emulator_missing(const char* name) {
    if (std::getenv("OPUS_OCS_EMU")) return false;
    std::printf("SKIP %s: OPUS_OCS_EMU is not set\n", name);
    return true;
}

void check_sum(const Rank& r, ncclComm_t comm, std::size_t count) {
    std::vector<std::int32_t> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<std::int32_t>(i) * (r.rank + 1);
    demand_nccl(ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, comm, nullptr));
    demand(cudaStreamSynchronize(nullptr) == cudaSuccess);
    ncclResult_t error;
    demand_nccl(ncclCommGetAsyncError(comm, &error));
    demand_nccl(error);
    const int factor = r.size * (r.size + 1) / 2;
    for (std::size_t i = 0; i < count; ++i) demand(data[i] == static_cast<std::int32_t>(i) * factor);
}

void send_right(const Rank& r, ncclComm_t comm, int from, int to, std::size_t count) {
    std::vector<std::int32_t> data(count);
    if (r.rank == from) {
        std::iota(data.begin(), data.end(), 5);
        demand_nccl(ncclSend(data.data(), count, ncclInt32, to, comm, nullptr));
    } else if (r.rank == to) {
        demand_nccl(ncclRecv(data.data(), count, ncclInt32, from, comm, nullptr));
    }
    demand(cudaStreamSynchronize(nullptr) == cudaSuccess);
    if (r.rank == to)
        for (std::size_t i = 0; i < count; ++i) demand(data[i] == static_cast<std::int32_t>(i) + 5);
}

}  // namespace

TEST_CASE("an always-lit fabric carries everything without steering, and loses nothing") {
    if (emulator_missing("always lit")) return;
    TestFabric fabric(2, 2, 2, OpticalPlane::always_lit);
    const auto codes = run_ranks(fabric.layout(), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        check_sum(r, comm, 1'000'000);
        send_right(r, comm, 0, 3, 100'000);
        send_right(r, comm, 3, 0, 100'000);
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
    CHECK(fabric.clean());
}

TEST_CASE("a ring of circuits carries a collective of four nodes, over light alone") {
    if (emulator_missing("ring")) return;
    TestFabric fabric(4, 2, 2);
    for (unsigned g = 0; g < 2; ++g)
        for (unsigned n = 0; n < 4; ++n) fabric.join({n, g, 0}, {(n + 1) % 4, g, 1});
    const auto codes = run_ranks(fabric.layout(), [](const Rank& r) {
        TestFabric::choose_steering(r);
        ncclComm_t comm = r.comm();
        check_sum(r, comm, 100'000);
        check_sum(r, comm, 3);
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
    CHECK(fabric.clean());
}

TEST_CASE("a send to another local index leaves by the destination's rail of the sender's node") {
    if (emulator_missing("pxn")) return;
    TestFabric fabric(2, 2, 1);
    fabric.join({0, 1, 0}, {1, 1, 0});
    const auto codes = run_ranks(fabric.layout(), [](const Rank& r) {
        TestFabric::choose_steering(r);
        ncclComm_t comm = r.comm();
        send_right(r, comm, 0, 3, 50'000);  // n0.g0 to n1.g1: rail 1, the only one with light
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
    CHECK(fabric.clean());
}

TEST_CASE("where its communicator has no rank on the destination's rail, or may not use it, a send leaves by its own NIC") {
    if (emulator_missing("own NIC")) return;
    for (const bool with_third : {false, true}) {
        TestFabric fabric(2, 2, 1, OpticalPlane::one_switch);
        fabric.join({0, 1, 0}, {1, 1, 0});
        Layout layout = fabric.layout();
        layout.node = {0, 1};
        layout.gpu = {0, 1};
        if (with_third) {
            layout.node.push_back(0);
            layout.gpu.push_back(1);
            layout.environment.emplace_back("NCCL_PXN_DISABLE", "1");
        }
        const auto codes = run_ranks(layout, [&](const Rank& r) {
            TestFabric::choose_steering(r);
            ncclComm_t comm = r.comm();
            std::atomic<bool> back{false};
            std::thread transfer([&] {
                send_right(r, comm, 0, 1, 50'000);
                back = true;
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            demand(!back || r.rank == 2);  // without light it cannot be: this cannot fail by slowness
            r.barrier(1);
            if (r.rank == 0) {
                fabric.part({0, 1, 0}, {1, 1, 0});
                fabric.join({0, 0, 0}, {1, 1, 0});
            }
            transfer.join();
            demand_nccl(ncclCommDestroy(comm));
        });
        CHECK(all_well(codes));
        CHECK(fabric.clean());
    }
}

TEST_CASE("inside an NVLink domain nothing needs light, and rings run from domain to domain") {
    if (emulator_missing("domains")) return;
    TestFabric fabric(4, 2, 1);
    for (unsigned g = 0; g < 2; ++g) fabric.join({0, g, 0}, {2, g, 0});  // the first hosts of two domains
    Layout layout = fabric.layout();
    layout.environment.emplace_back("STANDIN_DOMAIN", "2");
    const auto codes = run_ranks(layout, [](const Rank& r) {
        TestFabric::choose_steering(r);
        ncclComm_t comm = r.comm();
        check_sum(r, comm, 100'000);
        send_right(r, comm, 0, 3, 50'000);  // to another host of the domain
        send_right(r, comm, 0, 4, 50'000);  // to another domain
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
    CHECK(fabric.clean());
}

TEST_CASE("a first use waits on the host for light, a later launch on its stream") {
    if (emulator_missing("waiting for light")) return;
    TestFabric fabric(2, 1, 1);
    Layout layout = fabric.layout();
    enum : int { kBefore = 1, kConnected = 2, kDark = 3, kQueued = 4, kLit = 5 };
    const auto codes = run_ranks(layout, [&](const Rank& r) {
        TestFabric::choose_steering(r);
        ncclComm_t comm = r.comm();
        std::vector<float> data(1000, 1.0f);
        std::atomic<bool> back{false};
        std::thread first([&] {
            demand_nccl(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
            back = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        demand(!back);  // without light it cannot be: this cannot fail by slowness
        r.barrier(kBefore);
        if (r.rank == 0) fabric.join({0, 0, 0}, {1, 0, 0});
        first.join();
        demand(cudaStreamSynchronize(nullptr) == cudaSuccess);
        demand(data[0] == 2.0f);
        r.barrier(kConnected);
        if (r.rank == 0) fabric.part({0, 0, 0}, {1, 0, 0});
        r.barrier(kDark);
        demand_nccl(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        demand(cudaStreamQuery(nullptr) == cudaErrorNotReady);
        r.barrier(kQueued);
        if (r.rank == 0) fabric.join({0, 0, 0}, {1, 0, 0});
        demand(cudaStreamSynchronize(nullptr) == cudaSuccess);
        demand(data[0] == 4.0f);
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
    CHECK(fabric.clean());
}

TEST_CASE("what is lost in the dark is sent again and counted, and the numbers stay right") {
    if (emulator_missing("loss")) return;
    TestFabric fabric(2, 1, 2);
    fabric.join({0, 0, 0}, {1, 0, 0});
    fabric.join({0, 0, 1}, {1, 0, 1});
    const auto codes = run_ranks(fabric.layout(), [&](const Rank& r) {
        TestFabric::choose_steering(r);
        setenv("STANDIN_RTO_MS", "50", 1);
        ncclComm_t comm = r.comm();
        check_sum(r, comm, 1000);
        if (r.rank == 0) {  // light goes, the table does not know: as a wrong prediction, or no gate
            fabric.disconnect({0, 0, 0}, {1, 0, 0});
            fabric.disconnect({0, 0, 1}, {1, 0, 1});
        }
        r.barrier(1);
        std::thread back([&] {
            if (r.rank != 0) return;
            while (fabric.counts()[2] == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            fabric.connect({0, 0, 0}, {1, 0, 0});
            fabric.connect({0, 0, 1}, {1, 0, 1});
        });
        check_sum(r, comm, 500'000);
        back.join();
        demand_nccl(ncclCommDestroy(comm));
    });
    CHECK(all_well(codes));
    const auto counts = fabric.counts();
    CHECK(counts[2] > 0);
    CHECK(fabric.resent() >= counts[2]);
}

TEST_CASE("a sender whose last answer is lost in the dark ends, though the receiver's process has ended") {
    if (emulator_missing("last answer")) return;
    constexpr int kRounds = 120;  // in some of them it is lost
    TestFabric fabric(2, 1, 1);
    fabric.join({0, 0, 0}, {1, 0, 0});
    Layout layout = fabric.layout();
    layout.environment.emplace_back("STANDIN_RTO_MS", "5");
    // The tables do not know. A process: of what a thread has, those that are forked meanwhile would keep a copy, and leak it.
    const pid_t blinking = fork();
    REQUIRE(blinking >= 0);
    if (blinking == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true) {
            fabric.disconnect({0, 0, 0}, {1, 0, 0});
            fabric.connect({0, 0, 0}, {1, 0, 0});
        }
    }
    bool well = true;
    for (int round = 0; round < kRounds && well; ++round)
        well = all_well(run_ranks(layout, [](const Rank& r) {
            TestFabric::choose_steering(r);
            ncclComm_t comm = r.comm();
            for (int i = 0; i < 5; ++i) send_right(r, comm, 0, 1, 1000);
            demand_nccl(ncclCommDestroy(comm));
        }));
    CHECK(kill(blinking, SIGKILL) == 0);
    int status = 0;
    CHECK(waitpid(blinking, &status, 0) == blinking);
    CHECK(WIFSIGNALED(status));  // it has blinked until now
    CHECK(well);
    CHECK(fabric.resent() > 0);
}
