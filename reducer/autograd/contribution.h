// Contribution: a gradient that a node has sent and another one has not received yet, and how
// several of them become one. Internal to autograd/.
//
// Threads: any, one at a time for each sum. Failure: a Status, if memory is refused or if a sparse
// and a dense gradient meet.
#pragma once

#include <cstdint>

#include "reducer/base/status.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

constexpr std::uint32_t kEnd = ~std::uint32_t{0};  // The end of a list of contributions.

// One gradient on its way to a node that is not ready yet.
struct Contribution {
  Tensor gradient;
  std::uint64_t sender = 0;  // The sender's sequence number.
  std::uint32_t edge = 0;    // The index of the sender's edge.
  std::uint32_t slot = 0;
  std::uint32_t next = kEnd;
};

// The order in which contributions are added does not depend on when they came.
bool sent_before(const Contribution& a, const Contribution& b);

// Adds `term` to `sum`. `owned`: whether the memory of the sum is its own.
Status add_to(Tensor& sum, bool& owned, const Tensor& term);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
