// For what cannot be. The daemons keep these checks in release: a state that is wrong is not acted upon. The process
// says which condition does not hold, writes what it knows (last_words), and ends by SIGABRT. Whoever starts it again
// has it take up what there is: managers read the rings, the controller hears snapshots and reads its switches.
//
// Not for what may be: bad input, a peer's mistake, a device's failure. Any thread may call these.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace opus {

// Called once, on the thread that found it, with the line that was written to stderr. Set by a program's main.
using LastWords = void (*)(const char* what);
inline std::atomic<LastWords> last_words{nullptr};

[[noreturn]] inline void cannot_be(const char* condition, const std::source_location& where) {
    char text[512];
    std::snprintf(text, sizeof text, "cannot be: not %s (%s:%u)", condition, where.file_name(), unsigned(where.line()));
    std::fprintf(stderr, "%s\n", text);
    // Taken away first: what fails while they are said ends the process at once.
    if (const LastWords say = last_words.exchange(nullptr)) say(text);
    std::abort();
}

// The value of a key that a map must have.
template <class Map, class Key>
auto& must_find(Map& map, const Key& key, const std::source_location& where = std::source_location::current()) {
    const auto found = map.find(key);
    if (found == map.end()) cannot_be("a key that is there", where);
    return found->second;
}

}  // namespace opus

#define OPUS_ASSERT(condition) ((condition) ? void() : ::opus::cannot_be(#condition, std::source_location::current()))
