// Every driver, once. Adding one is a line here (docs/drivers.md).
#include "drivers/null_driver.h"
#include "drivers/polatis_scpi.h"
#include "opus/switch_driver.h"

namespace opus {

namespace {

struct Entry {
    const char* name;  // `driver = "..."` of a fabric file
    std::unique_ptr<SwitchDriver> (*make)(const Switch&, SwitchDriver::Sink);
};

constexpr Entry kDrivers[] = {
    {"polatis-scpi", drivers::make_polatis_scpi},
    {"null", drivers::make_null_driver},
};

}  // namespace

std::unique_ptr<SwitchDriver> make_switch_driver(const Switch& description, SwitchDriver::Sink sink) {
    for (const Entry& entry : kDrivers)
        if (description.driver == entry.name) return entry.make(description, std::move(sink));
    return nullptr;
}

std::vector<std::string> switch_driver_names() {
    std::vector<std::string> names;
    for (const Entry& entry : kDrivers) names.emplace_back(entry.name);
    return names;
}

}  // namespace opus
