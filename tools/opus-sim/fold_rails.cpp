#include "tools/opus-sim/fold_rails.h"

#include <algorithm>
#include <map>

namespace opus::job {
namespace {

using replay::kNobody;
using replay::Step;
using replay::StepKind;

class Fold {
public:
    Fold(const replay::Workload& w, const replay::DryRunOptions& o) : w_(w), times_(w, o) {}

    std::optional<replay::Workload> run() {
        if (!places() || !communicators() || !roles()) return std::nullopt;
        write();
        return std::move(out_);
    }

private:
    enum class Reach : std::uint8_t { node, rail, nodes };  // GPUs of one node, of one rail, all of several nodes

    // As many GPUs on each node, and more than one.
    bool places() {
        for (const replay::Place& p : w_.places)
            nodes_ = std::max(nodes_, p.node + 1), gpus_ = std::max(gpus_, p.gpu + 1);
        if (gpus_ < 2 || nodes_ < 2 || std::uint64_t{nodes_} * gpus_ != w_.world()) return false;
        at_.assign(w_.world(), kNobody);
        for (std::uint32_t r = 0; r < w_.world(); ++r) at_[w_.places[r].node * gpus_ + w_.places[r].gpu] = r;
        return std::find(at_.begin(), at_.end(), kNobody) == at_.end();
    }

    // Each within nodes, or on rails, and on all rails alike, or of all GPUs of its nodes: NCCL's rings of those come
    // into a node and leave it by one rail each (include/opus/ways.h).
    bool communicators() {
        for (const replay::Comm& comm : w_.comms) {
            if (comm.later) return false;
            bool node = true, rail = true, whole = true;
            std::map<std::vector<std::uint32_t>, std::uint32_t> rails;  // by nodes in their order
            for (const auto& group : comm.groups) {
                std::vector<std::uint32_t> nodes;
                std::map<std::uint32_t, std::uint32_t> of_node;
                for (const std::uint32_t r : group) {
                    ++of_node[w_.places[r].node];
                    node &= w_.places[r].node == w_.places[group.front()].node;
                    rail &= w_.places[r].gpu == w_.places[group.front()].gpu;
                    nodes.push_back(w_.places[r].node);
                }
                ++rails[nodes];
                whole &= std::all_of(of_node.begin(), of_node.end(), [&](const auto& of) { return of.second == gpus_; });
            }
            rail &= std::all_of(rails.begin(), rails.end(), [&](const auto& of) { return of.second == gpus_; });
            reach_.push_back(node ? Reach::node : whole ? Reach::nodes : Reach::rail);
            used_by_rails_.push_back(rail);
        }
        return true;
    }

    bool roles() {
        std::vector<std::uint32_t> role_of(w_.world(), kNobody);
        for (std::uint32_t r = 0; r < w_.roles.size(); ++r)
            for (const std::uint32_t rank : w_.roles[r].ranks) role_of[rank] = r;
        for (std::uint32_t n = 0; n < nodes_; ++n)
            for (std::uint32_t g = 1; g < gpus_; ++g) {
                const std::uint32_t a = role_of[at_[n * gpus_]], b = role_of[at_[n * gpus_ + g]];
                if (a != b && !alike(a, b)) return false;
            }
        // Of what is called, only; others may join what they like.
        const auto folds = [&](const Step& s) {
            if (!is_operation(s.kind) || reach_[s.comm] == Reach::node) return true;
            if (reach_[s.comm] == Reach::rail) return static_cast<bool>(used_by_rails_[s.comm]);
            return s.kind != StepKind::send && s.kind != StepKind::recv && !is_rooted(s.kind);
        };
        return std::ranges::all_of(w_.roles,
                                   [&](const replay::Role& role) { return std::ranges::all_of(role.steps, folds); });
    }

    bool alike(std::uint32_t a, std::uint32_t b) {
        const auto [at, fresh] = alike_.try_emplace({a, b}, false);
        if (fresh) {
            const auto &x = w_.roles[a].steps, &y = w_.roles[b].steps;
            at->second = std::ranges::equal(x, y, &Step::does_as);
        }
        return at->second;
    }

    void write() {
        out_.name = w_.name, out_.source = w_.source, out_.iterations = w_.iterations, out_.lengths = w_.lengths;
        out_.streams = w_.streams, out_.events = w_.events;
        for (std::uint32_t n = 0; n < nodes_; ++n) out_.places.push_back({n, 0});
        for (std::uint32_t c = 0; c < w_.comms.size(); ++c) {
            replay::Comm comm{w_.comms[c].name, "", {}};
            if (reach_[c] == Reach::nodes) comm.gpus_each = gpus_;
            for (const auto& group : w_.comms[c].groups) {
                if (reach_[c] == Reach::node) continue;
                std::vector<std::uint32_t> nodes;
                for (const std::uint32_t r : group)
                    if (w_.places[r].gpu == 0) nodes.push_back(w_.places[r].node);
                if (!nodes.empty()) comm.groups.push_back(std::move(nodes));
            }
            out_.comms.push_back(std::move(comm));
        }
        for (const replay::Role& role : w_.roles) {
            replay::Role one{role.name, {}, {}};
            for (const std::uint32_t r : role.ranks)
                if (w_.places[r].gpu == 0) one.ranks.push_back(w_.places[r].node);
            if (one.ranks.empty()) continue;
            for (const Step& s : role.steps) one.steps.push_back(step(s, role.ranks.front()));
            out_.roles.push_back(std::move(one));
        }
    }

    Step step(Step s, std::uint32_t rank) const {
        if (!is_operation(s.kind)) return s;
        if (reach_[s.comm] == Reach::node) {
            s.us = static_cast<std::uint64_t>((times_.ns(s, rank, 1) + 500) / 1000);
            s.kind = StepKind::compute, s.comm = kNobody, s.bytes = 0;
            return s;
        }
        return s;
    }

    const replay::Workload& w_;
    replay::OperationTimes times_;
    replay::Workload out_;
    std::uint32_t nodes_ = 0, gpus_ = 0;
    std::vector<std::uint32_t> at_;  // rank, by node and GPU
    std::vector<Reach> reach_;
    std::vector<bool> used_by_rails_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, bool> alike_;
};

}  // namespace

std::optional<replay::Workload> one_rail(const replay::Workload& workload, const replay::DryRunOptions& times) {
    return Fold(workload, times).run();
}

}  // namespace opus::job
