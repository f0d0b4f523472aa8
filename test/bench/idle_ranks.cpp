// Ranks that compute: attached to their managers, registered, one collective behind them, nothing in flight.
//
//   bench_idle_ranks --gpus 4 SOCKET...       prints "bench_idle_ranks: ready ranks=N", ends at end of input
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "rank_player.h"

namespace {

using namespace opus;
using namespace opus::bench;

constexpr TimeNs kLimit = 10'000'000'000;

void must(bool held, const char* what) {
    if (!held) throw std::runtime_error(what);
}

void one_collective(std::vector<RankPlayer>& ranks) {
    std::vector<std::uint32_t> index;
    std::vector<std::uint64_t> seq;
    for (std::uint32_t i = 0; i < ranks.size(); ++i)
        index.push_back(ranks[i].register_comm({0x69646c65, 1}, i, std::uint32_t(ranks.size())));
    for (std::uint32_t i = 0; i < ranks.size(); ++i)
        must(ranks[i].wait_verdict(index[i], kLimit) == Verdict::enforced, "communicator not enforced");
    for (std::uint32_t i = 0; i < ranks.size(); ++i) {
        seq.push_back(ranks[i].record({operation(OpKind::all_reduce, index[i], 0)}));
        ranks[i].ready(seq[i]);
    }
    for (std::uint32_t i = 0; i < ranks.size(); ++i) must(ranks[i].wait_go(seq[i], kLimit), "no go");
    for (std::uint32_t i = 0; i < ranks.size(); ++i) ranks[i].done(seq[i]);
    for (std::uint32_t i = 0; i < ranks.size(); ++i) must(ranks[i].wait_retired(seq[i], kLimit), "not retired");
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> sockets;
    unsigned gpus = 4;
    CLI::App app{"Ranks that compute, with nothing in flight"};
    app.add_option("sockets", sockets, "of the managers, in node order")->required();
    app.add_option("--gpus", gpus, "ranks a node");
    CLI11_PARSE(app, argc, argv);
    try {
        std::vector<RankPlayer> ranks;
        for (const std::string& socket : sockets)
            for (unsigned g = 0; g < gpus; ++g) ranks.push_back(RankPlayer::attach(socket, g, "bench"));
        one_collective(ranks);
        std::printf("bench_idle_ranks: ready ranks=%zu\n", ranks.size());
        std::fflush(stdout);
        char byte;
        while (::read(STDIN_FILENO, &byte, 1) > 0) {}
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_idle_ranks: %s\n", e.what());
        return 1;
    }
}
