// The status of input that cannot be used: a file, a flag, a variable of the environment.
#pragma once

#include <string>
#include <utility>

#include "reducer/base/status.h"

namespace lockstep::properties {

// The text says what is wrong and what to do.
inline Status invalid(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

}  // namespace lockstep::properties
