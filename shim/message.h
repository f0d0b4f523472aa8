// What the shim says to people, on stderr: one line, once for each thing.
#pragma once

namespace opus::shim {

enum class Level { debug = 0, info = 1, warn = 2, error = 3 };

// Lines below this are not shown (OPUS_LOG).
extern Level shown_from;

// One write(2) of at most 400 bytes: "opus: <text>\n". Allocates nothing.
void say(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The same, but only the first time that this line of code says it.
#define OPUS_SAY_ONCE_AT(flag, level, ...)                                                              \
    do {                                                                                                \
        static bool flag = false;                                                                       \
        if (!__atomic_exchange_n(&flag, true, __ATOMIC_RELAXED)) ::opus::shim::say(level, __VA_ARGS__); \
    } while (false)
#define say_once(level, ...) OPUS_SAY_ONCE_AT(said_, level, __VA_ARGS__)

}  // namespace opus::shim
