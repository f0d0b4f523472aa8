#include "tools/opus-sim/job_launches.h"

#include <algorithm>
#include <set>

namespace opus::job {

using replay::Step;
using replay::StepKind;

JobLaunches::JobLaunches(const replay::Workload& workload, std::uint32_t ports, std::uint32_t iterations)
    : w_(workload), map_(workload, ports, 0, 1), ports_(ports), roles_(workload.roles.size()), role_of_(workload.world()) {
    for (const replay::Comm& comm : w_.comms) {
        std::vector<std::uint32_t>& of = group_of_.emplace_back(w_.world(), kNone);
        std::vector<std::uint32_t>& in = rank_in_.emplace_back(w_.world(), kNone);
        std::vector<bool>& crossing = crossing_.emplace_back();
        for (const std::vector<std::uint32_t>& ranks : comm.groups) {
            bool crosses = false;
            for (std::uint32_t i = 0; i < ranks.size(); ++i) {
                of[ranks[i]] = static_cast<std::uint32_t>(crossing.size()), in[ranks[i]] = i;
                crosses |= w_.places[ranks[i]].node != w_.places[ranks.front()].node;
            }
            crossing.push_back(crosses);
        }
    }
    for (std::uint32_t role = 0; role < w_.roles.size(); ++role) {
        steps_.push_back(replay::unrolled(w_.roles[role].steps));
        for (const std::uint32_t rank : w_.roles[role].ranks) role_of_[rank] = role;
    }
    for (std::uint32_t role = 0; role < w_.roles.size(); ++role) list(role, iterations);
    for (std::uint32_t role = 0; role < w_.roles.size(); ++role) {
        std::vector<const Step*> kinds;  // one of each
        std::set<std::tuple<StepKind, std::uint32_t, std::uint32_t>> seen;
        for (const Step& step : steps_[role])
            if (is_operation(step.kind) && seen.insert({step.kind, step.comm, transfer(step) ? step.peer : 0}).second)
                kinds.push_back(&step);
        for (const std::uint32_t rank : w_.roles[role].ranks)
            for (const Step* step : kinds) name(*step, rank);
    }
}

void JobLaunches::list(std::uint32_t role, std::uint32_t iterations) {
    RoleLaunches& r = roles_[role];
    bool in_group = false, open = false;
    const auto begin = [&] {
        if (!open) r.first.push_back(static_cast<std::uint32_t>(r.operations.size()));
        open = in_group;
    };
    for (std::uint32_t iteration = 0; iteration < iterations; ++iteration)
        for (const Step& step : steps_[role]) {
            if (!is_played(step, iteration)) continue;
            if (step.kind == StepKind::group_begin) in_group = true;
            if (step.kind == StepKind::group_end) in_group = open = false;
            if (!is_operation(step.kind)) continue;
            begin();
            const Kind kind{step.comm, transfer(step) ? step.peer : kNone,
                            !transfer(step)               ? 0
                            : step.kind == StepKind::send ? 1
                                                          : 2};
            std::vector<std::uint32_t>& same = r.of_kind[kind];
            r.operations.push_back({&step, static_cast<std::uint32_t>(same.size())});
            same.push_back(static_cast<std::uint32_t>(r.first.size() - 1));
        }
    r.first.push_back(static_cast<std::uint32_t>(r.operations.size()));
}

const JobLaunches::Operation* JobLaunches::begin(std::uint32_t rank, std::uint64_t seq) const {
    const RoleLaunches& r = roles_[role_of_[rank]];
    return r.operations.data() + r.first[seq];
}

bool JobLaunches::crosses(const Step& step, std::uint32_t rank) const {
    const std::uint32_t group = group_of_[step.comm][rank];
    if (!transfer(step)) return crossing_[step.comm][group];
    return w_.places[w_.comms[step.comm].groups[group][step.peer]].node != w_.places[rank].node;
}

bool JobLaunches::speaks(const Step& step, std::uint32_t rank) const {
    return transfer(step) ? step.kind == StepKind::send : rank_in_[step.comm][rank] == 0;
}

std::vector<JobLaunches::Member> JobLaunches::members(const Operation& operation, std::uint32_t rank) const {
    const Step& step = *operation.step;
    const std::vector<std::uint32_t>& ranks = w_.comms[step.comm].groups[group_of_[step.comm][rank]];
    std::vector<Member> members;
    const auto add = [&](std::uint32_t member, const Kind& kind) {
        const auto& same = roles_[role_of_[member]].of_kind;
        const auto at = same.find(kind);
        if (at != same.end() && operation.number < at->second.size())
            members.push_back({member, at->second[operation.number]});
    };
    if (!transfer(step)) {
        for (const std::uint32_t member : ranks) add(member, {step.comm, kNone, 0});
        return members;
    }
    const int direction = step.kind == StepKind::send ? 1 : 2;
    add(rank, {step.comm, step.peer, direction});
    add(ranks[step.peer], {step.comm, rank_in_[step.comm][rank], 3 - direction});
    return members;
}

std::uint32_t JobLaunches::group_size(const Step& step, std::uint32_t rank) const {
    return static_cast<std::uint32_t>(w_.comms[step.comm].groups[group_of_[step.comm][rank]].size());
}

JobLaunches::LabelKey JobLaunches::label_key(const Step& step, std::uint32_t rank) const {
    return {transfer(step) ? -1 : static_cast<int>(step.kind), step.comm, group_size(step, rank)};
}

JobLaunches::PairsKey JobLaunches::pairs_key(const Step& step, std::uint32_t rank) const {
    const std::uint32_t group = group_of_[step.comm][rank], me = rank_in_[step.comm][rank];
    const bool mesh = step.kind == StepKind::all_to_all || step.kind == StepKind::gather || step.kind == StepKind::scatter;
    if (!transfer(step)) return {step.comm, group, mesh ? kNone - 1 : kNone};
    return {step.comm, group, std::min(me, step.peer) * group_size(step, rank) + std::max(me, step.peer)};
}

std::uint32_t JobLaunches::label(const Step& step, std::uint32_t rank) const {
    return label_of_.at(label_key(step, rank));
}
std::uint32_t JobLaunches::pairs(const Step& step, std::uint32_t rank) const {
    return pairs_of_.at(pairs_key(step, rank));
}

void JobLaunches::name(const Step& step, std::uint32_t rank) {
    const auto [at, fresh] = label_of_.try_emplace(label_key(step, rank), 0);
    if (fresh) {
        std::string name = w_.comms[step.comm].name;
        while (!name.empty() && std::string("0123456789 _-.").find(name.back()) != std::string::npos) name.pop_back();
        std::string text = transfer(step) ? "transfer" : replay::name_of(step.kind);
        if (!name.empty() && name.size() <= 24) text += " " + name;
        if (!transfer(step)) text += ", " + std::to_string(group_size(step, rank)) + " ranks";
        const auto same = std::find(labels_.begin(), labels_.end(), text);
        at->second = static_cast<std::uint32_t>(same - labels_.begin());
        if (same == labels_.end()) labels_.push_back(text);
    }
    if (!crosses(step, rank)) return;
    const auto [key, added] = pairs_of_.try_emplace(pairs_key(step, rank), static_cast<std::uint32_t>(pairs_.size()));
    if (!added) return;
    Pairs& p = pairs_.emplace_back();
    map_.add_pairs(step, rank, p.pairs);
    p.served = p.pairs.empty() || !sim::most_circuits(p.pairs, ports_).empty();
}

double JobLaunches::sent_bytes(const Step& step, std::uint32_t rank, double length) const {
    return replay::ring_passes(step.kind, group_size(step, rank)) * static_cast<double>(step.bytes) * length;
}

}  // namespace opus::job
