#include "properties/explain/average.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>

#include "reference/arithmetic.h"
#include "reference/order_families.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::OrderRun;

constexpr std::uint32_t kMostRanksOfAllOrders = 5;
constexpr std::size_t kMostNames = 2;

// "(0+2)+(1+3)", and where chunks differ also their ends.
std::string key_of(const std::vector<OrderRun>& runs, std::uint32_t ranks) {
  std::string key;
  for (const OrderRun& run : runs)
    key += fmt::format("{}:{};", run.end, reference::text_of(run, ranks));
  return key;
}

}  // namespace

Average::Average(const AverageInputs& inputs, const std::vector<std::uint64_t>& bits)
    : dtype(inputs.dtype == DType::kComplex64 ? DType::kFloat32 : inputs.dtype),
      offset(inputs.offset),
      buffer_count(std::max<std::uint64_t>(inputs.buffer_count, inputs.offset + bits.size())),
      divisor(inputs.divisor == 0 ? static_cast<std::uint32_t>(inputs.ranks.size())
                                  : inputs.divisor),
      result(bits) {
  const double factor = reference::scale_factor(dtype, divisor);
  for (const std::vector<std::uint64_t>& rank : inputs.ranks) {
    std::vector<double>& values = ranks.emplace_back();
    std::vector<double>& divided = scaled.emplace_back();
    for (const std::uint64_t each : rank) {
      values.push_back(reference::to_double(dtype, each));
      divided.push_back(reference::scaled(dtype, values.back(), factor));
    }
  }
}

std::uint64_t Average::bits_of(std::size_t element, const OrderRun& run, Rounding rounding,
                               Division division) const {
  const auto& summands = division == Division::kBefore ? scaled : ranks;
  std::vector<double> x;
  x.reserve(summands.size());
  for (const std::vector<double>& rank : summands) x.push_back(rank[element]);
  const double factor = reference::scale_factor(dtype, divisor);
  if (division == Division::kAfterInWide)
    return reference::round_from_double(
        dtype, wide_sum_of(run, dtype, rounding, x) / static_cast<double>(divisor));
  const std::uint64_t sum = sum_of(run, dtype, rounding, x);
  if (division == Division::kBefore) return sum;
  return reference::round_from_double(
      dtype, reference::scaled(dtype, reference::to_double(dtype, sum), factor));
}

const OrderRun& Average::run_of(const std::vector<OrderRun>& runs, std::size_t element) const {
  const auto run = std::find_if(runs.begin(), runs.end(),
                                [&](const OrderRun& each) { return each.end > offset + element; });
  assert(run != runs.end());
  return *run;
}

std::size_t Average::first_other(const std::vector<OrderRun>& runs, Rounding rounding,
                                 Division division, std::size_t begin) const {
  std::size_t e = begin;
  for (const OrderRun& run : runs)
    for (; e < count() && offset + e < run.end; ++e)
      if (!reference::same_bits(dtype, bits_of(e, run, rounding, division), result[e])) return e;
  return e;
}

double Average::epsilon() const {
  return std::ldexp(1.0, -reference::format_of(dtype).mantissa_bits);
}

std::vector<NamedOrder> every_order(const Average& average, std::uint64_t nccl_chunk_bytes) {
  const std::uint32_t ranks = average.world();
  const std::uint64_t count = average.buffer_count;
  std::vector<NamedOrder> all =
      named_orders(ranks, count, reference::size_of(average.dtype), nccl_chunk_bytes);
  if (ranks <= kMostRanksOfAllOrders) {
    for (OrderRun run : all_orders(ranks)) {
      run.end = count;
      all.push_back({"", {run}});
    }
  }
  std::vector<NamedOrder> out;
  std::map<std::string, std::pair<std::size_t, std::size_t>> known;  // where, and how many names
  for (NamedOrder& order : all) {
    const auto [at, is_new] = known.try_emplace(key_of(order.runs, ranks), out.size(), 0);
    auto& [index, names] = at->second;
    if (is_new) out.push_back({"", order.runs});
    if (order.name.empty() || ++names > kMostNames) continue;
    out[index].name += (out[index].name.empty() ? "" : " = ") + order.name;
  }
  for (NamedOrder& order : out) {
    const std::string name = order.name.empty() ? "" : fmt::format(" ({})", order.name);
    order.name =
        order.runs.size() == 1
            ? fmt::format("the order {}{}", reference::text_of(order.runs.front(), ranks), name)
            : (order.name.starts_with("ring") ? "a " : "") + order.name;
  }
  return out;
}

}  // namespace lockstep::properties
