#include "shim/road_notes.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace opus::shim {

namespace {

const char* notes_file() {
    const char* file = getenv("OPUS_ROADS");
    return file != nullptr && file[0] != '\0' ? file : nullptr;
}

}  // namespace

bool notes_roads() { return notes_file() != nullptr; }

void note_road(const char* format, ...) {
    const char* file = notes_file();
    if (file == nullptr) return;
    char line[1024];
    const int limit = int(sizeof line) - 1;
    int n = snprintf(line, sizeof line, "%d\t%.60s\t", int(getpid()), program_invocation_short_name);
    va_list args;
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - std::size_t(n), format, args);
    va_end(args);
    if (n > limit) n = limit;
    line[n] = '\n';
    // Not created: where opus-run is not (another node, another container) nobody reads it.
    const int kept = errno;
    const int fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        const ssize_t written = write(fd, line, std::size_t(n) + 1);
        (void)written;
        close(fd);
    }
    errno = kept;
}

}  // namespace opus::shim
