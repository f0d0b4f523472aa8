// A recording as a workload.
#include <algorithm>
#include <tuple>
#include <utility>

#include "tools/replay/recorded.h"
#include "tools/replay/workload_builder.h"

namespace opus::replay {
namespace {

// A word is seen when its manager looks: what ends and what becomes ready by it may seem to change places by so much.
constexpr std::int64_t kOneMomentNs = 100'000;
constexpr std::size_t kLooked = 64;  // launches back, for the one that had ended last

using Launch = Recording::Launch;
using Meeting = Recording::Meeting;
using Operation = Recording::Operation;

class Maker {
public:
    Maker(Recording recording, std::string name, std::vector<WorkloadError>& errors)
        : errors_(errors), all_(std::move(recording)), job_(std::move(name)) {}

    Workload workload() {
        choose();
        if (!errors_.empty()) return {};
        WorkloadBuilder b(job_, 0, 0, 1);
        b.workload().source = "a recording";
        place(b);
        for (const auto& [number, of] : groups_) b.comm(name(number), "", {of});
        for (std::size_t world = 0; world < order_.size(); ++world) role(b, static_cast<std::uint32_t>(world));
        if (errors_.empty()) check_agreement(b.workload(), errors_);
        return std::move(b.workload());
    }

private:
    void wrong(std::string text) { errors_.push_back({line_, std::move(text)}); }

    // Its ranks by place, and its groups.
    void choose() {
        for (auto& [number, rank] : all_.ranks) {
            if (rank.launches.empty()) continue;
            if (rank.node.empty()) wrong("the GPU of rank " + std::to_string(number) + " is not told");
            std::sort(rank.launches.begin(), rank.launches.end(),
                      [](const Launch& a, const Launch& b) { return a.seq < b.seq; });
            order_.push_back(number);
        }
        if (order_.empty()) return wrong("there is no launch in it");
        const auto place = [this](std::uint32_t number) {
            const Recording::Rank& r = all_.ranks[number];
            return std::tuple(r.node.size(), r.node, r.gpu, number);
        };
        std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
        for (const std::uint32_t number : order_)
            for (const Launch& l : all_.ranks[number].launches)
                for (const Operation& o : l.operations) join(o, number, l);
    }

    void join(const Operation& o, std::uint32_t number, const Launch& l) {
        const auto of = all_.groups.find(o.first.group);
        line_ = l.line;
        if (of == all_.groups.end() || of->second.members.size() != of->second.size)
            return wrong("not all members of group " + std::to_string(o.first.group) + " are told");
        const std::map<std::uint32_t, std::uint32_t>& places = of->second.members;
        if (o.first.transfer && (places.count(o.first.from) == 0 || places.count(o.first.to) == 0))
            return wrong("a transfer of group " + std::to_string(o.first.group) + " has an end that is no member");
        auto& members = groups_[o.first.group];
        if (members.empty())
            for (const auto& [place, rank] : places) {
                const auto at = std::find(order_.begin(), order_.end(), rank);
                if (at == order_.end())
                    return wrong("a member of group " + std::to_string(o.first.group) + " launched nothing");
                members.push_back(static_cast<std::uint32_t>(at - order_.begin()));
            }
        // All ends of an operation are of one size; who says so is the sender, or who comes first.
        if (o.first.transfer && places.at(o.first.from) != number) return;
        Meeting m = o.first;
        for (std::uint64_t i = 0; i < o.count; ++i, ++m.n) bytes_.try_emplace(m, bytes_of(o, members.size()));
    }

    // As Step counts them: the shim counts what a rank has of the whole that is scattered.
    static std::uint64_t bytes_of(const Operation& o, std::uint64_t members) {
        const std::uint64_t bytes = std::max<std::uint64_t>(1, o.bytes);
        if (o.first.transfer) return bytes;
        if (o.kind == StepKind::reduce_scatter) return bytes * members;
        return o.kind == StepKind::all_to_all ? (bytes + members - 1) / members * members : bytes;
    }

    void place(WorkloadBuilder& b) {
        std::map<std::pair<std::size_t, std::string>, std::uint32_t> nodes;
        for (const std::uint32_t number : order_)
            nodes.try_emplace({all_.ranks[number].node.size(), all_.ranks[number].node}, 0);
        std::uint32_t next = 0;
        for (auto& [node, index] : nodes) index = next++;
        for (const std::uint32_t number : order_) {
            const Recording::Rank& r = all_.ranks[number];
            b.workload().places.push_back({nodes[{r.node.size(), r.node}], r.gpu});
        }
    }

    void role(WorkloadBuilder& b, std::uint32_t world) {
        const std::vector<Launch>& all = all_.ranks[order_[world]].launches;
        b.role("r" + std::to_string(world), {world});
        std::vector<std::size_t> after(all.size());
        std::vector<bool> awaited(all.size());
        for (std::size_t i = 0; i < all.size(); ++i)
            if ((after[i] = ended_last(all, i)) != i) awaited[after[i]] = true;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const std::string stream = name(all[i].operations.front().first.group);
            if (after[i] != i) {
                b.wait(stream, "e" + std::to_string(after[i]));
                const std::int64_t gap = all[i].ready_ns - all[after[i]].done_ns;
                if (gap > 0) b.compute(stream, static_cast<std::uint64_t>(gap) / 1000);
            }
            operations(b, world, all[i], stream);
            if (awaited[i]) b.record(stream, "e" + std::to_string(i));
        }
    }

    // The number itself: none.
    static std::size_t ended_last(const std::vector<Launch>& all, std::size_t i) {
        std::size_t last = i;
        for (std::size_t j = i - std::min(i, kLooked); j < i; ++j)
            if (all[j].done_ns <= all[i].ready_ns + kOneMomentNs && (last == i || all[j].done_ns >= all[last].done_ns))
                last = j;
        return last;
    }

    void operations(WorkloadBuilder& b, std::uint32_t world, const Launch& l, const std::string& stream) {
        std::uint64_t parts = 0;
        for (const Operation& o : l.operations) parts += o.count;
        if (parts > 1) b.group_begin();
        for (const Operation& o : l.operations) {
            Meeting m = o.first;
            for (std::uint64_t i = 0; i < o.count; ++i, ++m.n) {
                const auto known = bytes_.find(m);
                const std::uint64_t bytes = known != bytes_.end() ? known->second : 1;
                if (!m.transfer) {
                    b.collective(o.kind, name(m.group), stream, bytes, DType::uint8);
                    continue;
                }
                const bool sends = groups_[m.group][m.from] == world;
                b.transfer(sends ? StepKind::send : StepKind::recv, name(m.group), sends ? m.to : m.from, stream, bytes);
                b.last().dtype = DType::uint8;
            }
        }
        if (parts > 1) b.group_end();
    }

    static std::string name(std::uint32_t group) { return "g" + std::to_string(group); }

    std::vector<WorkloadError>& errors_;
    Recording all_;
    std::string job_;
    std::uint32_t line_ = 0;
    std::vector<std::uint32_t> order_;                            // ranks' numbers, by rank of the world
    std::map<std::uint32_t, std::vector<std::uint32_t>> groups_;  // that are used: ranks of the world, by place
    std::map<Meeting, std::uint64_t> bytes_;
};

}  // namespace

Workload workload_of(Recording recording, const std::string& name, std::vector<WorkloadError>& errors) {
    return Maker(std::move(recording), name, errors).workload();
}

}  // namespace opus::replay
