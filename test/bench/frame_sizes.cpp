// Sizes of a real demand and a real grant on the wire, of one collective of one rank: what the bare path carries.
// Prints "DEMAND_BYTES GRANT_BYTES".
#include <cstdio>

#include "opus/wire_codec.h"

int main() {
    using namespace opus;
    constexpr std::int64_t kToday = 1'800'000'000'000'000'000;
    const CommId comm{0x123456789abcdef0, 0x0fedcba987654321};
    wire::LaunchDemand demand;
    demand.launch = {3, 1000};
    demand.keys.push_back({{comm, KeyKind::coll, 0, 0, 1000}, 1});
    demand.op = OpKind::all_reduce;
    demand.bytes = 1 << 20;
    demand.ready_ns = kToday;
    wire::Grant grant;
    grant.id = 1000;
    grant.firm.push_back(demand.launch);
    constexpr std::uint64_t kEpoch = 1'800'000'000'000, kSession = 0x123456789abcdef0;
    std::string asked, granted;
    wire::encode({kEpoch, kSession, 1000, {wire::Demand{{demand}}}}, asked);
    wire::encode({kEpoch, kSession, 1000, {grant}}, granted);
    std::printf("%zu %zu\n", asked.size(), granted.size());
}
