#include "properties/cli/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace lockstep::properties {
namespace {

template <typename T>
std::optional<T> read_all(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || rest != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::uint64_t> whole_number(const std::string& text) {
  return read_all<std::uint64_t>(text);
}

std::optional<double> decimal_number(const std::string& text) {
  const std::optional<double> value = read_all<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

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
    const bool is_good = number && *number <= kMaxSeconds && (*number > 0 || may_be_zero) &&
                         !std::signbit(*number);
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
