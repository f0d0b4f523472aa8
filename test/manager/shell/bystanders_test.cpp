#include "manager/shell/bystanders.h"

#include <doctest/doctest.h>

#include <string>

using namespace opus;
using namespace opus::manager;

namespace {

const std::string kProgram =
    "55d0a000-55d0b000 r-xp 00000000 08:01 1201 /usr/bin/python3.11\n55d0c000-55d0d000 rw-p 00000000 00:00 0 [heap]\n";
const std::string kNccl = "7f10a000-7f10b000 r-xp 00000000 08:01 4711 /opt/nccl/lib/libnccl.so.2.27.7\n";
const std::string kShim = "7f20a000-7f20b000 r-xp 00000000 08:01 4712 /usr/lib/libopus_shim.so\n";
const std::string kRing = "7f30a000-7f30b000 rw-s 00000000 00:19 4713 /run/opus/rank-3\n";

}  // namespace

TEST_CASE("a process that maps NCCL and no ring runs without Opus, or is no rank yet") {
    CHECK(bystander_in("").library.empty());
    CHECK(bystander_in(kProgram).library.empty());
    CHECK(bystander_in(kProgram + kShim).library.empty());
    CHECK(bystander_in(kProgram + kNccl + kNccl).library == "/opt/nccl/lib/libnccl.so.2.27.7");
    CHECK_FALSE(bystander_in(kProgram + kNccl).shim);
    CHECK(bystander_in(kNccl + kProgram + kShim).shim);
    CHECK(bystander_in(kProgram + kNccl + kShim + kRing).library.empty());
}

TEST_CASE("NCCL's plugins are not NCCL, and nobody's path is more than one line") {
    CHECK(bystander_in("7f10a000-7f10b000 r-xp 00000000 08:01 4711 /opt/lib/libnccl-net.so\n").library.empty());
    CHECK(bystander_in("7f10a000-7f10b000 r-xp 00000000 08:01 4711 /opt/a b\033/libnccl.so.2\n").library ==
          "/opt/a b?/libnccl.so.2");
}
