#include "tools/opus-sim/sweep_progress.h"

#include <unistd.h>

#include <cstdio>

#include "tools/ctl/table.h"

namespace opus::job {

void SweepProgress::begin(std::size_t done) {
    done_ = done, left_ = points_ - done;
    terminal_ = isatty(STDERR_FILENO) == 1;
    begin_ = std::chrono::steady_clock::now();
    if (done_ != 0 && !terminal_)
        std::fprintf(stderr, "opus-sim: %zu of %zu points are there already\n", done_, points_);
    show();
}

void SweepProgress::played(const std::string& name, bool failed, double seconds) {
    ++done_, ++played_, --left_;
    failed_ += failed ? 1 : 0;
    if (!terminal_)
        std::fprintf(stderr, "opus-sim: %s%s: %s%s (%s)\n", counts().c_str(), remaining().c_str(), name.c_str(),
                     failed ? " failed" : "", ctl::duration(seconds * 1e3).c_str());
}

void SweepProgress::show() {
    if (terminal_ && left_ != 0) std::fprintf(stderr, "\r\033[K%s%s", counts().c_str(), remaining().c_str());
}

void SweepProgress::end() {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
}

std::string SweepProgress::counts() const {
    return std::to_string(done_) + " of " + std::to_string(points_) + " points" +
           (failed_ == 0 ? "" : ", " + std::to_string(failed_) + " failed");
}

std::string SweepProgress::remaining() const {
    if (played_ == 0 || left_ == 0) return "";
    const std::chrono::duration<double, std::milli> so_far = std::chrono::steady_clock::now() - begin_;
    return ", about " + ctl::duration(so_far.count() / static_cast<double>(played_) * static_cast<double>(left_)) +
           " left";
}

}  // namespace opus::job
