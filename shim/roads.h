// The roads by which a program reaches NCCL beside being linked to it: dlsym on a handle, and on RTLD_DEFAULT. Each
// leads to the hooks if it leads to the NCCL that this process is served for; what that NCCL lacks is not found.
// docs/roads.md has the list.
#pragma once

#include "shim/library.h"

namespace opus::shim {

// One hooked function, by name (exports.cpp).
struct Hook {
    const char* profiling;  // pncclAllReduce
    void* ours;             // what we export as both

    const char* name() const { return profiling + 1; }
};
const Hook* hook_named(const char* name);  // null: no function of this name, ncclX or pncclX, is hooked
bool is_ours(const void* address);         // in this library

// The NCCL of this process: OPUS_NCCL_LIBRARY if set, else the first that the program looked a function up in, else
// libnccl.so.2 as loaded, else what the global scope has behind us. Empty: none is loaded.
Library nccl_in_use();
// The same, and libnccl.so.2 is loaded where there is none.
Library nccl_to_use();
// Where nothing is served yet, the library at `address` is, from now on. False: it cannot be named (a program that has
// NCCL in itself).
bool adopt_nccl_of(const void* address);
const Object& served_nccl();

// What dlsym has to do: give `answer`, or jump to `go` with the arguments as they came.
struct Lookup {
    void* answer;
    void* go;
};
Lookup look_up(void* handle, const char* name, const void* caller);

}  // namespace opus::shim
