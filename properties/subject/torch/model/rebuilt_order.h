// rebuilt_order: in which order PyTorch's reducer has its buckets after a rebuild. A pure function;
// any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

// Buckets that reached their limit in the order in which they did; then those that did not, the
// dtype that came last first, as the hash table of the reducer has them.
// `order` is that of the parameters' gradients, and `buckets` those that were filled in that order.
void order_rebuilt(const reference::Options& options, const std::vector<std::uint32_t>& order,
                   std::vector<reference::ExpectedBucket>& buckets);

}  // namespace lockstep::properties::torch_model
