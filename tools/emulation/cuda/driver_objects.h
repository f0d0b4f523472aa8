// What the driver's handles point at.
#pragma once

#include <cuda.h>

#include <vector>

namespace opus::standin {

CUresult status(int device);
CUresult status();
bool valid_device(int device);
std::vector<int>& context_stack();       // of the calling thread
CUstreamCaptureMode& capture_mode();     // likewise
const char* error_name(CUresult error);  // null: no such error
const char* error_text(CUresult error);

}  // namespace opus::standin
