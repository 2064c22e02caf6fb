// PowerSGD: what the hook of that name makes of the gradients of a bucket, and what it keeps from
// pass to pass (S4). Floats are doubles that a float32 holds. Pure functions; any thread; nothing
// fails.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/expectation.h"
#include "reference/model/setting.h"

namespace lockstep::reference {

using Floats = std::vector<double>;

struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  Floats values;  // row by row
};

// What is kept of a parameter; nothing before the first pass in a group (F4).
struct PowerMemory {
  Matrix q;                    // the same on all ranks
  std::vector<Matrix> errors;  // by position of the rank in the group
  bool is_order_dependent = false;
};
using PowerState = std::vector<PowerMemory>;  // by parameter of the program

struct PowerResult {
  PowerState state;
  std::vector<Floats> means;  // by member of the bucket
};

// Adds up what each rank has, in the declared order (G3).
using SumOfRanks = std::function<Floats(std::vector<Floats> of_ranks)>;

// Whether the hook compresses something in the bucket, or else sums it like any other; and the
// elements of its two sums.
bool uses_power_sgd(const Setting& setting, const ExpectedBucket& bucket);
std::size_t first_sum_count(const Setting& setting, const ExpectedBucket& bucket);
std::size_t second_sum_count(const Setting& setting, const ExpectedBucket& bucket);

// `gradients` are those of each rank by member of the bucket and position, not scaled.
PowerResult run_power_sgd(const Setting& setting, const ExpectedBucket& bucket,
                          std::uint32_t divisor, const std::vector<std::vector<Floats>>& gradients,
                          const SumOfRanks& sum, PowerState state);

}  // namespace lockstep::reference
