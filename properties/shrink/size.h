// Size: how large a case is, for shrinking. Sizes are compared from the first member to the last.
// Every member is a natural number, so no endless sequence of ever smaller cases exists. Plain
// values; threads: any.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "properties/case/case.h"

namespace lockstep::properties {

struct Size {
  std::uint64_t ranks = 0;
  std::uint64_t steps = 0;
  std::uint64_t parameters = 0;
  std::uint64_t faults = 0;
  std::uint64_t records = 0;          // passes, forwards, nodes, edges, backward calls, roots
  std::uint64_t random_schedule = 0;  // 1 for a policy other than kDefault
  std::uint64_t deviations = 0;
  std::uint64_t detail = 0;  // the distance of all other fields from their defaults

  auto operator<=>(const Size& other) const = default;
};

Size size_of(const Case& value);
std::string to_string(const Size& size);

}  // namespace lockstep::properties
