// Buckets: which parameters are reduced together, and where they lie (B1, B2, B3). Pure; any
// thread.
#pragma once

#include <vector>

#include "reference/contract.h"
#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::reference {

// In launch order. `program` is normalized; the memory of `buckets` is used again. `order`: the
// parameters that are trained in the order in which they got ready (B2), or null: as at
// construction, where a pinned layout has an order of its own.
void assign_buckets(const Program& program, const Contract& contract,
                    const std::vector<std::uint32_t>* order, std::vector<ExpectedBucket>& buckets);

}  // namespace lockstep::reference
