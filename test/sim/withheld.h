// Receives that managers hold back, and what happens meanwhile: that a class reaches this at all is counted, not hoped.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "opus/types.h"
#include "test/sim/scenario.h"

namespace opus::sim {

class World;

// manager: of its own node. revoked: a run, and its manager hears of it. churn: a job begins or ends. controller: it dies.
enum class Meanwhile : std::uint8_t {
    manager,
    controller,
    rank,
    network,
    switches,
    revoked,
    suspended,
    churn,
    observed
};
inline constexpr std::uint32_t kMeanwhile = 9;
const char* name_of(Meanwhile what);

class WithheldReceives {
public:
    WithheldReceives(World& world, const Scenario& scenario);
    void look(NodeIndex node);  // its manager has done something
    void gone(NodeIndex node) { held_[node].clear(); }
    void happens(Meanwhile what, NodeIndex node = kNone);  // there, or anywhere
    // Once withheld: the mistake of never asking for it.
    bool was(NodeIndex node, RankId rank, std::uint64_t seq) const;
    std::uint64_t receives() const { return receives_; }
    std::uint32_t meanwhile() const { return meanwhile_; }  // a bit for each

private:
    struct Receive {
        RankId rank = kNone;
        std::uint64_t seq = 0;
        bool operator==(const Receive&) const = default;
    };
    World& world_;
    const Scenario& s_;
    std::vector<std::vector<Receive>> held_, ever_;  // by node
    std::uint64_t receives_ = 0;
    std::uint32_t meanwhile_ = 0;
};

}  // namespace opus::sim
