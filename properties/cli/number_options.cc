#include "properties/cli/number_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>
#include <optional>

#include "properties/cli/numbers.h"

namespace lockstep::properties {
namespace {

constexpr double kMaxSeconds = 31'536'000;  // a year

}  // namespace

CLI::Option* add_whole(CLI::App& command, const std::string& name, std::uint64_t& value,
                       const std::string& help, std::uint64_t least) {
  const auto read = [&value, name, least](const std::string& text) {
    const std::optional<std::uint64_t> number = whole_number(text);
    if (!number || *number < least)
      throw CLI::ValidationError(
          name, fmt::format("'{}' is not a whole number from {} to {}", text, least,
                            std::numeric_limits<std::uint64_t>::max()));
    value = *number;
  };
  return command.add_option_function<std::string>(name, read, help)->type_name("NUMBER");
}

CLI::Option* add_seconds(CLI::App& command, const std::string& name, double& value,
                         const std::string& help, bool may_be_zero) {
  const auto read = [&value, name, may_be_zero](const std::string& text) {
    const std::optional<double> number = decimal_number(text);
    const bool is_good =
        number && *number <= kMaxSeconds && (*number > 0 || may_be_zero) && !std::signbit(*number);
    if (!is_good)
      throw CLI::ValidationError(
          name, fmt::format("'{}' is not a number of seconds {} 0 up to {:.0f} (a year)", text,
                            may_be_zero ? "from" : "above", kMaxSeconds));
    value = *number;
  };
  return command.add_option_function<std::string>(name, read, help)
      ->type_name("SECONDS")
      ->default_str(fmt::format("{}", value));
}

}  // namespace lockstep::properties
