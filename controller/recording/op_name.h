// Operations as NCCL calls them.
#pragma once

#include <string_view>

#include "opus/types.h"

namespace opus::controller {

const char* op_name(OpKind op);
OpKind op_of_name(std::string_view name);  // none for an unknown name

}  // namespace opus::controller
