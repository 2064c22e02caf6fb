// PowerSGD: which gradients the hook of that name compresses, and what it starts from (S4). What it
// makes of them is in model/power_sgd.h. Pure functions; any thread; nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/program.h"

namespace lockstep::reference {

// Of the hook that a program has.
constexpr std::uint32_t kPowerSgdRank = 2;
constexpr std::uint64_t kPowerSgdSeed = 1;

// A gradient as a matrix, in memory order. Without factors it is not compressed.
struct PowerMatrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t factors = 0;
};
PowerMatrix power_matrix(const Parameter& parameter);

// Element `element` of the matrix Q that the parameter with this number among the distinct ones
// starts from.
double power_start(std::uint32_t number, std::size_t element);

}  // namespace lockstep::reference
