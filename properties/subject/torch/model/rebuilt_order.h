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

// PyTorch aligns no member of a bucket. A list of limits is one of the first pass, too.
reference::Contract layout_rules(const Policies& policies, const reference::Options& options);

// Buckets that reached their limit in the order in which they did; then those that did not, the
// dtype that came last first, as the hash table of the reducer has them.
// `order` is that of the parameters' gradients, and `buckets` those that were filled in that order.
void order_rebuilt(const reference::Options& options, const std::vector<std::uint32_t>& order,
                   std::vector<reference::ExpectedBucket>& buckets);

}  // namespace lockstep::properties::torch_model
