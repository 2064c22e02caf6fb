// The elements of the constant of one use, as bits, for tests.
#pragma once

#include <cstdint>

#include "reference/arithmetic.h"
#include "reference/values.h"

namespace lockstep::reference {

inline std::uint64_t value_of(const Program& program, const Parameter& parameter,
                              std::uint32_t rank, std::uint32_t step_key, std::uint32_t node_key,
                              std::uint64_t element) {
  const UseValues values(program, parameter, rank, step_key, node_key);
  return round_from_double(parameter.dtype, values.at(element));
}

}  // namespace lockstep::reference
