// What others packed: tar and zip, and what gzip, xz, zstd or bzip2 made smaller. An archive is like a folder: its
// files are named ARCHIVE/PATH. libarchive is not seen outside.
#pragma once

#include <functional>
#include <string>

#include "tools/opus-sim/job_file.h"

namespace opus::job {

using TakeFile = std::function<void(const NamedText&)>;  // the text is there during the call only

// Hands out the file itself, or what is packed in it, packed archives within archives too. Names that begin with a dot
// are left out, as in folders. One file is in memory at a time. Throws BadFile where it is damaged, was cut short, or
// would be larger than 16 GiB.
void unpack(const NamedText& file, const TakeFile& take);

}  // namespace opus::job
