// How opus-ctl ends.
#pragma once

namespace opus::ctl {

enum ExitCode {
    kOk = 0,
    kNo = 1,  // refused, or the answer is no (a fabric file with mistakes)
    kUsage = 2,
    kNoController = 3,  // nobody answered within --timeout
};

}  // namespace opus::ctl
