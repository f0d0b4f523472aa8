// The two sides of every hook: `real`, the functions of the library that the program meant, and
// `handlers`, ours. An exported function jumps through a slot; slots start at a resolver, then lead to a
// handler, or straight to the real function (mode off, no manager, a child after fork).
#pragma once

#include <nccl.h>

#include "shim/device_api.h"

namespace opus::shim {

struct Functions {
#define OPUS_HOOK(name, params, args) decltype(&::name) name;
#include "shim/hook_table.h"
};

[[gnu::visibility("hidden")]] extern Functions real;  // null where the library lacks it; constant once bound

// Called, not hooked.
struct Getters {
    decltype(&::ncclCommCount) ncclCommCount;
    decltype(&::ncclCommUserRank) ncclCommUserRank;
    decltype(&::ncclCommCuDevice) ncclCommCuDevice;
    decltype(&::ncclGetVersion) ncclGetVersion;
};
[[gnu::visibility("hidden")]] extern Getters getters;

namespace handlers {
#define OPUS_HOOK(name, params, args) ncclResult_t name params;
#include "shim/hook_table.h"
}  // namespace handlers

// Finds the real library and settles the slots, for a first call by `caller`. Safe from any thread, before any
// constructor; the second call returns at once. False: no NCCL is to be found (slots stay at their resolvers).
bool bind(const void* caller);
bool is_bound();

// From now on every exported function leads straight to the real one. For good.
void point_slots_at_real();

}  // namespace opus::shim
