// Options of the command line with numbers. The parser refuses other text, and numbers outside of
// the limits, with a line that names the option, the value and the limits.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep::properties {

// A whole number from `least` on.
CLI::Option* add_whole(CLI::App& command, const std::string& name, std::uint64_t& value,
                       const std::string& help, std::uint64_t least = 0);
// A number of seconds above 0, or from 0 on, up to a year.
CLI::Option* add_seconds(CLI::App& command, const std::string& name, double& value,
                         const std::string& help, bool may_be_zero = false);

}  // namespace lockstep::properties
