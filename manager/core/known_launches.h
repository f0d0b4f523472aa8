// Launches of a rank by signature, as the keys they had; and how far each sequence of keys has begun. Fixed memory:
// when a table is full all is forgotten, and learned again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "manager/core/keys.h"

namespace opus::manager {

class KnownLaunches {
public:
    static constexpr std::size_t kSequences = 256, kLaunches = 512, kParts = 1000;
    static constexpr std::size_t kPartsPerLaunch = 64;  // a launch of more is not remembered

    KnownLaunches() : tables_(std::make_unique<Tables>()) {}

    void begin(const wire::KeyRange& range);
    std::optional<std::uint64_t> begun(const Key& sequence) const;  // first number that has not begun
    void remember(std::uint64_t signature, const std::vector<LaunchKey>& keys);
    bool knows(std::uint64_t signature) const { return find(signature) != kNone16; }

    // Each of its keys, at the number that comes next. False: not known.
    template <class F>
    bool each(std::uint64_t signature, F visit) const {
        const std::uint16_t launch = find(signature);
        if (launch == kNone16) return false;
        for (std::uint16_t i = 0; i < tables_->count[launch]; ++i)
            visit(key_of(tables_->parts[tables_->first[launch] + i]));
        return true;
    }

private:
    static constexpr std::uint16_t kNone16 = 0xffff;
    struct Sequence {
        Key key;
        std::uint64_t begun = 0;
    };
    struct Part {
        std::uint16_t sequence = 0, member = 0;
        std::uint32_t mesh : 1 = 0, count : 31 = 0;
    };
    struct Tables {
        std::array<Sequence, kSequences> sequences{};
        std::array<std::uint16_t, 2 * kSequences> sequence_at{};  // number + 1, by hash
        std::array<std::uint64_t, kLaunches> signatures{};
        std::array<std::uint16_t, kLaunches> first{}, count{};  // of parts
        std::array<std::uint16_t, 2 * kLaunches> launch_at{};
        std::array<Part, kParts> parts{};
        std::uint16_t sequences_used = 0, launches_used = 0, parts_used = 0;
    };

public:
    static constexpr std::size_t kBytes = sizeof(Tables);

private:
    std::uint16_t find(std::uint64_t signature) const;
    std::uint16_t find(const Key& sequence) const;
    std::uint16_t add(const Key& sequence);
    LaunchKey key_of(const Part& part) const;
    void forget() { *tables_ = {}; }

    std::unique_ptr<Tables> tables_;
};

}  // namespace opus::manager
