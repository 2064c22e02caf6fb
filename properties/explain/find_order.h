// OrderFinder finds the order in which a library added, from the sums that it made of telling
// values (telling_values.h): by elimination over all orders up to kMostEliminatedRanks ranks, and
// by the families that have names (named_orders.h).
//
// One finder serves all sums of one dtype and number of ranks. Not for several threads at once.
// Nothing fails: sums that no order explains are said to be so.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "properties/explain/telling_values.h"
#include "reference/order.h"

namespace lockstep::properties {

// Elements that were added in the same order. None fits if `orders` is empty.
struct FoundPart {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<std::string> orders;  // those that fit all of the elements
};

struct FoundOrder {
  Rounding rounding = Rounding::kEachAddition;
  std::vector<std::string> families;  // names that fit every element, simple ones first
  std::vector<FoundPart> parts;       // by elimination; empty beyond kMostEliminatedRanks
  bool is_explained() const;

  // What two sizes have in common if they are added by the same algorithm: the name of the family,
  // or, without one, the orders of the parts.
  std::string signature() const;
};

class OrderFinder {
 public:
  OrderFinder(reference::DType dtype, std::uint32_t ranks);

  // The contribution of a rank to the first `elements` elements, as bits.
  std::vector<std::uint64_t> values_of(std::uint32_t rank, std::uint64_t elements) const;

  // `sums` are the bits of the elements from `begin` on, of a buffer of so many elements.
  FoundOrder find(const std::vector<std::uint64_t>& sums, std::uint64_t begin,
                  std::uint64_t elements) const;

  // The sums in the order of these runs, of all elements.
  std::vector<std::uint64_t> sums_in(const std::vector<reference::OrderRun>& runs,
                                     std::uint64_t elements, Rounding rounding) const;

 private:
  using Orders = std::vector<std::uint32_t>;  // indices of orders_, ascending

  bool is_made_by(const std::vector<reference::OrderRun>& runs, Rounding rounding,
                  const std::vector<std::uint64_t>& sums, std::uint64_t begin) const;
  std::vector<FoundPart> eliminate(const std::vector<std::uint64_t>& sums, std::uint64_t begin,
                                   Rounding rounding) const;

  reference::DType dtype_;
  std::uint32_t ranks_;
  std::vector<std::vector<double>> tuples_;
  std::vector<reference::OrderRun> orders_;  // empty beyond kMostEliminatedRanks
  std::vector<std::string> order_texts_;
  // Of each rounding and tuple: which orders make these bits.
  std::map<Rounding, std::vector<std::map<std::uint64_t, Orders>>> by_sum_;
};

// FNV-1a over the values' bytes, by which recorded sums are compared.
std::uint64_t hash_of(const std::vector<std::uint64_t>& sums, std::uint64_t element_bytes);

}  // namespace lockstep::properties
