// What the driver's handles point at.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gate.h"

namespace opus::standin {

struct Function {
    static constexpr std::uint32_t kGate = 0x45544147;
    std::uint32_t magic = kGate;
    GateRole role{};
};

struct Module {
    std::string text;
    Function functions[3] = {
        {Function::kGate, GateRole::gate}, {Function::kGate, GateRole::replayed}, {Function::kGate, GateRole::ended}};
};

CUresult status(int device);
CUresult status();
bool valid_device(int device);
std::vector<int>& context_stack();       // of the calling thread
CUstreamCaptureMode& capture_mode();     // likewise
const char* error_name(CUresult error);  // null: no such error
const char* error_text(CUresult error);

}  // namespace opus::standin
