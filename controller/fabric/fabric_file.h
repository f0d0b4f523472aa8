// Reads the fabric file (docs/fabric.md describes it) and finds every mistake in one pass.
// Pure but for read_fabric(), which opens the file. Throws nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "opus/fabric.h"

namespace opus::fabric {

struct FabricLoad {
    std::optional<Fabric> fabric;       // only without errors
    std::vector<FabricError> errors;    // by line
    std::vector<FabricError> warnings;  // by line; the file can be used all the same
};

// `drivers` are the names that Switch::driver may have (switch_driver_names()); empty: any.
FabricLoad parse_fabric(std::string_view toml, const std::vector<std::string>& drivers);
FabricLoad read_fabric(const std::string& path, const std::vector<std::string>& drivers);

// "fabric.toml:17: port 13 of ocs-rail0 is cabled twice (n0.g0.p0 and n3.g0.p1)"
std::string error_line(std::string_view path, const FabricError& error);

}  // namespace opus::fabric
