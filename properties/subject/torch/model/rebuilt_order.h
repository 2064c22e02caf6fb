// rebuilt_order: what PyTorch's buckets hold, and in which order they are after a rebuild. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/subject/torch/model/policies.h"
#include "reference/contract.h"
#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

// PyTorch aligns no member of a bucket.
reference::Contract layout_rules();

// The buckets before they are rebuilt. Without unused detection there is one for each dtype then,
// unless there is a list of limits.
std::vector<reference::ExpectedBucket> first_buckets(const reference::Program& program,
                                                     const Policies& policies);

// Buckets that reached their limit in the order in which they did; then those that did not, the
// dtype that came last first, as the hash table of the reducer has them.
// `order` is that of the parameters' gradients, and `buckets` those that were filled in that order.
void order_rebuilt(const reference::Replicated& options, const std::vector<std::uint32_t>& order,
                   std::vector<reference::ExpectedBucket>& buckets);

}  // namespace lockstep::properties::torch_model
