// A hostile client of the emulator: any bytes as commands. The map must stay one that the switch can hold.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/emulator/instrument.h"

using namespace opus;
using namespace opus::emulator;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Counters counters;
    OpticalPlane plane({8, 8, 1'000'000});
    Instrument instrument(plane, counters, {});
    Outputs out;
    TimeNs now = 1;
    instrument.open(1, now);
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    while (!bytes.empty()) {
        const auto piece = bytes.substr(0, 1 + static_cast<unsigned char>(bytes[0]) % 96);
        instrument.receive(1, piece, now, out);
        bytes.remove_prefix(piece.size());
        now += 400'000;
        instrument.advance(now, out);
        instrument.open(1, now + 1'000'000'000'000);
    }
    for (SwitchPort p = 1; p <= plane.size(); ++p) {
        const SwitchPort q = plane.peer(p);
        if (q && (plane.peer(q) != p || (p <= 8) == (q <= 8))) std::abort();
    }
    return 0;
}
