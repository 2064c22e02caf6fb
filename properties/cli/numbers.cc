#include "properties/cli/numbers.h"

#include <charconv>
#include <cmath>

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

}  // namespace lockstep::properties
