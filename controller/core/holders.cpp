#include "controller/core/holders.h"

#include <algorithm>
#include <utility>

namespace opus::controller {
namespace {

bool by_id(const Launch* x, const Launch* y) { return x->id < y->id; }

void keep_first(std::vector<const Launch*>& launches) {
    const std::size_t most = std::min(launches.size(), kHoldersTold);
    std::partial_sort(launches.begin(), launches.begin() + static_cast<std::ptrdiff_t>(most), launches.end(), by_id);
    launches.resize(most);
}

void in_flight(const KeyState& key, std::uint64_t mark, std::vector<const Launch*>& launches) {
    for (const KeyMember& m : key.members)
        if (m.launch != nullptr && m.launch->stage == Stage::in_flight && std::exchange(m.launch->mark, mark) != mark)
            launches.push_back(m.launch);
}

}  // namespace

const Holders& HolderTable::of_collectives(const std::vector<const KeyState*>& keys) {
    const auto [at, fresh] = collectives_.try_emplace(keys);
    Holders& holders = at->second;
    if (!fresh) return holders;
    const std::uint64_t mark = ++world_.mark;
    for (const KeyState* key : keys) in_flight(*key, mark, holders.first);
    holders.count = holders.first.size();
    keep_first(holders.first);
    return holders;
}

Holders HolderTable::of(PairId e) {
    std::vector<const KeyState*> collectives, transfers;
    for (const KeyState* key : world_.inventory.pair(e).holders)
        (is_collective(key->key) ? collectives : transfers).push_back(key);
    std::sort(collectives.begin(), collectives.end());
    Holders holders = of_collectives(collectives);
    if (transfers.empty()) return holders;
    std::vector<const Launch*> more;
    const std::uint64_t mark = ++world_.mark;
    for (const KeyState* key : transfers) in_flight(*key, mark, more);
    std::erase_if(more, [&](const Launch* launch) {  // counted already
        return std::any_of(launch->keys.begin(), launch->keys.end(), [&](const KeyRef& r) {
            return std::binary_search(collectives.begin(), collectives.end(), r.key);
        });
    });
    holders.count += more.size();
    holders.first.insert(holders.first.end(), more.begin(), more.end());
    keep_first(holders.first);
    return holders;
}

std::string HolderTable::text(PairId e) {
    const Holders holders = of(e);
    if (holders.count == 0 && !world_.inventory.pair(e).runs.empty())
        return "held by run " + std::to_string(world_.inventory.pair(e).runs.front()) +
               ", whose ranks may use it at any time";
    if (holders.count == 0) return "held for bytes still on their way";
    const Launch& first = *holders.first.front();
    std::string text = "held by " + world_.name(first.id) + " since " +
                       std::to_string((world_.now - first.start_ns) / 1'000'000) + " ms";
    if (holders.count > 1) text += " and " + std::to_string(holders.count - 1) + " more";
    return text;
}

}  // namespace opus::controller
