#include "tools/replay/recorded.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "tools/replay/workload_builder.h"

namespace opus::replay {
namespace {

using nlohmann::json;

// A word is seen when its manager looks: what ends and what becomes ready by it may seem to change places by so much.
constexpr std::int64_t kOneMomentNs = 100'000;
constexpr std::size_t kLooked = 64;  // launches back, for the one that had ended last
constexpr std::uint64_t kGrain = 4;  // bytes of an element

enum Kind : unsigned { kCollective = 0, kTransfer = 1 };  // first uses are 2 and 3

struct Key {
    std::uint32_t group = 0;
    unsigned kind = kCollective;
    std::uint64_t n = 0, count = 1;
    std::uint32_t from = 0, to = 0;
};
struct Launch {
    std::uint64_t seq = 0, bytes = 0;
    std::string operation;
    std::int64_t ready_ns = 0, done_ns = 0;
    std::vector<Key> keys;
    std::uint32_t line = 0;
};
struct Rank {
    std::string node, job;
    std::uint32_t gpu = 0;
    std::vector<Launch> launches;
};

// "n12.g3"
bool split(const std::string& gpu, Rank& rank) {
    const std::size_t dot = gpu.rfind(".g");
    if (dot == std::string::npos) return false;
    rank.node = gpu.substr(0, dot);
    rank.gpu = static_cast<std::uint32_t>(std::stoul(gpu.substr(dot + 2)));
    return true;
}

StepKind kind_of(const std::string& operation) {
    static const std::map<std::string, StepKind> kinds = {{"AllGather", StepKind::all_gather},
                                                          {"ReduceScatter", StepKind::reduce_scatter},
                                                          {"Reduce", StepKind::reduce},
                                                          {"Broadcast", StepKind::broadcast},
                                                          {"AlltoAll", StepKind::all_to_all}};
    const auto at = kinds.find(operation);
    return at == kinds.end() ? StepKind::all_reduce : at->second;
}

class Reader {
public:
    Reader(std::istream& in, std::vector<WorkloadError>& errors) : errors_(errors) {
        std::string text;
        for (; std::getline(in, text); read(text)) ++line_;
    }

    Workload workload() {
        if (errors_.empty()) choose();
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

    void read(const std::string& text) {
        try {
            const json body = json::parse(text);
            if (body.contains("launch")) return launch(body["launch"]);
            if (body.contains("member")) {
                const auto m = body["member"].get<std::array<std::uint32_t, 3>>();
                places_[m[1]][m[2]] = m[0];
            } else if (body.contains("rank")) {
                Rank& rank = ranks_[body["rank"].get<std::uint32_t>()];
                rank.job = body.value("job", "");
                split(body.value("gpu", ""), rank);
            } else if (body.contains("group")) {
                sizes_[body["group"].get<std::uint32_t>()] = body["size"].get<std::uint32_t>();
            }
        } catch (const std::exception& error) { wrong(error.what()); }
    }

    void launch(const json& l) {
        if (l.size() < 10) return wrong("it does not tell what a launch consisted of");
        if (!l.at(5).is_number() || !l.at(7).is_number()) return;  // it never began, or never ended
        Launch made{l.at(1), l.at(4), l.at(3), l.at(5), l.at(7), {}, line_};
        for (const json& k : l.at(9)) {
            Key key{k.at(0), k.at(1), k.at(2), k.at(3), 0, 0};
            if (key.kind == kTransfer) key.from = k.at(4), key.to = k.at(5);
            if (key.kind == kCollective || key.kind == kTransfer) made.keys.push_back(key);
        }
        if (!made.keys.empty()) ranks_[l.at(0).get<std::uint32_t>()].launches.push_back(std::move(made));
    }

    // The job, its ranks by place, and its groups.
    void choose() {
        std::map<std::string, std::size_t> jobs;
        for (const auto& [number, rank] : ranks_) jobs[rank.job] += rank.launches.size();
        const auto most =
            std::max_element(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
        if (most == jobs.end() || most->second == 0) return wrong("there is no launch in it");
        job_ = most->first;
        for (auto& [number, rank] : ranks_) {
            if (rank.job != job_ || rank.launches.empty()) continue;
            if (rank.node.empty()) wrong("the GPU of rank " + std::to_string(number) + " is not told");
            std::sort(rank.launches.begin(), rank.launches.end(),
                      [](const Launch& a, const Launch& b) { return a.seq < b.seq; });
            order_.push_back(number);
        }
        const auto place = [this](std::uint32_t number) {
            const Rank& r = ranks_[number];
            return std::tuple(r.node.size(), r.node, r.gpu, number);
        };
        std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
        for (const std::uint32_t number : order_)
            for (const Launch& l : ranks_[number].launches)
                for (const Key& key : l.keys) join(key, number, l);
    }

    void join(const Key& key, std::uint32_t number, const Launch& l) {
        const auto of = places_.find(key.group);
        const auto size = sizes_.find(key.group);
        line_ = l.line;
        if (of == places_.end() || size == sizes_.end() || of->second.size() != size->second)
            return wrong("not all members of group " + std::to_string(key.group) + " are told");
        auto& members = groups_[key.group];
        if (members.empty())
            for (const auto& [place, rank] : of->second)
                members.push_back(static_cast<std::uint32_t>(std::find(order_.begin(), order_.end(), rank) - order_.begin()));
        // All ends of an operation are of one size; who says so is the sender, or who comes first.
        const bool sends = key.kind == kTransfer && of->second.at(key.from) == number;
        if (key.kind == kCollective || sends)
            for (std::uint64_t i = 0; i < key.count; ++i)
                bytes_.try_emplace({key.group, key.kind, key.from, key.to, key.n + i}, bytes_of(l, members.size()));
    }

    static std::uint64_t bytes_of(const Launch& l, std::uint64_t members) {
        std::uint64_t parts = 0;
        for (const Key& key : l.keys) parts += key.count;
        const std::uint64_t grain = kGrain * members;
        return std::max(grain, l.bytes / parts / grain * grain);
    }

    void place(WorkloadBuilder& b) {
        std::map<std::pair<std::size_t, std::string>, std::uint32_t> nodes;
        for (const std::uint32_t number : order_)
            nodes.try_emplace({ranks_[number].node.size(), ranks_[number].node}, 0);
        std::uint32_t next = 0;
        for (auto& [node, index] : nodes) index = next++;
        for (const std::uint32_t number : order_) {
            const Rank& r = ranks_[number];
            b.workload().places.push_back({nodes[{r.node.size(), r.node}], r.gpu});
        }
    }

    void role(WorkloadBuilder& b, std::uint32_t world) {
        const std::vector<Launch>& all = ranks_[order_[world]].launches;
        b.role("r" + std::to_string(world), {world});
        std::vector<std::size_t> after(all.size());
        std::vector<bool> awaited(all.size());
        for (std::size_t i = 0; i < all.size(); ++i)
            if ((after[i] = ended_last(all, i)) != i) awaited[after[i]] = true;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const std::string stream = name(all[i].keys.front().group);
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
        std::size_t parts = 0;
        for (const Key& key : l.keys) parts += key.count;
        if (parts > 1) b.group_begin();
        for (const Key& key : l.keys)
            for (std::uint64_t i = 0; i < key.count; ++i) {
                const auto known = bytes_.find({key.group, key.kind, key.from, key.to, key.n + i});
                const std::uint64_t bytes = known != bytes_.end() ? known->second : kGrain;
                if (key.kind == kCollective) {
                    b.collective(kind_of(l.operation), name(key.group), stream, bytes, DType::float32);
                    continue;
                }
                const bool sends = groups_[key.group][key.from] == world;
                b.transfer(sends ? StepKind::send : StepKind::recv, name(key.group), sends ? key.to : key.from, stream, bytes);
            }
        if (parts > 1) b.group_end();
    }

    static std::string name(std::uint32_t group) { return "g" + std::to_string(group); }

    std::vector<WorkloadError>& errors_;
    std::uint32_t line_ = 0;
    std::map<std::uint32_t, Rank> ranks_;
    std::map<std::uint32_t, std::uint32_t> sizes_;                            // of groups
    std::map<std::uint32_t, std::map<std::uint32_t, std::uint32_t>> places_;  // group, place: rank
    std::string job_;
    std::vector<std::uint32_t> order_;                            // ranks' numbers, by rank of the world
    std::map<std::uint32_t, std::vector<std::uint32_t>> groups_;  // of the job: ranks of the world, by place
    std::map<std::tuple<std::uint32_t, unsigned, std::uint32_t, std::uint32_t, std::uint64_t>, std::uint64_t> bytes_;
};

}  // namespace

Workload read_recording(std::istream& in, std::vector<WorkloadError>& errors) { return Reader(in, errors).workload(); }

}  // namespace opus::replay
