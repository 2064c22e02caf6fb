// words: numbers as a person reads them, for descriptions of cases. Internal to case/. Pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::properties {

std::string plural(std::size_t count, const std::string& noun);  // "1 rank", "2 ranks"
std::string ordinal(std::uint32_t from_zero);                    // "1st" for 0
std::string duration(std::uint32_t us);
std::string bytes(std::uint64_t count);

}  // namespace lockstep::properties
