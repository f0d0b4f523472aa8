#pragma once

namespace opus::standin {

// The newest runtime that this driver serves: that of CUDA 13.2.
inline constexpr int kDriverVersion = 13020;

}  // namespace opus::standin
