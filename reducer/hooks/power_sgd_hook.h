// PowerSGD compresses matrices of gradients to a product of two thin matrices, and adds what the
// compression loses to the next pass (Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019,
// algorithms 1 and 2; contract S4 lists every operation in order).
//
// The hook compresses float32 parameters of two or more dimensions. It takes each as a matrix of n
// rows (the outermost dimension in memory) and m columns, if rank * (n + m) < n * m, and sends rank
// * (n + m) elements instead, in two sums, of which the second one comes after backward. It scales
// and sums everything else as the reducer does without a hook.
// Memory: three copies of the compressed gradients, for the error and for what was sent, unscaled
// and scaled. They are allocated in the first pass of a parameter.
// Time: about 4 * rank multiplications per element.
//
// The state (the errors, and the factors that a pass starts from) belongs to parameters, not to
// buckets, so it survives a rebuild of the buckets. A reset discards it on all ranks alike, and a
// saved layout does not contain it. All ranks need the same options (B4). Tensors must be in host
// memory.
#pragma once

#include <cstdint>
#include <memory>

#include "reducer/hooks/communication_hook.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct PowerSgdOptions {
  // The rank of the approximation, from 1 on. A higher rank is more exact and costs more.
  int rank = 1;
  std::uint64_t seed = 0;  // The seed of the factors that the first pass starts from.
};

std::shared_ptr<CommunicationHook> make_power_sgd_hook(const PowerSgdOptions& options);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
