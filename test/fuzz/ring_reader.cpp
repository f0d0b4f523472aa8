// A hostile shim: whatever it stores in its segment, the manager's reader and core stand, and say only
// what the controller accepts.
#include <cstdio>
#include <cstdlib>

#include "test/manager/shell/hostile_ring.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    opus::manager::test::HostileRing ring;
    const std::string fault = ring.play(data, size);
    if (fault.empty()) return 0;
    std::fprintf(stderr, "%s\n", fault.c_str());
    std::abort();
}
