// PowerSGD: which gradients the hook of that name compresses, what it makes of the gradients of a
// bucket, and what it keeps from pass to pass (S4). Floats are doubles that a float32 holds. Pure
// functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "reference/expectation.h"
#include "reference/model/setting.h"

namespace lockstep::reference {

constexpr std::uint64_t kPowerSgdSeed = 1;

// A gradient as a matrix, in memory order. Without factors it is not compressed.
struct PowerMatrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t factors = 0;
};
PowerMatrix power_matrix(const Parameter& parameter, std::uint32_t rank);

// Element `element` of the matrix Q that the parameter with this number among the distinct ones
// starts from.
double power_start(std::uint32_t number, std::size_t element);

using Floats = std::vector<double>;

struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  Floats values;  // row by row
};

// What is kept of a parameter; nothing before the first pass in a group (F4).
struct PowerMemory {
  Matrix q;                    // the same on all ranks
  std::vector<Floats> errors;  // by position of the rank in the group
  bool is_order_dependent = false;
};
using PowerState = std::vector<PowerMemory>;  // by parameter of the program

// Adds up what each rank has, in the declared order (G3).
using SumOfRanks = std::function<Floats(std::vector<Floats> of_ranks)>;

// Whether the hook compresses something in the bucket, or else sums it like any other; and the
// elements of its two sums.
bool uses_power_sgd(const Setting& setting, const ExpectedBucket& bucket);
std::pair<std::size_t, std::size_t> power_sum_counts(const Setting& setting,
                                                     const ExpectedBucket& bucket);

// Returns the means by member of the bucket. `gradients` are those of each rank by member and
// position, not scaled.
std::vector<Floats> run_power_sgd(const Setting& setting, const ExpectedBucket& bucket,
                                  std::uint32_t divisor,
                                  const std::vector<std::vector<Floats>>& gradients,
                                  const SumOfRanks& sum, PowerState& state);

}  // namespace lockstep::reference
