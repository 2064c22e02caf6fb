// Reads numbers on the command line. CLI11 silently reads "-1" and 2^64 as whole numbers, and
// accepts "nan" as a positive one. These functions read exactly a number, and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::properties {

// Accepts digits only. Returns nothing for any other text, and for 2^64 and more.
std::optional<std::uint64_t> whole_number(const std::string& text);
// Accepts a decimal number. Returns nothing for any other text, and for a number that is not
// finite.
std::optional<double> decimal_number(const std::string& text);

}  // namespace lockstep::properties
