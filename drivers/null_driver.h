// "null": a switch that does not exist. It takes every change set, keeps the map in memory and says that
// light is back after the dark time. To try a fabric file without a switch, and to copy when writing a
// driver (docs/drivers.md): its comments say what each call owes to its caller.
#pragma once

#include <memory>

#include "opus/switch_driver.h"

namespace opus::drivers {

std::unique_ptr<SwitchDriver> make_null_driver(const Switch& description, SwitchDriver::Sink sink);

}  // namespace opus::drivers
