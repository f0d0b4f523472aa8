#include <algorithm>
#include <map>
#include <tuple>

#include "tools/replay/workload.h"

namespace opus::replay {
namespace {

using When = std::tuple<bool, std::uint32_t, bool>;
When when_of(const Step& s) { return {s.first_only, s.every, s.varies}; }

struct Collective {
    StepKind kind;
    std::uint64_t bytes;
    std::uint32_t root;
    DType dtype;
    Reduction reduction;
    When when;
    std::uint32_t line;
    bool same(const Collective& o) const {
        return std::tie(kind, bytes, root, dtype, reduction, when) ==
               std::tie(o.kind, o.bytes, o.root, o.dtype, o.reduction, o.when);
    }
};
struct Transfer {
    std::uint64_t bytes;
    DType dtype;
    When when;
    std::size_t life;  // creations of its communicator before it
    std::uint32_t line;
    bool same(const Transfer& o) const {
        return bytes == o.bytes && dtype == o.dtype && when == o.when && life == o.life;
    }
};
constexpr std::uint32_t kMostIterations = 64;  // in which the lives of communicators are followed
bool is_life(StepKind kind) { return kind == StepKind::create || kind == StepKind::destroy; }

class Agreement {
public:
    Agreement(const Workload& w, std::vector<WorkloadError>& errors) : w_(w), members_(w), errors_(errors) {}

    void run() {
        for (const Role& role : w_.roles) {
            const std::vector<Step> steps = unrolled(role.steps);
            if (steps.size() >= kMaxSteps) fail(0, "role " + role.name + " has too many steps");
            for (std::uint32_t rank : role.ranks) {
                for (const Step& s : steps) {
                    if (is_operation(s.kind)) add(rank, s);
                    if (is_life(s.kind)) add_life(rank, s);
                }
                if (errors_.empty()) lives(rank, steps);
            }
        }
        if (!errors_.empty()) return;
        collectives();
        for (const auto& [key, sends] : sends_) match(key, sends, recvs_[key]);
        for (const auto& [key, recvs] : recvs_)
            if (!sends_.count(key)) match(key, {}, recvs);
    }

private:
    using Pair = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // communicator, world src, world dst

    void fail(std::uint32_t line, const std::string& text) {
        if (errors_.size() < 20) errors_.push_back({line, text});
    }

    // A creation is a collective of the parent, and the communicator's first; its end is its last.
    void add_life(std::uint32_t rank, const Step& s) {
        const Comm& comm = w_.comms[s.comm];
        const Collective it{s.kind, 0, s.comm, DType::int8, Reduction::sum, when_of(s), s.line};
        const bool member = members_.of(s.comm, rank).group != kNobody;
        if (member) colls_[{s.comm, rank}].push_back(it);
        if (s.kind == StepKind::create) ++creations_[{s.comm, rank}];
        const std::uint32_t parent = s.kind == StepKind::create ? parent_of(comm) : kNobody;
        if (parent != kNobody && members_.of(parent, rank).group != kNobody)
            colls_[{parent, rank}].push_back(it);
        else if (!member)
            fail(s.line, "rank " + std::to_string(rank) + " has nothing to do with " + comm.name);
    }

    std::uint32_t parent_of(const Comm& comm) const {
        for (std::uint32_t c = 0; c < w_.comms.size() && !comm.parent.empty(); ++c)
            if (w_.comms[c].name == comm.parent) return c;
        return kNobody;
    }

    // What a rank uses is there when it does.
    void lives(std::uint32_t rank, const std::vector<Step>& steps) {
        const bool some = std::any_of(steps.begin(), steps.end(), [](const Step& s) { return is_life(s.kind); });
        std::vector<bool> there;
        for (std::uint32_t c = 0; c < w_.comms.size(); ++c)
            there.push_back(!w_.comms[c].later && members_.of(c, rank).group != kNobody);
        const std::uint32_t last = some ? std::min(w_.iterations, kMostIterations) : 1;
        for (std::uint32_t i = 0; i < last && errors_.empty(); ++i)
            for (const Step& s : steps)
                if (s.comm != kNobody && is_played(s, i)) live(rank, s, there);
    }

    void live(std::uint32_t rank, const Step& s, std::vector<bool>& there) {
        const std::string& name = w_.comms[s.comm].name;
        const bool creates = s.kind == StepKind::create, member = members_.of(s.comm, rank).group != kNobody;
        const std::uint32_t parent = creates ? parent_of(w_.comms[s.comm]) : kNobody;
        if (member && there[s.comm] == creates) {
            const std::string what = creates ? " is there already" : " is not there";
            return fail(s.line, "for rank " + std::to_string(rank) + " " + name + what);
        }
        if (parent != kNobody && !there[parent])
            return fail(s.line, "for rank " + std::to_string(rank) + " the parent of " + name + " is not there");
        if (is_life(s.kind)) there[s.comm] = creates && member;
    }

    void add(std::uint32_t rank, const Step& s) {
        const Comm& comm = w_.comms[s.comm];
        const Membership m = members_.of(s.comm, rank);
        if (m.group == kNobody) return fail(s.line, "rank " + std::to_string(rank) + " is not in " + comm.name);
        const auto& ranks = comm.groups[m.group];
        const bool p2p = s.kind == StepKind::send || s.kind == StepKind::recv;
        if ((p2p || is_rooted(s.kind)) && s.peer >= ranks.size())
            return fail(s.line, "peer or root " + std::to_string(s.peer) + " is not in " + comm.name + ", which has " +
                                    std::to_string(ranks.size()) + " ranks");
        if (s.kind == StepKind::send)
            sends_[{s.comm, rank, ranks[s.peer]}].push_back(
                {s.bytes, s.dtype, when_of(s), creations_[{s.comm, rank}], s.line});
        else if (s.kind == StepKind::recv)
            recvs_[{s.comm, ranks[s.peer], rank}].push_back(
                {s.bytes, s.dtype, when_of(s), creations_[{s.comm, rank}], s.line});
        else
            colls_[{s.comm, rank}].push_back({s.kind, s.bytes, s.peer, s.dtype, s.reduction, when_of(s), s.line});
    }

    void collectives() {
        for (std::uint32_t c = 0; c < w_.comms.size(); ++c)
            for (const auto& ranks : w_.comms[c].groups) {
                const auto& first = colls_[{c, ranks.front()}];
                for (std::uint32_t rank : ranks) same_order(c, ranks.front(), first, rank, colls_[{c, rank}]);
            }
    }

    void same_order(std::uint32_t c, std::uint32_t a, const std::vector<Collective>& x, std::uint32_t b,
                    const std::vector<Collective>& y) {
        for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
            if (i < x.size() && i < y.size() && x[i].same(y[i])) continue;
            return fail(i < y.size() ? y[i].line : x[i].line, "ranks " + std::to_string(a) + " and " +
                                                                  std::to_string(b) + " disagree on collective " +
                                                                  std::to_string(i) + " of " + w_.comms[c].name);
        }
    }

    void match(const Pair& key, const std::vector<Transfer>& sends, const std::vector<Transfer>& recvs) {
        for (std::size_t i = 0; i < std::max(sends.size(), recvs.size()); ++i) {
            if (i < sends.size() && i < recvs.size() && sends[i].same(recvs[i])) continue;
            return fail(i < sends.size() ? sends[i].line : recvs[i].line,
                        "transfer " + std::to_string(i) + " of " + w_.comms[std::get<0>(key)].name + " from rank " +
                            std::to_string(std::get<1>(key)) + " to rank " + std::to_string(std::get<2>(key)) +
                            " has no equal other side");
        }
    }

    const Workload& w_;
    const Memberships members_;
    std::vector<WorkloadError>& errors_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Collective>> colls_;
    std::map<Pair, std::vector<Transfer>> sends_, recvs_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> creations_;  // by communicator and rank
};

}  // namespace

void check_agreement(const Workload& workload, std::vector<WorkloadError>& errors) {
    Agreement(workload, errors).run();
}

}  // namespace opus::replay
