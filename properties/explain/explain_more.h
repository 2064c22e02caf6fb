// What explain_bits() tries where no declared order explains the bits, from what is likely to what
// is a guess. Each function gives explanations of all values of the result, or none.
//
// Pure functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/explain/explain_bits.h"

namespace lockstep::properties {

// Any order: the families that have names, and all orders of up to five ranks.
std::vector<BitsExplanation> explain_by_orders(const AverageInputs& inputs,
                                               const std::vector<std::uint64_t>& result);

// Any order, divided after the sum, or added in float32 or double with one rounding, or cut off; in
// a narrower dtype that was saved as a wider one.
std::vector<BitsExplanation> explain_by_arithmetic(const AverageInputs& inputs,
                                                   const std::vector<std::uint64_t>& result);

// A constant factor, or a weight for each rank, solved from the values and tested on all of them.
std::vector<BitsExplanation> explain_by_weights(const AverageInputs& inputs,
                                                const std::vector<std::uint64_t>& result);

// Some ranges of elements, each of which has another explanation.
std::vector<BitsExplanation> explain_by_parts(const AverageInputs& inputs,
                                              const std::vector<std::uint64_t>& result);

// One bit of one value, where everything else is the average.
std::vector<BitsExplanation> explain_by_flipped_bit(const AverageInputs& inputs,
                                                    const std::vector<std::uint64_t>& result);

// The average but for its last bits, which no order gives that is known here.
std::vector<BitsExplanation> explain_by_rounding(const AverageInputs& inputs,
                                                 const std::vector<std::uint64_t>& result);

}  // namespace lockstep::properties
