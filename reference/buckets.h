// Buckets: which parameters are reduced together, and where they lie (B1, B2, B3). Pure; any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/contract.h"
#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::reference {

// In launch order. `program` is normalized. `order`: the parameters that are trained in the order
// in which they got ready (B2), or null: as at construction.
std::vector<ExpectedBucket> assign_buckets(const Program& program, const Contract& contract,
                                           const std::vector<std::uint32_t>* order = nullptr);

}  // namespace lockstep::reference
