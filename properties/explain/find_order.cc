#include "properties/explain/find_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <iterator>

#include "properties/explain/named_orders.h"
#include "reference/arithmetic.h"
#include "reference/order_families.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::OrderRun;

// With more parts, no order is one by chunks.
constexpr std::size_t kMostFoundParts = 256;

}  // namespace

bool FoundOrder::is_explained() const {
  if (!families.empty()) return true;
  return !parts.empty() && std::all_of(parts.begin(), parts.end(),
                                       [](const FoundPart& part) { return !part.orders.empty(); });
}

std::string FoundOrder::signature() const {
  const std::string rounded =
      rounding == Rounding::kEachAddition ? "" : fmt::format(" ({})", text_of(rounding));
  // The first name is enough: names that fit at one size and not at another are told apart later.
  if (!families.empty()) return families.front() + rounded;
  if (!is_explained()) return "no order of additions";
  std::string out;
  std::string last;
  for (const FoundPart& part : parts) {
    if (part.orders.front() == last) continue;
    last = part.orders.front();
    out += (out.empty() ? "" : "; ") + last;
  }
  return out + rounded;
}

OrderFinder::OrderFinder(DType dtype, std::uint32_t ranks)
    : dtype_(dtype), ranks_(ranks), tuples_(telling_tuples(dtype, ranks)) {
  assert(ranks >= 2 && ranks <= reference::kMaxWorld);
  if (ranks > kMostEliminatedRanks) return;
  orders_ = all_orders(ranks);
  for (const OrderRun& order : orders_) order_texts_.push_back(reference::text_of(order, ranks));
  for (const Rounding rounding : roundings_of(dtype)) {
    auto& of_rounding = by_sum_[rounding];
    for (const std::vector<double>& tuple : tuples_) {
      auto& by_bits = of_rounding.emplace_back();
      for (std::uint32_t i = 0; i < orders_.size(); ++i)
        by_bits[sum_of(orders_[i], dtype, rounding, tuple)].push_back(i);
    }
  }
}

std::vector<std::uint64_t> OrderFinder::values_of(std::uint32_t rank,
                                                  std::uint64_t elements) const {
  std::vector<std::uint64_t> bits;
  bits.reserve(elements);
  for (std::uint64_t e = 0; e < elements; ++e)
    bits.push_back(reference::round_from_double(dtype_, tuples_[tuple_of(e)][rank]));
  return bits;
}

std::vector<std::uint64_t> OrderFinder::sums_in(const std::vector<OrderRun>& runs,
                                                std::uint64_t elements, Rounding rounding) const {
  std::vector<std::uint64_t> sums;
  sums.reserve(elements);
  std::vector<std::uint64_t> of_tuple;
  for (const OrderRun& run : runs) {
    of_tuple.clear();
    for (const std::vector<double>& tuple : tuples_)
      of_tuple.push_back(sum_of(run, dtype_, rounding, tuple));
    while (sums.size() < run.end) sums.push_back(of_tuple[tuple_of(sums.size())]);
  }
  return sums;
}

bool OrderFinder::is_made_by(const std::vector<OrderRun>& runs, Rounding rounding,
                             const std::vector<std::uint64_t>& sums, std::uint64_t begin) const {
  std::uint64_t e = begin;
  std::vector<std::uint64_t> of_tuple;
  for (const OrderRun& run : runs) {
    if (run.end <= e) continue;
    of_tuple.clear();
    for (const std::vector<double>& tuple : tuples_)
      of_tuple.push_back(sum_of(run, dtype_, rounding, tuple));
    for (; e < run.end && e - begin < sums.size(); ++e)
      if (sums[e - begin] != of_tuple[tuple_of(e)]) return false;
  }
  return e - begin == sums.size();
}

// An element's orders are those that make its bits. A part goes on as long as one order makes the
// bits of all its elements.
std::vector<FoundPart> OrderFinder::eliminate(const std::vector<std::uint64_t>& sums,
                                              std::uint64_t begin, Rounding rounding) const {
  static const Orders kNone;
  const auto& by_bits = by_sum_.at(rounding);
  std::vector<std::pair<FoundPart, Orders>> parts;
  for (std::uint64_t i = 0; i < sums.size(); ++i) {
    const auto& of_tuple = by_bits[tuple_of(begin + i)];
    const auto known = of_tuple.find(sums[i]);
    const Orders& fitting = known == of_tuple.end() ? kNone : known->second;
    if (!parts.empty()) {
      auto& [part, orders] = parts.back();
      Orders both;
      std::set_intersection(orders.begin(), orders.end(), fitting.begin(), fitting.end(),
                            std::back_inserter(both));
      if (!both.empty() || (orders.empty() && fitting.empty())) {
        orders = std::move(both);
        part.end = begin + i + 1;
        continue;
      }
      if (parts.size() == kMostFoundParts) break;
    }
    parts.push_back({{begin + i, begin + i + 1, {}}, fitting});
  }
  std::vector<FoundPart> out;
  for (auto& [part, orders] : parts) {
    for (const std::uint32_t order : orders) part.orders.push_back(order_texts_[order]);
    out.push_back(std::move(part));
  }
  if (!out.empty() && out.back().end != begin + sums.size())
    out.push_back({out.back().end, begin + sums.size(), {}});
  return out;
}

// With the wrong rounding nearly every element can be explained by some order, in many short parts:
// the rounding with a family is the right one, or else that with the fewest parts.
FoundOrder OrderFinder::find(const std::vector<std::uint64_t>& sums, std::uint64_t begin,
                             std::uint64_t elements) const {
  const auto named = named_orders(ranks_, elements, reference::size_of(dtype_));
  std::vector<FoundOrder> all;
  for (const Rounding rounding : roundings_of(dtype_)) {
    FoundOrder& found = all.emplace_back();
    found.rounding = rounding;
    for (const NamedOrder& each : named)
      if (is_made_by(each.runs, rounding, sums, begin)) found.families.push_back(each.name);
    if (!orders_.empty()) found.parts = eliminate(sums, begin, rounding);
    if (!found.families.empty()) return found;
  }
  const auto cost = [](const FoundOrder& each) {
    return std::pair(!each.is_explained(), each.parts.size());
  };
  return *std::min_element(all.begin(), all.end(), [&](const FoundOrder& a, const FoundOrder& b) {
    return cost(a) < cost(b);
  });
}

std::uint64_t hash_of(const std::vector<std::uint64_t>& sums, std::uint64_t element_bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint64_t sum : sums)
    for (std::uint64_t byte = 0; byte < element_bytes; ++byte)
      hash = (hash ^ ((sum >> (8 * byte)) & 0xffU)) * 0x100000001b3;
  return hash;
}

}  // namespace lockstep::properties
