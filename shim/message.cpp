#include "shim/message.h"

#include <unistd.h>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace opus::shim {

Level shown_from = Level::warn;

void say(Level level, const char* format, ...) {
    if (level < shown_from) return;
    char line[400] = "opus: ";
    const int prefix = 6;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + prefix, sizeof line - prefix - 1, format, args);
    va_end(args);
    if (n < 0) return;
    if (n > int(sizeof line) - prefix - 2) n = int(sizeof line) - prefix - 2;
    line[prefix + n] = '\n';
    const ssize_t written = write(STDERR_FILENO, line, size_t(prefix) + size_t(n) + 1);
    (void)written;
}

}  // namespace opus::shim
