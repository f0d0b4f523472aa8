#include "test/controller/core/random_job.h"

#include <algorithm>
#include <map>

#include "test/controller/core/job_ways.h"

namespace opus::controller::test {
namespace {

using Random = std::mt19937_64;

std::size_t pick(Random& random, std::size_t count) { return random() % count; }
bool chance(Random& random, unsigned percent) { return random() % 100 < percent; }

// No switch joins two rails.
bool keeps_rails(const NicPairs& pairs) {
    return std::all_of(pairs.begin(), pairs.end(), [](const auto& p) { return p.first.second == p.second.second; });
}

Shape random_shape(Random& random) {
    Shape shape;
    shape.nodes = 2 + static_cast<std::uint32_t>(pick(random, 4));
    shape.gpus = 1 + static_cast<std::uint32_t>(pick(random, 2));
    constexpr std::uint32_t kPorts[] = {1, 1, 2, 2, 2, 4};
    shape.ports = kPorts[pick(random, 6)];
    constexpr TimeNs kDark[] = {0, 1 * kMs, 25 * kMs, 100 * kMs};
    shape.dark_ns = kDark[pick(random, 4)];
    return shape;
}

// The most neighbours that any GPU has in one launch.
bool fits(const RandomJob& r, const LaunchSpec& launch, std::size_t rank) {
    const JobWays ways{r.job, r.shape.domain};
    NicPairs pairs;
    for (const OpSpec& op : launch.ops) {
        const std::size_t peer = r.job.comms[op.comm][op.peer];
        pairs.merge(op.what == What::send   ? ways.transfer(op.comm, rank, peer)
                    : op.what == What::recv ? ways.transfer(op.comm, peer, rank)
                                            : ways.ring(op.comm));
    }
    std::map<NicOf, std::uint32_t> degree;
    for (const auto& [a, b] : pairs)
        if (++degree[a] > r.shape.ports || ++degree[b] > r.shape.ports) return false;
    return keeps_rails(pairs);
}

std::vector<std::size_t> some_ranks(Random& random, std::size_t count) {
    std::vector<std::size_t> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = i;
    std::shuffle(all.begin(), all.end(), random);
    all.resize(2 + pick(random, count - 1));
    std::sort(all.begin(), all.end());
    return all;
}

void add_operation(Random& random, RandomJob& r) {
    const std::size_t comm = pick(random, r.job.comms.size());
    const auto& members = r.job.comms[comm];
    const TimeNs work = static_cast<TimeNs>(pick(random, 20)) * kMs / 4;
    const auto add = [&](std::uint32_t slot, OpSpec op) {
        LaunchSpec launch;
        launch.ops = {op};
        launch.stream = static_cast<int>(pick(random, 3));
        launch.work_ns = work;
        if (chance(random, 15)) launch.delay_ns = static_cast<TimeNs>(pick(random, 60)) * kMs;
        r.job.ranks[members[slot]].program.push_back(launch);
    };
    const auto size = static_cast<std::uint32_t>(members.size());
    const JobWays ways{r.job, r.shape.domain};
    if (chance(random, 45)) {
        if (!keeps_rails(ways.ring(comm))) return;
        for (std::uint32_t slot = 0; slot < size; ++slot) add(slot, {What::coll, comm, 0, OpKind::all_reduce});
    } else if (chance(random, 70)) {
        const auto src = static_cast<std::uint32_t>(pick(random, size));
        const auto dst = static_cast<std::uint32_t>((src + 1 + pick(random, size - 1)) % size);
        if (!keeps_rails(ways.transfer(comm, members[src], members[dst]))) return;
        add(src, {What::send, comm, dst, OpKind::send});
        add(dst, {What::recv, comm, src, OpKind::recv});
    } else {  // everybody to the next one
        for (std::uint32_t slot = 0; slot < size; ++slot)
            if (!keeps_rails(ways.transfer(comm, members[slot], members[(slot + 1) % size]))) return;
        for (std::uint32_t slot = 0; slot < size; ++slot) {
            add(slot, {What::send, comm, (slot + 1) % size, OpKind::send});
            add(slot, {What::recv, comm, (slot + size - 1) % size, OpKind::recv});
        }
    }
}

void disturb(Random& random, RandomJob& r, std::size_t rank) {
    auto& program = r.job.ranks[rank].program;
    for (std::size_t i = 1; i < program.size(); ++i) {
        // Receives posted early; other launches change places now and then.
        if (chance(random, program[i].ops.front().what == What::recv ? 40 : 10)) std::swap(program[i - 1], program[i]);
    }
    for (std::size_t i = 0; i + 1 < program.size();) {  // groups
        LaunchSpec both = program[i];
        both.ops.insert(both.ops.end(), program[i + 1].ops.begin(), program[i + 1].ops.end());
        const bool transfers = program[i].ops.front().what != What::coll && program[i + 1].ops.front().what != What::coll;
        if (both.ops.size() <= 4 && chance(random, transfers ? 50 : 10) && fits(r, both, rank)) {
            program[i] = both;
            program.erase(program.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        } else {
            ++i;
        }
    }
    for (std::size_t i = 1; i < program.size(); ++i)
        if (chance(random, 15)) program[i].after.push_back(pick(random, i));
}

}  // namespace

RandomJob random_job(std::uint64_t seed) {
    Random random(seed * 0x9e3779b97f4a7c15ull + 1);
    for (;;) {
        RandomJob r;
        r.shape = random_shape(random);
        if (seed % 5 == 0) r.shape.domain = 2;
        for (NodeIndex n = 0; n < r.shape.nodes; ++n)
            for (std::uint32_t g = 0; g < r.shape.gpus; ++g) r.job.ranks.push_back({n, g, {}});
        for (std::size_t c = 1 + pick(random, 4); c > 0; --c)
            r.job.comms.push_back(some_ranks(random, r.job.ranks.size()));
        for (std::size_t i = 3 + pick(random, 14); i > 0; --i) add_operation(random, r);
        bool good = true;
        for (std::size_t rank = 0; rank < r.job.ranks.size(); ++rank) {
            disturb(random, r, rank);
            for (const LaunchSpec& launch : r.job.ranks[rank].program) good &= fits(r, launch, rank);
        }
        if (good && ends_without_opus(r.job)) return r;
    }
}

std::string text_of(const RandomJob& r) {
    std::string text = std::to_string(r.shape.nodes) + " nodes x " + std::to_string(r.shape.gpus) + " GPUs x " +
                       std::to_string(r.shape.ports) + " ports, domains of " + std::to_string(r.shape.domain) +
                       " hosts, dark " + std::to_string(r.shape.dark_ns / kMs) + " ms\n";
    for (std::size_t c = 0; c < r.job.comms.size(); ++c) {
        text += "comm " + std::to_string(c) + ":";
        for (const std::size_t m : r.job.comms[c]) text += " " + std::to_string(m);
        text += "\n";
    }
    for (std::size_t rank = 0; rank < r.job.ranks.size(); ++rank) {
        text += "rank " + std::to_string(rank) + " (n" + std::to_string(r.job.ranks[rank].node) + ".g" +
                std::to_string(r.job.ranks[rank].gpu) + "):\n";
        for (std::size_t l = 0; l < r.job.ranks[rank].program.size(); ++l) {
            const LaunchSpec& launch = r.job.ranks[rank].program[l];
            text += "  " + std::to_string(l) + " stream " + std::to_string(launch.stream) + " {";
            for (const OpSpec& op : launch.ops)
                text += op.what == What::coll ? " coll(" + std::to_string(op.comm) + ")"
                        : op.what == What::send
                            ? " send(" + std::to_string(op.comm) + " -> " + std::to_string(op.peer) + ")"
                            : " recv(" + std::to_string(op.comm) + " <- " + std::to_string(op.peer) + ")";
            text += " } work " + std::to_string(launch.work_ns / kMs) + " delay " + std::to_string(launch.delay_ns / kMs);
            for (const std::size_t a : launch.after) text += " after " + std::to_string(a);
            text += "\n";
        }
    }
    return text;
}

}  // namespace opus::controller::test
