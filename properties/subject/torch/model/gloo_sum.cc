#include "properties/subject/torch/model/gloo_sum.h"

#include "reference/arithmetic.h"

namespace lockstep::properties::torch_model {

using reference::DType;
using reference::round_from_double;
using reference::to_double;

void add_as_gloo(double* into, const double* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t own = round_from_double(DType::kFloat16, into[i]);
    const std::uint64_t sum = round_from_double(DType::kFloat16, into[i] + from[i]);
    if (sum != round_from_double(DType::kFloat16, static_cast<double>(own)))
      into[i] = to_double(DType::kFloat16, sum);
  }
}

}  // namespace lockstep::properties::torch_model
