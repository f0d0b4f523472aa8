#include "shim/settings.h"

#include <cstdlib>
#include <cstring>

#include "opus/launch_ring.h"
#include "shim/message.h"

namespace opus::shim {

namespace {

void take(const char* name, const char*& value) {
    if (const char* given = getenv(name); given != nullptr) value = given;
}

void take(const char* name, std::uint64_t& value) {
    const char* given = getenv(name);
    if (given == nullptr || given[0] == '\0' || parse_number(given, value)) return;
    say(Level::warn, "%s=%.80s is not a number; give a whole number (using %llu)", name, given,
        static_cast<unsigned long long>(value));
}

struct Choice {
    const char* word;
    int value;
};

template <std::size_t N>
int choose(const char* name, const char* given, const Choice (&choices)[N], int standard, const char* words) {
    for (const Choice& c : choices)
        if (strcmp(given, c.word) == 0) return c.value;
    say(Level::warn, "%s=%.80s is not known; give one of %s (using %s)", name, given, words, choices[standard].word);
    return choices[standard].value;
}

}  // namespace

bool parse_number(const char* text, std::uint64_t& value) {
    std::uint64_t n = 0;
    if (*text == '\0') return false;
    for (; *text != '\0'; ++text) {
        if (*text < '0' || *text > '9' || n > (UINT64_MAX - 9) / 10) return false;
        n = n * 10 + std::uint64_t(*text - '0');
    }
    value = n;
    return true;
}

void Settings::read() {
    take("OPUS_LOG", OPUS_LOG);
    static const Choice levels[] = {{"warn", 2}, {"debug", 0}, {"info", 1}, {"error", 3}};
    shown_from = static_cast<Level>(choose("OPUS_LOG", OPUS_LOG, levels, 0, "debug, info, warn or error"));
#define OPUS_SETTING(name, type, standard, who, help) \
    if (strstr(who, "shim") != nullptr) take(#name, name);
#include "opus/settings.h"
    if (OPUS_RING_SLOTS < 64 || OPUS_RING_SLOTS > ring::kMaxSlots || (OPUS_RING_SLOTS & (OPUS_RING_SLOTS - 1)) != 0) {
        say(Level::warn, "OPUS_RING_SLOTS=%llu is not a power of two from 64 to %u (using %u)",
            static_cast<unsigned long long>(OPUS_RING_SLOTS), ring::kMaxSlots, ring::kDefaultSlots);
        OPUS_RING_SLOTS = ring::kDefaultSlots;
    }
    if (OPUS_HOLD_MS == 0 || OPUS_HOLD_MS > 86'400'000) {
        say(Level::warn, "OPUS_HOLD_MS=%llu is not between 1 and 86400000 (using 30000)",
            static_cast<unsigned long long>(OPUS_HOLD_MS));
        OPUS_HOLD_MS = 30'000;
    }
}

Mode Settings::mode() const {
    static const Choice choices[] = {{"enforce", 2}, {"observe", 1}, {"off", 0}};
    return static_cast<Mode>(choose("OPUS_MODE", OPUS_MODE, choices, 0, "off, observe or enforce"));
}

Policy Settings::policy() const {
    static const Choice choices[] = {{"proceed", 0}, {"abort", 1}};
    return static_cast<Policy>(choose("OPUS_POLICY", OPUS_POLICY, choices, 0, "proceed or abort"));
}

Require Settings::require() const {
    static const Choice choices[] = {{"0", int(Require::nothing)},
                                     {"1", int(Require::manager)},
                                     {"enforce", int(Require::enforcement)},
                                     {"", int(Require::nothing)}};
    return static_cast<Require>(choose("OPUS_REQUIRE", OPUS_REQUIRE, choices, 0, "0, 1 or enforce"));
}

GateChoice Settings::gate() const {
    static const Choice choices[] = {{"auto", int(GateChoice::automatic)},
                                     {"none", int(GateChoice::none)},
                                     {"host", int(GateChoice::host)},
                                     {"stream", int(GateChoice::stream)}};
    return static_cast<GateChoice>(choose("OPUS_GATE", OPUS_GATE, choices, 0, "auto, host or stream"));
}

}  // namespace opus::shim
