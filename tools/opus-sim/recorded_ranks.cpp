#include "tools/opus-sim/recorded_ranks.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace opus::job {
namespace {

using replay::Recording;
using Operation = Recording::Operation;

class Sets {
public:
    std::uint32_t of(std::uint32_t one) {
        const auto at = up_.try_emplace(one, one).first;
        return at->second == one ? one : at->second = of(at->second);
    }
    void join(std::uint32_t a, std::uint32_t b) { up_[of(a)] = of(b); }

private:
    std::map<std::uint32_t, std::uint32_t> up_;
};

std::string ranges(const std::vector<std::uint32_t>& sorted) {
    std::string text;
    for (std::size_t i = 0; i < sorted.size();) {
        std::size_t end = i + 1;
        while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
        text += (text.empty() ? "" : ", ") + std::to_string(sorted[i]);
        if (end > i + 1) text += " to " + std::to_string(sorted[end - 1]);
        i = end;
    }
    return text;
}

}  // namespace

RecordedRanks::RecordedRanks(const std::vector<NamedRecording>& files, const std::vector<ClockOffset>& clocks)
    : files_(files) {
    for (std::size_t f = 0; f < files.size(); ++f) add(f, clocks[f]);
}

// A grown communicator has two ids, and some members know it by the one, some by the other.
std::uint32_t RecordedRanks::group_number(const Recording::Group& group) {
    auto at = ids_.find(group.id);
    if (at == ids_.end() && !group.also.empty()) at = ids_.find(group.also);
    const std::uint32_t number = at == ids_.end() ? static_cast<std::uint32_t>(all_.groups.size()) : at->second;
    ids_[group.id] = number;
    if (!group.also.empty()) ids_[group.also] = number;
    return number;
}

void RecordedRanks::add(std::size_t file, const ClockOffset& clock) {
    const Recording& from = files_[file].recording;
    const auto first = static_cast<std::uint32_t>(origin_.empty() ? 0 : origin_.rbegin()->first + 1);
    std::map<std::uint32_t, std::uint32_t> numbers;  // of ranks
    for (const auto& [number, rank] : from.ranks) {
        const std::uint32_t mine = first + static_cast<std::uint32_t>(numbers.size());
        numbers[number] = mine;
        origin_[mine] = file;
        all_.ranks[mine] = rank;
    }
    std::map<std::uint32_t, std::uint32_t> groups;
    for (const auto& [number, group] : from.groups) {
        const std::uint32_t mine = groups[number] = group_number(group);
        Recording::Group& all = all_.groups[mine];
        if (all.id.empty()) all.id = group.id;
        if (all.size != 0 && group.size != 0 && all.size != group.size)
            throw BadFile(files_[file].file, "",
                          "group " + group.id + " has " + std::to_string(group.size) + " members here, and " +
                              std::to_string(all.size) + " elsewhere");
        all.size = std::max(all.size, group.size);
        for (const auto& [place, rank] : group.members) {
            const auto known = numbers.find(rank);
            if (known == numbers.end()) continue;
            const auto [at, fresh] = all.members.try_emplace(place, known->second);
            if (fresh || at->second == known->second) continue;
            if (origin_[at->second] != file)
                throw BadFile(files_[file].file, "",
                              "rank " + std::to_string(place) + " of group " + group.id + " is in " +
                                  file_of(at->second) + ", too: give the recordings of one run");
            at->second = known->second;
        }
    }
    for (const auto& [number, mine] : numbers)
        for (Recording::Launch& l : all_.ranks[mine].launches) {
            l.ready_ns -= clock.ahead_ns, l.begin_ns -= clock.ahead_ns, l.done_ns -= clock.ahead_ns;
            for (Operation& o : l.operations) {
                const auto at = groups.find(o.first.group);
                if (at == groups.end())
                    throw BadFile(files_[file].file, "line " + std::to_string(l.line),
                                  "group " + std::to_string(o.first.group) + " is not told");
                o.first.group = at->second;
            }
        }
}

std::vector<std::uint32_t> RecordedRanks::used_groups() const {
    std::set<std::uint32_t> used;
    for (const auto& [number, rank] : all_.ranks)
        for (const Recording::Launch& l : rank.launches)
            for (const Operation& o : l.operations) used.insert(o.first.group);
    return {used.begin(), used.end()};
}

void RecordedRanks::choose_job(std::vector<std::string>& assumed) {
    Sets sets;
    for (const std::uint32_t g : used_groups()) {
        const auto& members = all_.groups[g].members;
        for (const auto& [place, rank] : members) sets.join(members.begin()->second, rank);
    }
    std::map<std::pair<std::size_t, std::string>, std::uint32_t> named;  // of one file
    for (const auto& [number, rank] : all_.ranks) {
        if (rank.launches.empty()) continue;
        const auto [at, fresh] = named.try_emplace({origin_[number], rank.job}, number);
        if (!fresh) sets.join(at->second, number);
    }
    std::map<std::uint32_t, std::size_t> launches;
    for (const auto& [number, rank] : all_.ranks) launches[sets.of(number)] += rank.launches.size();
    const auto most = std::max_element(launches.begin(), launches.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == launches.end() || most->second == 0) throw BadFile(files_.front().file, "", "there is no launch in it");
    std::set<std::size_t> of_it;
    std::uint32_t others = 0;
    for (auto& [number, rank] : all_.ranks) {
        if (rank.launches.empty()) continue;
        if (sets.of(number) == most->first) {
            of_it.insert(origin_[number]);
        } else {
            ++others;
            rank.launches.clear();
        }
    }
    for (std::size_t f = 0; f < files_.size(); ++f) {
        const auto& ranks = files_[f].recording.ranks;
        const bool empty =
            std::all_of(ranks.begin(), ranks.end(), [](const auto& r) { return r.second.launches.empty(); });
        if (empty) assumed.push_back(files_[f].file + " has no launch, and is left out");
        if (!empty && of_it.count(f) == 0)
            throw BadFile(files_[f].file, "",
                          "its ranks share no communicator with those of " + files_[*of_it.begin()].file +
                              ": is it of another job, or of an earlier run? Give the recordings of one run");
    }
    if (others != 0)
        assumed.push_back("left out: " + std::to_string(others) + (others == 1 ? " rank" : " ranks") + " of other jobs");
}

void RecordedRanks::join_successors(std::vector<std::string>& assumed) {
    std::map<std::pair<std::string, std::uint32_t>, std::vector<std::uint32_t>> by_gpu;
    for (const auto& [number, rank] : all_.ranks) {
        if (rank.launches.empty()) continue;
        if (rank.node.empty()) throw BadFile(file_of(number), "", "the GPU of rank " + rank.name + " is not told");
        by_gpu[{rank.node, rank.gpu}].push_back(number);
    }
    std::uint32_t joined = 0;
    for (auto& [gpu, ranks] : by_gpu) {
        const auto span = [this](std::uint32_t r) {
            const auto& l = all_.ranks[r].launches;
            std::pair<std::int64_t, std::int64_t> of{l.front().ready_ns, l.front().done_ns};
            for (const Recording::Launch& one : l)
                of = {std::min(of.first, one.ready_ns), std::max(of.second, one.done_ns)};
            return of;
        };
        std::sort(ranks.begin(), ranks.end(), [&](std::uint32_t a, std::uint32_t b) { return span(a) < span(b); });
        for (std::size_t i = 1; i < ranks.size(); ++i) {
            Recording::Rank &into = all_.ranks[ranks[0]], &next = all_.ranks[ranks[i]];
            if (span(ranks[i]).first < span(ranks[0]).second) {
                if (origin_[ranks[0]] == origin_[ranks[i]]) break;  // two processes on one GPU
                throw BadFile(file_of(ranks[i]), "",
                              file_of(ranks[0]) + " has a rank on GPU " + std::to_string(gpu.second) + " of node " + gpu.first +
                                  ", too: give each node a name of its own (opus-run --observe --node NAME)");
            }
            std::uint64_t last = 0;
            for (const Recording::Launch& l : into.launches) last = std::max(last, l.seq + 1);
            for (Recording::Launch& l : next.launches) l.seq += last;
            into.launches.insert(into.launches.end(), next.launches.begin(), next.launches.end());
            into.lost += next.lost, into.passed += next.passed, into.under_way += next.under_way;
            for (auto& [number, group] : all_.groups)
                for (auto& [place, rank] : group.members)
                    if (rank == ranks[i]) rank = ranks[0];
            all_.ranks.erase(ranks[i]);
            ++joined;
        }
    }
    if (joined != 0)
        assumed.push_back("processes that followed each other on one GPU are one rank (" + std::to_string(joined) +
                          (joined == 1 ? " time)" : " times)"));
}

void RecordedRanks::find_missing(bool fill, std::vector<std::string>& assumed) {
    for (const std::uint32_t g : used_groups()) {
        Recording::Group& group = all_.groups[g];
        if (group.size == 0) group.size = static_cast<std::uint32_t>(group.members.size());
        if (group.members.size() >= group.size) continue;
        if (fill) return fill_in(group, assumed);
        std::vector<std::uint32_t> missing;
        for (std::uint32_t p = 0; p < group.size; ++p)
            if (group.members.count(p) == 0) missing.push_back(p);
        throw BadFile(files_.front().file, "",
                      "group " + group.id + " has " + std::to_string(group.size) + " ranks, and " +
                          std::to_string(missing.size()) + " of them are in no file given (" + ranges(missing) +
                          "): give the recordings of all nodes, or let those ranks do what the others do with --fill");
    }
}

// Only where every operation is of all ranks, and all have the same place in each group.
void RecordedRanks::fill_in(const Recording::Group& world, std::vector<std::string>& assumed) {
    const std::map<std::uint32_t, std::uint32_t> places = world.members;
    const std::uint32_t size = world.size;
    const std::vector<std::uint32_t> used = used_groups();
    bool alike = std::all_of(used.begin(), used.end(), [&](std::uint32_t g) {
        return all_.groups[g].size == size && all_.groups[g].members == places;
    });
    std::uint32_t gpus = 0, present = 0;
    for (const auto& [number, rank] : all_.ranks) {
        if (rank.launches.empty()) continue;
        gpus = std::max(gpus, rank.gpu + 1), ++present;
        for (const Recording::Launch& l : rank.launches)
            for (const Operation& o : l.operations) alike = alike && !o.first.transfer;
    }
    if (!alike || present != places.size())
        throw BadFile(files_.front().file, "",
                      "ranks are missing, and not every operation is of all ranks: --fill cannot make them up; give "
                      "the recordings of all nodes");
    std::vector<std::uint32_t> there;
    for (const auto& [place, rank] : places) there.push_back(rank);
    std::uint32_t filled = 0;
    for (std::uint32_t p = 0; p < size; ++p) {
        if (places.count(p) != 0) continue;
        const std::uint32_t number = all_.ranks.rbegin()->first + 1, like = there[p % there.size()];
        Recording::Rank rank = all_.ranks[like];
        rank.name = "filled" + std::to_string(p);
        rank.node = "filled" + std::to_string(filled / gpus);
        rank.gpu = filled++ % gpus;
        rank.lost = rank.passed = rank.under_way = 0;
        all_.ranks[number] = std::move(rank);
        origin_[number] = origin_[like];
        for (const std::uint32_t g : used) all_.groups[g].members[p] = number;
    }
    assumed.push_back(std::to_string(filled) + " ranks that are in no file do what the others do, on nodes of " +
                      std::to_string(gpus) + " GPUs (--fill)");
}

}  // namespace opus::job
