// Kernels of the program as the runtime knows them: by the address of a stub in the program.
#pragma once

#include <functional>

namespace opus::standin {

// The mangled name; null: nobody registered such a kernel.
const char* kernel_name(const void* stub);

// What a kernel that is emulated does to memory, from its name and its arguments, which it copies; empty: it takes time
// and computes nothing.
std::function<void()> arithmetic_of(const char* name, void** arguments, unsigned rows);  // rows: of its grid

}  // namespace opus::standin
