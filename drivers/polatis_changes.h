// A change set as a Polatis switch is told it, and as it reads back. Pure.
#pragma once

#include <span>
#include <string>

#include "opus/switch_driver.h"

namespace opus::drivers {

// Ingress is named first on a switch with sides.
void order_ends(ChangeSet& changes, const Switch& description);

// One line: disconnects, connects, and the error query that answers for them.
std::string change_line(const ChangeSet& changes, const Switch& description);

// What the map says other than the change set asked, for people; empty when it fits.
std::string difference(const ChangeSet& changes, std::span<const CrossConnect> circuits);

}  // namespace opus::drivers
