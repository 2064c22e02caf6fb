// Reduce: from the gradients of every rank to the bits that all of them receive (G1, G2, G3). Pure
// functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/expectation.h"
#include "reference/model/gradient.h"
#include "reference/model/power_sgd.h"

namespace lockstep::reference {

// The gradients of each rank, by position in the group; null for a rank that shadows the pass.
using Contributors = std::vector<const Gradients*>;

// What the gradient of a parameter becomes on all ranks; or, if a hook gives each rank something
// else (S4), on each of them, by position in the group.
struct Reduced {
  std::uint32_t parameter = 0;
  Tensor tensor;
  bool is_order_dependent = false;
  std::vector<Tensor> of_ranks = {};
};

// By parameter: whether some rank used it (G6).
std::vector<bool> used_by_some(const Setting& setting, const Contributors& contributors);

// The sum of the contributions of all ranks to what begins at `offset` of a buffer of `count`
// numbers (G3).
Elements sum_in_order(const Setting& setting, DType wire, std::uint64_t count, std::uint64_t offset,
                      std::vector<Elements> contributions);

// Those of the bucket's parameters that are reduced; `divisor` is N of clause G2.
std::vector<Reduced> reduce_bucket(const Setting& setting, const ExpectedBucket& bucket,
                                   std::uint32_t divisor, const std::vector<bool>& is_reduced,
                                   const Contributors& contributors, PowerState& power);

}  // namespace lockstep::reference
