#include "ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <new>

namespace opus::standin::test {

namespace {

void nap() {
    const timespec t{0, 500'000};
    nanosleep(&t, nullptr);
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Instrumented programs are up to ten times slower; the limit is there to end hangs.
unsigned patience(int seconds) {
    const char* sanitized = std::getenv("OPUS_TEST_SANITIZED");
    return static_cast<unsigned>(seconds) * (sanitized != nullptr && *sanitized != '\0' ? 5 : 1);
}

int start(const std::vector<std::pair<std::string, std::string>>& environment, int seconds,
          const std::function<void()>& body) {
    std::fflush(nullptr);
    const int pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    alarm(patience(seconds));
    try {
        body();
    } catch (const std::exception& e) { give_up(e.what(), __FILE__, __LINE__); }
    std::fflush(nullptr);
    std::exit(0);
}

}  // namespace

void give_up(const std::string& what, const char* file, int line) {
    std::fprintf(stderr, "%s:%d: %s (pid %d)\n", file, line, what.c_str(), getpid());
    std::fflush(nullptr);
    _exit(1);
}

Layout nodes_of(const std::vector<int>& ranks_per_node) {
    Layout layout;
    for (std::size_t n = 0; n < ranks_per_node.size(); ++n)
        for (int g = 0; g < ranks_per_node[n]; ++g) {
            layout.node.push_back(static_cast<int>(n));
            layout.gpu.push_back(g);
        }
    return layout;
}

ncclUniqueId Rank::id(int n) const {
    if (rank == 0) {
        demand_nccl(ncclGetUniqueId(&shared->id[n]));
        shared->ready = n + 1;
    }
    while (shared->ready <= n) nap();
    return shared->id[n];
}

ncclComm_t Rank::comm(int n) const {
    ncclComm_t made = nullptr;
    demand_nccl(ncclCommInitRank(&made, size, id(n), rank));
    return made;
}

void Rank::barrier(int word) const {
    ++shared->word[word];
    while (shared->word[word] < static_cast<std::uint64_t>(size)) nap();
}

std::vector<int> run_ranks(const Layout& layout, const std::function<void(const Rank&)>& body) {
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* shared = new (memory) Shared{};
    const int size = static_cast<int>(layout.node.size());
    std::vector<int> pids, codes;
    for (int r = 0; r < size; ++r) {
        auto environment = layout.environment;
        environment.emplace_back("STANDIN_NODE", std::to_string(layout.node[static_cast<std::size_t>(r)]));
        environment.emplace_back("STANDIN_GPU", std::to_string(layout.gpu[static_cast<std::size_t>(r)]));
        pids.push_back(start(environment, layout.seconds, [&] { body(Rank{r, size, shared}); }));
        if (layout.started) layout.started(r, pids.back());
    }
    for (const int pid : pids) {
        int status = 0;
        waitpid(pid, &status, 0);
        codes.push_back(code_of(status));
    }
    munmap(memory, sizeof(Shared));
    return codes;
}

bool all_well(const std::vector<int>& codes) {
    bool well = !codes.empty();
    for (std::size_t r = 0; r < codes.size(); ++r) {
        if (codes[r] == 0) continue;
        std::fprintf(stderr, "rank %zu ended with %d%s\n", r, codes[r],
                     codes[r] == 128 + SIGALRM ? ": it took too long" : "");
        well = false;
    }
    return well;
}

int run_alone(const std::vector<std::pair<std::string, std::string>>& environment, const std::function<void()>& body) {
    const int pid = start(environment, 60, body);
    int status = 0;
    waitpid(pid, &status, 0);
    return code_of(status);
}

}  // namespace opus::standin::test
