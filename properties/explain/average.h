// Average: the inputs of explain_bits() as numbers, and the sums of single elements of them in any
// order, arithmetic and place of the division.
//
// A value that is made once and read; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/explain/explain_bits.h"
#include "properties/explain/named_orders.h"
#include "properties/explain/telling_values.h"

namespace lockstep::properties {

// Where the sum is divided by the number of ranks.
enum class Division : std::uint8_t {
  kBefore,      // each contribution
  kAfter,       // the sum, once it is rounded to the dtype
  kAfterInWide  // the sum, before it is rounded to the dtype
};

class Average {
 public:
  Average(const AverageInputs& inputs, const std::vector<std::uint64_t>& result);

  std::uint32_t world() const { return static_cast<std::uint32_t>(ranks.size()); }
  std::size_t count() const { return result.size(); }

  // What an element of the result would be.
  std::uint64_t bits_of(std::size_t element, const reference::OrderRun& run, Rounding rounding,
                        Division division) const;
  // Whether all elements of [begin, end) are so.
  std::size_t first_other(const std::vector<reference::OrderRun>& runs, Rounding rounding,
                          Division division, std::size_t begin) const;
  bool is_made_by(const std::vector<reference::OrderRun>& runs, Rounding rounding,
                  Division division) const {
    return first_other(runs, rounding, division, 0) == count();
  }
  const reference::OrderRun& run_of(const std::vector<reference::OrderRun>& runs,
                                    std::size_t element) const;

  double epsilon() const;  // of the dtype

  reference::DType dtype;
  std::uint64_t offset = 0;
  std::uint64_t buffer_count = 0;
  std::uint32_t divisor = 1;
  std::vector<std::vector<double>> ranks;   // what each contributes
  std::vector<std::vector<double>> scaled;  // divided before the sum
  std::vector<std::uint64_t> result;
};

// Orders with their names: those of named_orders(), and all others of up to five ranks. Each stands
// there once, with all of its names.
std::vector<NamedOrder> every_order(const Average& average, std::uint64_t nccl_chunk_bytes);

}  // namespace lockstep::properties
