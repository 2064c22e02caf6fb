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

// What the gradient of a parameter becomes: one tensor on all ranks, or, if a hook gives each rank
// a result of its own (S4), tensors[i] on the rank at position i of the group.
struct Reduced {
  std::uint32_t parameter = 0;  // the index in Program::parameters
  std::vector<Tensor> tensors;
  bool is_order_dependent = false;  // as Gradient::is_order_dependent of a contribution
};

// Returns for each parameter whether some rank used it (G6).
std::vector<bool> used_by_some(const Setting& setting, const Contributors& contributors);

// What each rank contributes to a sparse gradient: coalesced, of all its replicas, not scaled.
std::vector<Entries> sparse_contributions(const Setting& setting, const Contributors& contributors,
                                          std::uint32_t parameter);

// Returns what the gradients of the bucket's parameters become; parameters that stay untouched (G5)
// are left out. `divisor` is N (G2).
std::vector<Reduced> reduce_bucket(const Setting& setting, const ExpectedBucket& bucket,
                                   std::uint32_t divisor, const std::vector<bool>& is_reduced,
                                   const Contributors& contributors, PowerState& power);

}  // namespace lockstep::reference
