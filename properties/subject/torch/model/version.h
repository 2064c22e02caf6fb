// Version: of PyTorch. Plain data; any thread; nothing fails.
#pragma once

#include <array>
#include <charconv>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::properties::torch_model {

struct Version {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint32_t patch = 0;

  friend constexpr auto operator<=>(const Version&, const Version&) = default;
};

constexpr Version kOldestVersion{1, 13, 1};

// The versions against which the profile was checked by running (ci/torch_hashes has the wheels).
constexpr std::array<Version, 5> kTestedVersions{
    {kOldestVersion, {2, 0, 1}, {2, 4, 1}, {2, 9, 1}, {2, 15, 0}}};

inline std::string to_string(const Version& version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

// Reads "2.9.1" and what builds append to it ("2.9.1+cpu", "2.10.0a0+git12ab"). Returns nothing if
// the text does not begin with three numbers.
inline std::optional<Version> version_from(std::string_view text) {
  Version version;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (std::uint32_t* part : {&version.major, &version.minor, &version.patch}) {
    if (part != &version.major) {
      if (at == end || *at != '.') return std::nullopt;
      ++at;
    }
    const auto read = std::from_chars(at, end, *part);
    if (read.ec != std::errc()) return std::nullopt;
    at = read.ptr;
  }
  return version;
}

}  // namespace lockstep::properties::torch_model
