// Values that tell orders of addition apart: contributions of the ranks whose sum has other bits in
// almost every other order, and with every other rounding. Ordinary values do so for about one
// element in three; of these nearly each one does, so that a chunk's border is seen exactly.
//
// The values repeat: element e has the values of one of kTellingTuples tuples. Pure functions; any
// thread; nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/atlas.h"
#include "reference/order.h"
#include "reference/program.h"

namespace lockstep::properties {

constexpr std::uint32_t kTellingTuples = 64;
// Up to so many ranks, all orders are tried (945 of them).
constexpr std::uint32_t kMostEliminatedRanks = 6;

// How a sum is rounded.
enum class Rounding : std::uint8_t {
  kEachAddition,         // to nearest, ties to even, after each addition
  kFloatOnce,            // added in float32, and rounded to the dtype at the end
  kDoubleOnce,           // added in double, and rounded at the end
  kEachHalfAway,         // after each addition; halves away from zero
  kEachTowardsZero,      // after each addition; what does not fit is cut off
  kFloatOnceTowardsZero  // added in float32; at the end what does not fit is cut off
};
const char* text_of(Rounding rounding);  // "float32, rounded once"

// How the sums of an atlas's row are rounded.
Rounding rounding_of(reference::RowTypes types);

// Those that can differ from kEachAddition for the dtype, and that.
std::vector<Rounding> roundings_of(reference::DType dtype);

// The bits of the sum of one element in this order.
std::uint64_t sum_of(const reference::OrderRun& run, reference::DType dtype, Rounding rounding,
                     const std::vector<double>& contributions);

// The same, before it is rounded to the dtype.
double wide_sum_of(const reference::OrderRun& run, reference::DType dtype, Rounding rounding,
                   const std::vector<double>& contributions);

// Every order of so many ranks, 1 to kMostEliminatedRanks: (2 ranks - 3)!! of them.
std::vector<reference::OrderRun> all_orders(std::uint32_t ranks);

// The tuple that element e has, and the tuples: one value a rank.
std::uint32_t tuple_of(std::uint64_t element);
std::vector<std::vector<double>> telling_tuples(reference::DType dtype, std::uint32_t ranks);

}  // namespace lockstep::properties
