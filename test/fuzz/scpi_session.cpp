// A hostile switch: any bytes as replies, in any pieces, while ops are under way. Each op must be answered
// exactly once, whatever the switch says.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string_view>

#include "drivers/polatis_session.h"

using namespace opus;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Switch s;
    s.name = "ocs";
    s.address = "host:1";
    s.ingress = 8;
    s.dark_ns = 1'000'000;
    std::map<OpId, int> answers;
    drivers::PolatisSession session(s, [&](const DriverEvent& e) {
        std::visit(
            [&](const auto& x) {
                if constexpr (requires { x.op; }) ++answers[x.op];
            },
            e);
    });
    TimeNs now = 0;
    OpId op = 0;
    session.open(now);
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    // Right so far, so that the ops are reached; the input may still break it off with its first byte.
    if (size && data[0] & 1) session.receive("Polatis,x,1,2\n8,0\n(-60.0)\n0, \"No error\"\n", now);
    while (!bytes.empty() && session.fault().empty()) {
        const auto piece = bytes.substr(0, 1 + static_cast<unsigned char>(bytes[0]) % 64);
        switch (static_cast<unsigned char>(bytes[0]) % 5) {
            case 0: session.apply(++op, {{3}, {{1, 2}}}, now + 50'000'000, now); break;
            case 1: session.read_map(++op, now + 50'000'000, now); break;
            case 2: session.read_power(++op, {1, 99}, now + 50'000'000, now); break;
            case 3: session.cancel(op, now); break;
            default: session.apply(++op, {{}, {{5, 6}, {7, 8}}}, now + 50'000'000, now); break;
        }
        session.receive(piece, now);
        bytes.remove_prefix(piece.size());
        now += 300'000;
        session.advance(now);
    }
    session.close("over");
    for (OpId i = 1; i <= op; ++i)
        if (answers[i] != 1) std::abort();
    return 0;
}
