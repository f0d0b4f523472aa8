// The Polatis driver, "polatis-scpi": a PolatisSession on a TCP connection and a thread of its own.
#pragma once

#include <memory>

#include "opus/switch_driver.h"

namespace opus::drivers {

std::unique_ptr<SwitchDriver> make_polatis_scpi(const Switch& description, SwitchDriver::Sink sink);

}  // namespace opus::drivers
