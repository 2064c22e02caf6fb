// explain_bits(): which computation gives exactly these bits? It takes what each rank contributes
// to an average and what came out, and tries the orders of addition that are declared
// (reference/order.h) together with the mistakes that reducers make: a rank left out or counted
// twice, another divisor, the values of the pass before, elements at a wrong offset, one flipped
// bit.
//
// Pure functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/order.h"
#include "reference/program.h"

namespace lockstep::properties {

// An average over ranks: each contribution is scaled by 1 / divisor, then all are added.
struct AverageInputs {
  reference::DType dtype = reference::DType::kFloat32;
  // What each rank contributes, not scaled, as bit patterns. A complex number is two values. All
  // ranks have the same number of values, at least one; there are at most kMaxWorld ranks.
  std::vector<std::vector<std::uint64_t>> ranks;
  std::uint32_t divisor = 0;  // 0: the number of ranks
  // The buffer that was reduced: the number of its values, and where these begin in it. The orders
  // of rings depend on both. A count of 0 means that these are the whole buffer.
  std::uint64_t buffer_count = 0;
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> before;  // the average of the pass before; empty if it is not known
  // Of NCCL's ring, with one channel: a multiple of 4096.
  std::uint64_t nccl_chunk_bytes = reference::kNcclChunkBytes;
};

struct BitsExplanation {
  // Of the additions: "Gloo's ring", or kAnyOrder; empty if none were made.
  std::string order;
  std::string mistake;        // "rank 1 is missing"; empty: it is the average as declared
  std::uint64_t matches = 0;  // values whose bits it explains
};

// The order of an explanation that holds for every declared order.
inline constexpr const char* kAnyOrder = "any order of additions";

// All that explain every value of `result`, or, if there is none, the one that explains most of the
// values. What is right comes before what is a mistake, and a simple mistake before a composed one.
// Explanations that cannot be told apart on these values are all listed. Empty: nothing explains
// even half of the values.
std::vector<BitsExplanation> explain_bits(const AverageInputs& inputs,
                                          const std::vector<std::uint64_t>& result);

// One line, such as "the average, added in rank order or Gloo's ring, but rank 1 is missing".
std::string to_text(const std::vector<BitsExplanation>& explanations, std::uint64_t values);

}  // namespace lockstep::properties
