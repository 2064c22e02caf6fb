#include "properties/case/words.h"

#include <fmt/format.h>

namespace lockstep::properties {

std::string plural(std::size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string ordinal(std::uint32_t from_zero) {
  const std::uint64_t number = std::uint64_t{from_zero} + 1;
  const std::uint64_t tens = number % 100;
  const char* suffix = "th";
  if (tens < 11 || tens > 13) {
    if (number % 10 == 1) suffix = "st";
    if (number % 10 == 2) suffix = "nd";
    if (number % 10 == 3) suffix = "rd";
  }
  return fmt::format("{}{}", number, suffix);
}

std::string duration(std::uint32_t us) {
  if (us < 1000) return fmt::format("{} us", us);
  if (us % 1000 == 0) return fmt::format("{} ms", us / 1000);
  return fmt::format("{:.1f} ms", us / 1000.0);
}

std::string bytes(std::uint64_t count) {
  constexpr std::uint64_t kMiB = 1u << 20;
  if (count > 0 && count % kMiB == 0) return fmt::format("{} MiB", count / kMiB);
  return plural(count, "byte");
}

}  // namespace lockstep::properties
