#include "manager/core/known_launches.h"

#include <algorithm>

namespace opus::manager {

std::uint16_t KnownLaunches::find(std::uint64_t signature) const {
    const auto& at = tables_->launch_at;
    for (std::size_t slot = hash_mix(0, signature) % at.size(); at[slot] != 0; slot = (slot + 1) % at.size())
        if (tables_->signatures[at[slot] - 1] == signature) return static_cast<std::uint16_t>(at[slot] - 1);
    return kNone16;
}

std::uint16_t KnownLaunches::find(const Key& sequence) const {
    const auto& at = tables_->sequence_at;
    for (std::size_t slot = std::hash<Key>{}(sequence) % at.size(); at[slot] != 0; slot = (slot + 1) % at.size())
        if (tables_->sequences[at[slot] - 1].key == sequence) return static_cast<std::uint16_t>(at[slot] - 1);
    return kNone16;
}

std::uint16_t KnownLaunches::add(const Key& sequence) {
    Tables& t = *tables_;
    std::size_t slot = std::hash<Key>{}(sequence) % t.sequence_at.size();
    while (t.sequence_at[slot] != 0) slot = (slot + 1) % t.sequence_at.size();
    t.sequences[t.sequences_used] = {sequence, 0};
    t.sequence_at[slot] = ++t.sequences_used;
    return static_cast<std::uint16_t>(t.sequences_used - 1);
}

void KnownLaunches::begin(const wire::KeyRange& range) {
    const Key sequence = sequence_of(range.first);
    std::uint16_t at = find(sequence);
    if (at == kNone16) {
        if (tables_->sequences_used == kSequences) forget();
        at = add(sequence);
    }
    std::uint64_t& begun = tables_->sequences[at].begun;
    begun = std::max(begun, range.first.n + range.count);
}

std::optional<std::uint64_t> KnownLaunches::begun(const Key& sequence) const {
    const std::uint16_t at = find(sequence);
    if (at == kNone16) return std::nullopt;
    return tables_->sequences[at].begun;
}

// All of its sequences have begun: begin() comes first.
void KnownLaunches::remember(std::uint64_t signature, const std::vector<LaunchKey>& keys) {
    Tables& t = *tables_;
    if (knows(signature) || keys.empty() || keys.size() > kPartsPerLaunch) return;
    if (t.launches_used == kLaunches || t.parts_used + keys.size() > kParts) return forget();
    std::array<std::uint16_t, kPartsPerLaunch> sequences;
    for (std::size_t i = 0; i < keys.size(); ++i)
        if ((sequences[i] = find(sequence_of(keys[i].range.first))) == kNone16) return;
    std::size_t slot = hash_mix(0, signature) % t.launch_at.size();
    while (t.launch_at[slot] != 0) slot = (slot + 1) % t.launch_at.size();
    t.signatures[t.launches_used] = signature;
    t.first[t.launches_used] = t.parts_used;
    t.count[t.launches_used] = static_cast<std::uint16_t>(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i)
        t.parts[t.parts_used++] = {sequences[i], keys[i].member, keys[i].range.mesh, keys[i].range.count & 0x7fffffffu};
    t.launch_at[slot] = ++t.launches_used;
}

LaunchKey KnownLaunches::key_of(const Part& part) const {
    const Sequence& s = tables_->sequences[part.sequence];
    LaunchKey key{part.member, {s.key, part.count, part.mesh != 0}};
    key.range.first.n = s.begun;
    return key;
}

}  // namespace opus::manager
