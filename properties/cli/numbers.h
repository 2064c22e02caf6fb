// Options that take numbers. CLI11 reads "-1" and 2^64 as whole numbers without a word, and takes
// "nan" for a positive one: these refuse what is not exactly a number within its limits.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::properties {

constexpr double kMaxSeconds = 31'536'000;  // a year

// Digits alone; none for anything else, and for what is 2^64 and more.
std::optional<std::uint64_t> whole_number(const std::string& text);
// A decimal number; none for anything else, and for what is not finite.
std::optional<double> decimal_number(const std::string& text);

// The parser refuses other values with a line that names option, value and limits.
CLI::Option* add_whole(CLI::App& command, const std::string& name, std::uint64_t& value,
                       const std::string& help, std::uint64_t least = 0);
// Up to kMaxSeconds; 0 itself only where `may_be_zero`.
CLI::Option* add_seconds(CLI::App& command, const std::string& name, double& value,
                         const std::string& help, bool may_be_zero = false);

}  // namespace lockstep::properties
