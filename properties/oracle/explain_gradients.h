// What can be said about the bits of a gradient beside right or wrong: what each rank contributed
// to it, which known mistake makes such bits, and, for `lockstep gate`, what to record of it.
//
// Pure functions of a case, what the model expects of it, and one run. Any thread; nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/observe/observation.h"
#include "reference/expectation.h"

namespace lockstep::properties {

// One gradient after a step.
struct GradientPlace {
  std::size_t rank;
  const ObservedStep& step;
  std::uint32_t parameter;

  std::string text() const;
};

// A line for each rank with what it contributes to one element.
std::string contributions(const Case& c, const Observation& observation, std::uint32_t step,
                          std::uint32_t parameter, std::uint64_t element);

// A line that says which mistake gives the bits seen, if one that reducers make gives all of them.
// What several mistakes give alike at one place is told apart by the other ranks and parameters.
std::string likely_mistake(const Case& c, const reference::Expectation& expectation,
                           const Observation& observation, const GradientPlace& place,
                           const std::uint64_t* seen);

// The gradients of one parameter after one step, on all ranks that completed it.
struct GradientRecord {
  std::uint32_t step = 0;
  std::uint32_t parameter = 0;
  std::uint64_t hash = 0;  // of the bits on each rank, and of which ranks have any
  // Which computation makes these bits on the first rank that has them (explain_bits()); empty for
  // sums that were not reduced, and where none is known.
  std::string made_by;
  bool tells_order = false;  // whether other orders of additions would make other bits
  // Whether they are what the model expects, or differ by no more than another order of additions,
  // or another place of the division, can explain.
  bool is_average = true;
};

// Of every step and parameter, in their order.
std::vector<GradientRecord> gradient_records(const Case& c,
                                             const reference::Expectation& expectation,
                                             const Observation& observation);

}  // namespace lockstep::properties
