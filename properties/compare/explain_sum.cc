#include "properties/compare/explain_sum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "properties/explain/explain_bits.h"
#include "reference/arithmetic.h"
#include "reference/order.h"

namespace lockstep::properties {
namespace {

constexpr std::uint64_t kWindow = 4096;  // elements that explain_bits() is given
constexpr std::uint64_t kSmallestChunk = std::uint64_t{1} << 10;
constexpr std::uint64_t kLargestChunk = std::uint64_t{8} << 20;

std::uint64_t first_difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                               std::uint32_t width) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first;
  return static_cast<std::uint64_t>(at - a.begin()) / width;
}

// The bit in which an element of `result` differs, if it is one bit of one element; else -1.
int flipped_bit(const std::vector<std::byte>& result, const std::vector<std::byte>& expected,
                std::uint32_t width) {
  const auto first = std::mismatch(result.begin(), result.end(), expected.begin());
  if (first.first == result.end()) return -1;
  const auto difference = static_cast<unsigned>(*first.first ^ *first.second);
  if (!std::has_single_bit(difference)) return -1;
  if (!std::equal(first.first + 1, result.end(), first.second + 1)) return -1;
  const auto place = static_cast<std::uint64_t>(first.first - result.begin()) % width;
  return static_cast<int>(place * 8) + std::countr_zero(difference);
}

// What explain_bits() says of the elements from `first` on. The contributions are not scaled.
std::string explained(const PreparedOperation& prepared, const std::vector<std::byte>& result,
                      std::uint64_t first) {
  const std::uint32_t width = reference::size_of(prepared.operation.dtype);
  AverageInputs inputs;
  inputs.dtype = prepared.operation.dtype;
  for (const auto& input : prepared.inputs)
    inputs.ranks.push_back(bits_of(input, width, first, kWindow));
  inputs.divisor = 1;
  inputs.buffer_count = prepared.operation.count();
  inputs.offset = first;
  const std::vector<std::uint64_t> bits = bits_of(result, width, first, kWindow);
  const std::vector<BitsExplanation> all = explain_bits(inputs, bits);
  if (all.empty()) return "no declared order, nor a known mistake";
  const BitsExplanation& best = all.front();
  std::vector<std::string> orders;
  for (const BitsExplanation& each : all)
    if (each.mistake == best.mistake) orders.push_back(each.order);
  std::string out =
      best.order.empty() ? best.mistake : fmt::format("{}", fmt::join(orders, " or "));
  if (!best.order.empty() && !best.mistake.empty()) out += ", but " + best.mistake;
  if (best.matches == bits.size()) return out;
  return fmt::format("no declared order; nearest is {} ({} of {} elements from number {} on)", out,
                     best.matches, bits.size(), first);
}

}  // namespace

std::string explain_sum(const PreparedOperation& prepared, const std::vector<std::byte>& result) {
  const Operation& operation = prepared.operation;
  const std::uint32_t width = reference::size_of(operation.dtype);
  if (result == prepared.expected) return "NCCL's ring (2.22 and newer)";
  for (std::uint64_t chunk = kSmallestChunk; chunk <= kLargestChunk; chunk *= 2)
    if (sum_with(prepared,
                 reference::nccl_ring(operation.ranks, operation.count(), width, chunk)) == result)
      return fmt::format("NCCL's ring with chunks of {}", size_text(chunk));
  if (const int bit = flipped_bit(result, prepared.expected, width); bit >= 0)
    return fmt::format("NCCL's ring (2.22 and newer), but bit {} is flipped in one value", bit);
  return explained(prepared, result, first_difference(result, prepared.expected, width));
}

}  // namespace lockstep::properties
