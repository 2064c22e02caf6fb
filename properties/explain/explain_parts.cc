// explain_by_parts(): each range of elements has an explanation of its own. Ranges are found from
// the front: of all that can explain the next element, what goes on longest is taken.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "properties/explain/average.h"
#include "properties/explain/explain_more.h"
#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using Bits = std::vector<std::uint64_t>;

constexpr std::size_t kMostExplainedParts = 16;
constexpr std::size_t kShortest = 4;     // elements of a part
constexpr std::size_t kCopiedLeast = 8;  // of a part that stands elsewhere in the average

struct Candidate {
  std::string text;
  Bits bits;
};

Bits bits_in(const Average& average, const NamedOrder& order) {
  Bits bits;
  for (std::size_t e = 0; e < average.count(); ++e)
    bits.push_back(average.bits_of(e, average.run_of(order.runs, e), Rounding::kEachAddition,
                                   Division::kBefore));
  return bits;
}

std::vector<Candidate> candidates_of(const AverageInputs& inputs, const Average& average) {
  std::vector<Candidate> out;
  for (const NamedOrder& order :
       named_orders(average.world(), average.buffer_count, reference::size_of(average.dtype),
                    inputs.nccl_chunk_bytes))
    out.push_back({"the average, in " + order.name, bits_in(average, order)});
  for (std::uint32_t rank = 0; rank < average.world(); ++rank)
    out.push_back({fmt::format("rank {}'s own values", rank), inputs.ranks[rank]});
  out.push_back({"zeros", Bits(average.count())});
  if (inputs.before.size() == average.count())
    out.push_back({"the average of the pass before", inputs.before});
  return out;
}

struct Part {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string text;
};

std::size_t end_of(const Average& average, const Bits& bits, std::size_t begin,
                   std::size_t distance_back = 0) {
  std::size_t e = begin;
  while (e < average.count() &&
         reference::same_bits(average.dtype, bits[e - distance_back], average.result[e]))
    ++e;
  return e;
}

// The values that stand before in the average, such as those of the slice before.
Part copied_part(const Average& average, const Bits& right, std::size_t begin) {
  Part best;
  for (std::size_t back = 1; back <= begin; ++back) {
    const std::size_t end = end_of(average, right, begin, back);
    if (end < begin + kCopiedLeast || end <= best.end) continue;
    best = {begin, end, fmt::format("the values of [{}, {}) once more", begin - back, end - back)};
  }
  return best;
}

}  // namespace

std::vector<BitsExplanation> explain_by_parts(const AverageInputs& inputs, const Bits& result) {
  const Average average(inputs, result);
  const std::vector<Candidate> candidates = candidates_of(inputs, average);
  std::vector<Part> parts;
  std::size_t begin = 0;
  while (begin < average.count() && parts.size() < kMostExplainedParts) {
    Part best;
    for (const Candidate& each : candidates) {
      const std::size_t end = end_of(average, each.bits, begin);
      if (end > best.end) best = {begin, end, each.text};
    }
    if (best.end < begin + kShortest) best = copied_part(average, candidates.front().bits, begin);
    if (best.end < begin + kShortest) return {};
    begin = best.end;
    parts.push_back(best);
  }
  if (begin < average.count() || parts.size() < 2) return {};
  std::vector<std::string> texts;
  for (const Part& part : parts)
    texts.push_back(fmt::format("[{}, {}): {}", part.begin, part.end, part.text));
  return {{"", fmt::format("in parts: {}", fmt::join(texts, "; ")), average.count()}};
}

}  // namespace lockstep::properties
