#include "properties/subject/declared_sums.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <set>
#include <utility>
#include <vector>

#include "properties/explain/named_orders.h"
#include "reference/arithmetic.h"
#include "reference/atlas.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::OrderRun;
using reference::Scaling;
using Plan = std::vector<OrderRun>;

constexpr std::array<std::pair<const char*, Scaling>, 5> kScales = {
    {{"multiply before", Scaling::kMultiplyBefore},
     {"multiply after", Scaling::kMultiplyAfter},
     {"divide before", Scaling::kDivideBefore},
     {"divide after", Scaling::kDivideAfter},
     {"sum", Scaling::kNone}}};

tl::unexpected<Status> not_known(std::string what) {
  return failed(Status(Code::kInvalidArgument, std::move(what)));
}

std::uint64_t number_bytes(DType dtype) {
  return reference::size_of(dtype) / reference::parts_of(dtype);
}

// Empty where the atlas has no order for this, or one that depends on the number of the call.
Plan plan_of_library(const std::string& library, const std::string& version, std::uint32_t ranks,
                     std::uint64_t elements, DType dtype) {
  const reference::AtlasRow* row = reference::find_order(
      {library, version, reference::Collective::kAllReduce, ranks, elements, dtype, 1});
  if (row == nullptr || row->order == nullptr) return {};
  if (row->last_call != reference::kEveryCall || row->types == reference::RowTypes::kBFloat16Wide)
    return {};
  return row->order(ranks, elements, number_bytes(dtype));
}

Plan plan_by_name(const std::string& name, std::uint32_t ranks, std::uint64_t elements,
                  DType dtype) {
  if (ranks == 1) return reference::rank_order(ranks, elements);
  for (NamedOrder& each : named_orders(ranks, elements, number_bytes(dtype)))
    if (each.name == name) return std::move(each.runs);
  return {};
}

// Names differ by ranks: a ring of three has fewer starts than one of eight.
bool is_name(const std::string& name) {
  constexpr std::uint64_t kElements = 7;
  for (const std::uint32_t ranks : {3U, 8U})
    for (const NamedOrder& each : named_orders(ranks, kElements, sizeof(float)))
      if (each.name == name) return true;
  return false;
}

bool is_in_atlas(const std::string& library, const std::string& version) {
  for (const reference::AtlasRow& row : reference::atlas())
    if (row.collective == reference::Collective::kAllReduce && library == row.library &&
        reference::compare_versions(row.first_version, version) <= 0 &&
        reference::compare_versions(version, row.last_version) <= 0)
      return true;
  return false;
}

std::string libraries() {
  std::set<std::string> all;
  for (const reference::AtlasRow& row : reference::atlas())
    if (row.collective == reference::Collective::kAllReduce)
      all.insert(fmt::format("{} {} to {}", row.library, row.first_version, row.last_version));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

Result<reference::DeclaredSums> declared_sums(const std::string& order, const std::string& scale) {
  reference::DeclaredSums sums;
  bool is_known = scale.empty();
  for (const auto& [name, scaling] : kScales) {
    if (scale != name) continue;
    sums.scaling = scaling;
    is_known = true;
  }
  if (!is_known)
    return not_known(
        fmt::format("it declares the scale '{}': give 'multiply before', 'multiply "
                    "after', 'divide before', 'divide after' or 'sum'",
                    scale));
  if (order.empty()) return sums;
  const std::size_t equals = order.find("==");
  if (equals == std::string::npos) {
    if (!is_name(order))
      return not_known(
          fmt::format("it declares the order '{}': give a library with its version, such as "
                      "openmpi==5.0.11, or a name as `lockstep orders` prints it, such as 'rank "
                      "order', 'doubling', 'chain', 'Gloo's ring'",
                      order));
    sums.order = [order](std::uint32_t ranks, std::uint64_t elements, DType dtype) {
      return plan_by_name(order, ranks, elements, dtype);
    };
    return sums;
  }
  const std::string library = order.substr(0, equals);
  const std::string version = order.substr(equals + 2);
  if (!is_in_atlas(library, version))
    return not_known(
        fmt::format("it declares the order '{}', and known are those of {}", order, libraries()));
  sums.order = [library, version](std::uint32_t ranks, std::uint64_t elements, DType dtype) {
    return ranks == 1 ? reference::rank_order(1, elements)
                      : plan_of_library(library, version, ranks, elements, dtype);
  };
  return sums;
}

}  // namespace lockstep::properties
