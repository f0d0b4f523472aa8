// What a process adds to the file OPUS_ROADS for opus-run: how it reached NCCL, and what it is to Opus. Nothing where
// the variable is not set.
//
// A line: pid, program, event and its words, with tabs between. Events:
//   start                                    the shim is loaded
//   road     KIND WHO LIBRARY                a way to the hooks: dlsym, deepbind, preload
//   called   LIBRARY VERSION WHO             NCCL's first call, by an object; version as ncclGetVersion says it
//   state    off|observe|enforce|inert WHY   what this process is to Opus, from the first communicator on
//   second   LIBRARY                         another NCCL, which is not seen
//   past     WHO LIBRARY                     an object that called NCCL past the shim; at the end
//   unused   LIBRARY                         NCCL is mapped and was never called; at the end
#pragma once

namespace opus::shim {

// One write(2). A line that does not fit is cut.
void note_road(const char* format, ...) __attribute__((format(printf, 1, 2)));
bool notes_roads();

}  // namespace opus::shim
