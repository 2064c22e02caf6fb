// PowerSGD: compresses matrices of gradients to a product of two thin ones, and feeds what that
// loses back into the next pass (Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019, algorithms 1
// and 2; contract S4, which has every operation in order).
//
// Compressed are float32 parameters of two dimensions and more, taken as a matrix of n rows (the
// outermost dimension in memory) and m columns, if rank * (n + m) < n * m: that many elements
// travel instead, in two sums, of which the second one comes after backward. Everything else is
// scaled and summed as without a hook. Memory: three copies of what is compressed, for the error
// and for what was sent, unscaled and scaled; allocated in the first pass of a parameter. Time:
// some 4 * rank multiplications an element.
//
// State (errors, and the factors that a pass starts from) belongs to parameters, not to buckets, so
// that it survives a rebuild. A reset forgets it, on all ranks alike, and a saved layout does not
// have it. Ranks need the same options (B4). Tensors must be in memory of the host.
#pragma once

#include <cstdint>
#include <memory>

#include "reducer/hooks/communication_hook.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct PowerSgdOptions {
  int rank = 1;            // from 1 on: more are closer, and cost more
  std::uint64_t seed = 0;  // of the factors that the first pass starts from
};

std::shared_ptr<CommunicationHook> make_power_sgd_hook(const PowerSgdOptions& options);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
