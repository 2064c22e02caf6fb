// Numbers on the command line. CLI11 reads "-1" and 2^64 as whole numbers without a word, and takes
// "nan" for a positive one: these read what is exactly a number, and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::properties {

// Digits alone; none for anything else, and for what is 2^64 and more.
std::optional<std::uint64_t> whole_number(const std::string& text);
// A decimal number; none for anything else, and for what is not finite.
std::optional<double> decimal_number(const std::string& text);

}  // namespace lockstep::properties
