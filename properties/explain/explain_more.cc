#include "properties/explain/explain_more.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "properties/explain/average.h"
#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using reference::DType;

using Found = std::vector<BitsExplanation>;

// Enough values that one order in a thousand does not fit them by chance.
constexpr std::size_t kEnoughForAllOrders = 8;

Found by_orders(const Average& average, const std::vector<NamedOrder>& orders, Rounding rounding,
                Division division, const std::string& mistake) {
  Found found;
  for (const NamedOrder& order : orders)
    if (average.is_made_by(order.runs, rounding, division))
      found.push_back({order.name, mistake, average.count()});
  if (found.size() == orders.size() && found.size() > 1)
    found = {{kAnyOrder, mistake, average.count()}};
  return found;
}

std::string mistake_of(Rounding rounding, Division division) {
  const char* after = "it is divided after the sum and not before";
  if (rounding == Rounding::kEachAddition) return division == Division::kBefore ? "" : after;
  std::string text = fmt::format("it is {}", text_of(rounding));
  if (division == Division::kAfter) text += ", and divided then";
  if (division == Division::kAfterInWide) text += ", the division too";
  return text;
}

// The bits of a float32 that are those of a narrower dtype, or nothing if a value is not one.
std::optional<std::vector<std::uint64_t>> narrowed(DType narrow,
                                                   const std::vector<std::uint64_t>& bits) {
  std::vector<std::uint64_t> out;
  out.reserve(bits.size());
  for (const std::uint64_t each : bits) {
    const double value = reference::to_double(DType::kFloat32, each);
    out.push_back(reference::round_from_double(narrow, value));
    if (reference::to_double(narrow, out.back()) != value) return std::nullopt;
  }
  return out;
}

// The result has values of a narrower dtype alone: so the ranks' values were rounded to that first,
// or were such already.
Found in_narrower(const AverageInputs& inputs, const std::vector<std::uint64_t>& result) {
  if (inputs.dtype != DType::kFloat32) return {};
  constexpr std::array<std::pair<DType, const char*>, 2> kNarrow = {
      {{DType::kBFloat16, "bfloat16"}, {DType::kFloat16, "float16"}}};
  for (const auto& [narrow, name] : kNarrow) {
    const auto narrow_result = narrowed(narrow, result);
    if (!narrow_result) continue;
    AverageInputs rounded = inputs;
    rounded.dtype = narrow;
    rounded.before.clear();
    bool are_narrow = true;
    for (std::vector<std::uint64_t>& rank : rounded.ranks) {
      are_narrow = are_narrow && narrowed(narrow, rank).has_value();
      for (std::uint64_t& each : rank)
        each = reference::round_from_double(narrow, reference::to_double(DType::kFloat32, each));
    }
    Found found = explain_bits(rounded, *narrow_result);
    if (found.empty() || found.front().matches < result.size()) continue;
    for (BitsExplanation& each : found)
      each.mistake =
          fmt::format("{} {}{}{}",
                      are_narrow ? "all values are of" : "each contribution is rounded to", name,
                      are_narrow ? ", saved as float32" : " first",
                      each.mistake.empty() ? "" : ", and ") +
          each.mistake;
    return found;
  }
  return {};
}

}  // namespace

Found explain_by_orders(const AverageInputs& inputs, const std::vector<std::uint64_t>& result) {
  if (result.size() < kEnoughForAllOrders) return {};
  const Average average(inputs, result);
  return by_orders(average, every_order(average, inputs.nccl_chunk_bytes), Rounding::kEachAddition,
                   Division::kBefore, "");
}

Found explain_by_arithmetic(const AverageInputs& inputs, const std::vector<std::uint64_t>& result) {
  if (result.size() < kEnoughForAllOrders) return {};
  const Average average(inputs, result);
  const auto orders = every_order(average, inputs.nccl_chunk_bytes);
  for (const Rounding rounding : roundings_of(average.dtype)) {
    for (const Division division : {Division::kBefore, Division::kAfter, Division::kAfterInWide}) {
      const bool is_plain = rounding == Rounding::kEachAddition;
      if (is_plain && division != Division::kAfter) continue;
      Found found = by_orders(average, orders, rounding, division, mistake_of(rounding, division));
      if (!found.empty()) return found;
    }
  }
  return in_narrower(inputs, result);
}

Found explain_by_flipped_bit(const AverageInputs& inputs,
                             const std::vector<std::uint64_t>& result) {
  const Average average(inputs, result);
  for (const NamedOrder& order :
       named_orders(average.world(), average.buffer_count, reference::size_of(average.dtype),
                    inputs.nccl_chunk_bytes)) {
    const std::size_t at =
        average.first_other(order.runs, Rounding::kEachAddition, Division::kBefore, 0);
    if (at == average.count()) continue;
    const std::uint64_t right = average.bits_of(at, average.run_of(order.runs, at),
                                                Rounding::kEachAddition, Division::kBefore);
    if (!std::has_single_bit(right ^ result[at])) continue;
    if (average.first_other(order.runs, Rounding::kEachAddition, Division::kBefore, at + 1) ==
        average.count()) {
      const bool is_zero = reference::to_double(average.dtype, right) == 0 &&
                           reference::to_double(average.dtype, result[at]) == 0;
      return {{order.name,
               is_zero ? std::string("a zero has the other sign")
                       : fmt::format("bit {} is flipped in one value",
                                     std::countr_zero(right ^ result[at])),
               average.count()}};
    }
  }
  return {};
}

}  // namespace lockstep::properties
