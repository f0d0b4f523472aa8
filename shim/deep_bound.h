// Libraries that call NCCL past us: opened with RTLD_DEEPBIND, they find it among their own dependencies first. Or an
// NCCL is preloaded before us, and everybody finds it first.
#pragma once

namespace opus::shim {

// A library is about to be opened with RTLD_DEEPBIND. From now on every dlsym looks whether libraries have come: who
// opens a library looks something up in it next.
void expect_deep_bound();

// When we are loaded: if an NCCL stands before us, the same from now on, and what is there already is mended.
void expect_preloaded();

// Leads what they have bound past us to the hooks. One load where nothing of the kind is expected.
void mend_deep_bound();

// Names in one line a library that calls NCCL past us all the same: one that did so before anything was looked up. At
// the end of a process.
void tell_of_passers_by();

}  // namespace opus::shim
