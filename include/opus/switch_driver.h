// The driver interface: what the controller needs of an optical switch, whatever it speaks.
//
// A driver owns one persistent session and one thread. Every call returns at once and may come from
// any thread; every answer is one call of the sink, from the driver's thread, for the same `op`.
// Each op is answered exactly once: with its result, `cancelled`, or `timeout` at its deadline.
// Change sets to disjoint ports may overlap in time; a driver sends each as soon as it can.
// After any error the caller must treat the ports of the change set as unknown and read the map back
// (I5): a driver never guesses.
//
// Adding a driver: docs/drivers.md. Time is CLOCK_MONOTONIC nanoseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "opus/fabric.h"

namespace opus {

using OpId = std::uint64_t;  // chosen by the caller, unique per driver

using CrossConnect = std::pair<SwitchPort, SwitchPort>;

// Applied as one command where the protocol can. `disconnect` names one end of a circuit; ports that
// `connect` takes from another circuit need not be in it. No port twice in `connect`.
struct ChangeSet {
    std::vector<SwitchPort> disconnect;
    std::vector<CrossConnect> connect;
};

enum class DriverError : std::uint8_t { none, unreachable, refused, timeout, cancelled, garbage, no_light };

struct SwitchIdentity {
    std::string vendor, model, serial, firmware;
    std::uint32_t ingress = 0, egress = 0;
};

// The session is up; sent first, and after every reconnect. Nothing is known of the map until read.
struct SessionUp {
    SwitchIdentity identity;
};
struct SessionDown {
    std::string reason;
};

// The whole cross-connect map as the switch says it.
struct MapRead {
    OpId op = 0;
    DriverError error = DriverError::none;
    std::string text;  // the switch's own words when error
    std::vector<CrossConnect> circuits;
};

// A change set: acknowledged (fence answered) at acked_ns, light back at settled_ns.
struct Applied {
    OpId op = 0;
    DriverError error = DriverError::none;
    std::string text;
    TimeNs sent_ns = 0, acked_ns = 0, settled_ns = 0;
};

struct PortPower {
    OpId op = 0;
    DriverError error = DriverError::none;
    std::vector<std::pair<SwitchPort, double>> dbm;
};

using DriverEvent = std::variant<SessionUp, SessionDown, MapRead, Applied, PortPower>;

class SwitchDriver {
public:
    using Sink = std::function<void(const DriverEvent&)>;
    virtual ~SwitchDriver() = default;  // ends the session and the thread; no sink call afterwards

    // Connects and keeps reconnecting (with back-off, 50 ms to 2 s) until destroyed.
    virtual void start() = 0;
    virtual void read_map(OpId op, TimeNs timeout_ns) = 0;
    virtual void apply(OpId op, const ChangeSet& changes, TimeNs timeout_ns) = 0;
    virtual void read_power(OpId op, const std::vector<SwitchPort>& ports, TimeNs timeout_ns) = 0;
    virtual void cancel(OpId op) = 0;  // what the switch has begun, it finishes: read the map back
};

// By Switch::driver; null for a name nobody registered. The list is drivers/registry.cpp.
std::unique_ptr<SwitchDriver> make_switch_driver(const Switch& description, SwitchDriver::Sink sink);
std::vector<std::string> switch_driver_names();

}  // namespace opus
