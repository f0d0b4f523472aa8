#include "manager/shell/core_waits.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <utility>

namespace opus::manager {

CoreWaits::CoreWaits() : file_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) { read(last_); }

// "cpu waited slices", in nanoseconds.
bool CoreWaits::read(Sample& total) const {
    char text[96];
    const ssize_t length = file_ ? ::pread(file_.get(), text, sizeof text, 0) : 0;
    if (length <= 0) return false;
    const char* const end = text + length;
    const auto [cpu_end, cpu_error] = std::from_chars(text, end, total.cpu);
    if (cpu_error != std::errc() || cpu_end == end) return false;
    return std::from_chars(cpu_end + 1, end, total.waited).ec == std::errc();
}

CoreWaits::Sample CoreWaits::sample() {
    Sample total;
    if (!read(total)) return {};
    const Sample before = std::exchange(last_, total);
    return {total.cpu - before.cpu, total.waited - before.waited};
}

}  // namespace opus::manager
