// How far a sweep is, on stderr: on a terminal one line that changes, elsewhere a line a point.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace opus::job {

class SweepProgress {
public:
    explicit SweepProgress(std::size_t points) : points_(points) {}
    void begin(std::size_t done);  // that were there already
    void played(const std::string& name, bool failed, double seconds);
    void played_elsewhere() { ++done_, --left_; }
    void show();  // on a terminal: the time that is left goes by
    void end();

private:
    std::size_t points_, done_ = 0, left_ = 0, played_ = 0, failed_ = 0;
    bool terminal_ = false;
    std::chrono::steady_clock::time_point begin_;
    std::string counts() const;     // "3 of 12 points, 1 failed"
    std::string remaining() const;  // ", about 4 min left": as long a point as those that were played
};

}  // namespace opus::job
