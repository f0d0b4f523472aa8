// The reference execution: does a job end without Opus, on a packet network? Played without time: nothing that can
// happen ever makes something else impossible, so any order of playing gives the answer.
#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "test/sim/programs.h"

namespace opus::sim {
namespace {

struct Kernel {
    const KernelPlan* plan = nullptr;
    bool reached = false, started = false, done = false;
    std::uint32_t behind = 0, before = 0;  // of its launch: one gate stands before them
};

struct Item {
    enum Kind : std::uint8_t { kernel, record, wait } kind;
    std::uint32_t index;
};

struct Player {
    const RankPlan* plan = nullptr;
    std::size_t at = 0;      // call
    std::uint32_t step = 0;  // of the call: what of it has been announced to others
    std::vector<std::deque<Item>> streams;
    std::vector<bool> events;
    std::vector<Kernel> kernels;
    std::map<std::uint32_t, std::deque<std::uint32_t>> families;
};

class Reference {
public:
    Reference(const Scenario& s, std::uint32_t job)
        : s_(s), drains_(s.jobs[job].drains), reached_(s.flows.size()), started_(s.flows.size()), arrived_(s.creations.size()) {
        for (const std::uint32_t r : s.jobs[job].ranks) {
            Player& p = players_.emplace_back();
            p.plan = &s.ranks[r];
            p.streams.resize(p.plan->streams + 1);
            p.events.resize(p.plan->events);
        }
    }

    bool ends() {
        for (bool moved = true; moved;) {
            moved = false;
            for (Player& p : players_) moved |= host(p) | gpu(p);
        }
        for (const Player& p : players_) {
            if (p.at < p.plan->calls.size()) return false;
            for (const Kernel& k : p.kernels)
                if (!k.done) return false;
        }
        return true;
    }

private:
    bool full(const std::vector<Part>& parts, const std::vector<std::uint32_t>& there) const {
        return std::all_of(parts.begin(), parts.end(),
                           [&](const Part& part) { return there[part.flow] >= s_.flows[part.flow].members; });
    }
    bool full(const std::vector<Part>& parts) const { return full(parts, started_); }

    bool host(Player& p) {
        bool moved = false;
        for (; p.at < p.plan->calls.size(); ++p.at, p.step = 0, moved = true) {
            const Call& call = p.plan->calls[p.at];
            switch (call.kind) {
                case Call::Kind::create: {
                    const Creation& creation = s_.creations[call.creation];
                    // The program has waited for what it had launched on the parent.
                    if (p.step == 0 && creation.parent != kNone && !p.families[s_.comms[creation.parent].family].empty())
                        return moved;
                    if (p.step == 0) ++arrived_[call.creation], p.step = 1, moved = true;
                    if (arrived_[call.creation] < creation.callers.size()) return moved;
                    break;
                }
                case Call::Kind::capture:
                    if (p.step < 3 && !connects(p, call, moved)) return moved;
                    if (drains_ && !call.first_parts.empty() && !is_drained(p)) return moved;
                    break;
                case Call::Kind::replay:
                    for (const LaunchPlan& launch : call.launches) enqueue(p, launch);
                    break;
                case Call::Kind::launch: {
                    const bool drains = drains_ && !call.first_parts.empty();
                    if (p.step < 3 && !connects(p, call, moved)) return moved;
                    if (drains && !is_drained(p)) return moved;
                    if (p.step == 2) {
                        for (const LaunchPlan& launch : call.launches) enqueue(p, launch);
                        ++p.step;
                        moved = true;
                    }
                    break;
                }
                case Call::Kind::record: p.streams[call.stream].push_back({Item::record, call.index}); break;
                case Call::Kind::wait: p.streams[call.stream].push_back({Item::wait, call.index}); break;
                case Call::Kind::sync:
                    if (!p.streams[call.stream].empty()) return moved;
                    break;
                case Call::Kind::forget:
                case Call::Kind::destroy: {  // waits for what the communicator has launched
                    const std::uint32_t comm = call.kind == Call::Kind::forget ? call.comm : call.index;
                    if (!p.families[s_.comms[comm].family].empty()) return moved;
                    break;
                }
                case Call::Kind::compute:
                case Call::Kind::pause: break;
            }
        }
        return moved;
    }

    // First those of transfers, then those of collectives (NCCL, group.cc).
    bool connects(Player& p, const Call& call, bool& moved) {
        for (const bool collectives : {false, true}) {
            std::vector<Part> parts;
            for (const Part& part : call.first_parts)
                if ((s_.flows[part.flow].key.kind == KeyKind::conn) == collectives) parts.push_back(part);
            if (p.step == (collectives ? 1 : 0)) {
                for (const Part& part : parts) ++started_[part.flow];
                ++p.step;
                moved = true;
            }
            if (!full(parts)) return false;
        }
        return true;
    }

    static bool is_drained(const Player& p) {
        return std::all_of(p.streams.begin(), p.streams.end(), [](const auto& stream) { return stream.empty(); });
    }

    void enqueue(Player& p, const LaunchPlan& launch) {
        const auto event = [&p] { return p.events.push_back(false), static_cast<std::uint32_t>(p.events.size() - 1); };
        for (const std::uint32_t other : launch.other_streams) {
            const std::uint32_t before = event();
            p.streams[other].push_back({Item::record, before});
            p.streams[launch.stream].push_back({Item::wait, before});
        }
        const auto behind = static_cast<std::uint32_t>(p.kernels.size());
        const auto before = static_cast<std::uint32_t>(behind + launch.kernels.size());
        for (const KernelPlan& kernel : launch.kernels) {
            const auto k = static_cast<std::uint32_t>(p.kernels.size());
            p.kernels.push_back({.plan = &kernel, .behind = behind, .before = before});
            p.streams[launch.stream].push_back({Item::kernel, k});
            p.families[s_.comms[kernel.comm].family].push_back(k);
        }
        if (!launch.other_streams.empty()) {
            const std::uint32_t after = event();
            p.streams[launch.stream].push_back({Item::record, after});
            for (const std::uint32_t other : launch.other_streams) p.streams[other].push_back({Item::wait, after});
        }
    }

    bool gpu(Player& p) {
        bool moved = false;
        for (auto& stream : p.streams)
            while (!stream.empty() && pass(p, stream.front(), moved)) {
                stream.pop_front();
                moved = true;
            }
        return moved;
    }

    bool pass(Player& p, const Item& item, bool& moved) {
        if (item.kind == Item::record) return p.events[item.index] = true;
        if (item.kind == Item::wait) return p.events[item.index];
        Kernel& kernel = p.kernels[item.index];
        auto& family = p.families[s_.comms[kernel.plan->comm].family];
        if (!kernel.reached) {
            if (family.front() != item.index) return false;
            for (std::uint32_t k = kernel.behind; k < kernel.before; ++k) {
                if (std::exchange(p.kernels[k].reached, true)) continue;
                for (const Part& part : p.kernels[k].plan->parts) ++reached_[part.flow];
            }
            moved = true;
        }
        if (!kernel.started) {
            if (family.front() != item.index) return false;
            kernel.started = moved = true;
            for (const Part& part : kernel.plan->parts) ++started_[part.flow];
        }
        if (!full(kernel.plan->parts)) return false;
        kernel.done = true;
        family.pop_front();
        return true;
    }

    const Scenario& s_;
    bool drains_;
    std::vector<Player> players_;
    std::vector<std::uint32_t> reached_, started_, arrived_;
};

}  // namespace

bool ends_without_opus(const Scenario& scenario, std::uint32_t job) { return Reference(scenario, job).ends(); }

}  // namespace opus::sim
