// Which circuits serve a gang: each pair of GPUs it needs gets one, on ports that a switch can join.
// Deterministic: equal questions in equal states get equal answers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "controller/core/schedule/inventory.h"

namespace opus::controller {

struct Plan {
    std::vector<std::pair<PairId, Circuit>> fresh;  // to be made
    std::vector<std::pair<PairId, Circuit>> kept;   // up already
    GpuId stuck = kNone;                            // where it failed
};

class Planner {
public:
    // One circuit a pair, and more only where that costs nothing, or less than their bandwidth saves.
    explicit Planner(const Inventory& inventory) : inventory_(&inventory) {}

    // On ports that are free for `gang` now; circuits that fit are kept. Every further free port that nobody
    // waits for adds a parallel circuit; if `sparing`, only between dark ports of which a fault has darkened one. False: something is in the way, at plan.stuck.
    bool place(const Gang& gang, Plan& plan, bool sparing = false);

    // The ports to wait for, as if every port that is not fenced could be had; those that can be had sooner
    // are preferred. False only if not routable.
    bool want(const Gang& gang, Plan& plan);

    // If nobody else were there, would one of the pairs have one circuit more than it has: for what gangs have moved
    // over it, or because a fault has taken it?
    bool wants_more(const std::vector<PairId>& pairs);

    // What is moved over a pair: of a launch over a mesh of so many members (0: of none), and of a gang.
    static double pair_bytes(std::uint64_t bytes, std::size_t mesh);
    static double bytes_of(const Gang& gang);
    // What so many bytes take over one circuit of the GPU, ns.
    double bytes_ns(GpuId gpu, double bytes) const;

    // Could it be served if nobody else were there?
    bool routable(const std::vector<PairId>& pairs);

    // Why not, by name.
    std::string explain(const std::vector<PairId>& pairs);

private:
    enum class Mode : std::uint8_t { place, want, fabric };
    struct Candidate {
        int cost = 0;
        std::pair<int, PairId> worth;  // of the light that it has
        PortId port = kNone;
        bool used = false;
    };
    struct GpuScratch {
        std::uint64_t stamp = 0;
        std::vector<Candidate> candidates;  // cheapest first
        std::vector<std::uint32_t> todo;    // pairs still to be served
    };
    struct Todo {
        PairId pair = kNone;
        GpuId a = kNone, b = kNone;
        int choice = -1;  // candidate of a * candidates of b + candidate of b
        bool ordered = false;
    };

    GpuScratch& at(GpuId gpu);
    std::string explain_crossing(const Gpu& a, const Gpu& b) const;
    int cost(PortId p) const;  // negative: not to be had
    std::pair<int, PairId> worth(PortId p) const;
    bool solve(const std::vector<PairId>& pairs, bool keep_idle, Plan& plan);
    bool solve(const std::vector<PairId>& pairs, Plan& plan);  // idle circuits stay where that can be
    bool keep(PairId e, bool keep_idle, Plan& plan);
    void use(PortId p);
    bool degrees_fit(Plan& plan);
    void order();
    bool advance(Todo& t);
    bool is_like_one_before(const std::vector<Candidate>& candidates, const Candidate& c) const;
    void undo(Todo& t);
    bool search(Plan& plan);
    void add_parallels(const std::vector<PairId>& pairs, bool sparing, Plan& plan);
    bool are_dark(PortId p, PortId q) const;
    bool is_owed(PortId p, PortId q) const;
    double saved_ns(PairId e, double bytes, std::size_t circuits) const;

    const Inventory* inventory_;
    bool spares_light_ = false;  // in this search ports that cost as much are told apart by the light that they have
    Mode mode_ = Mode::fabric;
    const Gang* gang_ = nullptr;
    double bytes_ = 0;  // what the gang moves over a pair
    std::uint64_t stamp_ = 0;
    std::vector<GpuScratch> scratch_;
    std::vector<Todo> todo_;
    std::vector<std::uint32_t> order_;
    std::vector<std::size_t> component_begin_;  // of order_[i]
};

}  // namespace opus::controller
